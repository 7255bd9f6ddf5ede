"""A parity tells two phases of a barrier apart: who waits for one must know that the one before is over."""

import numpy as np
import pytest
from tests.ptx.emulator.asynchronous.conftest import kinds

from kernbench import ptx

TURNS = 12


def ring(stages, consumers, meet=False):
    """One warp fills a ring of barriers, others take turns to empty it; with `meet` they meet in every turn."""

    def program(ctx):
        full, empty = (ctx.mbarriers(stages, name=name) for name in ("full", "empty"))
        slots, out, warp = ctx.shared("u32", stages), ctx.pointer("out", "u32"), ctx.tid_x // 32
        first = ctx.tid_x % 32 == 0
        with ctx.if_(ctx.tid_x == 0):
            for stage in range(stages):
                ctx.mbarrier_init(full[stage], 1)
                ctx.mbarrier_init(empty[stage], 1)
        ctx.bar_sync()
        with ctx.if_(warp == 0), ctx.loop(TURNS) as turn, ctx.if_(first):
            stage = turn % stages
            ctx.mbarrier_wait(empty[stage], (turn // stages & 1) ^ 1)
            ctx.store(slots, turn * 3, stage)
            ctx.mbarrier_arrive(full[stage])
        with ctx.else_(), ctx.loop(warp - 1, TURNS, consumers) as turn:
            stage = turn % stages
            ctx.mbarrier_wait(full[stage], turn // stages & 1)
            ctx.store(out, ctx.load(slots, stage), turn, mask=first)
            ctx.bar_warp_sync(0xFFFFFFFF)
            if meet:
                ctx.bar_sync(1, 32 * consumers)
            ctx.mbarrier_arrive(empty[stage], pred=first)

    return ptx.PtxKernel("ring").param("u64", "out").build(program)


def launch(kernel, consumers, schedule):
    device = ptx.EmulatedDevice("sm_90a")
    out = device.empty(TURNS, np.uint32, "out")
    return device.launch(kernel, 1, 32 + 32 * consumers, [out], schedule=schedule)


@pytest.mark.sampled(8)
@pytest.mark.parametrize("schedule", ["canonical", "eager", "reversed", 1])
@pytest.mark.parametrize(("stages", "consumers"), [(1, 1), (3, 1), (2, 2), (4, 2), (3, 3)])
def test_who_sees_every_phase_may_wait_by_parity(stages, consumers, schedule):
    run = launch(ring(stages, consumers), consumers, schedule)
    assert run.findings == []
    assert (run.outputs["out"] == 3 * np.arange(TURNS)).all()


@pytest.mark.parametrize("schedule", ["canonical", "reversed"])
@pytest.mark.parametrize(("stages", "consumers"), [(3, 2), (4, 3)])
def test_a_warp_that_saw_only_some_phases_may_pass_early(stages, consumers, schedule):
    run = launch(ring(stages, consumers), consumers, schedule)
    assert kinds(run) == ["mbarrier-phase"]
    message = run.findings[0].message
    assert "waits for phase 1 of mbarrier 'full'" in message
    assert "nothing says that phase 0 is over by then: the wait would pass during it, too" in message


def test_knowledge_of_another_warp_will_do():
    run = launch(ring(3, 2, meet=True), 2, "canonical")
    assert run.findings == []
