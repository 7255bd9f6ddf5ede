"""Special registers of a batch: a value for all lanes, or one each."""

from collections.abc import Callable
from typing import Any

import numpy as np

from kernbench.ptx.emulator.lanes import WARP

_AXES = "xyz"


def special_row(batch: Any, name: str) -> Any:
    """The value of a special register, one for all lanes or one a lane; 0 for those that say nothing here."""
    base, _, component = name.partition(".")
    if component:
        return _VECTORS[base](batch)[_AXES.index(component)]
    made = _SCALARS.get(base)
    return made(batch) if made is not None else np.uint64(0)


def _by_axis(number: Any, extent: tuple[int, int, int]) -> tuple[Any, Any, Any]:
    x, y, _ = extent
    return number % x, number // x % y, number // (x * y)


def _cta_numbers(batch: Any) -> Any:
    return np.repeat(batch.numbers[batch.cta_of_warp], WARP)


def _lane(batch: Any) -> Any:
    return np.arange(batch.lanes) % WARP


def _lane_mask(relation: Callable[[Any, Any], Any]) -> Callable[[Any], Any]:
    def row(batch: Any) -> Any:
        lane = np.arange(WARP)
        table = (relation(lane[None, :], lane[:, None]) * (1 << lane[None, :])).sum(axis=1)
        return np.tile(table, batch.warps)

    return row


_ONE = (1, 1, 1)
_VECTORS: dict[str, Callable[[Any], Any]] = {
    "%tid": lambda batch: _by_axis(batch.thread, batch.launch.block),
    "%ntid": lambda batch: batch.launch.block,
    "%ctaid": lambda batch: _by_axis(_cta_numbers(batch), batch.launch.grid),
    "%nctaid": lambda batch: batch.launch.grid,
    "%clusterid": lambda batch: _by_axis(_cta_numbers(batch), batch.launch.grid),
    "%nclusterid": lambda batch: batch.launch.grid,
    "%cluster_ctaid": lambda batch: (0, 0, 0),
    "%cluster_nctaid": lambda batch: _ONE,
}
_SCALARS: dict[str, Callable[[Any], Any]] = {
    "%laneid": _lane,
    "%warpid": lambda batch: batch.thread // WARP,
    "%nwarpid": lambda batch: batch.launch.machine.warps_per_sm,
    "%smid": lambda batch: _cta_numbers(batch) % batch.launch.machine.sms,
    "%nsmid": lambda batch: batch.launch.machine.sms,
    "%gridid": lambda batch: batch.launch.number,
    "%cluster_nctarank": lambda batch: 1,
    "%lanemask_eq": _lane_mask(lambda other, lane: other == lane),
    "%lanemask_le": _lane_mask(lambda other, lane: other <= lane),
    "%lanemask_lt": _lane_mask(lambda other, lane: other < lane),
    "%lanemask_ge": _lane_mask(lambda other, lane: other >= lane),
    "%lanemask_gt": _lane_mask(lambda other, lane: other > lane),
    "%total_smem_size": lambda batch: batch.launch.shared_bytes,
    "%aggr_smem_size": lambda batch: batch.launch.shared_bytes,
    "%dynamic_smem_size": lambda batch: batch.launch.dynamic_shared,
}
