"""Tiles that cp.async brings and wgmma reads without a proxy fence: formal, as a GPU shows. Stores need the fence."""

import numpy as np
import pytest
from tests.ptx.emulator.asynchronous.tcgen05 import COMMIT, WAIT, load, mma
from tests.ptx.emulator.asynchronous.test_copies import launch as launch_copies
from tests.ptx.emulator.asynchronous.test_formal import fault, formal
from tests.ptx.emulator.asynchronous.test_tensor_checks import planted as planted_tensor
from tests.ptx.emulator.asynchronous.test_wgmma import FENCE, SIGNED, kernel, planted, tiles

from kernbench import ptx

REASON = "every Hopper GPU so far has what cp.async brings in shared memory once it was waited for"
ON_A_BARRIER = """  setp.eq.u32 %p1, %r25, 0;
  @%p1 mbarrier.init.shared.b64 [bar], 128;
  bar.sync 0;
COPIES
  cp.async.mbarrier.arrive.noinc.shared.b64 [bar];
UNTIL:
  mbarrier.try_wait.parity.shared.b64 %p1, [bar], 0;
  @!%p1 bra UNTIL;
"""
GROUP = "COPIES\n  cp.async.commit_group;\n  cp.async.wait_group 0;\n  FENCE\n  bar.sync 0;"
# the first bytes again, by an ordinary store
STORE = "\n  ld.shared.b32 %r27, [%r26];\n  st.shared.b32 [%r26], %r27;"


def copied_again(fence="", wait=GROUP, size=16):
    """Tiles are copied by cp.async behind the fence, as Triton 3.6 has it in loops, and waited for."""
    op = "cg" if size == 16 else "ca"
    places = range(0, 16384, 2048)
    one = [at + byte for at in places for byte in range(0, 16, size)]
    lines = [
        "  mov.u32 %r25, %tid.x;\n  shl.b32 %r25, %r25, 4;\n  mov.u32 %r26, tiles;\n  add.u32 %r26, %r26, %r25;",
        "  cvt.u64.u32 %rd8, %r25;\n  ld.param.u64 %rd9, [image];\n  add.u64 %rd8, %rd8, %rd9;",
    ]
    copies = "\n".join(f"  cp.async.{op}.shared.global [%r26+{at}], [%rd8+{at}], {size};" for at in one)
    return "\n".join([*lines, wait.replace("COPIES", copies).replace("FENCE", fence)])


@pytest.mark.parametrize("size", [4, 8, 16])
@pytest.mark.parametrize("signed", [True, False])
def test_a_proxy_fence_before_copies_does_not_cover_them(signed, size):
    """Triton 3.6.0 moved its fence in front of the loop whose copies wgmma reads; 3.7 on has one behind the wait."""
    change = SIGNED if signed else ("", "")
    formal(planted(first=copied_again(size=size), change=change), "missing-fence", REASON)
    run = planted(first=copied_again(FENCE, size=size), change=change)
    assert not run.findings
    assert not run.formal


def test_copies_on_a_barrier():
    change = ("  .reg .pred", "  .shared .b64 bar;\n  .reg .pred")
    formal(planted(first=copied_again(wait=ON_A_BARRIER), change=change), "missing-fence", REASON)


@pytest.mark.parametrize("wait", [GROUP.replace("\n  bar", STORE + "\n  bar"), GROUP + STORE + "\n  bar.sync 0;"])
def test_a_store_into_what_was_copied_needs_the_fence(wait):
    """What was copied is formal, what was stored is a fault, in one product."""
    run = planted(first=copied_again(wait=wait))
    fault(run, "missing-fence")
    assert "st.shared.b32" in run.findings[0].message
    assert [found.kind for found in run.formal] == ["missing-fence"]


@pytest.mark.parametrize("fence", ["", FENCE])
@pytest.mark.parametrize("wait", ["", "cp.async.commit_group;", "cp.async.commit_group;\n  cp.async.wait_group 1;"])
def test_copies_that_nobody_waits_for(wait, fence):
    run = planted(first=copied_again(wait=f"COPIES\n  {wait}\n  {fence}\n  bar.sync 0;"))
    fault(run, "in-flight")
    assert "the operation that thread (0, 0, 0) of block (0, 0, 0) begins reads" in run.findings[0].message


# the same tiles again, brought by cp.async, for a product of sm_100
BROUGHT = """  mov.u32 %r30, %tid.x;
  shl.b32 %r30, %r30, 4;
  mov.u32 %r31, tiles;
  add.u32 %r31, %r31, %r30;
AGAIN:
  setp.ge.u32 %p6, %r30, %r20;
  @%p6 bra DONE;
  cvt.u64.u32 %rd10, %r30;
  add.u64 %rd10, %rd10, %rd1;
  cp.async.cg.shared.global [%r31], [%rd10], 16;
  add.u32 %r30, %r30, 2048;
  add.u32 %r31, %r31, 2048;
  bra AGAIN;
DONE:
"""


@pytest.mark.parametrize(
    ("wait", "kinds"),
    [
        (f"  cp.async.wait_all;\n  {FENCE}\n", []),
        ("  cp.async.wait_all;\n", ["missing-fence"]),
        (f"  {FENCE}\n", ["in-flight"]),
    ],
    ids=["clean", "no fence", "no wait"],
)
def test_products_of_sm_100_need_the_fence(wait, kinds):
    """Outputs that change from run to run have been seen on B200 GPUs: PyTorch's issue 181248."""
    run = planted_tensor(BROUGHT + wait + "  bar.sync 0;\n" + mma("f16") + COMMIT + WAIT + load(64))
    fault(run, *kinds)
    assert not run.formal


THEN_STORED = """  shl.b32 %r5, %r0, 4;
  add.u32 %r6, %r1, %r5;
  cvt.u64.u32 %rd3, %r5;
  add.u64 %rd3, %rd3, %rd1;
  cp.async.cg.shared.global [%r6], [%rd3], 16;
WAIT
  bar.sync 0;
  @!%p0 cp.async.bulk.global.shared::cta.bulk_group [%rd2], [%r1], %r3;
  @!%p0 cp.async.bulk.commit_group;
  @!%p0 cp.async.bulk.wait_group 0;
"""


@pytest.mark.parametrize(
    ("wait", "kinds"),
    [
        (f"  cp.async.wait_all;\n  {FENCE}", []),
        ("  cp.async.wait_all;", ["missing-fence"]),
        (f"  {FENCE}", ["in-flight"]),
    ],
    ids=["clean", "no fence", "no wait"],
)
def test_bulk_stores_need_the_fence(wait, kinds):
    source = np.arange(128, dtype=np.uint32)
    run = launch_copies(THEN_STORED.replace("WAIT", wait), source, np.zeros(128, np.uint32), 512)[0]
    fault(run, *kinds)
    assert not run.formal


@pytest.mark.parametrize("sign", ["", "// Generated by NVIDIA NVVM Compiler\n"])
def test_a_tile_that_nobody_wrote_but_copies(sign):
    """One cause is one finding: a copy that nobody waited for, not memory that nobody wrote."""
    kinds = ("f32", "f16", "f16")
    _, _, data, given = tiles(7, 64, 16, kinds, "128B", "128B")
    text = kernel(64, kinds, 16, tail="1, 1, 0, 0", first=copied_again(wait="COPIES\n  bar.sync 0;")).module.source
    # the head stores to its own words
    text = text.replace("st.shared.v4.u32 [%r15]", "st.shared.v4.u32 [%r15+32768]")
    device = ptx.EmulatedDevice("sm_90a")
    out, image = device.array(np.zeros((128, 32), np.uint32)), device.array(np.resize(data, 16384))
    code = ptx.parse(sign + text).kernels["kernel"]
    run = device.launch(code, 1, 128, [image, out, 16384, *given], shared_bytes=65536)
    fault(run, "in-flight")
