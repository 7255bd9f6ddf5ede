"""Clusters in the engine: CTAs that wait for each other, shared memory of other SMs, copies to several, occupancy."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests import sampled
from tests.ptx.time.made import Act, Kind, Op, Pipe, launch

from kernbench import ptx
from kernbench.common.errors import KernbenchError
from kernbench.ptx.machine import load as gpu_file
from kernbench.ptx.recording.recording import RANK_SHIFT
from kernbench.ptx.sass.join.making import streams_of
from kernbench.ptx.time import Unit
from kernbench.ptx.time.chip.dealing import deal, gpc_sizes, in_clusters, resident
from kernbench.ptx.time.launch import time_launch

H200 = gpu_file("h200").override({"l2.dirty": 0, "launch.first": 0, "l2.spread": 0, "hbm.spread": 0, "launch.cta": 0})
END = Op(Pipe.CONTROL)
NEXT = 1 << RANK_SHIFT


def work(count: int) -> list[Op]:
    return [Op(Pipe.FMA, stall=4)] * count


def meet(phase: int) -> list[Op]:
    event = {"object": 0, "phase": phase}
    return [
        Op(Pipe.BARRIER, kind=Kind.CLUSTER_ARRIVE, act=Act.ARRIVE, event=event),
        Op(Pipe.BARRIER, kind=Kind.CLUSTER_WAIT, act=Act.WAIT, event=event),
    ]


def arrive(further: int) -> Op:
    event = {"object": 8 + further * NEXT, "phase": 0}
    return Op(Pipe.MBARRIER, kind=Kind.MBARRIER_ARRIVE, event=event, act=Act.ARRIVE)


WAIT = Op(Pipe.MBARRIER, write=0, kind=Kind.MBARRIER_WAIT, event={"object": 8, "phase": 0}, act=Act.WAIT)


def ended(classes: list[list[Op]], gpu=H200) -> list[float]:
    """When each CTA of a cluster with one warp a CTA ends; as many ranks as classes."""
    recording, streams = launch([], classes=[[one] for one in classes], ctas=len(classes), cluster=len(classes))
    spans = time_launch(recording, streams, gpu).spans
    return [float(spans.end[list(spans.cta).index(n)]) for n in range(len(classes))]


def test_a_barrier_of_a_cluster_waits_for_its_slowest_cta():
    fast, slow = ended([[*meet(0), END], [*work(200), *meet(0), END]])
    assert fast == pytest.approx(800 + float(H200.cluster.barrier), abs=6)
    assert slow == pytest.approx(fast, abs=6)


@settings(max_examples=sampled.examples(10, 20), deadline=None, derandomize=True)
@given(st.integers(0, 300), st.integers(0, 300), st.integers(2, 6))
def test_a_slower_producer_delays_its_consumer(some, more, ranks):
    """The last rank arrives at the mbarrier of the first one, which waits for it."""

    def consumer(slow: int) -> float:
        producer = [*work(slow), arrive(1), END]
        return ended([[WAIT, Op(Pipe.BRANCH, wait=1), END], *[[END]] * (ranks - 2), producer])[0]

    first, second = consumer(some), consumer(some + more)
    assert second - first == pytest.approx(4 * more, abs=0.01)
    assert first >= 4 * some + float(H200.cluster.one_way)


def test_ctas_alone_do_not_wait_for_their_neighbours():
    """The same CTAs without a cluster: what the second does is nothing to the first."""
    classes = [[*meet(0), END], [*work(200), *meet(0), END]]
    recording, streams = launch([], classes=[[one] for one in classes], ctas=2)
    assert time_launch(recording, streams, H200).spans.end[0] < 100


def remote(kind: Kind, act: Act, **given) -> Op:
    event = {"wavefronts": 1, "lanes": 32, "bytes": 128, "object": NEXT, "phase": -1}
    return Op(Pipe.SHARED, stall=2, kind=kind, act=act, event=event, **given)


@pytest.mark.parametrize("kind", [Kind.CLUSTER_LOAD, Kind.CLUSTER_ATOMIC])
def test_a_chase_through_shared_memory_of_another_cta_takes_its_latency(kind):
    chase = [remote(kind, Act.LOAD, write=0, wait=1) for _ in range(33)]
    long, short = (ended([[*chase[:count], END], [END]])[0] for count in (33, 1))
    assert (long - short) / 32 == pytest.approx(float(H200.cluster.latency), rel=0.02)


def test_what_an_sm_gives_to_others_has_a_rate():
    """Eight warps of one CTA load from the other: bytes by the rate, whatever the latency."""
    loads = [remote(Kind.CLUSTER_LOAD, Act.LOAD, write=0)] * 64
    recording, streams = launch([], classes=[[[*loads, END]] * 8, [[END]] * 8], ctas=2, cluster=2)
    took = time_launch(recording, streams, H200).cycles
    expected = 8 * 64 * 128 / float(H200.cluster.bytes_per_cycle)
    assert took == pytest.approx(expected + float(H200.cluster.latency), rel=0.05)
    wide = H200.override({"cluster.bytes_per_cycle": 64})
    assert time_launch(recording, streams, wide).cycles < took / 3


def test_stores_to_another_cta_end_there_and_wake_who_waits():
    event = {"wavefronts": 1, "lanes": 1, "bytes": 4, "object": 8 + NEXT, "phase": 0}
    sent = Op(Pipe.SHARED, kind=Kind.REMOTE_STORE, act=Act.STORE, event=event)
    waiter = [WAIT, Op(Pipe.BRANCH, wait=1), END]
    _, second = ended([[*work(50), sent, END], waiter])
    assert second == pytest.approx(200 + float(H200.cluster.one_way) + float(H200.barriers.try_wait), abs=8)


def copies(ranks: int, multicast: bool) -> tuple:
    """Each CTA waits for 16 KiB: of a copy of its own, or of one that the first begins for all."""
    box = {"sectors": 512, "lines": 128, "first": 512, "lanes": 1, "bytes": 16384, "phase": 0}
    own = Op(Pipe.BULK, kind=Kind.BULK_LOAD, event={**box, "object": 8})
    waits = [WAIT, Op(Pipe.BRANCH, wait=1), END]
    if not multicast:
        classes = [[own, *waits]] * ranks
        return launch([], classes=[[one] for one in classes], ctas=128, cluster=ranks)
    more = [
        Op(Pipe.BULK, kind=Kind.BULK_MULTICAST, event={"bytes": 16384, "object": 8 + n * NEXT, "phase": 0, "lanes": 1})
        for n in range(1, ranks)
    ]
    recording, streams = launch([], classes=[[[own, *more, *waits]], *[[waits]] * (ranks - 1)], ctas=128, cluster=ranks)
    # the events of further CTAs belong to the copy: they stand at no instruction of their own
    kept = ~np.isin(streams.op, np.arange(1, ranks))
    starts = np.array([int(kept[:start].sum()) for start in streams.path_start], np.int64)
    return recording, replace(streams, op=streams.op[kept], event=streams.event[kept], path_start=starts)


@pytest.mark.parametrize("ranks", [2, 4])
def test_a_multicast_moves_its_bytes_once(ranks):
    single, shared = (time_launch(*copies(ranks, multicast), H200) for multicast in (False, True))
    assert single.traffic.l2 == ranks * shared.traffic.l2
    assert single.traffic.hbm_read == ranks * shared.traffic.hbm_read
    assert single.busy[Unit.L2] * single.cycles == pytest.approx(ranks * shared.busy[Unit.L2] * shared.cycles, rel=0.01)
    # every SM takes all of it
    assert shared.busy[Unit.PORT] * shared.cycles == pytest.approx(single.busy[Unit.PORT] * single.cycles, rel=0.01)
    assert not any("waited for" in note for note in shared.notes)


def test_everyone_gets_a_multicast_when_it_is_there():
    recording, streams = copies(4, multicast=True)
    recording = replace(recording, cta_class=recording.cta_class[:4], grid=(4, 1, 1))
    ends = time_launch(recording, streams, H200).spans.end
    least = float(H200.hbm.latency + H200.copies.bulk_extra + H200.cluster.multicast)
    assert ends.min() > least
    assert ends.max() - ends.min() < 60


def test_gpcs_have_whole_pairs_of_sms():
    assert sorted(gpc_sizes(H200)) == [16] * 6 + [18] * 2
    assert sum(gpc_sizes(H200.override({"chip.sms": 131}))) == 131


@pytest.mark.parametrize(("size", "held", "expected"), [(1, 2, 264), (2, 1, 66), (4, 1, 32), (8, 1, 16), (16, 1, 8),
                                                       (16, 2, 16), (4, 2, 66)])  # fmt: skip
def test_clusters_lie_in_one_gpc(size, held, expected):
    assert resident(H200, size, held) == expected


@settings(max_examples=sampled.examples(30, 60), deadline=None, derandomize=True)
@given(st.integers(1, 132), st.integers(1, 33), st.integers(1, 16), st.integers(1, 4))
def test_a_gpc_holds_as_many_clusters_as_it_has_room_for(sms, gpcs, size, held):
    gpu = H200.override({"chip.sms": sms, "chip.gpcs": gpcs})
    assert resident(gpu, size, held) == sum(one * held // size for one in gpc_sizes(gpu))


def test_a_cluster_of_more_ctas_than_a_gpc_has_sms_lowers_occupancy():
    small = H200.override({"chip.gpcs": 33})
    assert set(gpc_sizes(small)) == {4}
    # 96 registers of 8 warps: two CTAs in an SM, eight in a GPC, of which a cluster of six fits once
    recording, streams = launch([[*work(40), END]] * 8, ctas=6 * 264, cluster=6, registers=96)
    wide, narrow = (time_launch(recording, streams, gpu) for gpu in (H200, small))
    assert (narrow.occupancy.ctas, narrow.occupancy.limit, narrow.occupancy.clusters) == (2, "clusters", 33)
    assert wide.occupancy.clusters == 42
    assert narrow.cycles > 1.15 * wide.cycles
    # eight do not fit where an SM holds one
    recording, streams = launch([[END]] * 8, ctas=64, cluster=8, registers=255)
    with pytest.raises(KernbenchError, match="a cluster of 8 CTAs of this launch does not fit into a GPC"):
        time_launch(recording, streams, small)


def test_clusters_of_a_grid_with_three_dimensions_are_neighbours():
    recording, _ = launch([[END]], ctas=2 * 4 * 4, cluster=1)
    recording = replace(recording, grid=(4, 4, 2), cluster=(2, 2, 1))
    assert in_clusters(recording)[:8].tolist() == [0, 1, 4, 5, 2, 3, 6, 7]
    assert sorted(in_clusters(recording).tolist()) == list(range(32))


@settings(max_examples=sampled.examples(20, 40), deadline=None, derandomize=True)
@given(st.integers(1, 8), st.integers(1, 4), st.integers(1, 300), st.sampled_from([1, 1000, 3_000_000]))
def test_every_cluster_has_seats_of_its_own(size, held, clusters, budget):
    recording, streams = launch([[END]], ctas=size * clusters, cluster=size)
    dealt = deal(recording, np.diff(streams.path_start), H200, held, budget)
    assert len(np.unique(dealt.seats)) == dealt.seats.size
    assert dealt.seats.max() < dealt.groups * held
    # a cluster's SMs stand for as many clusters each
    weights = dealt.weight[dealt.seats // held]
    assert (weights == weights[:, :1]).all()
    assert len(dealt.order) == size * clusters


def test_all_clusters_run_whatever_the_budget():
    slow = [*work(50), *meet(0), END]
    recording, streams = launch([], classes=[[[*meet(0), END]], [slow]], ctas=2 * 400, cluster=2, registers=255)
    exact, rough = (time_launch(recording, streams, H200, budget=budget) for budget in (3_000_000, 1000))
    assert exact.spans.stands_for.sum() == rough.spans.stands_for.sum() == 800
    assert rough.cycles == pytest.approx(exact.cycles, rel=0.1)


SHARED_BY_TWO = """.version 8.3
.target sm_90a
.address_size 64
.shared .align 1024 .b8 tile[4096];
.shared .align 8 .b64 bars[1];
.visible .entry shared_by_two(.param .u64 p_data) .reqnctapercluster 2
{
.reg .b32 %r<12>;
.reg .b64 %d<2>;
.reg .pred %p<4>;
.reg .b16 %h<2>;
ld.param.u64 %d0, [p_data];
mov.u32 %r0, %tid.x;
mov.u32 %r1, bars;
mov.u32 %r2, tile;
mov.u32 %r3, %cluster_ctarank;
setp.ne.u32 %p0, %r0, 0;
@%p0 bra begun;
mbarrier.init.shared::cta.b64 [%r1], 1;
fence.mbarrier_init.release.cluster;
mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r1], 4096;
begun:
barrier.cluster.arrive.aligned;
barrier.cluster.wait.aligned;
or.b32 %r4, %r0, %r3;
setp.ne.u32 %p1, %r4, 0;
@%p1 bra received;
mov.b16 %h0, 3;
cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%r2], [%d0], 4096, [%r1], %h0;
received:
mbarrier.try_wait.parity.shared::cta.b64 %p2, [%r1], 0;
@!%p2 bra received;
barrier.cluster.arrive.aligned;
barrier.cluster.wait.aligned;
xor.b32 %r5, %r3, 1;
mapa.shared::cluster.u32 %r6, %r2, %r5;
ld.shared::cluster.u32 %r7, [%r6];
barrier.cluster.arrive.aligned;
barrier.cluster.wait.aligned;
ret;
}
"""


def test_a_launch_of_clusters_is_recorded_joined_and_timed():
    device = ptx.EmulatedDevice("sm_90a")
    data = device.array(np.zeros(1024, np.uint32))
    kernel = ptx.parse(SHARED_BY_TWO).kernels["shared_by_two"]
    run = device.launch(kernel, 8, 64, [data], record=True)
    assert run.safe, run.findings
    recording = run.recording
    events = [recording.event(n) for n in range(len(recording.events))]
    remote = [one for one in events if one.kind is Kind.CLUSTER_LOAD]
    assert {one.object for one in remote} == {NEXT}
    streams = streams_of(recording, use_tools=False)
    assert streams.events_without_op == 0
    copied = [int(n) for n in recording.events.kind[streams.of_trace(0)[1]] if n == Kind.BULK_LOAD]
    assert copied == [Kind.BULK_LOAD]
    time = time_launch(recording, streams, H200)
    assert time.traffic.l2 == 4 * 4096
    assert time.cycles > float(H200.hbm.latency + H200.cluster.latency + 3 * H200.cluster.barrier)
    assert not any("waited for" in note for note in time.notes)


def test_accesses_to_different_ctas_say_which():
    text = SHARED_BY_TWO.replace(".reqnctapercluster 2", ".reqnctapercluster 4").replace("%h0, 3", "%h0, 15")
    # even warps load from the next rank, odd ones from the one after it
    text = text.replace("xor.b32 %r5, %r3, 1;", "shr.u32 %r5, %r0, 5;\nadd.u32 %r5, %r5, %r3;\nadd.u32 %r5, %r5, 1;"
                        "\nand.b32 %r5, %r5, 3;")  # fmt: skip
    device = ptx.EmulatedDevice("sm_90a")
    data = device.array(np.zeros(1024, np.uint32))
    run = device.launch(ptx.parse(text).kernels["shared_by_two"], 8, 64, [data], record=True)
    assert run.safe, run.findings
    recording = run.recording
    found = [[event.object >> RANK_SHIFT for event in map(recording.event, recording.events_of(0, warp))
              if event.kind is Kind.CLUSTER_LOAD] for warp in range(2)]  # fmt: skip
    assert found == [[1], [2]]
