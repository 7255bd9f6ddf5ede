"""Operations across a warp, and barriers."""

import numpy as np
import pytest

T = np.arange(32)


def shuffle(mode, lane, step, clamp):
    bound, segment = clamp & 31, clamp >> 8 & 31
    low, high = lane & segment, (lane & segment) | (bound & ~segment)
    source = {"up": lane - step, "down": lane + step, "bfly": lane ^ step, "idx": low | (step & ~segment)}[mode]
    valid = source >= high if mode == "up" else source <= high
    return (source if valid else lane), valid


@pytest.mark.sampled(16)
@pytest.mark.parametrize("mode", ["up", "down", "bfly", "idx"])
@pytest.mark.parametrize("clamp", [0, 31, 0x101F, 0x181F, 0x1C1F, 0x1000])
@pytest.mark.parametrize("dynamic", [False, True])
def test_shuffles(lab, mode, clamp, dynamic):
    steps = [0, 1, 5, 16]
    for step in steps:
        operand = "%r6" if dynamic else str(step)
        body = f"""
  mov.u32 %r6, {step};
  add.u32 %r5, %r0, 100;
  shfl.sync.{mode}.b32 %r7|%p1, %r5, {operand}, {clamp}, 0xffffffff;
  selp.u32 %r8, 1000, 0, %p1;
  add.u32 %r63, %r7, %r8;
"""
        expected = [source + 100 + 1000 * valid for source, valid in (shuffle(mode, t, step, clamp) for t in range(32))]
        assert lab.compute(body).tolist() == expected


def test_shuffle_by_a_lane_of_its_own(lab):
    body = "  xor.b32 %r5, %r0, 7;\n  shfl.sync.idx.b32 %r63, %r0, %r5, 31, 0xffffffff;"
    assert (lab.compute(body, block=96).reshape(3, 32) == (T ^ 7) + 32 * np.arange(3)[:, None]).all()


def test_votes(lab):
    body = """
  and.b32 %r5, %r0, {mask};
  setp.eq.u32 %p1, %r5, 0;
  vote.sync.all.pred %p2, %p1, 0xffffffff;
  vote.sync.any.pred %p3, %p1, 0xffffffff;
  vote.sync.uni.pred %p4, %p1, 0xffffffff;
  selp.u32 %r6, 1, 0, %p2;
  selp.u32 %r7, 10, 0, %p3;
  selp.u32 %r8, 100, 0, %p4;
  add.u32 %r63, %r6, %r7;
  add.u32 %r63, %r63, %r8;
"""
    assert set(lab.compute(body.format(mask=0)).tolist()) == {111}
    assert set(lab.compute(body.format(mask=1)).tolist()) == {10}
    ballot = "  and.b32 %r5, %r0, 1;\n  setp.eq.u32 %p1, %r5, 0;\n  vote.sync.ballot.b32 %r63, %p1, 0xffffffff;"
    assert set(lab.compute(ballot).tolist()) == {0x55555555}


def test_match(lab):
    body = "  shr.u32 %r5, %r0, 3;\n  match.any.sync.b32 %r63, %r5, 0xffffffff;"
    assert (lab.compute(body) == 0xFF << (T // 8 * 8)).all()
    body = "  match.all.sync.b32 %r5|%p1, {}, 0xffffffff;\n  selp.u32 %r63, %r5, 7, %p1;"
    assert set(lab.compute(body.format("%r1")).tolist()) == {0xFFFFFFFF}
    assert set(lab.compute(body.format("%r0")).tolist()) == {7}


@pytest.mark.parametrize(
    ("name", "reduce"),
    [
        ("add.u32", np.sum),
        ("min.u32", np.min),
        ("max.s32", np.max),
        ("and.b32", np.bitwise_and.reduce),
        ("or.b32", np.bitwise_or.reduce),
        ("xor.b32", np.bitwise_xor.reduce),
    ],
)
def test_reductions(lab, name, reduce):
    x = np.random.default_rng(3).integers(1, 1000, 32)
    body = f"""
  mul.wide.u32 %rd1, %r0, 4;
  add.u64 %rd1, %rd1, %rd20;
  ld.global.u32 %r5, [%rd1];
  redux.sync.{name} %r63, %r5, 0xffffffff;
"""
    assert set(lab.compute(body, x.astype("u4")).tolist()) == {int(reduce(x))}


@pytest.mark.parametrize(
    ("name", "expected"),
    [("max", 24.0), ("max.abs", 40.0), ("min", -40.0), ("max.NaN", None), ("min.abs.NaN", None)],
)
def test_reductions_of_floats_pass_nan_over_unless_asked(lab, name, expected):
    x = np.where(T == 3, np.nan, 2.0 * T - 40).astype(np.float32)
    x[31] = 24.0
    body = f"""
  mul.wide.u32 %rd1, %r0, 4;
  add.u64 %rd1, %rd1, %rd20;
  ld.global.f32 %f1, [%rd1];
  redux.sync.{name}.f32 %f2, %f1, 0xffffffff;
  mov.b32 %r63, %f2;
"""
    bits = 0x7FFFFFFF if expected is None else int(np.float32(expected).view(np.uint32))
    assert set(lab.compute(body, x).tolist()) == {bits}


def test_groups_of_a_warp_with_masks_of_their_own(lab):
    body = """
  shr.u32 %r5, %r0, 3;
  shl.b32 %r6, %r5, 3;
  shl.b32 %r7, 0xff, %r6;
  redux.sync.add.u32 %r63, %r0, %r7;
"""
    assert (lab.compute(body) == np.repeat(T.reshape(4, 8).sum(1), 8)).all()


def test_diverged_lanes_meet_at_a_warp_operation(lab):
    body = """
  and.b32 %r5, %r0, 1;
  setp.eq.u32 %p1, %r5, 0;
  mov.u32 %r6, 1;
  @%p1 bra EVEN;
  mov.u32 %r6, 2;
EVEN:
  redux.sync.add.u32 %r63, %r6, 0xffffffff;
"""
    assert set(lab.compute(body).tolist()) == {48}


def test_elect(lab):
    body = "  elect.sync %r5|%p1, 0xfffffff0;\n  selp.u32 %r63, 1, 0, %p1;\n  mad.lo.u32 %r63, %r5, 10, %r63;"
    guarded = "  setp.lt.u32 %p2, %r0, 4;\n  mov.u32 %r63, 40;\n  @%p2 bra DONE;\n" + body + "\nDONE:"
    assert lab.compute(guarded).tolist() == [40] * 4 + [41] + [40] * 27


def test_lane_masks(lab):
    body = "  mov.u32 %r5, %lanemask_{};\n  mov.u32 %r63, %r5;"
    for name, expected in {
        "eq": 1 << T,
        "lt": (1 << T) - 1,
        "le": (2 << T) - 1,
        "gt": 0xFFFFFFFF ^ ((2 << T) - 1),
        "ge": 0xFFFFFFFF ^ ((1 << T) - 1),
    }.items():
        assert (lab.compute(body.format(name)) == expected).all()


@pytest.mark.parametrize(("op", "expected"), [("popc.u32", 24), ("and.pred", 0), ("or.pred", 1)])
def test_barrier_reductions(lab, op, expected):
    kind = op.partition(".")[2]
    target = "%r63" if kind == "u32" else "%p2"
    body = f"  setp.lt.u32 %p1, %r0, 24;\n  bar.red.{op} {target}, 0, %p1;\n"
    body += "" if kind == "u32" else "  selp.u32 %r63, 1, 0, %p2;"
    assert set(lab.compute(body, grid=2, block=96).tolist()) == {expected}


def test_barriers_that_warps_reach_one_after_the_other(lab):
    body = """
  shr.u32 %r4, %r0, 5;
  mov.u32 %r10, tile;
  mov.u32 %r5, 0;
L:
  setp.ge.u32 %p1, %r5, %r4;
  @%p1 bra OUT;
  add.u32 %r5, %r5, 1;
  bra L;
OUT:
  shl.b32 %r6, %r4, 2;
  add.u32 %r6, %r6, %r10;
  and.b32 %r7, %r0, 31;
  setp.eq.u32 %p2, %r7, 0;
  @%p2 st.shared.u32 [%r6], %r5;
  bar.sync 0;
  ld.shared.v4.u32 {%r11, %r12, %r13, %r14}, [%r10];
  add.u32 %r63, %r11, %r12;
  add.u32 %r63, %r63, %r13;
  add.u32 %r63, %r63, %r14;
"""
    out = lab.compute(body, outside=".shared .align 16 .b32 tile[4];", grid=3, block=128)
    assert set(out.tolist()) == {6}


def test_named_barrier_number_from_a_register(lab):
    body = """
  shr.u32 %r4, %r0, 6;
  add.u32 %r5, %r4, 1;
  bar.sync %r5, 64;
  mov.u32 %r63, %r4;
"""
    assert (lab.compute(body, block=128) == np.arange(128) // 64).all()


def test_a_ticket_lock_between_blocks(lab):
    body = """
  atom.global.add.u32 %r5, [%rd20], 1;
WAIT:
  ld.acquire.gpu.global.u32 %r6, [%rd20+4];
  setp.ne.u32 %p1, %r6, %r5;
  @%p1 bra WAIT;
  ld.global.u32 %r7, [%rd20+8];
  add.u32 %r7, %r7, %r5;
  st.global.u32 [%rd20+8], %r7;
  add.u32 %r6, %r6, 1;
  st.release.gpu.global.u32 [%rd20+4], %r6;
"""
    assert lab.kinds(body, np.zeros(3, "u4"), grid=20, block=3) == []
    assert lab.arrays[0].numpy().tolist() == [60, 60, sum(range(60))]


def test_a_wait_with_a_counter_for_blocks_that_come_later(lab):
    body = """
  mov.u32 %r5, 0;
  mov.u32 %r6, %nctaid.x;
  red.global.add.u32 [%rd20], 1;
WAIT:
  add.u32 %r5, %r5, 1;
  ld.{how}.u32 %r7, [%rd20];
  setp.lt.u32 %p1, %r7, %r6;
  @%p1 bra WAIT;
"""
    for how in ("volatile.global", "relaxed.gpu.global", "global"):
        run = lab.launch(body.replace("{how}", how), np.zeros(1, "u4"), grid=700, block=1, checks=False)
        assert run.status == "finished"


def test_warps_that_ended_between_others_are_no_source(lab):
    body = """
  shr.u32 %r4, %r3, 5;
  setp.eq.u32 %p1, %r4, {};
  @%p1 exit;
  mov.u32 %r5, -1;
  shfl.sync.bfly.b32 %r6, %r0, 3, 31, %r5;
"""
    for warp in range(4):
        assert lab.kinds(body.format(warp), grid=2, block=64) == []


OPERATIONS = {
    "shfl": "shfl.sync.bfly.b32 %r5, %r0, 1, 31, {mask};",
    "vote": "vote.sync.ballot.b32 %r5, %p1, {mask};",
    "match": "match.any.sync.b32 %r5, %r0, {mask};",
    "redux": "redux.sync.add.u32 %r5, %r0, {mask};",
    "elect": "elect.sync %r5|%p2, {mask};",
    "bar": "bar.warp.sync {mask};",
}


@pytest.mark.parametrize("name", OPERATIONS)
def test_a_lane_that_its_mask_does_not_name_is_told(lab, name):
    lower = "  setp.lt.u32 %p1, %r0, 16;\n  {guard}" + OPERATIONS[name].format(mask="0x0000ffff")
    assert lab.kinds(lower.format(guard="@!%p1 bra DONE;\n  ") + "\nDONE:") == []
    found = lab.findings(lower.format(guard=""))
    assert (found[0].kind, found[0].count) == ("warp-mask", 16)
    assert {f.kind for f in found[1:]} == ({"inactive-lane"} if name == "shfl" else set())
    assert "the mask 0x0000ffff of thread (16, 0, 0) of block (0, 0, 0) does not name itself" in found[0].message


@pytest.mark.parametrize("name", OPERATIONS)
def test_lanes_that_name_each_other_must_give_one_mask(lab, name):
    split = "  setp.lt.u32 %p1, %r0, 16;\n  selp.b32 %r6, 0x0000ffff, {other}, %p1;\n  "
    text = split + OPERATIONS[name].format(mask="%r6")
    assert lab.kinds(text.format(other="0xffff0000")) == []
    (found,) = lab.findings(text.format(other="0xffff8000"))
    assert (found.kind, "names lanes that come with another one" in found.message) == ("warp-mask", True)
