"""Inspecting a running core in a debugger: its program, tiles, tensors and memories."""

from contextlib import AbstractContextManager, nullcontext
from typing import Any

from kernbench.npu.core.core import Core
from kernbench.npu.core.tiles import Tile
from kernbench.npu.execution.execute import Executor
from kernbench.npu.isa.units import LANES
from kernbench.npu.tasks.task import Context
from kernbench.npu.tasks.tensors import Tensor
from kernbench.safety.stopping import Stopper

__kernbench_internal__ = True


def stopping(context: Context, executor: Executor, stop: Stopper | None) -> AbstractContextManager[None]:
    """Install the debugger's stopper while a launch runs."""
    if stop is None:
        return nullcontext()
    context.log.on_finding = stop.found
    return stop.watching(lambda: running(context, executor.lane), shown)


def running(context: Context, lane: int) -> str:
    """The task, block and core that are running."""
    block = context.running
    if block is None:
        return "the orchestration"
    return f"{LANES[lane]} of {block.task.describe()}, block {block.index}"


def shown(value: object) -> Any:
    """Tiles and tensors as arrays; a core as all tiles in its memories."""
    if isinstance(value, Tile):
        return value.data, f"{value.dtype} at {value.space} {value.offset:#x}"
    if isinstance(value, Tensor):
        readable = value.buffer.array is not None and not value.broken
        return value.data() if readable else None, f"{value.dtype} of {value.name} in GM"
    if isinstance(value, Core):
        return {f"{tile.name or 'tile'}@{tile.space}+{tile.offset:#x}": tile for tile in _placed(value)}
    return None


def _placed(core: Core) -> list[Tile]:
    """The tiles that were created, without other views of the same bytes."""
    tiles = {tile.number: tile for tile in core.tile_cache.values() if tile.root == tile.number}
    return list(tiles.values())
