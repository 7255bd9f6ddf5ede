"""Kernels of the asynchronous tests, as text; planted bugs are edits of one line."""

# ruff: noqa: E501

HEAD = """.version 8.6
.target {arch}
.address_size 64
"""

# one producer warp, four consumer warps, two stages of two boxes each; tiles of 32 x 32 floats
PIPE = (
    HEAD.format(arch="sm_90a")
    + """
.visible .entry kernel(.param .align 64 .b8 map[128], .param .u64 out, .param .u32 tiles)
{
  .reg .pred %p<8>; .reg .b32 %r<48>; .reg .b64 %rd<16>; .reg .f32 %f<16>;
  .shared .align 1024 .b8 stage[8192];
  .shared .align 8 .b64 full[2];
  .shared .align 8 .b64 empty[2];
  mov.u32 %r0, %tid.x;
  ld.param.u32 %r1, [tiles];
  mov.u32 %r2, full;
  mov.u32 %r3, empty;
  mov.u32 %r4, stage;
  setp.ne.u32 %p0, %r0, 0;
  @%p0 bra READY;
  mbarrier.init.shared::cta.b64 [%r2], 1;
  mbarrier.init.shared::cta.b64 [%r2+8], 1;
  mbarrier.init.shared::cta.b64 [%r3], 4;
  mbarrier.init.shared::cta.b64 [%r3+8], 4;
  fence.mbarrier_init.release.cluster;
READY:
  bar.sync 0;
  mov.u32 %r5, 0;
  shr.u32 %r6, %r0, 5;
  setp.ne.u32 %p1, %r6, 0;
  @%p1 bra CONSUME;
  @%p0 bra DONE;
  mov.b64 %rd1, map;
  cvta.param.u64 %rd1, %rd1;
PRODUCE:
  setp.ge.u32 %p2, %r5, %r1;
  @%p2 bra DONE;
  and.b32 %r7, %r5, 1;
  shl.b32 %r8, %r7, 3;
  add.u32 %r9, %r2, %r8;
  add.u32 %r10, %r3, %r8;
  shr.u32 %r11, %r5, 1;
  and.b32 %r11, %r11, 1;
  xor.b32 %r11, %r11, 1;
FREE:
  mbarrier.try_wait.parity.shared::cta.b64 %p3, [%r10], %r11;
  @!%p3 bra FREE;
  mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r9], 4096;
  shl.b32 %r12, %r7, 12;
  add.u32 %r12, %r4, %r12;
  shl.b32 %r13, %r5, 5;
  add.u32 %r14, %r13, 16;
  mov.u32 %r15, 0;
  cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%r12], [%rd1, {%r15, %r13}], [%r9];
  cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%r12+2048], [%rd1, {%r15, %r14}], [%r9];
  add.u32 %r5, %r5, 1;
  bra PRODUCE;
CONSUME:
  sub.u32 %r16, %r0, 32;
  ld.param.u64 %rd2, [out];
  mul.wide.u32 %rd3, %r16, 4;
  add.u64 %rd2, %rd2, %rd3;
  and.b32 %r17, %r0, 31;
  setp.ne.u32 %p4, %r17, 0;
  shl.b32 %r18, %r16, 2;
NEXT:
  setp.ge.u32 %p2, %r5, %r1;
  @%p2 bra DONE;
  and.b32 %r7, %r5, 1;
  shl.b32 %r8, %r7, 3;
  add.u32 %r9, %r2, %r8;
  add.u32 %r10, %r3, %r8;
  shr.u32 %r11, %r5, 1;
  and.b32 %r11, %r11, 1;
FULL:
  mbarrier.try_wait.parity.shared::cta.b64 %p3, [%r9], %r11;
  @!%p3 bra FULL;
  shl.b32 %r12, %r7, 12;
  add.u32 %r12, %r4, %r12;
  add.u32 %r12, %r12, %r18;
  ld.shared.f32 %f1, [%r12];
  ld.shared.f32 %f2, [%r12+512];
  ld.shared.f32 %f3, [%r12+2048];
  ld.shared.f32 %f4, [%r12+3584];
  add.f32 %f1, %f1, %f2;
  add.f32 %f3, %f3, %f4;
  add.f32 %f1, %f1, %f3;
  st.global.f32 [%rd2], %f1;
  add.u64 %rd2, %rd2, 512;
  bar.warp.sync -1;
  @!%p4 mbarrier.arrive.shared::cta.b64 _, [%r10];
  add.u32 %r5, %r5, 1;
  bra NEXT;
DONE:
  ret;
}
"""
)

# shared memory written by threads, stored by a bulk tensor copy; the buffer is used twice
STORE = (
    HEAD.format(arch="sm_90a")
    + """
.visible .entry kernel(.param .align 64 .b8 map[128])
{
  .reg .pred %p<8>; .reg .b32 %r<32>; .reg .b64 %rd<8>;
  .shared .align 1024 .b8 buffer[4096];
  mov.u32 %r0, %tid.x;
  mov.u32 %r1, buffer;
  mov.b64 %rd1, map;
  cvta.param.u64 %rd1, %rd1;
  setp.ne.u32 %p0, %r0, 0;
  mov.u32 %r2, 0;
ROUND:
  shl.b32 %r3, %r0, 2;
  add.u32 %r4, %r1, %r3;
  shl.b32 %r5, %r2, 10;
  add.u32 %r5, %r5, %r0;
  st.shared.b32 [%r4], %r5;
  add.u32 %r5, %r5, 128;
  st.shared.b32 [%r4+512], %r5;
  fence.proxy.async.shared::cta;
  bar.sync 0;
  shl.b32 %r6, %r2, 3;
  mov.u32 %r7, 0;
  @!%p0 cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [%rd1, {%r7, %r6}], [%r1];
  @!%p0 cp.async.bulk.commit_group;
  @!%p0 cp.async.bulk.wait_group.read 0;
  bar.sync 0;
  add.u32 %r2, %r2, 1;
  setp.lt.u32 %p1, %r2, 4;
  @%p1 bra ROUND;
  ret;
}
"""
)


def dump_box(rank, nbytes, size=None, arch="sm_90a"):
    """A box at given coordinates into `size` bytes of shared memory, and those as they are into `out`; block of 128."""
    size = nbytes if size is None else size
    coordinates = ", ".join(f"%r{10 + d}" for d in range(rank))
    loads = "\n".join(f"  ld.param.u32 %r{10 + d}, [at{d}];" for d in range(rank))
    params = ", ".join(f".param .u32 at{d}" for d in range(rank))
    return (
        HEAD.format(arch=arch)
        + f"""
.visible .entry kernel(.param .align 64 .b8 map[128], .param .u64 out, {params})
{{
  .reg .pred %p<4>; .reg .b32 %r<32>; .reg .b64 %rd<8>;
  .shared .align 1024 .b8 box[{size}];
  .shared .align 8 .b64 bar;
{loads}
  mov.u32 %r0, %tid.x;
  mov.u32 %r1, box;
  mov.u32 %r2, bar;
  mov.b64 %rd1, map;
  cvta.param.u64 %rd1, %rd1;
  ld.param.u64 %rd2, [out];
  setp.ne.u32 %p0, %r0, 0;
  mov.u32 %r3, %r0;
CLEAR:
  add.u32 %r4, %r1, %r3;
  mov.u16 %r5, 0xEE;
  setp.ge.u32 %p1, %r3, {size};
  @%p1 bra CLEARED;
  st.shared.u8 [%r4], %r5;
  add.u32 %r3, %r3, 128;
  bra CLEAR;
CLEARED:
  fence.proxy.async.shared::cta;
  @!%p0 mbarrier.init.shared::cta.b64 [%r2], 1;
  @!%p0 fence.mbarrier_init.release.cluster;
  bar.sync 0;
  @!%p0 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r2], {nbytes};
  @!%p0 cp.async.bulk.tensor.{rank}d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%r1], [%rd1, {{{coordinates}}}], [%r2];
WAIT:
  mbarrier.try_wait.parity.shared::cta.b64 %p1, [%r2], 0;
  @!%p1 bra WAIT;
  mov.u32 %r3, %r0;
COPY:
  setp.ge.u32 %p1, %r3, {size};
  @%p1 bra DONE;
  add.u32 %r4, %r1, %r3;
  ld.shared.u8 %r5, [%r4];
  cvt.u64.u32 %rd3, %r3;
  add.u64 %rd3, %rd2, %rd3;
  st.global.u8 [%rd3], %r5;
  add.u32 %r3, %r3, 128;
  bra COPY;
DONE:
  ret;
}}
""".replace("mov.u16 %r5, 0xEE", "mov.u32 %r5, 0xEE")
    )


def put_box(rank, nbytes, operation="", arch="sm_90a"):
    """What `data` holds, as it is, into shared memory, and from there as a box into the tensor; block of 128."""
    coordinates = ", ".join(f"%r{10 + d}" for d in range(rank))
    loads = "\n".join(f"  ld.param.u32 %r{10 + d}, [at{d}];" for d in range(rank))
    params = ", ".join(f".param .u32 at{d}" for d in range(rank))
    opcode = f"cp.reduce.async.bulk.tensor.{rank}d.global.shared::cta.{operation}.tile.bulk_group"
    if not operation:
        opcode = f"cp.async.bulk.tensor.{rank}d.global.shared::cta.tile.bulk_group"
    return (
        HEAD.format(arch=arch)
        + f"""
.visible .entry kernel(.param .align 64 .b8 map[128], .param .u64 data, {params})
{{
  .reg .pred %p<4>; .reg .b32 %r<32>; .reg .b64 %rd<8>;
  .shared .align 1024 .b8 box[{nbytes}];
{loads}
  mov.u32 %r0, %tid.x;
  mov.u32 %r1, box;
  mov.b64 %rd1, map;
  cvta.param.u64 %rd1, %rd1;
  ld.param.u64 %rd2, [data];
  setp.ne.u32 %p0, %r0, 0;
  mov.u32 %r3, %r0;
COPY:
  setp.ge.u32 %p1, %r3, {nbytes};
  @%p1 bra COPIED;
  cvt.u64.u32 %rd3, %r3;
  add.u64 %rd3, %rd2, %rd3;
  ld.global.u8 %r5, [%rd3];
  add.u32 %r4, %r1, %r3;
  st.shared.u8 [%r4], %r5;
  add.u32 %r3, %r3, 128;
  bra COPY;
COPIED:
  fence.proxy.async.shared::cta;
  bar.sync 0;
  @!%p0 {opcode} [%rd1, {{{coordinates}}}], [%r1];
  @!%p0 cp.async.bulk.commit_group;
  @!%p0 cp.async.bulk.wait_group 0;
  ret;
}}
"""
    )


# one thread walks barriers through their phases and writes down what it sees
PHASES = (
    HEAD.format(arch="sm_90a")
    + """
.visible .entry kernel(.param .u64 out)
{
  .reg .pred %p<4>; .reg .b32 %r<64>; .reg .b64 %rd<32>;
  .shared .align 8 .b64 bar[2];
  ld.param.u64 %rd0, [out];
  mov.u32 %r1, bar;
  mbarrier.init.shared.b64 [%r1], 3;
"""
    + "{steps}"
    + """
  ret;
}
"""
)


def phases(steps):
    """A kernel of one thread that runs `steps`; `see VALUE` writes a 32-bit register down, `test P` a predicate."""
    lines, seen = [], 0
    for step in steps:
        word, _, rest = step.partition(" ")
        if word == "test":
            lines.append(f"  selp.b32 %r60, 1, 0, {rest};")
            rest = "%r60"
        if word in ("see", "test"):
            lines.append(f"  st.global.b32 [%rd0+{4 * seen}], {rest};")
            seen += 1
        else:
            lines.append(f"  {step}")
    return PHASES.replace("{steps}", "\n".join(lines)), seen


WALK = [
    "mbarrier.test_wait.parity.shared.b64 %p0, [%r1], 1;",
    "test %p0",
    "mbarrier.test_wait.parity.shared.b64 %p0, [%r1], 0;",
    "test %p0",
    "mbarrier.arrive.shared.b64 %rd1, [%r1];",
    "mbarrier.pending_count.b64 %r2, %rd1;",
    "see %r2",
    "mbarrier.test_wait.shared.b64 %p0, [%r1], %rd1;",
    "test %p0",
    "mbarrier.arrive.noComplete.shared.b64 %rd2, [%r1], 1;",
    "mbarrier.pending_count.b64 %r2, %rd2;",
    "see %r2",
    "mbarrier.arrive.shared::cta.b64 %rd3, [%r1], 1;",
    "mbarrier.pending_count.b64 %r2, %rd3;",
    "see %r2",
    "mbarrier.test_wait.shared.b64 %p0, [%r1], %rd1;",
    "test %p0",
    "mbarrier.try_wait.shared.b64 %p0, [%r1], %rd3;",
    "test %p0",
    "mbarrier.test_wait.parity.shared.b64 %p0, [%r1], 0;",
    "test %p0",
    "mbarrier.test_wait.parity.shared.b64 %p0, [%r1], 1;",
    "test %p0",
    "mbarrier.arrive_drop.shared::cta.b64 %rd4, [%r1], 2;",
    "mbarrier.pending_count.b64 %r2, %rd4;",
    "see %r2",
    "mbarrier.arrive.shared.b64 %rd5, [%r1];",
    "mbarrier.test_wait.parity.shared.b64 %p0, [%r1], 1;",
    "test %p0",
    "mbarrier.arrive.expect_tx.shared::cta.b64 %rd6, [%r1], 64;",
    "mbarrier.pending_count.b64 %r2, %rd6;",
    "see %r2",
    "mbarrier.test_wait.parity.shared.b64 %p0, [%r1], 0;",
    "test %p0",
    "mbarrier.complete_tx.relaxed.cta.shared::cta.b64 [%r1], 48;",
    "mbarrier.test_wait.parity.shared.b64 %p0, [%r1], 0;",
    "test %p0",
    "mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%r1], 16;",
    "mbarrier.complete_tx.relaxed.cta.shared::cta.b64 [%r1], 32;",
    "mbarrier.test_wait.parity.shared.b64 %p0, [%r1], 0;",
    "test %p0",
    "mbarrier.inval.shared.b64 [%r1];",
    "mbarrier.init.shared.b64 [%r1], 1;",
    "mbarrier.test_wait.parity.shared.b64 %p0, [%r1], 1;",
    "test %p0",
]
WALKED = [1, 0, 3, 0, 2, 1, 1, 1, 1, 0, 3, 1, 1, 0, 0, 1, 1]
