"""The engine on streams written down by hand: exact cycles for one cause at a time, and rules no model may break."""

from dataclasses import fields, replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests import sampled
from tests.ptx.time.made import Act, Kind, Op, Pipe, launch, load
from tests.sampled import some

from kernbench.ptx.machine import load as gpu_file
from kernbench.ptx.time import Reason, Unit
from kernbench.ptx.time.chip.dealing import deal
from kernbench.ptx.time.launch import time_launch

# nothing in L2 must be written back first, the first CTAs run at once, and all answers take the same time
H200 = gpu_file("h200").override({"l2.dirty": 0, "launch.first": 0, "l2.spread": 0, "hbm.spread": 0})
END = Op(Pipe.CONTROL)


def cycles(programs, gpu=H200, **given) -> float:
    return time_launch(*launch(programs, **given), gpu).cycles


def turns(body: list[Op], count: int) -> list[Op]:
    return [*body, Op(Pipe.BRANCH, stall=5, back=len(body), turns=count), END]


def shared_load(wavefronts=1, **given) -> Op:
    event = {"wavefronts": wavefronts, "lanes": 32, "bytes": 128}
    return Op(Pipe.SHARED, write=0, stall=2, kind=Kind.SHARED_LOAD, event=event, **given)


def stream(loads=4, first=16, count=16) -> list[Op]:
    """Loads of 16 bytes a lane that are used a turn later."""
    body = [load(sectors=16, lines=4, first=first, other=16 - first, stall=2, width=16) for _ in range(loads)]
    for op in body:
        op.event["bytes"] = 512
    return turns([replace(body[0], wait=1), *body[1:]], count)


@pytest.mark.parametrize(
    ("pipe", "warps", "expected"),
    [
        # a sub-core issues one a cycle; ALU and multiplications take two; MUFU eight
        (Pipe.FMA, 4, 101), (Pipe.FMA, 8, 202), (Pipe.INTEGER, 4, 200), (Pipe.INTEGER, 8, 400),
        (Pipe.MULTIPLY, 8, 400), (Pipe.WIDE, 8, 803), (Pipe.MUFU, 4, 794),
    ],
)  # fmt: skip
def test_pipes_take_their_interval(pipe, warps, expected):
    assert cycles([[Op(pipe)] * 100 + [END]] * warps) == pytest.approx(expected, abs=2)


def test_stalls_of_the_code_hold_a_warp_back():
    assert cycles([[Op(Pipe.FMA, stall=4)] * 100 + [END]]) == pytest.approx(401, abs=0.01)


def test_a_counter_holds_back_what_waits_for_it():
    work = [Op(Pipe.FMA)] * 40
    beside = cycles([[shared_load(), *work, END]])
    after = cycles([[shared_load(), Op(Pipe.FMA, wait=1), *work, END]])
    assert after - beside == pytest.approx(float(H200.shared.latency) - 1, abs=1.1)


def test_branches_that_are_taken_cost_more_than_their_stall():
    loop = cycles([turns([Op(Pipe.FMA)], 11)]) - cycles([turns([Op(Pipe.FMA)], 1)])
    assert loop / 10 == pytest.approx(1 + 5 + float(H200.issue.branch_back))


@pytest.mark.parametrize("warps", [1, 2, 8, 32])
def test_a_barrier_costs_by_its_warps(warps):
    meet = [Op(Pipe.BARRIER, kind=Kind.BARRIER_SYNC, event={"object": 0, "phase": n}) for n in range(16)]
    expected = float(H200.barriers.sync) + float(H200.barriers.sync_warp) * (warps - 1)
    assert cycles([[*meet, END]] * warps) / 16 == pytest.approx(expected, rel=0.05)


def test_waiting_is_the_barriers_own_and_a_result_is_waited_for_where_it_is_needed():
    slow, meet = (
        [Op(Pipe.FMA, stall=4)] * 100,
        Op(Pipe.BARRIER, kind=Kind.BARRIER_SYNC, event={"object": 0, "phase": 0}),
    )
    made = time_launch(*launch([[meet, Op(Pipe.FMA), END], [*slow, meet, END]]), H200)
    waited = made.stalls.cycles[:, Reason.BARRIER]
    # the warp that comes first waits for the other one, at its barrier
    assert waited[0] > 300
    assert waited[0] == max(waited)
    assert waited[1] == 0
    made = time_launch(*launch([[load(other=4), Op(Pipe.FMA, wait=1), END]]), H200)
    assert made.stalls.cycles[:2, Reason.GLOBAL].tolist() == [0, pytest.approx(float(H200.l2.latency), rel=0.1)]


def test_waits_for_mbarriers_copies_and_fences_are_those_of_the_instructions_that_wait():
    arrive = Op(Pipe.MBARRIER, kind=Kind.MBARRIER_ARRIVE, event={"object": 8, "phase": 0}, act=Act.ARRIVE)
    wait = Op(Pipe.MBARRIER, write=0, kind=Kind.MBARRIER_WAIT, event={"object": 8, "phase": 0}, act=Act.WAIT)
    programs = [[wait, Op(Pipe.BRANCH, wait=1), END], [*[Op(Pipe.FMA, stall=4)] * 100, arrive, END]]
    waited = time_launch(*launch(programs), H200).stalls.cycles[:, Reason.MBARRIER]
    assert waited[0] > 300 > waited[1] == 0
    event = {"sectors": 16, "lines": 4, "first": 16, "lanes": 32, "bytes": 512}
    copies = [Op(Pipe.CP_ASYNC, kind=Kind.ASYNC_COPY, event=event, width=16)]
    copies += [Op(Pipe.CP_ASYNC, kind=Kind.ASYNC_COPY_COMMIT, event={"phase": 0})]
    copies += [Op(Pipe.CONTROL, kind=Kind.ASYNC_COPY_WAIT, event={"phase": 1}), Op(Pipe.FMA), END]
    waited = time_launch(*launch([copies]), H200).stalls.cycles[:, Reason.GROUP]
    assert waited[2] > 300
    assert waited[3] == 0


def test_bank_conflicts_take_a_cycle_each():
    programs = [[shared_load(ways) for _ in range(32)] + [END] for ways in (1, 8)]
    once, eight = (cycles([program] * 16) for program in programs)
    assert once == pytest.approx(512, rel=0.1)
    assert eight / once == pytest.approx(8, rel=0.1)


@pytest.mark.parametrize(
    ("hit", "figure"), [({"own": 4}, "l1"), ({"other": 4}, "l2"), ({"first": 4}, "hbm")], ids=["l1", "l2", "hbm"]
)
def test_a_chase_takes_the_latency_of_the_level_that_holds_its_data(hit, figure):
    chase = [load(wait=1, stall=2, **hit) for _ in range(33)]
    latency = float(getattr(H200, figure).latency)
    assert (cycles([[*chase, END]]) - cycles([[chase[0], END]])) / 32 == pytest.approx(latency, rel=0.02)


def test_what_was_touched_too_long_ago_is_not_held():
    near, far = (
        [replace(one, event={**one.event, "other_distance": log}) for one in [load(other=4, wait=1, stall=2)] * 8]
        for log in (20, 30)
    )
    assert cycles([[*far, END]]) > 2 * cycles([[*near, END]])


def test_streams_reach_the_bandwidth_of_memory_and_no_more():
    made = time_launch(*launch([stream()] * 16, ctas=264), H200)
    moved = 264 * 16 * 16 * 4 * 512
    reached = moved / (made.cycles / (made.clock_mhz * 1e6)) / 1e9
    assert 0.8 * 4800 < reached < float(H200.hbm.read_share) * 4800
    assert made.bound is Unit.HBM
    assert made.traffic.hbm_read == moved
    assert max(made.stalls.by_reason(), key=made.stalls.by_reason().get) is Reason.GLOBAL


def test_mbarriers_wake_when_the_last_arrival_is_there():
    slow = [Op(Pipe.FMA, stall=4)] * 100
    arrive = Op(Pipe.MBARRIER, kind=Kind.MBARRIER_ARRIVE, event={"object": 8, "phase": 0}, act=Act.ARRIVE)
    wait = Op(Pipe.MBARRIER, write=0, kind=Kind.MBARRIER_WAIT, event={"object": 8, "phase": 0}, act=Act.WAIT)
    first = [*slow, arrive, END]
    second = [wait, Op(Pipe.BRANCH, wait=1), END]
    took = cycles([first, second])
    assert took == pytest.approx(400 + float(H200.barriers.try_wait), abs=8)


def test_a_wait_for_a_phase_that_nobody_else_ends_does_not_hang():
    wait = Op(Pipe.MBARRIER, write=0, kind=Kind.MBARRIER_WAIT, event={"object": 8, "phase": 3}, act=Act.WAIT)
    assert cycles([[wait, Op(Pipe.BRANCH, wait=1), END]]) < 100


def test_groups_of_copies_are_waited_for_in_order():
    event = {"sectors": 16, "lines": 4, "first": 16, "lanes": 32, "bytes": 512}
    copy = Op(Pipe.CP_ASYNC, kind=Kind.ASYNC_COPY, event=event, width=16)

    def program(needed: int) -> list[Op]:
        commits = [Op(Pipe.CP_ASYNC, kind=Kind.ASYNC_COPY_COMMIT, event={"phase": n}) for n in range(2)]
        wait = Op(Pipe.CONTROL, kind=Kind.ASYNC_COPY_WAIT, event={"phase": needed})
        return [copy, commits[0], *[Op(Pipe.FMA, stall=15)] * 40, copy, commits[1], wait, Op(Pipe.FMA), END]

    one, both = cycles([program(1)]), cycles([program(2)])
    assert both - one > 500


def test_products_take_the_rate_of_the_tensor_core():
    product = Op(Pipe.WGMMA, kind=Kind.WGMMA, mnk=(64, 128, 16), act=Act.MULTIPLY)
    commit = Op(Pipe.WGMMA, kind=Kind.WGMMA_COMMIT, event={"phase": 0})
    wait = Op(Pipe.CONTROL, kind=Kind.WGMMA_WAIT, event={"phase": 1})
    made = time_launch(*launch([[*[product] * 32, commit, wait, Op(Pipe.FMA), END]] * 4), H200)
    assert made.cycles == pytest.approx(32 * 64 + float(H200.tensor.wgmma_tail), abs=6)
    assert made.floors[Unit.TENSOR] * made.clock_mhz * 1e6 == pytest.approx(32 * 64 / 132)


@pytest.mark.parametrize(("n", "expected"), [(8, 18), (32, 24), (128, 64)])
def test_narrow_products_wait_for_their_operands(n, expected):
    """A of 64 x 16 and B of n x 16 elements pass out of shared memory at 128 bytes a cycle, as was measured."""
    product = Op(Pipe.WGMMA, kind=Kind.WGMMA, mnk=(64, n, 16), act=Act.MULTIPLY)
    commit = Op(Pipe.WGMMA, kind=Kind.WGMMA_COMMIT, event={"phase": 0})
    wait = Op(Pipe.CONTROL, kind=Kind.WGMMA_WAIT, event={"phase": 1})
    few, many = (cycles([[*[product] * count, commit, wait, Op(Pipe.FMA), END]] * 4) for count in (32, 96))
    assert (many - few) / 64 == pytest.approx(expected, rel=0.02)


def test_waves_follow_each_other_and_a_tail_costs_a_whole_one():
    one, two, just_more = (cycles([stream(first=0)] * 8, ctas=132 * n, registers=255) for n in (1, 2, 3))
    assert time_launch(*launch([stream()] * 8, registers=255), H200).occupancy.ctas == 1
    assert two > 1.9 * one
    tail = cycles([stream(first=0)] * 8, ctas=132 * 2 + 1, registers=255)
    assert two < tail <= just_more * 1.01


@pytest.mark.parametrize(
    ("warps", "registers", "shared", "limit", "held"),
    [
        (8, 32, 0, "warps", 8), (8, 128, 0, "registers", 2), (4, 32, 100 << 10, "shared memory", 2),
        (1, 16, 0, "CTAs", 32),
    ],
)  # fmt: skip
def test_occupancy_says_what_limits_it(warps, registers, shared, limit, held):
    made = time_launch(*launch([[END]] * warps, ctas=132 * 64, registers=registers, shared=shared), H200).occupancy
    assert (made.ctas, made.limit) == (held, limit)


def test_the_same_launch_takes_the_same_time_to_the_last_digit():
    made = [time_launch(*launch([stream()] * 4, ctas=200), H200) for _ in range(2)]
    assert made[0].cycles == made[1].cycles
    assert np.array_equal(made[0].stalls.cycles, made[1].stalls.cycles)


def test_ctas_that_differ_get_sm_groups_by_the_budget():
    recording, streams = launch([], ctas=400, classes=[[stream()], [stream(count=32)]])
    lengths = np.diff(streams.path_start)
    whole = deal(recording, lengths, H200, 4)
    few = deal(recording, lengths, H200, 4, budget=1000)
    assert (whole.groups, int(whole.weight.sum())) == (132, 132)
    assert (few.groups, int(few.weight.sum())) == (4, 132)
    exact = time_launch(recording, streams, H200).cycles
    assert time_launch(recording, streams, H200, budget=30_000).cycles == pytest.approx(exact, rel=0.25)


def _repeated(events, count):
    """Each event so many times, one behind the other."""
    return replace(events, **{one.name: np.repeat(getattr(events, one.name), count) for one in fields(events)})


def _repeated_bounds(recording, count):
    return replace(recording.traces, first_event=recording.traces.first_event * count)


SMALL = st.builds(stream, loads=st.integers(1, 4), first=st.sampled_from([0, 8, 16]), count=st.integers(1, 6))
LAUNCHES = st.tuples(SMALL, st.integers(1, 8), st.integers(1, 300))


@settings(max_examples=sampled.examples(12, 25), deadline=None, derandomize=True)
@given(LAUNCHES)
def test_no_time_is_below_its_floors(made):
    program, warps, ctas = made
    time = time_launch(*launch([program] * warps, ctas=ctas), H200)
    assert time.seconds >= time.floor_seconds
    assert all(0 <= share <= 1 + 1e-9 for share in time.busy.values())


def test_an_atomic_whose_sectors_are_not_there_takes_l2_longer():
    """As long as memory is not what bounds it."""

    def taken(first):
        event = {"sectors": 4, "lines": 1, "bytes": 128, "lanes": 32, "wavefronts": 1, "other_distance": 10}
        event |= {"first": first, "other": 4 - first}
        red = Op(Pipe.GLOBAL, act=Act.REDUCTION, kind=Kind.GLOBAL_REDUCTION, event=event)
        return cycles([[red] * 16 + [END]] * 8, H200.override({"hbm.bandwidth": 1e6}), ctas=132 * 16)

    missed = 4 * 16 * 8 * 132 * 16 * float(H200.l2.atomic_missed)
    assert taken(4) == pytest.approx(missed, rel=0.05)
    assert taken(0) < 0.6 * missed


def test_what_the_compiler_merged_raises_no_floor():
    # of 64 loads of shared memory in each turn ptxas keeps one: the passes of the others are never made
    program = [replace(shared_load(), write=7), *[Op(Pipe.FMA)] * 8, END]
    recording, streams = launch([program] * 4, ctas=132 * 8)
    _, merged = launch([[replace(shared_load(), write=7)] * 64 + [END]] * 4, ctas=132 * 8)
    recording = replace(recording, events=_repeated(recording.events, 64), traces=_repeated_bounds(recording, 64))
    streams = replace(streams, first_event=streams.first_event * 64)
    time, every = time_launch(recording, streams, H200), time_launch(recording, merged, H200)
    assert every.floors[Unit.SHARED] == pytest.approx(64 * time.floors[Unit.SHARED])
    assert time.cycles < 0.7 * every.cycles


@settings(max_examples=15, deadline=None, derandomize=True)
@given(LAUNCHES, st.sampled_from(["hbm.bandwidth", "l2.bytes_per_cycle", "l2.sm_bytes_per_cycle"]))
def test_more_bandwidth_is_never_slower(made, key):
    program, warps, ctas = made
    wide = H200.override({key: float(H200.figures()[key]) * 2})
    given = launch([program] * warps, ctas=ctas)
    assert time_launch(*given, wide).cycles <= time_launch(*given, H200).cycles * 1.0001


def test_what_must_leave_l2_first_takes_time():
    dirty = H200.override({"l2.dirty": 0.5})
    given = launch([stream(count=16)] * 16, ctas=264)
    clean, later = (time_launch(*given, gpu).cycles for gpu in (H200, dirty))
    assert 1.05 * clean < later < 1.6 * clean


def test_what_is_written_leaves_l2_in_the_end():
    """A copy in steady state writes as much as it reads; the shorter one moves more than twice what L2 holds."""
    event = {"sectors": 16, "lines": 4, "first": 16, "lanes": 32, "bytes": 512}
    store = Op(Pipe.GLOBAL, kind=Kind.GLOBAL_STORE, event=event, width=16, act=Act.STORE)
    body = [replace(stream()[0]), replace(store, wait=1)]
    short, long = (cycles([turns(body, n)] * 32, ctas=264) for n in (16, 32))
    moved = 264 * 32 * 16 * 512 * 2
    reached = moved / ((long - short) / (float(H200.clock.most) * 1e6)) / 1e9
    assert reached == pytest.approx(float(H200.hbm.bandwidth * H200.hbm.copy_share), rel=0.05)


# more loads than stores; with --full more stores than loads
MIXES = [(2, 1, 0.870), (3, 1, 0.894), (1, 2, 0.819)]


@pytest.mark.parametrize(("loads", "stores", "reached"), some(MIXES, 1))
def test_reads_and_writes_are_mixed_as_an_h200_mixes_them(loads, stores, reached):
    """Shares of the bandwidth that `hbm.mix` measured; the figures come from reads, writes and copies alone.

    The shorter one moves twice what L2 holds.
    """
    event = {"sectors": 16, "lines": 4, "first": 16, "lanes": 32, "bytes": 512}
    store = Op(Pipe.GLOBAL, kind=Kind.GLOBAL_STORE, event=event, width=16, act=Act.STORE)
    body = [*(replace(stream()[0]) for _ in range(loads)), *(replace(store, wait=1) for _ in range(stores))]
    short, long = (cycles([turns(body, n)] * 32, ctas=264) for n in (8, 16))
    moved = 264 * 32 * 8 * 512 * (loads + stores)
    share = moved / ((long - short) / (float(H200.clock.most) * 1e6)) / 1e9 / float(H200.hbm.bandwidth)
    assert share == pytest.approx(reached, rel=0.05)


def test_a_load_waits_while_memory_writes():
    """Little is under way, and memory has time for all of it: what must leave L2 is waited for all the same."""
    given = launch([stream(loads=1, count=64)] * 4, ctas=132)
    waiting = H200.override({"l2.dirty": 0.6})
    clean, later = (time_launch(*given, gpu).cycles for gpu in (H200, waiting))
    beside = time_launch(*given, waiting.override({"hbm.writing": 0})).cycles
    assert later - clean > 4 * (beside - clean)
    assert later > 1.05 * clean


def test_words_at_random_touch_lines_that_are_there():
    """A quarter of the touches are first ones: L2 holds what was touched, though as many lines as touches would not."""
    event = {"sectors": 32, "lines": 32, "lanes": 32, "bytes": 128, "first": 8, "other": 24, "other_distance": 21.7}
    random = [Op(Pipe.GLOBAL, kind=Kind.GLOBAL_LOAD, event=event, width=4, act=Act.LOAD, write=0), END]
    few = time_launch(*launch([random] * 8, ctas=4096), H200).traffic
    once = {**event, "first": 31, "other": 1}
    many = time_launch(*launch([[replace(random[0], event=once), END]] * 8, ctas=4096), H200).traffic
    assert few.hbm_read < 1.05 * 4096 * 8 * 8 * 64
    assert many.hbm_read >= 4096 * 8 * 31 * 64


def test_the_first_ctas_begin_late():
    assert cycles([[END]], gpu_file("h200")) - cycles([[END]]) == pytest.approx(float(gpu_file("h200").launch.first))


# of kernels as they are, test_rules.py
@pytest.mark.named
def test_twice_the_work_takes_twice_as_long():
    short, long = (cycles([stream(count=n)] * 16, ctas=264) for n in (16, 32))
    assert long / short == pytest.approx(2, rel=0.03)


def access(kind, act, sectors, lines, nbytes, **event) -> Op:
    columns = {"sectors": sectors, "lines": lines, "bytes": nbytes, "lanes": 32, "other": sectors, **event}
    return Op(Pipe.GLOBAL, stall=2, write=0, kind=kind, act=act, width=nbytes // 32, event=columns)


def of_many(op: Op) -> float:
    """Cycles of one instruction of the whole GPU where all SMs issue nothing else."""
    few, many = (cycles([[op] * count + [END]] * 16, ctas=132) for count in (8, 40))
    return (many - few) / (32 * 16 * 132)


def test_stores_of_parts_take_longer_by_sector_and_by_line():
    near = {"other_distance": 20}
    whole = of_many(access(Kind.GLOBAL_STORE, Act.STORE, 4, 1, 128, **near))
    dense = of_many(access(Kind.GLOBAL_STORE, Act.STORE, 32, 8, 128, **near))
    apart = of_many(access(Kind.GLOBAL_STORE, Act.STORE, 32, 32, 128, **near))
    l2 = H200.l2
    assert whole == pytest.approx(128 / float(l2.write_bytes_per_cycle), rel=0.05)
    assert dense == pytest.approx(32 * float(l2.store_sector) + 8 * float(l2.store_line), rel=0.05)
    assert apart == pytest.approx(32 * float(l2.store_sector) + 32 * float(l2.store_line), rel=0.05)


def test_loads_of_single_words_of_lines_are_bound_by_lines():
    one = of_many(access(Kind.GLOBAL_LOAD, Act.LOAD, 32, 32, 128, other_distance=20))
    assert one == pytest.approx(32 / float(H200.l2.lines_per_cycle), rel=0.05)


def test_what_neighbours_load_at_once_l2_gives_once():
    alone, merged = (of_many(access(Kind.GLOBAL_LOAD, Act.LOAD, 16, 4, 512, other_distance=log)) for log in (20, 9))
    assert alone / merged > 2


@pytest.mark.parametrize(("opcode", "figure"), [("red.global.add.u32", "atomic_interval"), ("red.f32", "atomic_float")])
def test_additions_to_one_word_go_one_after_the_other(opcode, figure):
    op = access(Kind.GLOBAL_REDUCTION, Act.REDUCTION, 1, 1, 128, wavefronts=32, first=1 / (132 * 16 * 40), other=0)
    made = [launch([[op] * count + [END]] * 16, ctas=132) for count in (8, 40)]
    named = [(replace(one, instructions=replace(one.instructions, opcode=(opcode,) * len(one.instructions))), streams)
             for one, streams in made]  # fmt: skip
    few, many = (time_launch(*one, H200).cycles for one in named)
    one = float(H200.l2.atomic_interval) + 31 * float(getattr(H200.l2, figure))
    assert (many - few) / (32 * 16 * 132) == pytest.approx(one, rel=0.05)


def test_products_have_a_clock_of_their_own():
    product = Op(Pipe.MMA, mnk=(16, 8, 16), act=Act.MULTIPLY)
    plain, multiplied = (time_launch(*launch([[op, END]]), H200) for op in (Op(Pipe.FMA), product))
    assert (plain.clock_mhz, multiplied.clock_mhz) == (float(H200.clock.most), float(H200.clock.products))


def test_loads_that_miss_answer_at_different_times_with_the_same_mean():
    spread = H200.override({"hbm.spread": 400})
    chase = [load(wait=1, stall=2, first=4) for _ in range(65)]
    assert cycles([[*chase, END]], spread) == pytest.approx(cycles([[*chase, END]]), rel=0.02)
    # of four that are waited for together the last one counts
    four = [load(stall=2, first=4, wait=int(n % 4 == 0)) for n in range(64)]
    late = (cycles([[*four, END]], spread) - cycles([[*four, END]])) / 16
    assert 60 < late < 200


def test_sms_that_do_the_same_do_not_stay_in_step():
    recording, streams = launch([stream()] * 4, ctas=132)
    assert deal(recording, np.diff(streams.path_start)[:1], H200, 1).groups == 132
