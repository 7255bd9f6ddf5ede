"""Uninitialised-value tracking: which bytes of registers are undefined, and where undefined values come from."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from kernbench.common.dtypes import Array
from kernbench.ptx.emulator.lanes.lanes import WARP, Mask
from kernbench.ptx.emulator.lanes.window import Window
from kernbench.ptx.emulator.program.program import Site

# a register's bank and row
Key = tuple[str, int]
# beside one bit for each undefined byte of a register: the value is no plain copy of memory
COMPUTED = np.uint32(1 << 31)
# words of memory whose origins are kept together
_PAGE = 1 << 12


class UndefinedLoadError(Exception):
    """A load met undefined memory: the rest of the block is to be run with the steps that follow such values."""

    def __init__(self, site: int):
        super().__init__("a load met undefined memory")
        self.site = site


@dataclass(frozen=True, slots=True)
class Origin:
    """Where an undefined value comes from.

    `kind` is the space of a load ("local", "shared", "global", "tensor"), "division", or "register" for a store of a
    register that was never set. `what` names the memory or the register, `way` the stores that it went through since.
    """

    site: Site
    kind: str
    what: str = ""
    way: tuple[Site, ...] = ()


class Flags:
    """For each register that ever held an undefined value, a row of bits a lane; others have no row.

    Of each row it is known in which warps a bit may be set: warps of other roles than those that use a register never
    set it, and nobody asks them.
    """

    def __init__(self, lanes: int):
        self._lanes = lanes
        self._rows: dict[Key, Array] = {}
        # for each row a bit a warp
        self._warps: dict[Key, int] = {}
        self._everywhere = (1 << -(-lanes // WARP)) - 1

    def begin(self, registers: Sequence[tuple[Key, int]]) -> None:
        """Registers are undefined in all lanes, each with its bits."""
        # one array for all: there may be a thousand
        rows = np.empty((len(registers), self._lanes), np.uint32)
        rows[...] = np.array([bits for _, bits in registers], np.uint32)[:, None] | COMPUTED
        self._rows.update(zip((key for key, _ in registers), rows, strict=True))
        self._warps.update(dict.fromkeys((key for key, _ in registers), self._everywhere))

    def known(self, window: Window, keys: tuple[Key, ...]) -> bool:
        """Whether any of some registers may be undefined in a warp of a window."""
        if not self._warps:
            return False
        here, warps = window.warp_bits, self._warps
        # a loop, as every run of steps asks
        for key in keys:  # noqa: SIM110
            if warps.get(key, 0) & here:
                return True
        return False

    def get(self, window: Window, key: Key) -> Array | None:
        """A register's bits at the positions of a window, None where it is defined everywhere."""
        if not self._warps.get(key, 0) & window.warp_bits:
            return None
        return self._rows[key][window.index]

    def put(self, window: Window, key: Key, bits: Array | None, mask: Mask | None) -> None:
        """Set a register's bits at the active positions; None makes it defined."""
        row = self._rows.get(key)
        if row is None:
            if bits is None or not (bits if mask is None else bits[mask]).any():
                return
            row = self._row(key)
        if mask is None:
            row[window.index] = 0 if bits is None else bits
            undefined = bits is not None and bits.any()
        else:
            row[window.lane_numbers[mask]] = 0 if bits is None else bits[mask]
            undefined = row[window.index].any()
        warps = self._warps[key]
        self._warps[key] = warps | window.warp_bits if undefined else warps & ~window.warp_bits

    def define(self, window: Window, keys: tuple[Key, ...], mask: Mask | None) -> None:
        """Some registers are defined at the active positions from now on."""
        if self.known(window, keys):
            for key in keys:
                self.put(window, key, None, mask)

    def _row(self, key: Key) -> Array:
        """The row of a register that was defined so far."""
        self._warps[key] = 0
        row = self._rows[key] = np.zeros(self._lanes, np.uint32)
        return row

    def keep(self, rows: dict[str, list[int]], lanes: Array, kept: dict[Key, Array]) -> None:
        """Save the bits of some registers, by bank and row, at some lanes."""
        for key in _keys(rows):
            if key in self._rows:
                kept.setdefault(key, np.zeros(self._lanes, np.uint32))[lanes] = self._rows[key][lanes]
            elif key in kept:
                kept[key][lanes] = 0

    def restore(self, rows: dict[str, list[int]], lanes: Array, kept: dict[Key, Array]) -> None:
        """Set the bits that `keep` has saved; registers that had none then are defined."""
        for key in _keys(rows):
            if key in self._rows:
                self._rows[key][lanes] = kept[key][lanes] if key in kept else 0
                if key in kept:
                    self._warps[key] = self._everywhere


def _keys(rows: dict[str, list[int]]) -> list[Key]:
    return [(bank, row) for bank, numbers in rows.items() for row in numbers]


class _StoredOrigins:
    """For each word of a space, the origin of the undefined value that was last stored there."""

    def __init__(self) -> None:
        # by the number of a page of words
        self._pages: dict[int, Array] = {}
        self._origins: list[Origin] = []

    def put(self, offsets: Array, origin: Origin) -> None:
        if origin not in self._origins:
            self._origins.append(origin)
        number, words = self._origins.index(origin) + 1, np.unique(offsets // 4)
        pages, firsts = np.unique(words // _PAGE, return_index=True)
        for page, inside in zip(pages.tolist(), np.split(words % _PAGE, firsts[1:]), strict=True):
            if page not in self._pages:
                self._pages[page] = np.zeros(_PAGE, np.int32)
            self._pages[page][inside] = number

    def at(self, offset: int) -> Origin | None:
        page = self._pages.get(offset // 4 // _PAGE)
        number = 0 if page is None else int(page[offset // 4 % _PAGE])
        return self._origins[number - 1] if number else None


class Definedness:
    """What one batch knows of undefined values."""

    def __init__(self, lanes: int) -> None:
        self.flags = Flags(lanes)
        # set when blocks run the steps that follow undefined values
        self.following = False
        # set by a load that read memory nobody wrote, until the step behind it has looked
        self.met = False
        # the bytes of such a load that are undefined, [positions, bytes], and where they come from
        self._loaded: tuple[Array, Origin] | None = None
        # the warps that read such tensor memory
        self._empty: list[int] = []
        # lanes that divided by zero
        self._divided: list[int] = []
        # where the undefined value of a register comes from; none for a register that was never set
        self.origins: dict[Key, Origin] = {}
        self._stored: dict[str, _StoredOrigins] = {}
        # the first site at which the values of an origin were reported, by the origin's site
        self._reported: dict[int, int] = {}

    def meet_unwritten(self, undefined: Array, origin: Origin) -> None:
        """A load has read bytes that nobody wrote; several spaces of one generic load are joined."""
        self.met = True
        if self._loaded is not None:
            undefined, origin = undefined | self._loaded[0], self._loaded[1]
        self._loaded = undefined, origin

    def take_loaded(self) -> tuple[Array, Origin] | None:
        """What the last load met."""
        found, self._loaded, self.met = self._loaded, None, False
        return found

    def meet_empty(self, warps: list[int]) -> None:
        """Warps have loaded tensor memory that nobody wrote."""
        self.met = True
        self._empty += warps

    def take_empty(self) -> list[int]:
        """The warps whose load met such memory, until now."""
        found, self._empty, self.met = self._empty, [], False
        return found

    def meet_zero(self, lanes: list[int]) -> None:
        """Lanes are about to divide by zero."""
        self.met = True
        self._divided += lanes

    def take_divided(self) -> list[int]:
        """The lanes whose division had a divisor of zero, until now."""
        found, self._divided, self.met = self._divided, [], False
        return found

    def follow(self, site: Site) -> None:
        """Leave the plain steps of a block if an instruction has met an undefined value."""
        if self.met and not self.following:
            raise UndefinedLoadError(site.number)

    def first_use(self, origin: Origin, site: Site) -> bool:
        """Whether an origin's values are reported at this use: each origin is, at one use."""
        return self._reported.setdefault(origin.site.number, site.number) == site.number

    def pass_on(self, window: Window, sources: tuple[Key, ...], targets: tuple[Key, ...]) -> None:
        """Undefined values were computed from others."""
        origin = next((self.origins[s] for s in sources if s in self.origins and self._is_undefined(window, s)), None)
        for target in targets:
            if origin is None:
                self.origins.pop(target, None)
            else:
                self.origins[target] = origin

    def _is_undefined(self, window: Window, key: Key) -> bool:
        bits = self.flags.get(window, key)
        return bits is not None and bool(bits.any())

    def stored(self, space: str, offsets: Array, origin: Origin) -> None:
        """An undefined value was stored at some offsets of a space."""
        self._stored.setdefault(space, _StoredOrigins()).put(offsets, origin)

    def stored_at(self, space: str, offset: int) -> Origin | None:
        """The origin of the undefined value that was stored at an offset; None where nobody wrote."""
        found = self._stored.get(space)
        return None if found is None else found.at(offset)
