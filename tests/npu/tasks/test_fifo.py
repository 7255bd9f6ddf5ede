"""FIFOs between the cores of a cluster: messages, shares of rows, order, and what goes wrong with them."""

import numpy as np
import pytest
from tests.npu.small import flag, kinds

from kernbench import npu

X = np.arange(256, dtype=np.float32).reshape(16, 16)


def launch(aic, aiv, depth=2, direction="to_aiv", fifo_shape=(16, 16), **options):
    def orchestrate(rt, x, out):
        fifo = rt.fifo("q", direction, fifo_shape, "f32", depth)
        rt.submit(aic=aic, aiv=aiv, args=[npu.IN(x), npu.OUT(out), fifo])

    return npu.Chip("a2a3").launch(orchestrate, X.astype(np.float32), np.zeros((16, 16), np.float32), **options)


def produce(rounds, waits=True):
    def aic(core, x, out, fifo):
        tile = core.alloc("L1", (16, 16), "f32")
        for i in range(rounds):
            if i and waits:
                flag(core, "MTE3", "MTE2")
            core.tload(tile, x)
            flag(core, "MTE2", "MTE3", 1)
            core.tpush(fifo, tile)

    return aic


def consume(rounds, rows=8):
    def aiv(core, x, out, fifo):
        tile = core.alloc("UB", (rows, 16), "f32")
        for i in range(rounds):
            if i:
                flag(core, "MTE3", "MTE2")
            core.tpop(fifo, tile)
            flag(core, "MTE2", "MTE3", 1)
            first = rows * core.sub_block_id
            core.tstore(out[first : first + rows], tile)
        core.pipe_sync()

    return aiv


@pytest.mark.parametrize("schedule", ["canonical", "reversed", 1, 2, 3])
def test_each_lane_gets_its_rows(schedule):
    run = launch(produce(5), consume(5), schedule=schedule)
    assert run.findings == []
    assert np.array_equal(run.outputs["out"], X)


def test_a_buffer_pushed_from_again_needs_order():
    run = launch(produce(3, waits=False), consume(3))
    assert "race" in kinds(run)
    assert "tpush on pipe MTE3 of aic" in run.findings[0].message


def whole(core, x, out, fifo):
    """The cube takes what both lanes push."""
    tile = core.alloc("L1", (16, 16), "f32")
    core.tpop(fifo, tile)
    flag(core, "MTE2", "MTE3")
    core.tstore(out, tile)
    core.pipe_barrier("ALL")


def test_lanes_to_the_cube():
    def aiv(core, x, out, fifo):
        tile = core.alloc("UB", (8, 16), "f32")
        first = 8 * core.sub_block_id
        core.tload(tile, x[first : first + 8])
        flag(core, "MTE2", "MTE3")
        core.tpush(fifo, tile)

    run = launch(whole, aiv, direction="to_aic")
    assert run.findings == []
    assert np.array_equal(run.outputs["out"], X)


def test_a_pop_too_many_is_a_deadlock_told_in_full():
    run = launch(produce(2), consume(3))
    assert run.status == "deadlocked"
    (finding,) = [f for f in run.findings if f.kind == "deadlock"]
    assert "aiv0: pop number 3 of FIFO 'q' (16x16 f32, depth 2)" in finding.message
    assert "aic pushed 2, aiv0 popped 2, aiv1 popped 2" in finding.message
    assert "aic has returned" in finding.message


def test_a_push_too_many_is_left_over_or_blocks():
    left = launch(produce(3), consume(2))
    assert "message-unreceived" in kinds(left)
    blocked = launch(produce(6), consume(2))
    assert blocked.status == "deadlocked"
    assert "all slots are full" in blocked.findings[0].message


def test_lanes_that_disagree_on_the_rounds():
    def aiv(core, x, out, fifo):
        consume(2 + core.sub_block_id)(core, x, out, fifo)

    assert launch(produce(3), aiv).status == "finished"
    assert "message-unreceived" in kinds(launch(produce(3), aiv))


def test_a_message_of_another_shape():
    def aiv(core, x, out, fifo):
        tile = core.alloc("UB", (8, 16), "f32").view(valid=(8, 8))
        core.tpop(fifo, tile)
        flag(core, "MTE2", "MTE3")

    run = launch(produce(1), aiv)
    assert "message-mismatch" in kinds(run)


def test_the_wrong_end_of_a_fifo():
    def aiv(core, x, out, fifo):
        core.tpush(fifo, core.alloc("UB", (8, 16), "f32"))

    run = launch(produce(1), aiv)
    assert "aiv0 pushes into FIFO 'q' (16x16 f32, depth 2), which goes from aic to aiv0 and aiv1" in str(run.findings)


def test_a_fifo_needs_a_mixed_task():
    def orchestrate(rt, x):
        rt.submit(aiv=consume(1), args=[npu.IN(x), rt.fifo("q", "to_aiv", (16, 16))])

    run = npu.Chip("a2a3").launch(orchestrate, X)
    assert run.status == "failed"
    assert "a FIFO needs a mixed task" in run.findings[0].message


def test_memory_between_cores_is_ordered_by_the_fifo_only():
    """The AIC stores to memory and the AIVs load it: a message pushed by the same pipe after the store orders them."""

    def program(pushed_first):
        def aic(core, x, out, fifo):
            tile = core.alloc("L1", (16, 16), "f32")
            core.tload(tile, x)
            flag(core, "MTE2", "MTE3")
            if pushed_first:
                core.tpush(fifo, tile)
            core.tstore(out, tile)
            if not pushed_first:
                core.tpush(fifo, tile)
            core.pipe_barrier("ALL")

        def aiv(core, x, out, fifo):
            tile = core.alloc("UB", (8, 16), "f32")
            core.tpop(fifo, tile)
            first = 8 * core.sub_block_id
            core.tload(tile, out[first : first + 8])
            flag(core, "MTE2", "V")
            core.tabs(tile, tile)

        return launch(aic, aiv, schedule="reversed")

    assert program(False).findings == []
    assert "race" in kinds(program(True))


@pytest.mark.parametrize(("dtype", "told"), [("bf16", "differ in type"), ("i32", "differ in type"), ("f32", "")])
def test_a_push_converts_only_what_leaves_the_cube(dtype, told):
    def aiv(core, x, out, fifo):
        tile = core.alloc("UB", (8, 16), dtype)
        core.texpands(tile, 1)
        flag(core, "V", "MTE3")
        core.tpush(fifo, tile)

    run = launch(whole, aiv, direction="to_aic")
    assert kinds(run) == (["dtype"] if told else [])
    assert all(told in finding.message for finding in run.findings)
