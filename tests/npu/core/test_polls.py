"""Polls of signals in device memory: a loop of them is a wait, and orders what it waited for."""

import numpy as np
from tests.npu.small import kinds, line_of

from kernbench import npu

OUT = np.zeros((8, 16), np.float32)
SIGNALS = np.zeros(8, np.int32)
BLOCKS = 4


def passed_on(poll_until, adds=1, sync_start=True):
    """Block 0 stores a row of ones; each block counts up, polls, and copies the row to its own."""

    def kernel(core, signals, out):
        tile = core.tile("UB", (1, 16), "f32", 0, name="row")
        if core.block_idx == 0:
            core.texpands(tile, 1.0)
            core.set_flag("V", "MTE3", 0)
            core.wait_flag("V", "MTE3", 0)
            core.tstore(out[0:1], tile)
            core.set_flag("MTE3", "S", 0)
            core.wait_flag("MTE3", "S", 0)
        core.tnotify(signals[0:1], adds, "add")
        while core.poll(signals[0:1]) < poll_until:
            pass
        core.tload(tile, out[0:1])
        core.set_flag("MTE2", "MTE3", 1)
        core.wait_flag("MTE2", "MTE3", 1)
        core.tstore(out[core.block_idx + 1 : core.block_idx + 2], tile)
        core.pipe_sync()

    def orchestrate(rt, signals, out):
        rt.submit(aiv0=kernel, args=[npu.INOUT(signals), npu.INOUT(out)], block_num=BLOCKS, sync_start=sync_start)

    return kernel, npu.Chip("a2a3").launch(orchestrate, SIGNALS, OUT)


def test_a_loop_of_polls_waits_for_all_and_orders_what_they_did():
    _, run = passed_on(BLOCKS)
    assert not run.findings, run.findings
    assert (run.outputs["out"][: BLOCKS + 1] == 1).all()


def test_a_poll_that_some_other_block_ends_orders_nothing():
    _, run = passed_on(1)
    assert "race" in kinds(run)


def test_a_poll_that_nobody_ends_is_a_deadlock_at_its_line():
    kernel, run = passed_on(BLOCKS + 1)
    (found,) = [f for f in run.findings if f.kind == "deadlock"]
    assert found.where.line == line_of(kernel, "core.poll")
    assert "is 4 each time it is read, and nobody changes it any more; 4 notifications" in found.message


def test_blocks_that_poll_for_each_other_start_together():
    _, run = passed_on(BLOCKS, sync_start=False)
    assert kinds(run) == ["deadlock"]


def test_a_signal_that_falls():
    def kernel(core, signals):
        if core.block_idx == 1:
            core.tnotify(signals[1:2], -1, "add")
        while core.block_idx == 0 and core.poll(signals[1:2]) >= 0:
            pass

    def orchestrate(rt, signals):
        rt.submit(aiv0=kernel, args=[npu.INOUT(signals)], block_num=2, sync_start=True)

    run = npu.Chip("a5").launch(orchestrate, SIGNALS)
    assert not run.findings
    assert run.outputs["signals"][1] == -1
