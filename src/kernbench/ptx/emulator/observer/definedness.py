"""Undefined-value tracking: which values are undefined, and their origins."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

import numpy as np

from kernbench.common.dtypes import Array
from kernbench.ptx.emulator.lanes.flags import Flags, Key
from kernbench.ptx.emulator.lanes.lanes import Mask
from kernbench.ptx.emulator.lanes.window import Window
from kernbench.ptx.emulator.program.program import Site
from kernbench.ptx.emulator.program.scopes import Register

# kind of origin: threads have stored different values in one instruction
CONTESTED = "contested"
# kinds of origin that are tracked through shuffles and products
FOLLOWED = frozenset(("shared", "global", "register"))
# maximal other origins of a product
_MOST_BESIDE = 4
_SEVERAL = 2
# words per page of origins
_PAGE = 1 << 12


class UndefinedLoadError(Exception):
    """A load returned undefined bits, or a value that was never set goes to other lanes.

    The rest of the block must run with tracking.
    """

    def __init__(self, site: int):
        super().__init__("a load met undefined memory")
        self.site = site


@dataclass(frozen=True, slots=True)
class Origin:
    """The origin of an undefined value.

    `kind` is the space of a load ("local", "shared", "global", "tensor"), "division", "register" for a store of a
    register that was never set, or `CONTESTED` for a store by which threads stored different values. `what` names the
    memory or the register, `way` the stores that it went through since; `shuffles` are those
    that passed it to other lanes. A product of several such values has them `beside` the first.
    """

    site: Site
    kind: str
    what: str = ""
    way: tuple[Site, ...] = ()
    shuffles: tuple[Site, ...] = ()
    beside: tuple[Site, ...] = ()


def product_of(origins: Iterable[Origin | None]) -> Origin | None:
    """The origin of a product of undefined values, any of which may make an element of it undefined."""
    found = list({one.site.number: one for one in origins if one is not None}.values())
    if len(found) < _SEVERAL:
        return found[0] if found else None
    return replace(found[0], beside=tuple(one.site for one in found[1 : 1 + _MOST_BESIDE]))


def is_followed(origin: Origin | None) -> bool:
    """Whether an undefined value is tracked through shuffles and products; registers that were never set are not."""
    return origin is not None and origin.kind in FOLLOWED


@dataclass(frozen=True, slots=True, eq=False)
class LostLines:
    """Lines of a product that are undefined in some warps: rows of D (of its operand "A"), or columns ("B").

    `lines` is [warps, lines].
    """

    warps: Array
    operand: str
    lines: Array
    origin: Origin


class _StoredOrigins:
    """For each word of a space, the origin of the last undefined value stored there."""

    def __init__(self) -> None:
        # by page number
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

    def move(self, source: int, target: int, nbytes: int) -> None:
        """Bytes were copied: those that have an origin take it along."""
        for first in range(0, nbytes, 4):
            origin = self.at(source + first)
            if origin is not None:
                self.put(np.array([target + first]), origin)

    def at(self, offset: int) -> Origin | None:
        page = self._pages.get(offset // 4 // _PAGE)
        number = 0 if page is None else int(page[offset // 4 % _PAGE])
        return self._origins[number - 1] if number else None


class Definedness:
    """The undefined values of one batch."""

    def __init__(self, lanes: int) -> None:
        self.flags = Flags(lanes)
        self._lanes = lanes
        # by the site of an addition in a scan: lanes to whose own value an undefined one may have been added
        self._remainders: dict[int, Mask] = {}
        # set when blocks run with tracking
        self.following = False
        # set when threads have stored different values to one word
        self.contested = False
        # set by a load of unwritten memory, until the tracking step after it has run
        self.met = False
        # the undefined bytes of such a load, [positions, bytes], and their origin
        self._loaded: tuple[Array, Origin] | None = None
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
        self._stored: dict[str, _StoredOrigins] = {}
        # by an origin's site: the first site at which its values were reported
        self._reported: dict[int, int] = {}

    def meet_unwritten(self, undefined: Array, origin: Origin) -> None:
        """A load has read unwritten bytes; parts of a generic load in several spaces are combined."""
        self.met = True
        if self._loaded is not None:
            undefined, origin = undefined | self._loaded[0], self._loaded[1]
        self._loaded = undefined, origin

    def take_loaded(self) -> tuple[Array, Origin] | None:
        """Take the undefined bytes of the last load."""
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
            undefined[:, first : first + found[0].shape[1]] = found[0]
            if origin is None or found[1].kind == CONTESTED:
                origin = found[1]

        self._gathering = True
        try:
            yield loaded
        finally:
            self._gathering = False
        if undefined is not None and origin is not None:
            self.meet_unwritten(undefined, origin)
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
        origin = next((one for one in found if one.shuffles), found[0] if found else None)
        origin = product_of([origin, *found]) if multiplied else origin
        for target in targets:
            if origin is None:
                self.origins.pop(target, None)
            else:
                self.origins[target] = origin

    def _is_undefined(self, window: Window, key: Key) -> bool:
        bits = self.flags.get(window, key)
        return bits is not None and bool(bits.any())

    def remainder(self, window: Window, site: int) -> Mask:
        """The lanes of which a sum, as it was at a site, is undefined even without their own value."""
        return self._remainder(site)[window.index]

    def put_remainder(self, window: Window, site: int, lost: Mask, mask: Mask | None) -> None:
        """Set those lanes."""
        lanes, values = window.lane_numbers, np.broadcast_to(lost, window.size)
        row = self._remainder(site)
        row[lanes if mask is None else lanes[mask]] = values if mask is None else values[mask]

    def _remainder(self, site: int) -> Mask:
        # nothing is known of lanes that added before their blocks ran with tracking
        return self._remainders.setdefault(site, np.ones(self._lanes, bool))

    def stored(self, space: str, offsets: Array, origin: Origin) -> None:
        """An undefined value was stored at some offsets of a space."""
        self._stored.setdefault(space, _StoredOrigins()).put(offsets, origin)

    def passed(self, sources: Array, targets: Array, nbytes: int) -> None:
        """Values with undefined bytes were passed through local memory, to or from a function."""
        stored = self._stored.get("local")
        if stored is not None:
            for source, target in zip(sources.tolist(), targets.tolist(), strict=True):
                stored.move(source, target, nbytes)

    def stored_at(self, space: str, offset: int) -> Origin | None:
        """The origin of the undefined value stored at an offset; None if there is none."""
        found = self._stored.get(space)
        return None if found is None else found.at(offset)
