"""Blocks that compete for cores are placed again by the times that came out; where that changes nothing, those stay."""

import numpy as np
import pytest
from tests.npu.small import flag, run_kernel

from kernbench.npu.isa.model import load
from kernbench.npu.time import clock
from kernbench.npu.time.assign import Assignment
from kernbench.npu.time.lower import join_again

A = np.zeros((64, 128), np.float32)


def uneven(core, a, out):
    """Of four blocks on two cores the first loads, and the second computes for longer than that takes alone."""
    tile = core.alloc("UB", (64, 128))
    if core.block_idx == 0:
        core.tload(tile, a)
        flag(core, "MTE2", "V")
        core.texpands(tile, 0.0)
    for _ in range(61 if core.block_idx == 1 else 1):
        core.pipe_barrier("V")
        core.texpands(tile, 0.0)
    flag(core, "V", "MTE3")
    core.tstore(out[16 * core.block_idx : 16 * core.block_idx + 16], tile.rows(0, 16))
    core.pipe_sync()


@pytest.mark.parametrize(("bandwidth", "lanes"), [("1600 GB/s", [1, 2, 1, 1]), ("4 GB/s", [1, 2, 2, 2])])
def test_blocks_that_are_placed_as_before_keep_their_times(monkeypatch, bandwidth, lanes):
    """How long a block takes alone says nothing of the memory's bandwidth: where that is small, the one that loads ends
    last, and its core is not the next one's."""
    run = run_kernel(uneven, A, out=np.zeros_like(A), blocks=4)
    assert run.safe, run.findings
    chip = load("a2a3").override({"clusters.count": 1, "memory.bandwidth": bandwidth})
    passes = []
    monkeypatch.setattr(clock, "join_again", lambda *given: passes.append(given) or join_again(*given))
    once = clock.time_recording(run.recording, chip)
    assert once.assignment.first_lane.tolist() == lanes
    assert len(passes) == (lanes[2] != 1)
    monkeypatch.setattr(Assignment, "is_like", lambda *given: False)
    again = clock.time_recording(run.recording, chip)
    assert again.assignment.first_lane.tolist() == lanes
    for name in ("start", "finish", "cause"):
        assert getattr(again.times, name).tolist() == getattr(once.times, name).tolist()
