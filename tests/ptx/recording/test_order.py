"""What warps wait for: barriers, mbarriers, groups and loops that spin, counted by hand."""

import pytest
from tests.ptx.recording.kernels import blocks, events, recorded

from kernbench.ptx.recording.kinds import Kind


def test_barriers_count_their_rounds():
    body = """
  mov.u32 %r4, 0;
LOOP:
  bar.sync 1;
  bar.sync 2, 64;
  add.u32 %r4, %r4, 1;
  setp.lt.u32 %p1, %r4, 3;
  @%p1 bra LOOP;
"""
    recording = recorded(body, block=64, grid=3)
    assert recording.classes == 1
    for warp in (0, 1):
        found = events(recording, Kind.BARRIER_SYNC, warp=warp)
        assert [(event.object, event.phase) for event in found] == [(n, turn) for turn in range(3) for n in (1, 2)]


def test_arrivals_and_the_sync_that_waits_for_them():
    body = """
  setp.eq.u32 %p1, %r2, 0;
  mov.u32 %r4, 0;
LOOP:
  @%p1 bar.arrive 3, 64;
  @!%p1 bar.sync 3, 64;
  bar.sync 4, 64;
  add.u32 %r4, %r4, 1;
  setp.lt.u32 %p2, %r4, 2;
  @%p2 bra LOOP;
"""
    recording = recorded(body, block=64)
    arrive, sync = Kind.BARRIER_ARRIVE, Kind.BARRIER_SYNC
    for warp, kind in ((0, arrive), (1, sync)):
        found = [(event.kind, event.object, event.phase) for event in events(recording, arrive, sync, warp=warp)]
        assert found == [(kind, 3, 0), (sync, 4, 0), (kind, 3, 1), (sync, 4, 1)]


# a producer (warp 0, one lane) brings `number` tiles of 1 KB through a ring of two stages, a consumer takes them
RING = """
  setp.ne.u32 %p1, %r0, 0;
  mov.u32 %r20, full;
  mov.u32 %r21, empty;
  @%p1 bra READY;
  mbarrier.init.shared.b64 [full], 1;
  mbarrier.init.shared.b64 [full+8], 1;
  mbarrier.init.shared.b64 [empty], 32;
  mbarrier.init.shared.b64 [empty+8], 32;
  fence.mbarrier_init.release.cluster;
READY:
  bar.sync 0;
  mov.u32 %r10, 0;
  setp.ne.u32 %p2, %r2, 0;
  @%p2 bra CONSUME;
  @%p1 bra END;
PRODUCE:
  and.b32 %r11, %r10, 1;
  shr.u32 %r12, %r10, 1;
  and.b32 %r12, %r12, 1;
  xor.b32 %r12, %r12, 1;
  mad.lo.u32 %r13, %r11, 8, %r21;
  mad.lo.u32 %r14, %r11, 8, %r20;
  mad.lo.u32 %r15, %r11, 1024, %r8;
  mad.wide.u32 %rd1, %r10, 1024, %rd0;
W1:
  mbarrier.try_wait.parity.shared.b64 %p3, [%r13], %r12;
  @!%p3 bra W1;
  mbarrier.arrive.expect_tx.shared.b64 _, [%r14], 1024;
  cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r15], [%rd1], 1024, [%r14];
  add.u32 %r10, %r10, 1;
  setp.lt.u32 %p4, %r10, %r9;
  @%p4 bra PRODUCE;
  bra.uni END;
CONSUME:
  and.b32 %r11, %r10, 1;
  shr.u32 %r12, %r10, 1;
  and.b32 %r12, %r12, 1;
  mad.lo.u32 %r13, %r11, 8, %r21;
  mad.lo.u32 %r14, %r11, 8, %r20;
  mad.lo.u32 %r15, %r11, 1024, %r8;
W2:
  mbarrier.try_wait.parity.shared.b64 %p3, [%r14], %r12;
  @!%p3 bra W2;
  mad.lo.u32 %r16, %r1, 4, %r15;
  ld.shared.u32 %r4, [%r16];
  mbarrier.arrive.shared.b64 _, [%r13];
  add.u32 %r10, %r10, 1;
  setp.lt.u32 %p4, %r10, %r9;
  @%p4 bra CONSUME;
END:
"""


@pytest.mark.parametrize("schedule", ["canonical", "eager", "reversed", 7])
def test_a_ring_of_mbarriers_and_bulk_copies(schedule):
    recording = recorded(RING, 4, grid=2, block=64, schedule=schedule)
    assert recording.classes == 1
    waits, arrives, copies = Kind.MBARRIER_WAIT, Kind.MBARRIER_ARRIVE, Kind.BULK_LOAD
    producer, consumer = (events(recording, waits, arrives, copies, warp=warp) for warp in (0, 1))
    inits = events(recording, Kind.MBARRIER_INIT)
    full, empty = inits[0].object, inits[2].object
    assert [event.object for event in inits] == [full, full + 8, empty, empty + 8]
    wanted = []
    for tile in range(4):
        stage, turn = 8 * (tile % 2), tile // 2
        # the first turn finds the stage empty: there is nothing to wait for
        wanted += [(waits, empty + stage, turn - 1, 0), (arrives, full + stage, turn, 1024)]
        wanted += [(copies, full + stage, turn, 1024)]
    assert [(event.kind, event.object, event.phase, event.bytes) for event in producer] == wanted
    assert all(event.lanes == 1 for event in producer)
    assert [(e.sectors, e.lines) for e in producer if e.kind == copies] == [(32, 8)] * 4
    wanted = [
        row
        for tile in range(4)
        for row in ((waits, full + 8 * (tile % 2), tile // 2), (arrives, empty + 8 * (tile % 2), tile // 2))
    ]
    assert [(event.kind, event.object, event.phase) for event in consumer] == wanted
    assert [event.lanes for event in consumer] == [32] * 8


def test_groups_of_copies():
    body = """
  mad.wide.u32 %rd1, %r0, 16, %rd0;
  mad.lo.u32 %r10, %r0, 16, %r8;
  cp.async.cg.shared.global [%r10], [%rd1], 16;
  cp.async.commit_group;
  cp.async.cg.shared.global [%r10+512], [%rd1+512], 16;
  cp.async.cg.shared.global [%r10+1024], [%rd1+1024], 16;
  cp.async.commit_group;
  cp.async.wait_group 1;
  cp.async.ca.shared.global [%r10+1536], [%rd1+4], 4;
  cp.async.wait_all;
"""
    found = events(recorded(body))
    copy, commit, wait = Kind.ASYNC_COPY, Kind.ASYNC_COPY_COMMIT, Kind.ASYNC_COPY_WAIT
    assert [(event.kind, event.phase) for event in found] == [
        (copy, 0),
        (commit, 0),
        (copy, 1),
        (copy, 1),
        (commit, 1),
        (wait, 1),
        (copy, 2),
        (wait, 3),
    ]
    copies = [event for event in found if event.kind == copy]
    assert [(e.sectors, e.lines, e.wavefronts, e.bytes) for e in copies] == [(16, 4, 4, 512)] * 3 + [(16, 4, 4, 128)]


def test_bulk_stores_are_groups_of_their_own():
    body = """
  mad.lo.u32 %r10, %r0, 4, %r8;
  st.shared.u32 [%r10], %r0;
  fence.proxy.async.shared::cta;
  bar.sync 0;
  setp.ne.u32 %p1, %r0, 0;
  @%p1 bra END;
  cp.async.bulk.global.shared::cta.bulk_group [%rd0], [%r8], 64;
  cp.async.bulk.commit_group;
  cp.async.bulk.global.shared::cta.bulk_group [%rd0+160], [%r8], 64;
  cp.async.bulk.commit_group;
  cp.async.bulk.wait_group.read 1;
  cp.async.bulk.wait_group 0;
END:
"""
    found = events(recorded(body))
    kinds = [Kind.SHARED_STORE, Kind.PROXY_FENCE, Kind.BARRIER_SYNC]
    kinds += [Kind.BULK_STORE, Kind.BULK_COMMIT] * 2 + [Kind.BULK_WAIT] * 2
    assert [event.kind for event in found] == kinds
    assert [event.phase for event in found[3:]] == [0, 0, 1, 1, 1, 2]
    assert [(e.sectors, e.lines, e.bytes) for e in found if e.kind == Kind.BULK_STORE] == [(2, 1, 64), (2, 1, 64)]


# block 0 sets a flag late; the others spin on it
FLAG = """
  mov.u32 %r4, 0;
  setp.eq.u32 %p1, %r3, 0;
  @%p1 bra LATE;
SPIN:
  ld.acquire.gpu.global.u32 %r5, [%rd0];
  setp.eq.u32 %p3, %r5, 0;
  @%p3 bra SPIN;
  bra.uni END;
LATE:
  add.u32 %r4, %r4, 1;
  setp.lt.u32 %p2, %r4, %r9;
  @%p2 bra LATE;
  setp.eq.u32 %p4, %r0, 0;
  @%p4 st.release.gpu.global.u32 [%rd0], 1;
END:
"""


@pytest.mark.parametrize("schedule", ["canonical", "reversed", 3])
def test_turns_that_only_waited_are_dropped(schedule):
    recording = recorded(FLAG, 50, grid=3, schedule=schedule)
    assert recording.classes == 2
    assert blocks(recording, of=1) == [(0, 32), (1, 32), (2, 32), (5, 32)]
    (event,) = events(recording, of=1)
    assert event.kind == Kind.GLOBAL_LOAD
    assert event.spun > 0


# threads take a lock, add, and give it back; one lane of each warp
LOCK = """
  setp.ne.u32 %p1, %r1, 0;
  @%p1 bra END;
TAKE:
  atom.acquire.gpu.global.cas.b32 %r4, [%rd0], 0, 1;
  setp.ne.u32 %p2, %r4, 0;
  @%p2 bra TAKE;
  ld.global.u32 %r5, [%rd0+128];
  add.u32 %r5, %r5, 1;
  st.global.u32 [%rd0+128], %r5;
  atom.release.gpu.global.exch.b32 %r4, [%rd0], 0;
END:
"""


def test_attempts_to_take_a_lock_are_dropped_but_for_the_last():
    recording = recorded(LOCK, grid=6)
    assert recording.classes == 1
    kinds = [Kind.GLOBAL_ATOMIC, Kind.GLOBAL_LOAD, Kind.GLOBAL_STORE, Kind.GLOBAL_ATOMIC]
    assert [event.kind for event in events(recording)] == kinds


def test_a_loop_that_takes_work_from_a_counter_keeps_all_its_turns():
    """What goes round it is nothing but memory, and each turn changes that."""
    body = """
TAKE:
  atom.relaxed.gpu.global.add.u32 %r4, [%rd0], 1;
  setp.lt.u32 %p1, %r4, 320;
  @%p1 bra TAKE;
"""
    recording = recorded(body)
    assert len(events(recording, Kind.GLOBAL_ATOMIC)) == 11


def test_clusters_name_barriers_of_others_by_how_much_further_they_are():
    body = """
  setp.ne.u32 %p1, %r0, 0;
  @%p1 bra READY;
  mbarrier.init.shared.b64 [full], 1;
  fence.mbarrier_init.release.cluster;
READY:
  barrier.cluster.arrive.aligned;
  barrier.cluster.wait.aligned;
  mov.u32 %r4, %cluster_ctarank;
  xor.b32 %r4, %r4, 1;
  mov.u32 %r5, full;
  mapa.shared::cluster.u32 %r6, %r5, %r4;
  @!%p1 mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r6];
WAIT:
  mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 %p2, [full], 0;
  @!%p2 bra WAIT;
  barrier.cluster.arrive.aligned;
  barrier.cluster.wait.aligned;
"""
    recording = recorded(body, grid=4, cluster=2)
    assert recording.classes == 1
    assert recording.cluster == (2, 1, 1)
    arrive, wait = Kind.CLUSTER_ARRIVE, Kind.CLUSTER_WAIT
    assert [(e.kind, e.phase) for e in events(recording, arrive, wait)] == [
        (arrive, 0),
        (wait, 0),
        (arrive, 1),
        (wait, 1),
    ]
    (arrived,) = events(recording, Kind.MBARRIER_ARRIVE)
    (waited,) = events(recording, Kind.MBARRIER_WAIT)
    (made,) = events(recording, Kind.MBARRIER_INIT)
    assert (waited.object, waited.phase) == (made.object, 0)
    assert (arrived.object, arrived.phase) == (made.object + (1 << 20), 0)
