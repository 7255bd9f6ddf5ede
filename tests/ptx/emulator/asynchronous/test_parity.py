"""A parity tells two phases of a barrier apart: who waits for one must know that the one before is over."""

import numpy as np
import pytest
from tests.ptx.emulator.asynchronous.conftest import kinds

from kernbench import ptx

TURNS = 12


def ring(stages, consumers, meet=False, arrivals=1, helped=False):
    """One warp fills a ring of barriers, others take turns to empty it; with `meet` they meet in every turn.

    If it is `helped`, a warp for each stage arrives there, too.
    """

    def program(ctx):
        full, empty = (ctx.mbarriers(stages, name=name) for name in ("full", "empty"))
        slots, out, warp = ctx.shared("u32", stages), ctx.pointer("out", "u32"), ctx.tid_x // 32
        first = ctx.tid_x % 32 == 0
        with ctx.if_(ctx.tid_x == 0):
            for stage in range(stages):
                ctx.mbarrier_init(full[stage], arrivals + helped)
                ctx.mbarrier_init(empty[stage], 1)
        ctx.bar_sync()
        with ctx.if_(warp == 0), ctx.loop(TURNS) as turn, ctx.if_(first):
            stage = turn % stages
            ctx.mbarrier_wait(empty[stage], (turn // stages & 1) ^ 1)
            ctx.store(slots, turn * 3, stage)
            for _ in range(arrivals):
                ctx.mbarrier_arrive(full[stage])
        with ctx.if_(warp > consumers), ctx.loop(warp - consumers - 1, TURNS, stages) as turn, ctx.if_(first):
            stage = turn % stages
            ctx.mbarrier_wait(empty[stage], (turn // stages & 1) ^ 1)
            ctx.mbarrier_arrive(full[stage])
        with ctx.if_((warp > 0) & (warp <= consumers)), ctx.loop(warp - 1, TURNS, consumers) as turn:
            stage = turn % stages
            ctx.mbarrier_wait(full[stage], turn // stages & 1)
            ctx.store(out, ctx.load(slots, stage), turn, mask=first)
            ctx.bar_warp_sync(0xFFFFFFFF)
            if meet:
                ctx.bar_sync(1, 32 * consumers)
            ctx.mbarrier_arrive(empty[stage], pred=first)

    return ptx.PtxKernel("ring").param("u64", "out").build(program)


def launch(kernel, consumers, schedule, helpers=0):
    device = ptx.EmulatedDevice("sm_90a")
    out = device.empty(TURNS, np.uint32, "out")
    return device.launch(kernel, 1, 32 + 32 * (consumers + helpers), [out], schedule=schedule)


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
    """Two warps' arrivals complete a phase: nothing says that the second one, which helps there only, has come."""
    run = launch(ring(stages, consumers, helped=True), consumers, schedule, stages)
    assert kinds(run) == ["mbarrier-phase"]
    message = run.findings[0].message
    assert "waits for phase 1 of mbarrier 'full'" in message
    assert "nothing says that phase 0 is over by then: the wait would pass during it, too" in message


def test_knowledge_of_another_warp_will_do():
    run = launch(ring(3, 2, meet=True, helped=True), 2, "canonical", 3)
    assert run.findings == []


@pytest.mark.parametrize("schedule", ["canonical", "reversed"])
@pytest.mark.parametrize("arrivals", [1, 2])
@pytest.mark.parametrize(("stages", "consumers"), [(3, 2), (4, 3)])
def test_a_warp_that_saw_a_later_stage_knows_that_an_earlier_one_was_filled(stages, consumers, arrivals, schedule):
    """The arrivals for a stage come before those for the next, by the same thread: the phase is over with them."""
    run = launch(ring(stages, consumers, arrivals=arrivals), consumers, schedule)
    assert run.findings == []


def presignalled(meets, count=1, expects=False):
    """A producer that signals its own empty barrier before it begins, fills once without a wait, and then waits for
    the consumer: phase 0 was over with its arrivals. Another warp signals where `meets` says how they meet; of several
    arrivals the last one comes from it behind that meeting, if `meets` is "late"."""

    def program(ctx):
        full, empty = (ctx.mbarriers(1, name=name) for name in ("full", "empty"))
        slots, out, warp = ctx.shared("u32", 1), ctx.pointer("out", "u32"), ctx.tid_x // 32
        first = ctx.tid_x % 32 == 0
        with ctx.if_(ctx.tid_x == 0):
            ctx.mbarrier_init(full[0], 1)
            ctx.mbarrier_init(empty[0], count)
        ctx.bar_sync()
        with ctx.if_(ctx.tid_x == (64 if meets else 0)):
            for _ in range(count - (meets == "late")):
                ctx.mbarrier_arrive(empty[0])
        if meets in ("block", "late"):
            ctx.bar_sync()
        if meets == "late":
            ctx.mbarrier_arrive(empty[0], pred=ctx.tid_x == 64)
        with ctx.if_(warp == 0), ctx.if_(first):
            ctx.store(slots, 5, 0)
            ctx.mbarrier_arrive(full[0])
            ctx.mbarrier_wait(empty[0], 1)
            ctx.store(slots, 7, 0)
            ctx.mbarrier_arrive(full[0])
        with ctx.if_(warp == 1), ctx.loop(2) as turn:
            ctx.mbarrier_wait(full[0], turn & 1)
            ctx.store(out, ctx.load(slots, 0), turn, mask=first)
            ctx.bar_warp_sync(0xFFFFFFFF)
            for _ in range(count):
                ctx.mbarrier_arrive(empty[0], pred=first)

    return ptx.PtxKernel("presignalled").param("u64", "out").build(program)


@pytest.mark.parametrize("schedule", ["canonical", "reversed", 1])
@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize(("meets", "warps"), [("", 2), ("block", 3)])
def test_who_knows_all_arrivals_of_a_phase_knows_that_it_is_over(meets, warps, count, schedule):
    """Official examples of CuTe DSL signal that all stages are free, and fill the first ones without a wait."""
    device = ptx.EmulatedDevice("sm_90a")
    out = device.empty(2, np.uint32, "out")
    run = device.launch(presignalled(meets, count), 1, 32 * warps, [out], schedule=schedule)
    assert run.findings == []
    assert run.outputs["out"].tolist() == [5, 7]


@pytest.mark.parametrize(("meets", "count"), [("not", 1), ("late", 2)])
def test_who_knows_nothing_of_it_or_of_one_of_two_may_pass_early(meets, count):
    """The second of two arrivals may come late for all that the waiting thread knows."""
    device = ptx.EmulatedDevice("sm_90a")
    run = device.launch(presignalled(meets, count), 1, 96, [device.empty(2, np.uint32, "out")])
    assert kinds(run) == ["mbarrier-phase"]


def counted(known, lanes=False):
    """Two threads complete two phases of a barrier; a third one waits for the second phase by parity.

    Before, it waits for another barrier, on which the first `known` of them arrive between their two arrivals. With
    `lanes` the two are lanes of one warp, which run one after the other.
    """

    def program(ctx):
        a, b = (ctx.mbarriers(1, name=name) for name in "ab")
        slots, out = ctx.shared("u32", 2), ctx.pointer("out", "u32")
        with ctx.if_(ctx.tid_x == 0):
            ctx.mbarrier_init(a[0], 2)
            ctx.mbarrier_init(b[0], max(known, 1))
        ctx.bar_sync()
        for number in range(2):
            with ctx.if_(ctx.tid_x == (number if lanes else 32 * number)):
                ctx.mbarrier_arrive(a[0])
                if number < known:
                    ctx.mbarrier_arrive(b[0])
        for number in range(2):
            with ctx.if_(ctx.tid_x == (number if lanes else 32 * number)):
                ctx.store(slots, 5 + number, number)
                ctx.mbarrier_arrive(a[0])
        with ctx.if_(ctx.tid_x == 64):
            if known:
                ctx.mbarrier_wait(b[0], 0)
            ctx.mbarrier_wait(a[0], 1)
            for number in range(2):
                ctx.store(out, ctx.load(slots, number), number)

    return ptx.PtxKernel("counted").param("u64", "out").build(program)


@pytest.mark.parametrize("schedule", ["canonical", "reversed", 1])
@pytest.mark.parametrize("lanes", [False, True])
def test_every_arrival_of_a_counted_phase_must_be_known(lanes, schedule):
    device = ptx.EmulatedDevice("sm_90a")
    for known, found in ((2, []), (1, ["mbarrier-phase"])):
        out = device.empty(2, np.uint32, "out")
        run = device.launch(counted(known, lanes), 1, 96, [out], schedule=schedule)
        assert kinds(run) == found
        assert out.numpy().tolist() == [5, 6]
