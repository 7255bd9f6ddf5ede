"""The race check holds to the memory model: scopes, patterns of release and acquire, single lanes, updates."""

import numpy as np
import pytest

SHARED = ".shared .align 16 .b8 tile[1024];"


def zeros(n, dtype="u4"):
    return np.zeros(n, dtype)


def both(lab, body, *arrays, **options):
    """The findings' kinds, which do not depend on the schedule."""
    first = lab.kinds(body, *[a.copy() for a in arrays], **options)
    assert lab.kinds(body, *[a.copy() for a in arrays], schedule="reversed", **options) == first
    return first


@pytest.mark.parametrize(
    ("first", "second", "kinds"),
    [
        ("gpu", "gpu", []),
        ("gpu", "sys", []),
        ("cta", "cta", ["race"]),
        ("gpu", "cta", ["race"]),
        ("cta", "gpu", ["race"]),
        ("cluster", "gpu", ["race"]),
    ],
)
def test_atomics_of_blocks_need_a_scope_that_holds_both(lab, first, second, kinds):
    body = f"""
  setp.eq.u32 %p1, %r1, 0;
  @%p1 red.relaxed.{first}.global.add.u32 [%rd20], 1;
  @!%p1 red.relaxed.{second}.global.add.u32 [%rd20], 1;
"""
    assert both(lab, body, zeros(1), grid=2, block=1) == kinds
    assert both(lab, body, zeros(1), grid=1, block=64) == []


def test_a_scope_that_is_too_narrow_is_named(lab):
    (found,) = lab.findings("  red.relaxed.cta.global.add.u32 [%rd20], 1;", zeros(1), grid=2, block=1)
    assert "the scope of one does not hold the other" in found.message
    assert ".gpu" in found.hint


HAND_OVER = """
  mov.u32 %r6, 1;
  setp.ne.u32 %p1, %r1, 0;
  @%p1 bra READ;
  mul.wide.u32 %rd1, %r0, 4;
  add.u64 %rd1, %rd1, %rd20;
  st.global.u32 [%rd1], %r0;
  {before}
  setp.eq.u32 %p2, %r0, 0;
  @%p2 st.relaxed.gpu.global.u32 [%rd21], %r6;
  bra DONE;
READ:
  setp.ne.u32 %p2, %r0, 0;
  @%p2 bra AFTER;
POLL:
  ld.relaxed.gpu.global.u32 %r7, [%rd21];
  setp.eq.u32 %p3, %r7, 0;
  @%p3 bra POLL;
  {fence}
AFTER:
  {meet}
  mul.wide.u32 %rd1, %r0, 4;
  add.u64 %rd1, %rd1, %rd20;
  ld.global.u32 %r8, [%rd1];
DONE:
"""


@pytest.mark.parametrize(
    ("before", "fence", "meet", "kinds"),
    [
        ("bar.sync 0;\n  fence.acq_rel.gpu;", "fence.acq_rel.gpu;", "bar.sync 1;", []),
        ("fence.acq_rel.gpu;\n  bar.sync 0;", "fence.acq_rel.gpu;", "bar.sync 1;", ["race"]),
        ("membar.gl;\n  bar.sync 0;", "membar.gl;", "bar.sync 1;", []),
        ("membar.gl;\n  bar.sync 0;", "", "bar.sync 1;\n  membar.gl;", []),
        ("bar.sync 0;\n  membar.gl;", "", "bar.sync 1;\n  membar.gl;", []),
        ("membar.gl;\n  bar.sync 0;", "fence.acq_rel.gpu;", "bar.sync 1;", ["race"]),
        ("membar.cta;\n  bar.sync 0;", "membar.gl;", "bar.sync 1;", ["race"]),
        ("membar.gl;", "membar.gl;", "bar.sync 1;", ["race"]),
        ("fence.acq_rel.gpu;", "fence.acq_rel.gpu;", "bar.sync 1;", ["race"]),
        ("bar.sync 0;\n  fence.acq_rel.gpu;", "", "bar.sync 1;", ["race"]),
        ("bar.sync 0;\n  fence.acq_rel.gpu;", "fence.acq_rel.gpu;", "", ["race"]),
        ("bar.sync 0;\n  fence.acq_rel.cta;", "fence.acq_rel.gpu;", "bar.sync 1;", ["race"]),
        ("bar.sync 0;\n  fence.acq_rel.gpu;", "fence.acq_rel.cta;", "bar.sync 1;", ["race"]),
        ("bar.sync 0;\n  fence.acq_rel.gpu;", "", "fence.acq_rel.gpu;\n  bar.sync 1;", []),
    ],
)
@pytest.mark.parametrize("block", [32, 64])
def test_one_thread_hands_over_for_its_block(lab, before, fence, meet, kinds, block):
    body = HAND_OVER.format(before=before, fence=fence, meet=meet)
    assert both(lab, body, zeros(64), zeros(1), grid=2, block=block) == kinds


def test_a_warp_barrier_is_enough_for_a_warp(lab):
    body = HAND_OVER.format(
        before="bar.warp.sync 0xffffffff;\n  fence.acq_rel.gpu;",
        fence="fence.acq_rel.gpu;",
        meet="bar.warp.sync 0xffffffff;",
    )
    assert both(lab, body, zeros(64), zeros(1), grid=2, block=32) == []
    assert both(lab, body, zeros(64), zeros(1), grid=2, block=64) == ["race"]


def test_what_a_warp_acquired_the_others_of_its_block_do_not_know(lab):
    body = """
  setp.ne.u32 %p1, %r1, 0;
  @%p1 bra READ;
  st.global.u32 [%rd20], 1;
  st.release.gpu.global.u32 [%rd21], 1;
  bra DONE;
READ:
  setp.ge.u32 %p2, %r0, 32;
  @%p2 bra AFTER;
POLL:
  ld.acquire.gpu.global.u32 %r7, [%rd21];
  setp.eq.u32 %p3, %r7, 0;
  @%p3 bra POLL;
AFTER:
  {meet}
  ld.global.u32 %r8, [%rd20];
DONE:
"""
    assert both(lab, body.format(meet="bar.sync 0;"), zeros(1), zeros(1), grid=2, block=64) == []
    assert both(lab, body.format(meet=""), zeros(1), zeros(1), grid=2, block=64) == ["race"]


EXCHANGE = """
  mov.u32 %r10, tile;
  mad.lo.u32 %r12, %r0, {size}, %r10;
  st.shared.u{bits} [%r12], {value};
  {meet}
  xor.b32 %r13, %r0, {distance};
  mad.lo.u32 %r13, %r13, {size}, %r10;
  ld.shared.u{bits} {target}, [%r13];
"""
WORDS = {"size": 4, "bits": 32, "value": "%r0", "target": "%r14"}
HALVES = {"size": 2, "bits": 16, "value": "%h0", "target": "%h1"}


@pytest.mark.parametrize("form", [WORDS, HALVES])
def test_lanes_that_exchange_must_meet(lab, form):
    half = "  selp.b32 %r20, 0xffff, 0xffff0000, %p1;\n  bar.warp.sync %r20;"
    head = "  setp.lt.u32 %p1, %r0, 16;\n  cvt.u16.u32 %h0, %r0;\n"

    def kinds(meet, distance):
        return both(lab, head + EXCHANGE.format(meet=meet, distance=distance, **form), outside=SHARED)

    assert kinds("bar.warp.sync 0xffffffff;", 16) == []
    assert kinds(half, 8) == []
    assert kinds(half, 1) == []
    assert kinds(half, 16) == ["race"]
    assert kinds("", 1) == ["race"]
    assert kinds("shfl.sync.idx.b32 %r21, %r0, 0, 31, 0xffffffff;", 1) == ["race"]


def test_groups_of_lanes_that_meet_one_after_the_other(lab):
    body = """
  mov.u32 %r10, tile;
  mad.lo.u32 %r12, %r0, 4, %r10;
  st.shared.u32 [%r12], %r0;
  setp.lt.u32 %p1, %r0, 16;
  selp.b32 %r20, 0xffff, 0xffff0000, %p1;
  bar.warp.sync %r20;
  xor.b32 %r13, %r0, 8;
  and.b32 %r14, %r13, 8;
  {second}
  mad.lo.u32 %r15, %r0, 4, %r10;
  xor.b32 %r15, %r15, {distance};
  ld.shared.u32 %r16, [%r15];
"""
    # pairs of lanes 16 apart meet: through them a lane knows of the other half
    pairs = "and.b32 %r21, %r0, 15;\n  mov.u32 %r22, 0x10001;\n  shl.b32 %r22, %r22, %r21;\n  bar.warp.sync %r22;"
    assert both(lab, body.format(second=pairs, distance=64), outside=SHARED) == []
    assert both(lab, body.format(second=pairs, distance=68), outside=SHARED) == []
    assert both(lab, body.format(second="", distance=64), outside=SHARED) == ["race"]


def test_an_atomic_does_not_hide_the_write_before_it(lab):
    body = """
  setp.eq.u32 %p1, %r1, 0;
  @%p1 {store}.global.u32 [%rd20], 5;
  atom.global.add.u32 %r5, [%rd20], 1;
"""
    assert both(lab, body.format(store="st"), zeros(1), grid=2, block=1) == ["race"]
    assert both(lab, body.format(store="st.relaxed.gpu"), zeros(1), grid=2, block=1) == []


def test_the_last_of_many_updates_may_reset_the_counter(lab):
    body = """
  atom.global.inc.u32 %r5, [%rd20], 100;
  setp.ne.u32 %p1, %r5, {last};
  @%p1 bra DONE;
  st.global.u32 [%rd20], 0;
DONE:
"""
    assert both(lab, body.format(last=3), zeros(1), grid=4, block=1) == []
    assert both(lab, body.format(last=2), zeros(1), grid=4, block=1) == ["race"]


def test_who_saw_a_flag_may_reset_it(lab):
    body = """
  setp.ne.u32 %p1, %r1, 0;
  @%p1 bra READ;
  st.relaxed.gpu.global.u32 [%rd20], 1;
  bra DONE;
READ:
  ld.{order}.global.u32 %r7, [%rd20];
  setp.eq.u32 %p3, %r7, 0;
  @%p3 bra READ;
  st.global.u32 [%rd20], 0;
DONE:
"""
    assert both(lab, body.format(order="relaxed.gpu"), zeros(1), grid=2, block=1) == []
    assert both(lab, body.format(order="relaxed.cta"), zeros(1), grid=2, block=1) == ["race"]


def test_a_release_travels_through_updates_and_ends_at_a_store(lab):
    body = """
  setp.eq.u32 %p1, %r1, 1;
  @%p1 bra SECOND;
  setp.eq.u32 %p1, %r1, 2;
  @%p1 bra THIRD;
  st.global.u32 [%rd20], 42;
  st.release.gpu.global.u32 [%rd21], 1;
  bra DONE;
SECOND:
  ld.relaxed.gpu.global.u32 %r7, [%rd21];
  setp.ne.u32 %p2, %r7, 1;
  @%p2 bra SECOND;
  {step}
  st.relaxed.gpu.global.u32 [%rd22], 1;
  bra DONE;
THIRD:
  ld.relaxed.gpu.global.u32 %r7, [%rd22];
  setp.ne.u32 %p2, %r7, 1;
  @%p2 bra THIRD;
  ld.acquire.gpu.global.u32 %r7, [%rd21];
  ld.global.u32 %r8, [%rd20];
DONE:
"""
    arrays = zeros(1), zeros(1), zeros(1)
    update = "atom.relaxed.gpu.global.add.u32 %r9, [%rd21], 1;"
    assert both(lab, body.format(step=update), *arrays, grid=3, block=1) == []
    store = "st.relaxed.gpu.global.u32 [%rd21], 2;"
    assert both(lab, body.format(step=store), *arrays, grid=3, block=1) == ["race"]
    narrow = "atom.relaxed.cta.global.add.u32 %r9, [%rd21], 1;"
    assert "race" in both(lab, body.format(step=narrow), *arrays, grid=3, block=1)


ARRIVE = """
  mov.u32 %r10, tile;
  setp.ge.u32 %p1, %r0, 32;
  @%p1 bra SECOND;
  st.shared.u32 [%r10], %r1;
  bar.arrive 1, 64;
  {late}
  bra DONE;
SECOND:
  ld.shared.u32 %r5, [%r10+512];
  bar.sync 1, 64;
  ld.shared.u32 %r5, [%r10];
DONE:
"""


def test_an_arrival_tells_what_was_done_before_it_and_learns_nothing(lab):
    start = "  mov.u32 %r10, tile;\n  st.shared.u32 [%r10+512], 7;\n  bar.sync 0;"
    assert both(lab, start + ARRIVE.format(late=""), outside=SHARED, block=64) == []
    late = "st.shared.u32 [%r10], 9;"
    assert "race" in both(lab, start + ARRIVE.format(late=late), outside=SHARED, block=64)
    overwrites = "st.shared.u32 [%r10+512], 9;"
    assert "race" in both(lab, start + ARRIVE.format(late=overwrites), outside=SHARED, block=64)


SWAP = """
  ld.global.u32 %r5, [%rd20];
  {leak}
AGAIN:
  add.u32 %r6, %r5, 1;
  atom.global.cas.b32 %r7, [%rd{address}], %r5, %r6;
  setp.ne.u32 %p1, %r5, %r7;
  mov.u32 %r5, %r7;
  @%p1 bra AGAIN;
"""


@pytest.mark.parametrize(
    ("leak", "address", "kinds"),
    [
        ("", 20, []),
        ("mov.u32 %r8, %r5;\n  and.b32 %r5, %r8, 0xffff;", 20, []),
        ("mul.wide.u32 %rd1, %r3, 4;\n  add.u64 %rd1, %rd1, %rd21;\n  st.global.u32 [%rd1], %r5;", 20, ["race"]),
        ("setp.eq.u32 %p2, %r5, 0;\n  @%p2 st.global.u32 [%rd22], 1;", 20, ["race"]),
        ("st.global.u32 [%rd20], %r5;", 20, ["race", "race"]),
    ],
)
def test_a_load_that_a_compare_and_swap_makes_good(lab, leak, address, kinds):
    body = SWAP.format(leak=leak, address=address)
    found = lab.kinds(body, zeros(1), zeros(64), zeros(1), grid=2, block=32)
    assert bool(found) == bool(kinds)
    assert set(found) <= {"race"}


def test_a_load_before_a_swap_elsewhere_races(lab):
    body = SWAP.format(leak="mov.u32 %r5, %r5;", address=21) + "\n  red.global.add.u32 [%rd20], 1;"
    assert both(lab, body, zeros(1), zeros(1), grid=2, block=1) == ["race"]


def test_what_a_swap_loop_gives_back_is_good(lab):
    body = """
  ld.global.u32 %r7, [%rd20];
AGAIN:
  mov.u32 %r5, %r7;
  add.u32 %r6, %r5, 1;
  atom.global.cas.b32 %r7, [%rd20], %r5, %r6;
  setp.ne.u32 %p1, %r5, %r7;
  @%p1 bra AGAIN;
  mul.wide.u32 %rd1, %r3, 4;
  add.u64 %rd1, %rd1, %rd21;
  st.global.u32 [%rd1], %r5;
"""
    assert both(lab, body, zeros(1), zeros(64), grid=2, block=32) == []


LEAVE = """
  and.b32 %r4, %r0, 1;
  setp.eq.u32 %p1, %r4, 1;
  mov.u32 %r5, tile;
  shl.b32 %r6, %r0, 2;
  add.u32 %r6, %r6, %r5;
  {store}
  @%p1 bra DONE;
  {meet}
  ld.shared.u32 %r7, [%r6+{offset}];
DONE:
"""
_STORE = "st.shared.u32 [%r6], %r0;"


@pytest.mark.parametrize(
    ("store", "meet", "offset", "kinds"),
    [
        # the odd lanes have ended when the even ones meet without them, whether or not the mask names them
        (_STORE, "bar.warp.sync 0x55555555;", 4, ["race"]),
        (_STORE, "bar.warp.sync 0x55555555;", 0, []),
        (_STORE, "bar.warp.sync 0xffffffff;", 4, ["race"]),
        (_STORE + "\n  bar.warp.sync 0xffffffff;", "bar.warp.sync 0x55555555;", 4, []),
        (_STORE + "\n  bar.sync 0;", "bar.warp.sync 0x55555555;", 4, []),
    ],
)
def test_lanes_that_have_ended_are_not_met(lab, store, meet, offset, kinds):
    body = LEAVE.format(store=store, meet=meet, offset=offset)
    assert both(lab, body, outside=SHARED) == kinds


def test_a_flag_tells_nothing_of_lanes_that_have_ended(lab):
    body = """
  setp.ne.u32 %p1, %r1, 0;
  @%p1 bra READ;
  mul.wide.u32 %rd1, %r0, 4;
  add.u64 %rd1, %rd1, %rd20;
  st.global.u32 [%rd1], 7;
  setp.ne.u32 %p2, %r0, 0;
  @%p2 bra DONE;
  st.release.gpu.global.u32 [%rd21], 1;
  bra DONE;
READ:
  setp.ne.u32 %p2, %r0, 0;
  @%p2 bra DONE;
POLL:
  ld.acquire.gpu.global.u32 %r7, [%rd21];
  setp.eq.u32 %p3, %r7, 0;
  @%p3 bra POLL;
  ld.global.u32 %r8, [%rd20+{offset}];
DONE:
"""
    assert both(lab, body.format(offset=0), zeros(32), zeros(1), grid=2) == []
    assert both(lab, body.format(offset=4), zeros(32), zeros(1), grid=2) == ["race"]


@pytest.mark.parametrize("reader", [0, 32, 64])
@pytest.mark.parametrize("place", ["shared tile", "global %rd20"])
def test_warps_that_write_halves_of_a_word_are_both_remembered(lab, place, reader):
    space, base = place.split()
    body = f"""
  cvt.u16.u32 %h0, %r0;
  setp.eq.u32 %p1, %r0, 0;
  setp.eq.u32 %p2, %r0, 32;
  setp.eq.u32 %p3, %r0, {reader};
  @%p1 st.{space}.u16 [{base}], %h0;
  @%p2 st.{space}.u16 [{base}+2], %h0;
  {{meet}}
  @%p3 ld.{space}.u16 %h1, [{base}+{{half}}];
"""
    for half, writer in ((0, 0), (2, 32)):
        assert both(lab, body.format(meet="bar.sync 0;", half=half), zeros(1), block=96, outside=SHARED) == []
        raced = [] if reader == writer else ["race"]
        assert both(lab, body.format(meet="", half=half), zeros(1), block=96, outside=SHARED) == raced


# thousands of lanes that each hand a word from block to block by a location of their own, then meet, and do so again
CHAIN = """
  mul.wide.u32 %rd1, %r0, 4;
  add.u64 %rd2, %rd1, %rd20;
  add.u64 %rd3, %rd1, %rd21;
  setp.lt.u32 %p1, %r0, 61;
  @%p1 atom.acq_rel.gpu.global.add.u32 %r6, [%rd2], 1;
  bar.sync 0;
  @%p1 atom.acq_rel.gpu.global.add.u32 %r6, [%rd2], 1;
  {then}
"""
READ_BACK = """
  setp.eq.u32 %p2, %r6, 47;
  @!%p1 bra DONE;
  @!%p2 bra DONE;
  ld.global.u32 %r7, [%rd3];
DONE:
"""


@pytest.mark.parametrize(
    ("before", "after", "kinds"),
    [
        # the block that adds last reads what the first has stored: in the same warp and in another one
        ("@%p2 st.global.u32 [%rd3], %r0;", "", []),
        ("", "@%p2 st.global.u32 [%rd3], %r0;", ["race"]),
    ],
)
def test_thousands_of_lanes_that_know_of_each_other(lab, before, after, kinds):
    """Single lanes count for their warps then: nothing false is found, and what no release orders is."""
    body = "  setp.eq.u32 %p2, %r1, 0;\n  mul.wide.u32 %rd1, %r0, 4;\n  add.u64 %rd3, %rd1, %rd21;\n"
    body += f"  {before}\n" + CHAIN.format(then=after) + READ_BACK
    assert lab.kinds(body, zeros(64), zeros(64), grid=24, block=64) == kinds
