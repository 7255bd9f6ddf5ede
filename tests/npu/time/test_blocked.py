"""Recordings timed on chips of other shapes: a time, or why a launch there could not go on."""

import numpy as np
import pytest
from tests.npu.small import flag, line_of

from kernbench import npu
from kernbench.common.errors import MachineError

ZERO = np.zeros((8, 8), np.float32)


def ones(core, out):
    tile = core.alloc("UB", (8, 8))
    core.texpands(tile, 1.0)
    flag(core, "V", "MTE3")
    core.tstore(out[:, :8], tile)
    core.pipe_sync()


def row_of_ones(core, out):
    tile = core.alloc("UB", (1, 8))
    core.texpands(tile, 1.0)
    flag(core, "V", "MTE3")
    core.tstore(out[core.block_idx : core.block_idx + 1], tile)
    core.pipe_sync()


def one_scope(rt, out):
    with rt.scope():
        for _ in range(6):
            rt.submit(aiv0=ones, args=[npu.INOUT(out)])


def many_scopes(rt, out):
    for _ in range(6):
        with rt.scope():
            rt.submit(aiv0=ones, args=[npu.INOUT(out)])


def makes(rt, out):
    for number in range(6):
        rt.submit(aiv0=ones, args=[npu.CREATE((8, 8), "f32", f"a{number}")])


def a_large_one(rt, out):
    with rt.scope():
        rt.submit(aiv0=ones, args=[npu.CREATE((8, 1024), "f32", "a")])


def together(rt, out):
    rt.submit(aiv0=row_of_ones, args=[npu.OUT(out)], block_num=8, sync_start=True)


def deep(rt, out):
    for _ in range(2):
        rt.submit(aiv0=ones, args=[npu.INOUT(out)])
        with rt.scope(), rt.scope():
            rt.submit(aiv0=ones, args=[npu.INOUT(out)])


RINGS = [
    (one_scope, "tasks.window", range(1, 9)),
    (many_scopes, "tasks.window", range(1, 9)),
    (one_scope, "tasks.dependences", range(1, 9)),
    (makes, "tasks.heap", range(1024, 8193, 1024)),
    (a_large_one, "tasks.heap", (8192, 31744, 32768)),
    (together, "clusters.count", range(1, 9)),
]


@pytest.mark.parametrize(("orchestrate", "key", "values"), RINGS, ids=lambda one: getattr(one, "__name__", None))
def test_there_is_a_time_exactly_where_a_launch_ends(orchestrate, key, values):
    recorded = npu.Chip("a2a3").launch(orchestrate, ZERO)
    assert recorded.safe, recorded.findings
    ends = []
    for value in values:
        chip = npu.Chip("a2a3", {key: value})
        fresh = chip.launch(orchestrate, ZERO)
        ends.append(fresh.safe)
        if fresh.safe:
            assert chip.retime(recorded).metrics["time_ps"] == chip.retime(fresh).metrics["time_ps"]
            continue
        with pytest.raises(MachineError) as error:
            chip.retime(recorded)
        submit = line_of(orchestrate, "rt.submit")
        assert f"test_blocked.py:{submit}" in str(error.value)
        assert fresh.findings[0].where.line == submit
        assert key in str(error.value)
    assert ends[-1]
    assert orchestrate is many_scopes or not ends[0]


def test_scopes_that_are_too_deep_for_a_chip_share_its_last_ring():
    recorded = npu.Chip("a2a3").launch(deep, ZERO)
    for rings in (1, 2, 3):
        # a submit waits for the ring that it is in
        chip = npu.Chip("a2a3", {"tasks.rings": rings, "tasks.window": 2, "memory.latency": 5000})
        fresh = chip.launch(deep, ZERO)
        if fresh.safe:
            assert chip.retime(recorded).metrics["time_ps"] == chip.retime(fresh).metrics["time_ps"]
        else:
            with pytest.raises(MachineError, match=r"ring 0 of 1, which is full"):
                chip.retime(recorded)
            assert rings == 1
