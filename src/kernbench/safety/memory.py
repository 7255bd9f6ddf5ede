"""Memory with bounds, poison and shadow state: named regions in one address space, each in a window of its own.

A window is far larger than any region, so an out-of-bounds address still shows which region was meant. Regions that
hold data from the start are lent out without copying; the first store copies them (copy-on-write).
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernbench.common.dtypes import DTYPES, ITEMSIZE, Array, cast, poisoned

WINDOW_BITS = 40
WINDOW = 1 << WINDOW_BITS
# windows below this one belong to the host, the others to the program
FIRST_WORKSPACE = 1 << 20
Marks = NDArray[np.bool_] | None


@dataclass(frozen=True)
class Problem:
    """Why an access is not allowed; becomes a finding. `subject` is the region's name."""

    kind: str
    message: str
    hint: str
    subject: str = ""


@dataclass
class Region:
    """`shape` elements of `dtype` from address `base`. `array` is flat; None in a run without data.

    - `written` marks the initialised elements, None once all are.
    - `fresh` marks those written since `begin`, if requested; `loaded` and `stored` say whether anything was read or
      written since then.
    - `unknown` marks integers that a run without data stored but did not compute, None if there are none.
    - `shared` says that the array belongs to the caller and is copied at the first store.
    """

    name: str
    base: int
    shape: tuple[int, ...]
    dtype: str
    array: Array | None
    written: Marks
    shared: bool = False
    fresh: Marks = None
    loaded: bool = False
    stored: bool = False
    unknown: Marks = None
    end: int = field(init=False)

    def __post_init__(self) -> None:
        self.end = self.base + prod(self.shape) * ITEMSIZE[self.dtype]

    def begin(self, follow: bool) -> None:
        """Reset what was read and written so far; with `follow`, track written elements from now on."""
        self.fresh = np.zeros(prod(self.shape), np.bool_) if follow and self.array is not None else None
        self.loaded = self.stored = False

    @property
    def span(self) -> str:
        """The valid byte range, as messages show it."""
        return f"[{self.base:#x}, {self.end:#x})"

    def describe(self) -> str:
        """Name, shape and type."""
        return f"'{self.name}' ({'x'.join(map(str, self.shape)) or 'scalar'} {self.dtype})"


class Kept:
    """Snapshots of the host's regions before the first store into each, so that a launch can be run again."""

    def __init__(self) -> None:
        self._kept: dict[int, tuple[Region, Array | None, Marks, bool, Marks]] = {}

    def keep(self, region: Region) -> None:
        """Take a snapshot before a store."""
        if id(region) not in self._kept and region.base >> WINDOW_BITS < FIRST_WORKSPACE:
            array, written, unknown = region.array, region.written, region.unknown
            if not region.shared:
                # a shared array is never written
                array = None if array is None else array.copy()
                written = None if written is None else written.copy()
                unknown = None if unknown is None else unknown.copy()
            self._kept[id(region)] = (region, array, written, region.shared, unknown)

    def restore(self) -> None:
        """Restore all snapshots."""
        for region, array, written, shared, unknown in self._kept.values():
            region.array, region.written, region.shared, region.unknown = array, written, shared, unknown


class AddressSpace:
    """The regions one program can access, and the rules of access.

    `load` and `store` return what is wrong with the access, None if nothing; the caller turns that into a finding. A
    bad read gives poison, a bad write is dropped.
    """

    def __init__(
        self,
        carries_data: bool = True,
        find: Callable[[int], Region | None] = lambda window: None,
        kept: Kept | None = None,
    ):
        """`find` gives the region of a window at its first access, None if there is none.

        `kept` takes snapshots before stores.
        """
        self._kept = kept
        self._regions: dict[int, Region | None] = {}
        self._carries_data = carries_data
        self._find = find
        self._next_window = FIRST_WORKSPACE

    def add(self, region: Region) -> None:
        """Make `region` reachable at its base, which must be the start of a window."""
        assert region.base % WINDOW == 0
        self._regions[region.base >> WINDOW_BITS] = region

    def allocate(self, name: str, shape: tuple[int, ...], dtype: str) -> Region:
        """A fresh, poisoned region in the next free window."""
        base = self._next_window << WINDOW_BITS
        self._next_window += 1
        count = prod(shape)
        array = poisoned((count,), dtype) if self._carries_data else None
        written = np.zeros(count, np.bool_) if self._carries_data else None
        region = Region(name, base, shape, dtype, array, written)
        self.add(region)
        return region

    def region_at(self, address: int) -> Region | None:
        """The region whose window contains `address`."""
        return self._in_window(address >> WINDOW_BITS)

    def _in_window(self, window: int) -> Region | None:
        try:
            return self._regions[window]
        except KeyError:
            region = self._regions[window] = self._find(window)
            return region

    def load(
        self, address: int, shape: tuple[int, ...], strides: tuple[int, ...] | None, dtype: str | None
    ) -> tuple[Array | None, str, Problem | None]:
        """The elements at `address`, their type (the region's, unless `dtype` is given), and what is wrong."""
        region = self._in_window(address >> WINDOW_BITS)
        if region is not None and strides is None and (dtype is None or dtype == region.dtype):
            plain = self._lent(region, address, shape)
            if plain is not None:
                return plain, region.dtype, None
        kind = dtype or (region.dtype if region is not None else "f16")
        problem = self._check(region, address, shape, strides, kind, "load", kind if region is not None else dtype)
        if problem is None and region is not None and region.dtype != kind:
            problem = _type_problem(region, kind)
        if region is None or problem is not None:
            has_values = self._carries_data or (region is not None and self._holds_values(region))
            return (poisoned(shape, kind) if has_values else None), kind, problem
        if region.array is None or not self._holds_values(region):
            return None, kind, None
        region.loaded = True
        window = _window(region.array, address - region.base, shape, strides, DTYPES[kind].numpy)
        if region.written is not None:
            problem = _unwritten(region, address, shape, strides, kind)
            window = window.copy()
        if region.unknown is not None and not _marks(region, ~region.unknown, address, shape, strides, kind).all():
            return None, kind, problem
        return window, kind, problem

    def lent_at(self, address: int, shape: tuple[int, ...], dtype: str | None) -> Region | None:
        """The region whose memory a contiguous load would return without a copy; None if it would copy."""
        region = self._in_window(address >> WINDOW_BITS)
        if region is None or (dtype is not None and dtype != region.dtype):
            return None
        return None if self._lent(region, address, shape) is None else region

    def _lent(self, region: Region, address: int, shape: tuple[int, ...]) -> Array | None:
        """The fast path of a load: contiguous, from fully initialised memory, in its own type; else None."""
        array = region.array
        if array is None or region.written is not None or not self._carries_data:
            return None
        count = prod(shape)
        first, rest = divmod(address - region.base, array.itemsize)
        if rest or first < 0 or first + count > array.size:
            return None
        region.loaded = True
        return array[first : first + count].reshape(shape)

    def unwatched(
        self, address: int, shape: tuple[int, ...], strides: tuple[int, ...] | None
    ) -> tuple[int, int, int, int] | None:
        """(first, last, base, itemsize): the range of start addresses at which accesses of this form need no check.

        At multiples of `itemsize` from `base` within it, a load is allowed and gives no values, and a store without
        strides is allowed and stores none. None if each access must be checked.
        """
        region = self._in_window(address >> WINDOW_BITS)
        if region is None or region.array is not None:
            return None
        itemsize = ITEMSIZE[region.dtype]
        low, high = _extent(shape, strides)
        return region.base - low * itemsize, region.end - high * itemsize, region.base, itemsize

    def store(
        self,
        address: int,
        data: Array | None,
        shape: tuple[int, ...],
        strides: tuple[int, ...] | None,
        value_dtype: str,
    ) -> tuple[int, Problem | None]:
        """Store `data`, of type `value_dtype` and rounded to the region's; returns the item size, and what is wrong."""
        region = self._in_window(address >> WINDOW_BITS)
        dtype = region.dtype if region is not None else value_dtype
        itemsize = ITEMSIZE[dtype]
        problem = self._check(region, address, shape, strides, dtype, "store", value_dtype)
        if problem is None and strides is not None:
            problem = _self_overlap(region, shape, strides)
        if problem is not None or region is None or region.array is None or not self._holds_values(region):
            return itemsize, problem
        if self._kept is not None:
            self._kept.keep(region)
        array = self._own(region)
        if data is None and region.unknown is None:
            region.unknown = np.zeros(array.size, np.bool_)
        if data is not None:
            _window(array, address - region.base, shape, strides, array.dtype)[...] = cast(data, dtype)
        region.stored = True
        for marks, mark in ((region.written, True), (region.fresh, True), (region.unknown, data is None)):
            if marks is not None:
                _window(marks, _item_offset(region, address), shape, strides, marks.dtype)[...] = mark
        return itemsize, None

    def _holds_values(self, region: Region) -> bool:
        """Without data only floats are dropped: integers (lengths, block tables) and masks keep their values."""
        return self._carries_data or DTYPES[region.dtype].kind != "float"

    def _own(self, region: Region) -> Array:
        """The region's array, copied at the first store so that values lent out before do not change."""
        assert region.array is not None
        if region.shared:
            region.array = region.array.copy()
            region.written = np.ones(region.array.size, np.bool_)
            region.shared = False
        return region.array

    def _check(
        self,
        region: Region | None,
        address: int,
        shape: tuple[int, ...],
        strides: tuple[int, ...] | None,
        dtype: str,
        verb: str,
        stated: str | None,
    ) -> Problem | None:
        """What is wrong with an access to elements of type `dtype`, whose values have type `stated` (None: unknown)."""
        itemsize = ITEMSIZE[dtype]
        low, high = _extent(shape, strides)
        first, last = address + low * itemsize, address + high * itemsize
        if region is None or first < region.base or last > region.end:
            return self._out_of_bounds(address, first, last, _access(verb, shape, stated, dtype))
        if (address - region.base) % itemsize:
            return Problem(
                "misaligned",
                f"{_access(verb, shape, stated, dtype)} at {address:#x}, which is byte {address - region.base} of "
                f"{region.describe()}: not a multiple of {itemsize}",
                f"addresses count bytes: step by elements * {itemsize}",
                region.name,
            )
        return None

    def _out_of_bounds(self, address: int, first: int, last: int, access: str) -> Problem:
        region = self._nearest(address)
        if region is None:
            return Problem(
                "out-of-bounds",
                f"{access} at {address:#x}: no tensor lies there",
                "pass the tensor to the launch and use the address the kernel is handed",
            )
        over, under = last - region.end, region.base - first
        side = f"{over} bytes past its end" if over > 0 else f"{under} bytes before its start"
        return Problem(
            "out-of-bounds",
            f"{access} touches [{first:#x}, {last:#x}), {side}; {region.describe()} is valid in {region.span}",
            "check the offset and the shape against this rank's share of the tensor (a ragged last shard is shorter)",
            region.name,
        )

    def _nearest(self, address: int) -> Region | None:
        """The region that was probably meant.

        The one below the address, or the next if the address is just before that.
        """
        window = address >> WINDOW_BITS
        following = self._in_window(window + 1) if address & (WINDOW - 1) > WINDOW // 2 else None
        return following or self._in_window(window)


@lru_cache(maxsize=1024)
def _extent(shape: tuple[int, ...], strides: tuple[int, ...] | None) -> tuple[int, int]:
    """First and one past the last element touched, relative to the start address."""
    if strides is None:
        return 0, prod(shape)
    if 0 in shape:
        return 0, 0
    reach = [(n - 1) * s for n, s in zip(shape, strides, strict=True)]
    return sum(r for r in reach if r < 0), sum(r for r in reach if r > 0) + 1


def _window(
    array: Array, byte_offset: int, shape: tuple[int, ...], strides: tuple[int, ...] | None, dtype: Any
) -> Array:
    """A tile of a flat array, as a view."""
    if strides is None and array.dtype == dtype:
        start = byte_offset // array.itemsize
        return array[start : start + prod(shape)].reshape(shape)
    steps = None if strides is None else tuple(s * dtype.itemsize for s in strides)
    return np.ndarray(shape, dtype, array, byte_offset, steps)


def _item_offset(region: Region, address: int) -> int:
    """Offset of `address` in the region's shadow arrays, in elements."""
    return (address - region.base) // ITEMSIZE[region.dtype]


def _unwritten(
    region: Region, address: int, shape: tuple[int, ...], strides: tuple[int, ...] | None, dtype: str
) -> Problem | None:
    assert region.written is not None
    marks = _marks(region, region.written, address, shape, strides, dtype)
    if marks.all():
        return None
    missing = int(marks.size - np.count_nonzero(marks))
    first = np.unravel_index(int(np.argmin(marks)), shape)
    return Problem(
        "uninitialised-read",
        f"load of {_tile(shape, dtype)} from {region.describe()} reads {missing} of {marks.size} elements "
        f"nobody wrote, the first at {_index(first)} of the tile",
        "store to it before the load, or hand it over filled (host.shard, host.replicate)",
        region.name,
    )


def _marks(
    region: Region,
    marked: NDArray[np.bool_],
    address: int,
    shape: tuple[int, ...],
    strides: tuple[int, ...] | None,
    dtype: str,
) -> NDArray[np.bool_]:
    """For each element read, whether all of its bytes are marked."""
    held, wanted = ITEMSIZE[region.dtype], ITEMSIZE[dtype]
    if held == wanted:
        return _window(marked, _item_offset(region, address), shape, strides, marked.dtype)
    by_byte = np.repeat(marked, held)
    steps = tuple(s * wanted for s in (strides or _packed(shape)))
    every = np.ndarray((*shape, wanted), by_byte.dtype, by_byte, address - region.base, (*steps, 1))
    return np.asarray(every.all(axis=-1))


def _packed(shape: tuple[int, ...]) -> tuple[int, ...]:
    steps, step = [], 1
    for n in reversed(shape):
        steps.append(step)
        step *= n
    return tuple(reversed(steps))


def _type_problem(region: Region, dtype: str) -> Problem | None:
    """A float read as another float type is a mistake; bytes may be reinterpreted only through integers."""
    if dtype == region.dtype or DTYPES[region.dtype].kind != "float" or DTYPES[dtype].kind != "float":
        return None if _reinterpretable(region.dtype, dtype) else _confusion(region, dtype)
    return _confusion(region, dtype)


def _reinterpretable(held: str, wanted: str) -> bool:
    return held == wanted or ITEMSIZE[held] == ITEMSIZE[wanted] or held == "i8"


def _confusion(region: Region, dtype: str) -> Problem:
    return Problem(
        "type-confusion",
        f"load reads {region.describe()} as {dtype}",
        f"load it with dtype='{region.dtype}' (or leave dtype out) and cast with .to('{dtype}')",
        region.name,
    )


def _self_overlap(region: Region | None, shape: tuple[int, ...], strides: tuple[int, ...]) -> Problem | None:
    """A strided store whose elements overlap each other is a race."""
    if _clearly_apart(shape, strides) or _all_distinct(shape, strides):
        return None
    return Problem(
        "race",
        f"strided store of shape {shape} with strides {strides} writes some elements more than once",
        "strides count elements of the destination; check their order",
        region.name if region is not None else "",
    )


@lru_cache(maxsize=1024)
def _clearly_apart(shape: tuple[int, ...], strides: tuple[int, ...]) -> bool:
    """Whether the stride of each axis exceeds the extent of the finer ones: the common case, and cheap to check."""
    reach = 1
    for step, count in sorted((abs(s), n) for s, n in zip(strides, shape, strict=True) if n > 1):
        if step < reach:
            return False
        reach += step * (count - 1)
    return True


def _all_distinct(shape: tuple[int, ...], strides: tuple[int, ...]) -> bool:
    """Whether all elements are distinct, by enumeration of their offsets."""
    offsets = np.zeros(shape, np.int64)
    for axis, (count, step) in enumerate(zip(shape, strides, strict=True)):
        offsets += (np.arange(count) * step).reshape([-1 if i == axis else 1 for i in range(len(shape))])
    return bool(np.unique(offsets).size == offsets.size)


def _access(verb: str, shape: tuple[int, ...], stated: str | None, held: str) -> str:
    """An access in words, with the type of the value, and of the memory if that differs."""
    rounded = f", stored as {held}," if stated is not None and stated != held else ""
    return f"{verb} of {_tile(shape, stated)}{rounded}"


def _tile(shape: tuple[int, ...], dtype: str | None) -> str:
    """A tile in words; without a type if it is unknown."""
    return f"a {'x'.join(map(str, shape)) or 'scalar'} {f'{dtype} ' if dtype else ''}tile"


def _index(index: tuple[np.int64, ...]) -> str:
    return "[" + ", ".join(str(int(i)) for i in index) + "]"
