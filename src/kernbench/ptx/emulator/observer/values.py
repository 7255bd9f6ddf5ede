"""Events of values in flight: copies that are not awaited, and undefined bytes."""

from collections.abc import Callable

from kernbench.common.dtypes import Array
from kernbench.ptx.emulator.lanes.flags import Key
from kernbench.ptx.emulator.lanes.lanes import Mask
from kernbench.ptx.emulator.lanes.window import Window
from kernbench.ptx.emulator.memory.port import Space, Spot
from kernbench.ptx.emulator.observer.origins import Origin
from kernbench.ptx.emulator.program.operands import Decoding
from kernbench.ptx.emulator.program.program import Site
from kernbench.ptx.emulator.program.scopes import Register

# applies an exchange of values between lanes to one number for each position
Moved = Callable[[Array], Array]


class CopiesObserver:
    """Asynchronous copies to words of shared memory, between their beginning and the wait for them."""

    def begin(self, targets: Array, words: int, site: Site) -> None:
        """Copies begin that may fill `words` words from each target on."""

    def end(self, targets: Array, words: int) -> None:
        """A thread has waited for them."""


class UndefinedObserver:
    """Values from unwritten memory, or from registers that were never set."""

    def loaded(self, space: Space, site: Site, spot: Spot) -> None:
        """A load returned unwritten bytes."""

    def stored(
        self,
        window: Window,
        decoding: Decoding,
        register: Register,
        space: Space,
        offsets: Array,
        bits: Array,
        index: int,
    ) -> None:
        """A store wrote undefined bytes of a register."""

    def copied(self, offsets: Array, origin: Origin, site: Site, space: str = "shared") -> None:
        """A copy wrote undefined bytes to shared memory, or a function to its results in local memory."""

    def used(self, window: Window, site: Site, register: str, role: str, bad: Mask, key: Key) -> None:
        """An undefined value has an effect."""

    def handed_on(self, window: Window, site: Site, bad: Mask, key: Key, followed: bool) -> None:
        """An undefined value is passed to other lanes; if `followed`, it is tracked there."""

    def exchanged(
        self, window: Window, site: Site, given: tuple[Key, Key, str], moved: Moved, mask: Mask | None
    ) -> None:
        """Lanes exchange values of a register: `given` has it, that of the result, and its name."""

    def explains(self, space: str, offset: int, site: Site, lane: int) -> bool:
        """Whether an undefined value was stored at an offset of a space; if so it is reported as such."""
        return False
