"""A pipeline of roles: a copying warp, a multiplying warp, four storing warps; and every way to spoil its order."""

import numpy as np
import pytest
from tests.ptx.emulator.asynchronous.matrices import descriptor
from tests.ptx.emulator.asynchronous.tcgen05 import idesc, names

from kernbench import ptx

TILES, STEPS = 7, 2
STAGE = 24576
TEXT = """.version 8.6
.target sm_100a
.address_size 64
.shared .align 8 .b64 full[2];
.shared .align 8 .b64 empty[2];
.shared .align 8 .b64 ready[2];
.shared .align 8 .b64 taken[2];
.shared .align 4 .b32 slot;
.extern .shared .align 1024 .b8 tiles[];
.visible .entry kernel(.param .align 64 .b8 amap[128], .param .align 64 .b8 bmap[128], .param .u64 out,
                       .param .u64 adesc, .param .u64 bdesc, .param .u32 idesc)
{{
  .reg .pred %p<8>;
  .reg .b32 %r<40>;
  .reg .b64 %rd<16>;
  .reg .b32 %d<64>;
  mov.u32 %r0, %tid.x;
  shr.u32 %r1, %r0, 5;
  setp.eq.u32 %p1, %r0, 0;
  setp.eq.u32 %p2, %r1, 0;
  @!%p1 bra MADE;
  mbarrier.init.shared::cta.b64 [full], 1;
  mbarrier.init.shared::cta.b64 [full+8], 1;
  mbarrier.init.shared::cta.b64 [empty], 1;
  mbarrier.init.shared::cta.b64 [empty+8], 1;
  mbarrier.init.shared::cta.b64 [ready], 1;
  mbarrier.init.shared::cta.b64 [ready+8], 1;
  mbarrier.init.shared::cta.b64 [taken], 128;
  mbarrier.init.shared::cta.b64 [taken+8], 128;
  fence.mbarrier_init.release.cluster;
MADE:
  bar.warp.sync 0xffffffff;
  @%p2 tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [slot], 128;
  bar.sync 0;
  ld.shared.u32 %r2, [slot];
  mov.u32 %r3, tiles;
  mov.u32 %r4, full;
  mov.u32 %r5, empty;
  mov.u32 %r6, ready;
  mov.u32 %r7, taken;
  mov.u32 %r10, 0;
  mov.u32 %r11, 0;
  setp.eq.u32 %p3, %r0, 128;
  @%p3 bra COPY;
  setp.eq.u32 %p3, %r0, 160;
  @%p3 bra MULTIPLY;
  setp.ge.u32 %p3, %r0, 128;
  @%p3 bra DONE;
  bra STORE;

COPY:
  mov.b64 %rd1, amap;
  mov.b64 %rd2, bmap;
COPYTILE:
  mov.u32 %r12, 0;
COPYSTEP:
  and.b32 %r13, %r11, 1;
  shr.u32 %r14, %r11, 1;
  not.b32 %r14, %r14;
  and.b32 %r14, %r14, 1;
  mad.lo.u32 %r15, %r13, 8, %r5;
  mad.lo.u32 %r16, %r13, 8, %r4;
  mad.lo.u32 %r17, %r13, {stage}, %r3;
  add.u32 %r18, %r17, 16384;
  shl.b32 %r19, %r12, 6;
  shl.b32 %r20, %r10, 6;
WAITEMPTY:
  mbarrier.try_wait.parity.shared::cta.b64 %p4, [%r15], %r14;
  @!%p4 bra WAITEMPTY;
  mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r16], {stage};
  cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%r17], [%rd1, {{%r19, 0}}], [%r16];
  cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%r18], [%rd2, {{%r19, %r20}}], [%r16];
  add.u32 %r11, %r11, 1;
  add.u32 %r12, %r12, 1;
  setp.lt.u32 %p5, %r12, {steps};
  @%p5 bra COPYSTEP;
  add.u32 %r10, %r10, 1;
  setp.lt.u32 %p5, %r10, {tiles};
  @%p5 bra COPYTILE;
  bra DONE;

MULTIPLY:
  ld.param.u64 %rd3, [adesc];
  ld.param.u64 %rd4, [bdesc];
  ld.param.u32 %r30, [idesc];
MULTIPLYTILE:
  and.b32 %r21, %r10, 1;
  shr.u32 %r22, %r10, 1;
  not.b32 %r22, %r22;
  and.b32 %r22, %r22, 1;
  mad.lo.u32 %r23, %r21, 8, %r7;
  mad.lo.u32 %r24, %r21, 8, %r6;
  mad.lo.u32 %r25, %r21, 64, %r2;
  mov.u32 %r12, 0;
WAITTAKEN:
  mbarrier.try_wait.parity.shared::cta.b64 %p4, [%r23], %r22;
  @!%p4 bra WAITTAKEN;
  tcgen05.fence::after_thread_sync;
MULTIPLYSTEP:
  and.b32 %r13, %r11, 1;
  shr.u32 %r14, %r11, 1;
  and.b32 %r14, %r14, 1;
  mad.lo.u32 %r15, %r13, 8, %r5;
  mad.lo.u32 %r16, %r13, 8, %r4;
  mul.wide.u32 %rd5, %r13, {stage16};
  add.u64 %rd6, %rd3, %rd5;
  add.u64 %rd7, %rd4, %rd5;
WAITFULL:
  mbarrier.try_wait.parity.shared::cta.b64 %p4, [%r16], %r14;
  @!%p4 bra WAITFULL;
  setp.ne.u32 %p6, %r12, 0;
  tcgen05.mma.cta_group::1.kind::f16 [%r25], %rd6, %rd7, %r30, %p6;
  setp.eq.u32 %p6, 0, 0;
  add.u64 %rd6, %rd6, 2;
  add.u64 %rd7, %rd7, 2;
  tcgen05.mma.cta_group::1.kind::f16 [%r25], %rd6, %rd7, %r30, %p6;
  add.u64 %rd6, %rd6, 2;
  add.u64 %rd7, %rd7, 2;
  tcgen05.mma.cta_group::1.kind::f16 [%r25], %rd6, %rd7, %r30, %p6;
  add.u64 %rd6, %rd6, 2;
  add.u64 %rd7, %rd7, 2;
  tcgen05.mma.cta_group::1.kind::f16 [%r25], %rd6, %rd7, %r30, %p6;
  tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [%r15];
  add.u32 %r11, %r11, 1;
  add.u32 %r12, %r12, 1;
  setp.lt.u32 %p5, %r12, {steps};
  @%p5 bra MULTIPLYSTEP;
  tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [%r24];
  add.u32 %r10, %r10, 1;
  setp.lt.u32 %p5, %r10, {tiles};
  @%p5 bra MULTIPLYTILE;
  bra DONE;

STORE:
  ld.param.u64 %rd8, [out];
  mul.wide.u32 %rd9, %r0, 256;
  add.u64 %rd8, %rd8, %rd9;
  shl.b32 %r26, %r1, 21;
  add.u32 %r26, %r26, %r2;
STORETILE:
  and.b32 %r21, %r10, 1;
  shr.u32 %r22, %r10, 1;
  and.b32 %r22, %r22, 1;
  mad.lo.u32 %r23, %r21, 8, %r7;
  mad.lo.u32 %r24, %r21, 8, %r6;
  mad.lo.u32 %r25, %r21, 64, %r26;
WAITREADY:
  mbarrier.try_wait.parity.shared::cta.b64 %p4, [%r24], %r22;
  @!%p4 bra WAITREADY;
  tcgen05.fence::after_thread_sync;
  tcgen05.ld.sync.aligned.32x32b.x64.b32 {names}, [%r25];
  tcgen05.wait::ld.sync.aligned;
  tcgen05.fence::before_thread_sync;
  mbarrier.arrive.shared::cta.b64 _, [%r23];
{stores}
  add.u64 %rd8, %rd8, 32768;
  add.u32 %r10, %r10, 1;
  setp.lt.u32 %p5, %r10, {tiles};
  @%p5 bra STORETILE;

DONE:
  bar.warp.sync 0xffffffff;
  bar.sync 0;
  @%p2 tcgen05.relinquish_alloc_permit.cta_group::1.sync.aligned;
  @%p2 tcgen05.dealloc.cta_group::1.sync.aligned.b32 %r2, 128;
  ret;
}}
"""
SOURCE = TEXT.format(
    tiles=TILES,
    steps=STEPS,
    stage=STAGE,
    stage16=STAGE // 16,
    names=names(64),
    stores="\n".join(f"  st.global.b32 [%rd8+{4 * i}], %d{i};" for i in range(64)),
)


def pipeline(source=SOURCE, **options):
    device = ptx.EmulatedDevice("sm_100a")
    rng = np.random.default_rng(0)
    depth = 64 * STEPS
    a, b = (rng.standard_normal((rows, depth)).astype(np.float16) for rows in (128, 64 * TILES))
    maps = [
        device.tensor_map(device.array(x), dims=(depth, len(x)), strides=(2 * depth,), box=(64, rows), swizzle="128B")
        for x, rows in ((a, 128), (b, 64))
    ]
    out = device.array(np.zeros((TILES, 128, 64), np.float32))
    said = [descriptor(1024 + start, 16, 1024, 2, True) for start in (0, 16384)]
    given = [*maps, out, *said, idesc(128, 64, ("f32", "f16", "f16"))]
    run = device.launch(ptx.parse(source).kernels["kernel"], 1, 192, given, shared_bytes=2 * STAGE, **options)
    want = (a.astype(np.float64) @ b.astype(np.float64).T).reshape(128, TILES, 64).transpose(1, 0, 2)
    return run, float(np.abs(out.numpy() - want).max())


@pytest.mark.parametrize("schedule", ["canonical", "eager", "reversed", 1, 2])
def test_clean(schedule):
    run, error = pipeline(schedule=schedule)
    assert not run.findings, run.findings
    assert error < 1e-3


# what a change of one line brings: the kinds of finding of which one at least must be there
DROPPED = {
    "fence.mbarrier_init.release.cluster;": {"missing-fence"},
    "mbarrier.init.shared::cta.b64 [full], 1;": {"mbarrier-misuse"},
    "mbarrier.init.shared::cta.b64 [taken+8], 128;": {"mbarrier-misuse"},
    "@!%p4 bra WAITEMPTY;": {"race"},
    "@!%p4 bra WAITFULL;": {"race"},
    "@!%p4 bra WAITTAKEN;": {"race"},
    "@!%p4 bra WAITREADY;": {"race", "mbarrier-phase"},
    "tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [%r15];": {"deadlock"},
    "tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [%r24];": {"deadlock"},
    "tcgen05.wait::ld.sync.aligned;": {"race"},
    "tcgen05.fence::before_thread_sync;": {"race"},
    "mbarrier.arrive.shared::cta.b64 _, [%r23];": {"deadlock"},
    "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r16], 24576;": {"deadlock"},
    "@%p2 tcgen05.dealloc.cta_group::1.sync.aligned.b32 %r2, 128;": {"tensor-memory"},
}


@pytest.mark.parametrize("line", DROPPED)
def test_without_a_line(line):
    assert f"  {line}\n" in SOURCE
    run, _ = pipeline(SOURCE.replace(f"  {line}\n", ""))
    assert {finding.kind for finding in (*run.findings, *run.formal)} & DROPPED[line], run.findings


@pytest.mark.parametrize("which", [0, 1])
def test_without_a_fence_after_a_wait(which):
    parts = SOURCE.split("  tcgen05.fence::after_thread_sync;\n")
    joints = ["  tcgen05.fence::after_thread_sync;\n"] * 2
    joints[which] = ""
    run, _ = pipeline(parts[0] + joints[0] + parts[1] + joints[1] + parts[2])
    assert run.findings == []
    assert {finding.kind for finding in run.formal} == {"race"}


def test_without_the_last_barrier():
    head, tail = SOURCE.split("DONE:")
    run, _ = pipeline(head + "DONE:" + tail.replace("  bar.sync 0;\n", ""))
    assert {finding.kind for finding in run.findings} == {"race"}


CHANGED = [
    # parity that starts wrong, a commit on the other barrier, bytes of one of two copies, one arrival too few
    ("not.b32 %r22, %r22;", "", {"deadlock"}),
    ("cluster.b64 [%r24];", "cluster.b64 [%r15];", {"deadlock", "mbarrier-count"}),
    ("_, [%r16], 24576;", "_, [%r16], 16384;", {"transaction-bytes"}),
    ("[taken], 128;", "[taken], 127;", {"race", "mbarrier-count", "mbarrier-phase"}),
    ("[taken], 128;", "[taken], 129;", {"deadlock"}),
]


@pytest.mark.parametrize(("before", "after", "kinds"), CHANGED)
def test_changed(before, after, kinds):
    assert before in SOURCE
    run, _ = pipeline(SOURCE.replace(before, after))
    assert {finding.kind for finding in run.findings} & kinds, run.findings
