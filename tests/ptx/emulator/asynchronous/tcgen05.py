"""Kernels with tcgen05: a head that fills shared memory, pieces for the middle, a tail that stores."""

import numpy as np
from tests.ptx.emulator.asynchronous.matrices import COPY, TCGEN05_CODES, descriptor, image, random_tile, strides

from kernbench import ptx

HEAD = """.version 8.7
.target sm_100a
.address_size 64
.shared .align 8 .b64 done;
.shared .align 4 .b32 slot;
.extern .shared .align 1024 .b8 tiles[];
.visible .entry kernel(.param .u64 image, .param .u64 out, .param .u32 nbytes, .param .u64 a, .param .u64 b,
                       .param .u32 idesc)
{{
  .reg .pred %p<8>;
  .reg .b32 %r<64>;
  .reg .b64 %rd<16>;
  .reg .b32 %d<{registers}>;
  ld.param.u64 %rd1, [image];
  ld.param.u64 %rd3, [out];
  ld.param.u32 %r20, [nbytes];
  ld.param.u64 %rd4, [a];
  ld.param.u64 %rd5, [b];
  ld.param.u32 %r22, [idesc];
  mov.u32 %r0, %tid.x;
  shr.u32 %r1, %r0, 5;
  setp.eq.u32 %p2, %r1, 0;
  setp.eq.u32 %p3, %r0, 0;
  mov.u32 %r2, tiles;
{copy}  @%p2 tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [slot], {columns};
  @%p3 mbarrier.init.shared::cta.b64 [done], 1;
  @%p3 fence.mbarrier_init.release.cluster;
  fence.proxy.async.shared::cta;
  bar.sync 0;
  ld.shared.u32 %r3, [slot];
  shl.b32 %r4, %r1, 21;
  add.u32 %r5, %r3, %r4;
"""
TAIL = """
  tcgen05.wait::ld.sync.aligned;
  mul.wide.u32 %rd6, %r0, {nbytes};
  add.u64 %rd6, %rd6, %rd3;
{stores}
  bar.sync 0;
  @%p2 tcgen05.relinquish_alloc_permit.cta_group::1.sync.aligned;
  @%p2 tcgen05.dealloc.cta_group::1.sync.aligned.b32 %r3, {columns};
  ret;
}}
"""
WAIT = """
WAITING:
  mbarrier.try_wait.parity.shared::cta.b64 %p4, [done], 0;
  @!%p4 bra WAITING;
  tcgen05.fence::after_thread_sync;
"""
COMMIT = "  @%p3 tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [done];\n"
FORMATS = {"f16": 0, "bf16": 1, "tf32": 2, "e4m3": 0, "e5m2": 1, "u8": 0, "s8": 1}
RESULTS = {"f16": 0, "f32": 1, "s32": 2}
DEPTH = {"f16": 16, "tf32": 8, "f8f6f4": 32, "i8": 32}


def names(count):
    return "{" + ", ".join(f"%d{i}" for i in range(count)) + "}"


# what a kernel for two CTAs of a cluster has in the place of that for one
PAIRED = {
    ".param .u32 idesc)": ".param .u32 idesc) .reqnctapercluster 2, 1, 1",
    "  ld.param.u32 %r22, [idesc];\n": """  ld.param.u32 %r22, [idesc];
  mov.u32 %r6, %cluster_ctarank;
  mul.wide.u32 %rd7, %r6, %r20;
  add.u64 %rd1, %rd1, %rd7;
""",
    "cta_group::1": "cta_group::2",
    "  bar.sync 0;\n": "  barrier.cluster.arrive.aligned;\n  barrier.cluster.wait.aligned;\n",
    "  mul.wide.u32 %rd6, %r0,": "  mad.lo.u32 %r7, %r6, 128, %r0;\n  mul.wide.u32 %rd6, %r7,",
}


def kernel(body, registers, columns=128, tail=TAIL, changes=None):
    stores = "\n".join(f"  st.global.b32 [%rd6+{4 * i}], %d{i};" for i in range(registers))
    head = HEAD.format(registers=registers, columns=columns, copy=COPY)
    text = head + body + tail.format(nbytes=4 * registers, stores=stores, columns=columns)
    for old, new in (changes or {}).items():
        assert old in text, old
        text = text.replace(old, new)
    return ptx.parse(text).kernels["kernel"]


def mma(kind, predicate="%p5", a="%rd4", extra="", ws=""):
    return (
        f"  setp.ne.b32 %p5, 0, 0;\n"
        f"  @%p3 tcgen05.mma{ws}.cta_group::1.kind::{kind} [%r3], {a}, %rd5, %r22, {predicate}{extra};\n"
    )


def load(registers, shape="32x32b"):
    return f"  tcgen05.ld.sync.aligned.{shape}.x{registers}.b32 {names(registers)}, [%r5];\n"


def idesc(m, n, kinds, trans=(False, False), negate=(False, False)):
    bits = RESULTS[kinds[0]] << 4 | FORMATS[kinds[1]] << 7 | FORMATS[kinds[2]] << 10
    bits |= negate[0] << 13 | negate[1] << 14 | trans[0] << 15 | trans[1] << 16
    return bits | (n >> 3) << 17 | (m >> 4) << 24


def launch(code, data, descriptors, instruction, registers, grid=1, **options):
    device = ptx.EmulatedDevice("sm_100a")
    out = device.array(np.zeros((128, registers), np.uint32))
    given = [device.array(data), out, len(data), *descriptors, instruction]
    run = device.launch(code, grid, 128, given, shared_bytes=len(data), **options)
    return run, out.numpy()


# where dynamic shared memory begins, behind two small variables
BASE = 1024


def tiles(seed, m, n, k, kinds, mode_a="128B", mode_b="128B", trans=(False, False)):
    rng = np.random.default_rng(seed)
    a, b = random_tile(rng, m, k, kinds[1]), random_tile(rng, n, k, kinds[2])
    size = a.dtype.itemsize
    lead_a, stride_a, bytes_a = strides(m, k, size, mode_a, trans[0])
    lead_b, stride_b, bytes_b = strides(n, k, size, mode_b, trans[1])
    start_b = -(-bytes_a // 1024) * 1024
    total = start_b + bytes_b
    data = image(a, mode_a, trans[0], 0, lead_a, stride_a, total)
    data |= image(b, mode_b, trans[1], start_b, lead_b, stride_b, total)
    return (
        a,
        b,
        data,
        (
            descriptor(BASE, lead_a, stride_a, TCGEN05_CODES[mode_a], True),
            descriptor(BASE + start_b, lead_b, stride_b, TCGEN05_CODES[mode_b], True),
        ),
    )


def expected(a, b):
    return a.astype(np.float64) @ b.astype(np.float64).T


def result(words, kind):
    if kind == "f16":
        return (words & 0xFFFF).astype(np.uint16).view(np.float16).astype(np.float64)
    return words.view({"f32": np.float32, "s32": np.int32}[kind]).astype(np.float64)


AGAIN = (
    "  setp.eq.b32 %p5, 0, 0;\n  @%p3 tcgen05.mma.cta_group::1.kind::f16 [%r3], %rd4, %rd5, %r22, {extra}%p5{scale};\n"
)
KINDS_F16 = ("f32", "f16", "f16")
