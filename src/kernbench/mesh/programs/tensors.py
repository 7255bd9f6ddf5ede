"""Host tensors: one address on every rank, behind which is the rank's own memory."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import partial
from math import prod
from operator import index
from typing import Any, SupportsIndex

import numpy as np

from kernbench.common.dtypes import DTYPES, Array, cast, dtype_name, poisoned
from kernbench.common.errors import KernbenchError, MisuseError
from kernbench.safety.memory import Region
from kernbench.safety.processes.threads import together

# bytes that a thread copies at once
_PART = 1 << 23


class DisagreementError(KernbenchError):
    """Copies of one output that should be equal are not."""


@dataclass(repr=False)
class Tensor:
    """A tensor of `shape` over all ranks, split along `axis` (None: every rank has all of it) in equal parts, the last
    ones shorter, or by `rows`: the indices along `axis` that each rank has, in its order. Those made without a
    source are uninitialised; `is_output` ones are checked when a launch ends.
    """

    name: str
    address: int
    shape: tuple[int, ...]
    dtype: str
    axis: int | None
    ranks: int
    source: Array | None
    is_output: bool
    carries_data: bool
    rows: tuple[Array, ...] | None = None
    # whether copies on several ranks may hold different values from now on
    may_differ: bool = False
    regions: dict[int, Region] = field(default_factory=dict)

    def __repr__(self) -> str:
        split = "on every rank" if self.axis is None else f"split along axis {self.axis}"
        return f"<Tensor '{self.name}', {'x'.join(map(str, self.shape)) or 'scalar'} {self.dtype}, {split}>"

    @property
    def share(self) -> int:
        """Rows of a full part along the split axis."""
        assert self.axis is not None
        return -(-self.shape[self.axis] // self.ranks)

    def indices(self, rank: int) -> Array:
        """Indices of the rank's part along the split axis, in its order."""
        if self.axis is None:
            raise MisuseError(f"tensor '{self.name}' is not split")
        if self.rows is not None:
            return self.rows[rank]
        size = self.shape[self.axis]
        return np.arange(min(rank * self.share, size), min((rank + 1) * self.share, size))

    def location(self, index: tuple[int, ...]) -> tuple[int, int]:
        """The rank that has an element of the whole, and the element's number in its part; of copies the first."""
        if self.axis is None:
            return 0, int(np.ravel_multi_index(index, self.shape)) if index else 0
        for rank in range(self.ranks):
            (found,) = np.nonzero(self.indices(rank) == index[self.axis])
            if found.size:
                local = (*index[: self.axis], int(found[0]), *index[self.axis + 1 :])
                return rank, int(np.ravel_multi_index(local, self.part_shape(rank)))
        raise MisuseError(f"no rank has {index} of tensor '{self.name}'")

    def part_shape(self, rank: int) -> tuple[int, ...]:
        """Shape of the rank's part."""
        if self.axis is None:
            return self.shape
        return tuple(len(self.indices(rank)) if i == self.axis else n for i, n in enumerate(self.shape))

    def region(self, program: int, rank: int) -> Region:
        """The memory of `program`, which works for `rank`, made on first use."""
        if program not in self.regions:
            self.regions[program] = self.make_region(rank)
        return self.regions[program]

    def make_region(self, rank: int) -> Region:
        """Memory for a program that works for `rank`."""
        shape = self.part_shape(rank)
        if self.source is not None:
            return Region(self.name, self.address, shape, self.dtype, self._part(rank), None, shared=True)
        if not self.carries_data and DTYPES[self.dtype].kind == "float":
            return Region(self.name, self.address, shape, self.dtype, None, None)
        written = np.zeros(prod(shape), np.bool_)
        return Region(self.name, self.address, shape, self.dtype, poisoned((prod(shape),), self.dtype), written)

    def _part(self, rank: int) -> Array | None:
        assert self.source is not None
        if not self.carries_data and DTYPES[self.dtype].kind == "float":
            return None
        part = self.source
        if self.axis is not None:
            part = np.take(part, self.indices(rank), axis=self.axis)
        flat = np.ascontiguousarray(part).reshape(-1)
        flat.flags.writeable = False
        return flat

    def part(self, program: int, rank: int) -> Array:
        """The current contents of the rank's memory."""
        region = self.region(program, rank)
        if region.array is None:
            raise MisuseError(f"tensor '{self.name}' has no data: the launch was shapes-only")
        return region.array.reshape(region.shape)

    def whole(self, parts: list[Array]) -> Array:
        """The parts of all ranks, reassembled."""
        joined = np.concatenate(parts, axis=self.axis or 0)
        if self.rows is None:
            return joined
        order = np.argsort(np.concatenate(self.rows), kind="stable")
        return np.take(joined, order, axis=self.axis)


def checked_rows(rows: Any, size: int, ranks: int) -> tuple[Array, ...]:
    """The indices that each rank has, checked: every index of the axis belongs to exactly one rank."""
    try:
        parts = tuple(_indices(part) for part in rows)
    except (TypeError, OverflowError):
        raise MisuseError(f"rows gives each rank its indices, as [[0, 7], [1, 6], ...]; got {rows!r:.200}") from None
    if len(parts) != ranks:
        raise MisuseError(f"rows gives {len(parts)} ranks their indices; there are {ranks}")
    if not np.array_equal(np.sort(np.concatenate(parts)), np.arange(size)):
        raise MisuseError(f"rows must give every index from 0 to {size - 1} to exactly one rank")
    return parts


def _indices(part: "Array | Iterable[SupportsIndex]") -> Array:
    """Integers as an array; other element types are a TypeError."""
    if isinstance(part, np.ndarray) and part.dtype.kind in "iu":
        return part.reshape(-1).astype(np.int64)
    return np.asarray([index(row) for row in part], np.int64)


def make_source(value: Array, dtype: str | None) -> Array:
    """A copy of an input array, in the element type it will have on the machine."""
    if dtype is None:
        return _copied(value, DTYPES[dtype_name(value.dtype)].numpy)
    return np.array(cast(value, dtype_name(dtype)))


def _copied(value: Array, kind: "np.dtype[np.generic]") -> Array:
    """A copy of an array; large ones are copied by several threads."""
    if value.nbytes <= _PART or not value.flags.c_contiguous:
        return np.array(value, dtype=kind)
    found = np.empty(value.shape, kind)
    # NumPy matrices have no flat form
    target, source, each = found.reshape(-1), np.asarray(value).reshape(-1), _PART // value.itemsize
    parts = [slice(start, start + each) for start in range(0, value.size, each)]
    together(partial(np.copyto, target[part], source[part]) for part in parts)
    return found


def make_regions(wanted: Iterable[tuple[Tensor, int, int]]) -> None:
    """Allocate the memory of programs, each (tensor, program, rank), that does not exist yet: large ones by several
    threads.
    """
    missing = {
        (id(tensor), program): (tensor, rank) for tensor, program, rank in wanted if program not in tensor.regions
    }
    made: dict[tuple[int, int], Region] = {}

    def make(key: tuple[int, int]) -> None:
        tensor, rank = missing[key]
        made[key] = tensor.make_region(rank)

    sources = [tensor.source for tensor, _ in missing.values() if tensor.source is not None and tensor.carries_data]
    is_large = sum(source.nbytes for source in sources) > _PART
    together((partial(make, key) for key in missing), None if is_large else 1)
    for key, (tensor, _) in missing.items():
        tensor.regions[key[1]] = made[key]


def disagreement(first: Array, second: Array, dtype: str) -> tuple[float, tuple[int, ...], int] | None:
    """How far two copies are apart beyond rounding: (difference, index, elements); None if they agree.

    Ranks sum the same terms in different orders, so results differ by a few roundings of f32 relative to the
    summands, and by at most one step of the output's own type. The summands are not known here; the largest value of
    the row is used instead.
    """
    a, b = first.astype(np.float64), second.astype(np.float64)
    row = DTYPES[dtype]
    if row.kind != "float":
        off = a != b
    else:
        finite = np.isfinite(a) & np.isfinite(b)
        scale = np.where(finite, np.maximum(np.abs(a), np.abs(b)), 0.0)
        largest = scale.max(axis=-1, keepdims=True, initial=0.0) if scale.ndim else scale
        allowed = 1.5 * row.epsilon * scale + 64 * 2.0**-24 * largest + row.smallest_normal * row.epsilon
        with np.errstate(invalid="ignore"):
            same = (a == b) | (np.isnan(a) & np.isnan(b))
            off = ~(same | (finite & (np.abs(a - b) <= allowed)))
    if not off.any():
        return None
    with np.errstate(invalid="ignore"):
        gaps = np.where(off, np.nan_to_num(np.abs(a - b), nan=np.inf), -1.0)
    index = np.unravel_index(int(np.argmax(gaps)), gaps.shape)
    return float(gaps[index]), tuple(int(i) for i in index), int(off.sum())
