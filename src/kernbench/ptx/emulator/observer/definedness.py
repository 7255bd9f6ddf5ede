"""Undefined-value tracking: which values are undefined, and their origins."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np

from kernbench.common.dtypes import Array
from kernbench.ptx.emulator.lanes.arrays import UInt64s
from kernbench.ptx.emulator.lanes.flags import Flags, Key
from kernbench.ptx.emulator.lanes.lanes import Mask
from kernbench.ptx.emulator.lanes.window import Window
from kernbench.ptx.emulator.observer.origins import CONTESTED, Origin, is_followed, product_of
from kernbench.ptx.emulator.observer.stored import Stored
from kernbench.ptx.emulator.program.program import Site
from kernbench.ptx.emulator.program.scopes import Register

# spaces that nobody but a batch writes: the forms of undefined values that are stored there are kept
_OWN_SPACES = ("local", "shared")


class UndefinedLoadError(Exception):
    """A load returned undefined bits, or a value that was never set goes to other lanes.

    The rest of the block must run with tracking.
    """

    def __init__(self, site: int):
        super().__init__("a load met undefined memory")
        self.site = site


@dataclass(frozen=True, slots=True, eq=False)
class LostLines:
    """Lines of a product that are undefined in some warps: rows of D (of its operand "A"), or columns ("B").

    `lines` is [warps, lines].
    """

    warps: Array
    operand: str
    lines: Array
    origin: Origin


@dataclass(frozen=True, slots=True)
class Unwritten:
    """The undefined bytes that a load has read, [positions, bytes], their origin, and the forms of words.

    These are [positions, words], 0 where nothing is known of a word; None where nothing is of any.
    """

    undefined: Array
    origin: Origin
    forms: UInt64s | None = None

    def beside(self, other: "Unwritten") -> "Unwritten":
        """This and what the same load has read at other positions, in another space."""
        forms = self.forms if other.forms is None else other.forms
        if self.forms is not None and other.forms is not None:
            forms = self.forms | other.forms
        return Unwritten(self.undefined | other.undefined, self.origin, forms)


class Definedness:
    """The undefined values of one batch."""

    def __init__(self, lanes: int) -> None:
        self.flags = Flags(lanes)
        # set when blocks run with tracking
        self.following = False
        # set when threads have stored different values to one word
        self.contested = False
        # set by a load of unwritten memory, until the tracking step after it has run
        self.met = False
        # what such a load has read
        self._loaded: Unwritten | None = None
        # whether loads are parts of one instruction
        self._gathering = False
        # lines of products of tiles with unwritten bytes
        self._lost: list[LostLines] = []
        # the warps that read unwritten tensor memory
        self._empty: list[int] = []
        # lanes that divided by zero
        self._divided: list[int] = []
        # the origin of a register's undefined value; none for a register that was never set
        self.origins: dict[Key, Origin] = {}
        self._stored: dict[str, Stored] = {}
        # by an origin's site: the first site at which its values were reported
        self._reported: dict[int, int] = {}

    def meet_unwritten(self, found: Unwritten) -> None:
        """A load has read unwritten bytes; parts of a generic load in several spaces are combined."""
        self.met = True
        self._loaded = found if self._loaded is None else self._loaded.beside(found)

    def take_loaded(self) -> Unwritten | None:
        """Take what the last load has read that is undefined."""
        found, self._loaded, self.met = self._loaded, None, False
        return found

    @contextmanager
    def gathered(self, site: Site, nbytes: int, size: int) -> Iterator[Callable[[int], None]]:
        """Loads of one instruction inside the block count as one, of `nbytes` bytes at each of `size` positions.

        The function, called after each, says at which byte its result goes into that of the instruction.
        """
        undefined: Array | None = None
        origin: Origin | None = None

        def loaded(first: int) -> None:
            nonlocal undefined, origin
            found = self.take_loaded()
            if found is None:
                return
            if undefined is None:
                undefined = np.zeros((size, nbytes), bool)
            undefined[:, first : first + found.undefined.shape[1]] = found.undefined
            if origin is None or found.origin.kind == CONTESTED:
                origin = found.origin

        self._gathering = True
        try:
            yield loaded
        finally:
            self._gathering = False
        if undefined is not None and origin is not None:
            self.meet_unwritten(Unwritten(undefined, origin))
            self.follow(site)

    def meet_lines(self, lost: LostLines) -> None:
        """A product has read a tile with unwritten bytes."""
        self.met = True
        self._lost.append(lost)

    def take_lines(self) -> list[LostLines]:
        """Take the lines that the last product lost."""
        found, self._lost, self.met = self._lost, [], False
        return found

    def meet_empty(self, warps: list[int]) -> None:
        """Warps have loaded unwritten tensor memory."""
        self.met = True
        self._empty += warps

    def take_empty(self) -> list[int]:
        """Take the warps that have loaded unwritten tensor memory."""
        found, self._empty, self.met = self._empty, [], False
        return found

    def meet_zero(self, lanes: list[int]) -> None:
        """Lanes are about to divide by zero."""
        self.met = True
        self._divided += lanes

    def take_divided(self) -> list[int]:
        """Take the lanes that have divided by zero."""
        found, self._divided, self.met = self._divided, [], False
        return found

    def follow(self, site: Site) -> None:
        """Switch a block to tracking, if an instruction has produced an undefined value."""
        if self.met and not self.following and not self._gathering:
            raise UndefinedLoadError(site.number)

    def begin(self, site: Site) -> None:
        """Switch a block to tracking before an instruction, for what was undefined before."""
        if not self.following:
            raise UndefinedLoadError(site.number)

    def first_use(self, origin: Origin, site: Site) -> bool:
        """Whether an origin is reported at this use; each origin is reported at one use only."""
        return self._reported.setdefault(origin.site.number, site.number) == site.number

    def origin_of(self, register: Register, key: Key, site: Site) -> Origin:
        """The origin of a register's undefined value; a store of it, if it was never set."""
        return self.origins.get(key) or Origin(site, "register", register.name)

    def pass_on(
        self, window: Window, sources: tuple[Key, ...], targets: tuple[Key, ...], multiplied: bool = False
    ) -> None:
        """Undefined values were computed from others, or `multiplied`."""
        found = [self.origins[s] for s in sources if s in self.origins and self._is_undefined(window, s)]
        # of several origins prefer one that came from other lanes: the user need not have read the memory
        origin = max(found, key=lambda one: (bool(one.shuffles), is_followed(one)), default=None)
        origin = product_of([origin, *found]) if multiplied else origin
        for target in targets:
            if origin is None:
                self.origins.pop(target, None)
            else:
                self.origins[target] = origin

    def _is_undefined(self, window: Window, key: Key) -> bool:
        bits = self.flags.get(window, key)
        return bits is not None and bool(bits.any())

    def stored(self, space: str, offsets: Array, origin: Origin) -> None:
        """Undefined bytes were stored at some offsets of a space."""
        if space not in self._stored:
            self._stored[space] = self._new_space(space)
        self._stored[space].put(offsets, origin)

    def stored_forms(self, space: str, offsets: Array, forms: UInt64s) -> None:
        """Whole words of what was stored, with their forms."""
        self._stored[space].put_forms(offsets, forms)

    def forms_at(self, space: str, offsets: Array, undefined: Mask) -> UInt64s | None:
        """The forms of the words at offsets, [offsets, words], of which some bytes, [offsets, bytes], are undefined.

        0 where nothing is known of a word, None where nothing is of any.
        """
        if space not in self._stored:
            self._stored[space] = self._new_space(space)
        return self._stored[space].forms(offsets, undefined)

    def _new_space(self, space: str) -> Stored:
        return Stored(self.flags.forms if space in _OWN_SPACES else None)

    def passed(self, sources: Array, targets: Array, nbytes: int) -> None:
        """Values with undefined bytes were passed through local memory, to or from a function."""
        if "local" in self._stored:
            self._stored["local"].move(sources, targets, nbytes)

    def emptied(self, firsts: Array, nbytes: int) -> None:
        """Ranges of local memory are new: nobody has written them."""
        if "local" in self._stored:
            self._stored["local"].forget(firsts, nbytes)

    def stored_at(self, space: str, offset: int) -> Origin | None:
        """The origin of the undefined value stored at an offset; None if there is none."""
        found = self._stored.get(space)
        return None if found is None else found.origin(offset)
