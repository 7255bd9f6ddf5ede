"""What a launch of the decode kernel is given, on any device."""

from collections.abc import Sequence
from math import sqrt

import numpy as np

from kernbench.common.errors import MisuseError
from kernbench.kernels.arrays import Maker, Shaped
from kernbench.kernels.attention import LOG2_E
from kernbench.kernels.decode.plan import DecodePlan
from kernbench.kernels.decode.shape import PagedCache
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
    scale: float | None = None,
) -> list[object]:
    """The kernel's arguments for arrays on a device; memory for unfinished sums is made.

    q and out [sequences, heads, size]; k and v as the cache of the plan's shape says. `table` [sequences, pages] of a
    paged cache; `rows`, the first row of each sequence in a dense one, without it one sequence follows the other.
    """
    shape, sequences = plan.shape, len(plan.lengths)
    wanted = (sequences, shape.heads, shape.head_size)
    for name, array in (("q", q), ("out", out)):
        if tuple(array.shape) != wanted:
            raise MisuseError(f"{name} has shape {list(array.shape)}, and {list(wanted)} is wanted")
    cache, width, pages = shape.cache, 0, 0
    if isinstance(cache, PagedCache):
        if table is None or len(table.shape) != 2 or table.shape[0] != sequences:
            raise MisuseError(f"a paged cache needs a table [{sequences}, pages]")
        width, pages = table.shape[1], k.shape[0]
        if max(plan.lengths) > width * cache.page_size:
            raise MisuseError(
                f"a sequence of {max(plan.lengths)} keys, and the table has {width} pages of {cache.page_size} for each"
            )
    elif table is not None:
        raise MisuseError("a dense cache has no table of pages")
    records = plan.records(rows)
    made = {
        "begins": plan.begins(records),
        "records": records,
        "partial": np.zeros(plan.partial_shape, np.float32),
        "stats": np.zeros((*plan.partial_shape[:2], 2), np.float32),
        "counters": np.zeros(plan.counters, np.uint32),
    }
    arrays = [device.array(data, name) for name, data in made.items()]
    maps = [cache.tensor_map(device, one, shape) for one in (k, v)]
    found = (1 / sqrt(shape.head_size) if scale is None else scale) * LOG2_E
    return [*maps, q, out, *arrays[:2], 0 if table is None else table, *arrays[2:], width, pages, found]
