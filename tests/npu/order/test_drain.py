"""The end of a kernel waits for no pipe: stores that are still under way then are found, and no others."""

import numpy as np
import pytest
from tests.npu.small import flag, kinds, line_of, run_kernel

from kernbench import npu

X = np.arange(512, dtype=np.float32).reshape(8, 64)
SHOWN = "tstore on pipe MTE3 of aiv0 to 'out' (8x64 f32) may still be under way when its kernel has ended"


def stored(core, x, out):
    tile = core.tile("UB", (8, 64), "f32", 0, name="x")
    core.tload(tile, x)
    flag(core, "MTE2", "MTE3")
    core.tstore(out, tile)


def back_by_a_load(core):
    flag(core, "MTE3", "MTE2")
    flag(core, "MTE2", "S")


DRAINS = {
    "pipe_sync": lambda core: core.pipe_sync(),
    "a flag to the program": lambda core: flag(core, "MTE3", "S", 3),
    "a barrier over all pipes": lambda core: core.pipe_barrier("ALL"),
    "by way of another pipe": back_by_a_load,
}
NO_DRAINS = {
    "nothing": lambda core: None,
    "a barrier of the storing pipe": lambda core: core.pipe_barrier("MTE3"),
    "a flag to another pipe": lambda core: flag(core, "MTE3", "V"),
    "a flag from another pipe": lambda core: flag(core, "MTE2", "S"),
}


@pytest.mark.parametrize("drain", DRAINS)
def test_a_store_that_the_program_waits_for(drain):
    def kernel(core, x, out):
        stored(core, x, out)
        DRAINS[drain](core)

    run = run_kernel(kernel, X, out=np.zeros_like(X))
    assert run.findings == []
    assert npu.Chip("a2a3").retime(run).metrics["time_ps"] > 0


@pytest.mark.parametrize("drain", NO_DRAINS)
def test_a_store_that_no_program_waits_for(drain):
    def kernel(core, x, out):
        stored(core, x, out)
        NO_DRAINS[drain](core)

    run = run_kernel(kernel, X, out=np.zeros_like(X))
    (finding,) = run.findings
    assert finding.kind == "undrained-store"
    assert finding.where.line == line_of(stored, "tstore")
    assert SHOWN in finding.message
    assert finding.hint.startswith("end the kernel with pipe_sync() or pipe_barrier(ALL)")
    told = [other.role for other in finding.others if "called" not in other.role]
    assert told == ["this barrier makes later operations of MTE3 wait, and not the program"] * ("storing" in drain)
    assert "time_ps" not in npu.Chip("a2a3").retime(run).metrics


def test_a_drain_before_the_last_store():
    def kernel(core, x, out):
        tile = core.tile("UB", (4, 64), "f32", 0, name="x")
        core.tload(tile, x[:4])
        flag(core, "MTE2", "MTE3")
        core.tstore(out[:4], tile)
        core.pipe_sync()
        core.tstore(out[4:], tile)  # the last

    (finding,) = run_kernel(kernel, X, out=np.zeros_like(X)).findings
    assert finding.kind == "undrained-store"
    assert finding.where.line == line_of(kernel, "# the last")
    (early,) = finding.others
    assert early.role == "the program waits here, before this store"
    assert early.where.line == line_of(kernel, "pipe_sync")


def test_a_drain_in_one_of_two_branches():
    def kernel(core, x, out):
        rows = slice(4 * core.block_idx, 4 * core.block_idx + 4)
        tile = core.tile("UB", (4, 64), "f32", 0, name="x")
        core.tload(tile, x[rows])
        flag(core, "MTE2", "MTE3")
        if core.block_idx == 0:
            core.tstore(out[rows], tile)
            core.pipe_sync()
        else:
            core.tstore(out[rows], tile)  # without

    (finding,) = run_kernel(kernel, X, out=np.zeros_like(X), blocks=2).findings
    assert finding.kind == "undrained-store"
    assert finding.where.line == line_of(kernel, "# without")
    assert "block 1" in finding.message


@pytest.mark.parametrize(
    ("space", "drain", "found"),
    [
        ("L0C", "pipe_sync", []),
        ("L0C", "nothing", ["undrained-store"]),
        # pipe_sync waits for FIX, and this store runs on MTE3
        ("L1", "pipe_sync", ["undrained-store"]),
        ("L1", "a flag to the program", []),
    ],
)
def test_the_cube_core_has_two_pipes_that_store(space, drain, found):
    def kernel(core, x, out):
        a, b, c = core.alloc("L1", (16, 16)), core.alloc("L0A", (16, 16)), core.alloc("L0B", (16, 16))
        d = core.alloc("L0C", (16, 16))
        core.tload(a, x)
        if space == "L0C":
            flag(core, "MTE2", "MTE1")
            core.tmov(b, a)
            core.tmov(c, a)
            flag(core, "MTE1", "M")
            core.tmatmul(d, b, c)
            flag(core, "M", "FIX")
        else:
            flag(core, "MTE2", "MTE3")
        core.tstore(out, d if space == "L0C" else a)
        {**DRAINS, **NO_DRAINS}[drain](core)

    x = np.ones((16, 16), np.float32)
    run = run_kernel(kernel, x, out=np.zeros_like(x), lane="aic")
    assert kinds(run) == found
    if found:
        pipe = {"L0C": "pipe_sync()", "L1": "set_flag(MTE3, S, event)"}[space]
        assert f"end the kernel with {pipe}" in run.findings[0].hint


@pytest.mark.parametrize("is_received", [True, False])
def test_a_task_ends_with_all_its_cores(is_received):
    """The AIC does not wait for its store; a vector core does, by a message that the same pipe pushed after it."""

    def aic(core, x, out, fifo):
        tile = core.alloc("L1", (16, 16))
        core.tload(tile, x)
        flag(core, "MTE2", "MTE3")
        core.tstore(out, tile)
        core.tpush(fifo, tile)

    def aiv(core, x, out, fifo):
        core.tpop(fifo, core.alloc("UB", (8, 16)))
        if is_received:
            flag(core, "MTE2", "S")

    def orchestrate(rt, x, out):
        fifo = rt.fifo("q", "to_aiv", (16, 16))
        rt.submit(aic=aic, aiv=aiv, args=[npu.IN(x), npu.OUT(out), fifo])

    x = np.ones((16, 16), np.float32)
    run = npu.Chip("a2a3").launch(orchestrate, x, np.zeros_like(x))
    assert kinds(run) == ([] if is_received else ["undrained-store"])


@pytest.mark.parametrize("waiting", [(0, 1), (0,), (1,), ()])
@pytest.mark.parametrize("stored_first", [True, False])
def test_a_task_ends_with_all_its_blocks(waiting, stored_first):
    """Blocks do not wait for their own stores; all wait for a count of each, by the pipe that stored."""

    def kernel(core, x, out):
        rows = slice(4 * core.block_idx, 4 * core.block_idx + 4)
        tile = core.tile("UB", (4, 64), "f32", 0, name="x")
        core.tload(tile, x[rows])
        flag(core, "MTE2", "MTE3")
        if not stored_first:
            core.ffts_cross_core_sync("MTE3", 1, 0)
        core.tstore(out[rows], tile)
        if stored_first:
            core.ffts_cross_core_sync("MTE3", 1, 0)
        if core.block_idx in waiting:
            core.wait_flag_dev(1)

    def orchestrate(rt, x, out):
        rt.submit(aiv0=kernel, args=[npu.IN(x), npu.OUT(out)], block_num=2, sync_start=True)

    run = npu.Chip("a2a3").launch(orchestrate, X, np.zeros_like(X))
    is_found = not stored_first or not waiting
    assert ("undrained-store" in kinds(run)) == is_found


def test_each_block_has_its_own_end():
    """A store of the block before is not one of this block, wherever blocks are looked at together."""

    def kernel(core, x, out):
        if core.block_idx % 3 == 1:
            rows = slice(core.block_idx, core.block_idx + 1)
            tile = core.tile("UB", (1, 64), "f32", 0, name="x")
            core.tload(tile, x[rows])
            flag(core, "MTE2", "MTE3")
            core.tstore(out[rows], tile)

    def orchestrate(rt, x, out):
        rt.submit(aiv0=kernel, args=[npu.IN(x), npu.INOUT(out)], block_num=8)

    (finding,) = npu.Chip("a2a3").launch(orchestrate, X, np.zeros_like(X)).findings
    assert finding.kind == "undrained-store"
    assert finding.count == 3
