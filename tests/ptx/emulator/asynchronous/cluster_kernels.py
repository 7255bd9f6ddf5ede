"""Kernels of clusters, as text, and what each leaves in `out`: the same on every device."""

# ruff: noqa: E501

import numpy as np
from tests.ptx.emulator.asynchronous.kernels import HEAD

from kernbench import ptx

FRAME = (
    HEAD.format(arch="sm_90a")
    + """
.visible .entry kernel(.param .align 64 .b8 map[128], .param .u64 out)
{
  .reg .pred %p<8>; .reg .b32 %r<48>; .reg .b64 %rd<16>; .reg .b16 %h<4>;
  .shared .align 1024 .b8 box[2048];
  .shared .align 8 .b64 bar;
  .shared .align 16 .b8 cell[512];
  mov.u32 %r0, %tid.x;
  mov.u32 %r1, %cluster_ctarank;
  mov.u32 %r2, box;
  mov.u32 %r3, bar;
  mov.u32 %r4, cell;
  mov.b64 %rd1, map;
  cvta.param.u64 %rd1, %rd1;
  ld.param.u64 %rd2, [out];
  mov.u32 %r5, %ctaid.x;
  shl.b32 %r6, %r5, 5;
  add.u32 %r6, %r6, %r0;
  mul.wide.u32 %rd3, %r6, 4;
  add.u64 %rd2, %rd2, %rd3;
  setp.ne.u32 %p0, %r0, 0;
  xor.b32 %r7, %r1, 1;
  shl.b32 %r8, %r0, 2;
BODY
  st.global.b32 [%rd2], %r40;
  ret;
}
"""
)
ARRIVE_AND_WAIT = "  barrier.cluster.arrive.release.aligned;\n  barrier.cluster.wait.acquire.aligned;\n"
INIT = (
    "  @!%p0 mbarrier.init.shared::cta.b64 [%r3], 1;\n  @!%p0 fence.mbarrier_init.release.cluster;\n" + ARRIVE_AND_WAIT
)
WAIT = "WAIT:\n  mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 %p1, [%r3], 0;\n  @!%p1 bra WAIT;\n"


def launch(body, ctas=4, cluster=2, device=None, arch="sm_90a", sign="", **options):
    device = ptx.EmulatedDevice("sm_90a") if device is None else device
    data = np.arange(512, dtype=np.uint32).reshape(16, 32)
    source = device.array(data, "data")
    out = device.empty((ctas, 32), np.uint32, "out")
    tensor_map = device.tensor_map(source, dims=(32, 16), strides=(128,), box=(32, 4))
    text = FRAME.replace("BODY\n", body).replace("sm_90a", arch)
    text = sign + text
    run = device.launch(ptx.parse(text).kernels["kernel"], ctas, 32, [tensor_map, out], cluster=cluster, **options)
    run.outputs["out"] = out.numpy()
    return run


# all blocks have started
START = "  barrier.cluster.arrive.relaxed.aligned;\n  barrier.cluster.wait.aligned;\n"
EXCHANGE = (
    START
    + """  add.u32 %r9, %r4, %r8;
  mapa.shared::cluster.u32 %r10, %r9, %r7;
  shl.b32 %r11, %r5, 8;
  add.u32 %r11, %r11, %r0;
  st.shared::cluster.b32 [%r10], %r11;
"""
    + ARRIVE_AND_WAIT
    + "  ld.shared.b32 %r40, [%r9];\n"
)


MULTICAST = (
    INIT
    + """  @!%p0 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r3], 512;
  setp.eq.u32 %p2, %r1, 0;
  not.pred %p3, %p0;
  and.pred %p2, %p2, %p3;
  mov.u16 %h1, 3;
  mov.u32 %r12, 0;
  shr.u32 %r13, %r5, 1;
  shl.b32 %r13, %r13, 2;
  @%p2 cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster [%r2], [%rd1, {%r12, %r13}], [%r3], %h1;
"""
    + WAIT
    + "  add.u32 %r14, %r2, %r8;\n  ld.shared.b32 %r40, [%r14+128];\n"
    + ARRIVE_AND_WAIT
)


REMOTE = (
    INIT
    + """  add.u32 %r9, %r4, %r8;
  mapa.shared::cluster.u32 %r10, %r9, %r7;
  mapa.shared::cluster.u32 %r11, %r3, %r7;
  st.shared::cluster.b32 [%r10], %r6;
  bar.warp.sync -1;
  @!%p0 mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r11];
"""
    + WAIT
    + "  ld.shared.b32 %r40, [%r9];\n"
    + ARRIVE_AND_WAIT
)


GENERIC = EXCHANGE.replace("  st.shared::cluster.b32 [%r10], %r11;\n", "  st.b32 [%rd5], %r11;\n").replace(
    "  shl.b32 %r11",
    "  cvt.u64.u32 %rd4, %r9;\n  cvta.shared.u64 %rd4, %rd4;\n  mapa.u64 %rd5, %rd4, %r7;\n  shl.b32 %r11",
)
REGISTERS = """  mov.u32 %r40, %cluster_ctarank;
  mov.u32 %r9, %clusterid.x;
  mad.lo.u32 %r40, %r9, 100, %r40;
  mov.u32 %r9, %cluster_nctarank;
  mad.lo.u32 %r40, %r9, 10000, %r40;
"""
RANKS = "  mapa.shared::cluster.u32 %r10, %r4, %r7;\n  getctarank.shared::cluster.u32 %r40, %r10;\n"
ATOMICS = (
    "  mov.u32 %r11, 0;\n  @!%p0 st.shared.b32 [%r4], %r11;\n"
    + ARRIVE_AND_WAIT
    + """  mov.u32 %r12, 0;
  mapa.shared::cluster.u32 %r10, %r4, %r12;
  atom.shared::cluster.add.u32 %r13, [%r10], 1;
"""
    + ARRIVE_AND_WAIT
    + "  ld.shared.b32 %r40, [%r4];\n"
)
STORES = (
    INIT
    + """  add.u32 %r9, %r4, %r8;
  mapa.shared::cluster.u32 %r10, %r9, %r7;
  mapa.shared::cluster.u32 %r11, %r3, %r7;
  @!%p0 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r3], 128;
  st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.b32 [%r10], %r6, [%r11];
"""
    + WAIT
    + "  ld.shared.b32 %r40, [%r9];\n"
    + ARRIVE_AND_WAIT
)
COPIES = (
    INIT
    + """  add.u32 %r9, %r4, %r8;
  st.shared.b32 [%r9], %r6;
  fence.proxy.async.shared::cta;
  bar.warp.sync -1;
  mapa.shared::cluster.u32 %r10, %r2, %r7;
  mapa.shared::cluster.u32 %r11, %r3, %r7;
  @!%p0 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r3], 128;
  @!%p0 cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [%r10], [%r4], 128, [%r11];
"""
    + WAIT
    + "  add.u32 %r14, %r2, %r8;\n  ld.shared.b32 %r40, [%r14];\n"
    + ARRIVE_AND_WAIT
)
_LANES = np.arange(32)
_PEERS = np.array([1, 0, 3, 2])[:, None]
_SUMS = np.array([64, 0, 64, 0])[:, None]

# name -> body, CTAs, CTAs of a cluster, and what `out` holds then
CASES = {
    "special registers": (REGISTERS, 8, 4, np.array([40000 + 100 * (c // 4) + c % 4 for c in range(8)])[:, None]),
    "exchange": (EXCHANGE, 4, 2, _PEERS * 256 + _LANES),
    "generic addresses": (GENERIC, 4, 2, _PEERS * 256 + _LANES),
    "ranks of addresses": (RANKS, 4, 2, _PEERS % 2),
    "atomics": (ATOMICS, 4, 2, _SUMS),
    "multicast": (MULTICAST, 4, 2, np.repeat([32, 160], 2)[:, None] + _LANES),
    "remote arrivals": (REMOTE, 4, 2, _PEERS * 32 + _LANES),
    "asynchronous stores": (STORES, 4, 2, _PEERS * 32 + _LANES),
    "bulk copies": (COPIES, 4, 2, _PEERS * 32 + _LANES),
}
