"""Sums of f32 that memory makes, in every way PTX has, of special numbers and their neighbours; and what they are.

Thread i of the grid has an old value and an addend; each kernel leaves the sum in `out[i]`.
"""

import numpy as np
from tests.ptx.emulator.asynchronous.kernels import HEAD

from kernbench import ptx

# zeros, subnormal numbers, the least normal ones and their neighbours, infinities, NaNs, ordinary numbers
_SPECIAL = [
    *(0, 1, 0x007FFFFF, 0x00400000, 0x00800000, 0x00800001, 0x00FFFFFF),
    *(0x7F800000, 0x7FC00000, 0x7F800001, 0x3F800000, 0x7F7FFFFF, 0x34000000),
]
_BITS = np.array([bits | sign for bits in _SPECIAL for sign in (0, 1 << 31)], np.uint32)
THREADS = 256
_PADDED = -(-(len(_BITS) ** 2) // (2 * THREADS)) * 2 * THREADS
OLD = np.resize(np.repeat(_BITS, len(_BITS)), _PADDED)
ADDED = np.resize(np.tile(_BITS, len(_BITS)), _PADDED)

_FRAME = (
    HEAD.format(arch="sm_90a")
    + """
.visible .entry kernel(PARAM.param .u64 added, .param .u64 out)
{
  .reg .pred %p<4>; .reg .b32 %r<32>; .reg .b64 %rd<16>; .reg .f32 %f<16>;
  .shared .align 128 .b8 old[1024];
  .shared .align 128 .b8 data[1024];
  mov.u32 %r0, %tid.x;
  mov.u32 %r1, %ctaid.x;
  mad.lo.u32 %r2, %r1, 256, %r0;
  mul.wide.u32 %rd1, %r2, 4;
  ld.param.u64 %rd2, [added];
  add.u64 %rd2, %rd2, %rd1;
  ld.global.b32 %r3, [%rd2];
  mov.b32 %f1, %r3;
  ld.param.u64 %rd3, [out];
  add.u64 %rd3, %rd3, %rd1;
  ld.global.b32 %r4, [%rd3];
  shl.b32 %r5, %r0, 2;
  mov.u32 %r6, old;
  add.u32 %r6, %r6, %r5;
  st.shared.b32 [%r6], %r4;
  mov.u32 %r7, data;
  add.u32 %r8, %r7, %r5;
  st.shared.b32 [%r8], %r3;
  setp.ne.u32 %p0, %r0, 0;
  and.b32 %r9, %r0, 3;
  setp.ne.u32 %p1, %r9, 0;
  fence.proxy.async;
  barrier.cluster.arrive.release.aligned;
  barrier.cluster.wait.acquire.aligned;
BODY
  ret;
}
"""
)
_GENERIC = "  cvt.u64.u32 %rd4, %r6;\n  cvta.shared.u64 %rd4, %rd4;\n"
_PEER = "  mov.u32 %r10, %cluster_ctarank;\n  xor.b32 %r10, %r10, 1;\n  mapa.shared::cluster.u32 %r11, %r6, %r10;\n"
_PEER += "  mapa.shared::cluster.u32 %r12, %r8, %r10;\n  ld.shared::cluster.f32 %f2, [%r12];\n"
_MEET = "  barrier.cluster.arrive.release.aligned;\n  barrier.cluster.wait.acquire.aligned;\n"
_READ = "  ld.shared.b32 %r13, [%r6];\n  st.global.b32 [%rd3], %r13;"
_WAIT = "  @!%p0 cp.async.bulk.commit_group;\n  @!%p0 cp.async.bulk.wait_group 0;"
# way -> its instructions
WAYS = {
    "red.global": "  red.global.add.f32 [%rd3], %f1;",
    "atom.global": "  atom.global.add.f32 %f2, [%rd3], %f1;\n  st.global.f32 [%rd2], %f2;",
    "red of a generic address of global memory": "  red.add.f32 [%rd3], %f1;",
    "red of vectors": "  @!%p1 ld.shared.v4.f32 {%f4, %f5, %f6, %f7}, [%r8];\n"
    "  @!%p1 red.global.add.v4.f32 [%rd3], {%f4, %f5, %f6, %f7};",
    "red.shared": f"  red.shared.add.f32 [%r6], %f1;\n{_READ}",
    "atom.shared": f"  atom.shared.add.f32 %f2, [%r6], %f1;\n  st.global.f32 [%rd2], %f2;\n{_READ}",
    "red of a generic address of shared memory": f"{_GENERIC}  red.add.f32 [%rd4], %f1;\n{_READ}",
    "red.shared::cluster": f"{_PEER}  red.shared::cluster.add.f32 [%r11], %f2;\n{_MEET}{_READ}",
    "atom.shared::cluster": f"{_PEER}  atom.shared::cluster.add.f32 %f3, [%r11], %f2;\n{_MEET}{_READ}",
    "bulk reduction": "  @!%p0 cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32 [%rd3], [%r7], 1024;\n"
    + _WAIT,
}
# elements of tensor maps for reductions through them
MAPS = ("f32", "f32.ftz", "tf32", "tf32.ftz")
_TENSOR = (
    "  mov.b64 %rd5, map;\n  cvta.param.u64 %rd5, %rd5;\n  mov.u32 %r10, 0;\n"
    "  @!%p0 cp.reduce.async.bulk.tensor.2d.global.shared::cta.add.tile.bulk_group [%rd5, {%r10, %r1}], [%r7];\n"
    + _WAIT
)


def flushes(way):
    """Whether sums made in this way have subnormal numbers as zeros of their sign, before and after."""
    return way.endswith(".ftz") or "global" in way or way == "red of vectors"


def sums(way, device, **options):
    """Run the kernel of a way, or of the elements of a tensor map: the run and the bits of the sums."""
    text = _FRAME.replace("BODY", _TENSOR if way in MAPS else WAYS[way])
    text = text.replace("PARAM", ".param .align 64 .b8 map[128], " if way in MAPS else "")
    out = device.array(OLD.view(np.float32).reshape(-1, THREADS).copy(), "out")
    arguments = [device.array(ADDED.copy(), "added"), out]
    if way in MAPS:
        arguments.insert(0, device.tensor_map(out, out.shape[::-1], (4 * THREADS,), (THREADS, 1), element=way))
    cluster = 2 if "cluster" in way else 1
    kernel = ptx.parse(text).kernels["kernel"]
    run = device.launch(kernel, len(out.numpy()), THREADS, arguments, cluster=cluster, **options)
    return run, out.numpy().reshape(-1).view(np.uint32)


def _flushed(bits):
    return np.where(bits & 0x7F800000, bits, bits & 0x80000000).astype(np.uint32)


def expected(way):
    """The bits of the sums: of NumPy's, with one NaN."""
    change = _flushed if flushes(way) else np.copy
    with np.errstate(invalid="ignore", over="ignore"):
        total = change(OLD).view(np.float32) + change(ADDED).view(np.float32)
    result = change(total.view(np.uint32))
    result[np.isnan(total)] = 0x7FFFFFFF
    return result
