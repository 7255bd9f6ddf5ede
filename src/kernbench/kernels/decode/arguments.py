"""The arguments of a launch of the decode kernel, on any device."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import sqrt

import numpy as np

from kernbench.common.errors import MisuseError
from kernbench.kernels.arrays import Maker, Shaped
from kernbench.kernels.attention import LOG2_E
from kernbench.kernels.caches import PagedCache
from kernbench.kernels.decode.plan import DecodePlan
from kernbench.kernels.decode.shape import POINTERS, DecodeShape
from kernbench.ptx.launching.device_base import DeviceArray


def arguments(
    device: Maker,
    plan: DecodePlan,
    q: Shaped,
    k: DeviceArray,
    v: DeviceArray,
    out: Shaped,
    *,
    table: Shaped | None = None,
    rows: Sequence[int] | None = None,
    scale: "float | Scales | None" = None,
    lse: Shaped | None = None,
) -> list[object]:
    """The kernel's arguments for arrays on a device; memory for partial sums is allocated.

    q and out [sequences, heads, size]; k and v in the layout of the shape's cache. `table` [sequences, pages] of a
    paged cache; `rows`, the first row of each sequence in a dense one, by default consecutive; `lse`
    [sequences, heads] of a shape with lse; keys and values of 8 bits have scales of their own.
    """
    shape, sequences = plan.shape, len(plan.lengths)
    wanted = (sequences, shape.heads, shape.head_size)
    for name, array in (("q", q), ("out", out)):
        if tuple(array.shape) != wanted:
            raise MisuseError(f"{name} has shape {list(array.shape)}, and {list(wanted)} is wanted")
    if (lse is not None) != shape.lse or (lse is not None and tuple(lse.shape) != wanted[:2]):
        raise MisuseError(f"a shape with lse=True, and no other, is given an array lse {list(wanted[:2])}")
    width, pages = table_size(shape, plan.lengths, k, table)
    records = plan.records(rows)
    made = {
        "begins": plan.begins(records),
        "records": records,
        "partial": np.zeros(plan.partial_shape, np.float32),
        "stats": np.zeros(plan.stats_shape, np.float32),
        "counters": np.zeros(plan.counters, np.uint32),
    }
    arrays = {name: device.array(data, name) for name, data in made.items()}
    maps = [shape.tensor_map(device, one) for one in (k, v)]
    optional = {"table": 0 if table is None else table, **({} if lse is None else {"lse": lse})}
    pointers = {"q": q, "out": out, **arrays, **optional}
    order = (*POINTERS, *(("lse",) if shape.lse else ()))
    return [*maps, *(pointers[name] for name in order), width, pages, *factors(shape, scale)]


@dataclass(frozen=True)
class Scales:
    """The factor of scores, and the scales of keys and of values of 8 bits."""

    scores: float | None = None
    keys: float = 1.0
    values: float = 1.0


def factors(shape: DecodeShape, scale: float | Scales | None) -> list[float]:
    """The factor of scores before ex2 and, for values of 8 bits, of the output.

    The default scale is one over the root of a head's size.
    """
    scales = scale if isinstance(scale, Scales) else Scales(scale)
    found = (1 / sqrt(shape.head_size) if scales.scores is None else scales.scores) * LOG2_E
    if shape.narrow:
        return [found * scales.keys, scales.values]
    if (scales.keys, scales.values) != (1.0, 1.0):
        raise MisuseError(f"scales of keys and values are for a cache of 8 bits, and this one has {shape.dtype}")
    return [found]


def table_size(shape: DecodeShape, lengths: Sequence[int], k: Shaped, table: Shaped | None) -> tuple[int, int]:
    """Pages of each sequence in the table, and of the cache; MisuseError for a table that does not fit."""
    cache = shape.cache
    if isinstance(cache, PagedCache):
        return cache.check_table(lengths, table), k.shape[0]
    if table is not None:
        raise MisuseError("a dense cache has no table of pages")
    return 0, 0
