"""Special registers of a batch: one value for all lanes, or one for each."""

from collections.abc import Callable

import numpy as np

from kernbench.common.dtypes import Array
from kernbench.ptx.emulator.lanes.clusters import RANK_SHIFT, Extent
from kernbench.ptx.emulator.lanes.lanes import WARP
from kernbench.ptx.emulator.program.hub import BatchHub
from kernbench.ptx.emulator.program.layout import RESERVED, RESERVED_BYTES

_AXES = "xyz"

# one for all lanes, or one for each lane
Value = int | np.uint64 | Array


# Registers that depend only on the shape of the launch and the CTAs' numbers. Their rows are cached, up to this number
# of lanes and of rows.
_OF_THE_SHAPE = ("%tid", "%ntid", "%ctaid", "%nctaid", "%clusterid", "%nclusterid", "%laneid", "%warpid", "%lanemask")
_LANES, _MOST = 2048, 256
_ROWS: dict[tuple[object, ...], Array] = {}


def special_row(batch: BatchHub, name: str, dtype: str) -> Array:
    """The row of a special register, read-only; 0 for registers that mean nothing here."""
    if batch.lanes > _LANES or not name.startswith(_OF_THE_SHAPE):
        return _made(batch, name, dtype)
    launch = batch.launch
    key = name, dtype, launch.block, launch.grid, launch.cluster, batch.numbers.tobytes()
    found = _ROWS.get(key)
    if found is None:
        if len(_ROWS) >= _MOST:
            _ROWS.clear()
        found = _ROWS[key] = _made(batch, name, dtype)
        found.flags.writeable = False
    return found


def _made(batch: BatchHub, name: str, dtype: str) -> Array:
    row: Array = np.broadcast_to(special_value(batch, name), batch.lanes).astype(dtype)
    return np.ascontiguousarray(row)


def special_value(batch: BatchHub, name: str) -> Value:
    """The value of a special register, one for all lanes or one for each."""
    base, _, component = name.partition(".")
    if component:
        return _VECTORS[base](batch)[_AXES.index(component)]
    made = _SCALARS.get(base)
    return made(batch) if made is not None else np.uint64(0)


def _by_axis(number: Array, extent: Extent) -> tuple[Array, Array, Array]:
    x, y, _ = extent
    return number % x, number // x % y, number // (x * y)


def _cta_numbers(batch: BatchHub) -> Array:
    return np.repeat(batch.numbers[batch.cta_of_warp], WARP)


def _lane(batch: BatchHub) -> Array:
    return np.arange(batch.lanes) % WARP


def _lane_mask(relation: Callable[[Array, Array], Array]) -> Callable[[BatchHub], Array]:
    def row(batch: BatchHub) -> Array:
        lane = np.arange(WARP)
        across, down = lane[None, :], lane[:, None]
        table = (relation(across, down) * (1 << across)).sum(axis=1)
        return np.tile(table, batch.warps)

    return row


def _ranks(batch: BatchHub) -> Array:
    """The rank of each lane's CTA in its cluster."""
    return batch.cluster.ranks(np.arange(batch.lanes))


def _clusters(batch: BatchHub) -> tuple[int, int, int]:
    """How many clusters the grid has along each axis."""
    x, y, z = (g // c for g, c in zip(batch.launch.grid, batch.launch.cluster, strict=True))
    return x, y, z


def _cluster_coordinates(batch: BatchHub) -> tuple[Array, Array, Array]:
    """The coordinates of each lane's cluster in the grid of clusters."""
    axes = zip(_by_axis(_cta_numbers(batch), batch.launch.grid), batch.launch.cluster, strict=True)
    x, y, z = (coordinate // size for coordinate, size in axes)
    return x, y, z


def _reserved(offset: int) -> Callable[[BatchHub], Array]:
    """An address in the shared memory that the system reserves in each block."""

    def row(batch: BatchHub) -> Array:
        start = next((v.offset for v in batch.launch.program.shared if v.name == RESERVED), 0)
        return start + offset + (_ranks(batch).astype(np.int64) << RANK_SHIFT)

    return row


_VECTORS: dict[str, Callable[[BatchHub], tuple[Value, Value, Value]]] = {
    "%tid": lambda batch: _by_axis(batch.thread, batch.launch.block),
    "%ntid": lambda batch: batch.launch.block,
    "%ctaid": lambda batch: _by_axis(_cta_numbers(batch), batch.launch.grid),
    "%nctaid": lambda batch: batch.launch.grid,
    "%clusterid": _cluster_coordinates,
    "%nclusterid": _clusters,
    "%cluster_ctaid": lambda batch: _by_axis(_ranks(batch), batch.launch.cluster),
    "%cluster_nctaid": lambda batch: batch.launch.cluster,
}
_SCALARS: dict[str, Callable[[BatchHub], Value]] = {
    "%laneid": _lane,
    "%warpid": lambda batch: batch.thread // WARP,
    "%nwarpid": lambda batch: batch.launch.machine.warps_per_sm,
    "%smid": lambda batch: _cta_numbers(batch) % batch.launch.machine.sms,
    "%nsmid": lambda batch: batch.launch.machine.sms,
    "%gridid": lambda batch: batch.launch.number,
    "%is_explicit_cluster": lambda batch: batch.launch.explicit_cluster,
    "%cluster_ctarank": _ranks,
    "%cluster_nctarank": lambda batch: batch.cluster.size,
    "%lanemask_eq": _lane_mask(lambda other, lane: other == lane),
    "%lanemask_le": _lane_mask(lambda other, lane: other <= lane),
    "%lanemask_lt": _lane_mask(lambda other, lane: other < lane),
    "%lanemask_ge": _lane_mask(lambda other, lane: other >= lane),
    "%lanemask_gt": _lane_mask(lambda other, lane: other > lane),
    "%envreg1": lambda batch: batch.launch.grid_workspace() >> 32,
    "%envreg2": lambda batch: batch.launch.grid_workspace() & 0xFFFFFFFF,
    "%total_smem_size": lambda batch: batch.launch.shared_bytes,
    "%aggr_smem_size": lambda batch: batch.launch.shared_bytes,
    "%dynamic_smem_size": lambda batch: batch.launch.dynamic_shared,
    "%reserved_smem_offset_begin": _reserved(0),
    "%reserved_smem_offset_end": _reserved(RESERVED_BYTES),
    "%reserved_smem_offset_cap": lambda batch: RESERVED_BYTES,
    "%reserved_smem_offset_0": _reserved(0),
    "%reserved_smem_offset_1": _reserved(RESERVED_BYTES // 2),
}
