"""Orders that are not there: what lanes that have exited did, what only arrives, what nobody has waited for."""

import numpy as np
import pytest
from tests.ptx.emulator.asynchronous.boxes import Case, contents, run_store
from tests.ptx.emulator.asynchronous.kernels import put_box
from tests.ptx.emulator.asynchronous.test_maps_in_memory import APART
from tests.ptx.emulator.asynchronous.test_maps_in_memory import COPY as STORE_BOX
from tests.ptx.emulator.asynchronous.test_maps_in_memory import STORE as BY_A_COPIED_MAP
from tests.ptx.executor.test_warpgroups import attempts, outcome

from kernbench import ptx

__all__ = ["attempts"]
pytestmark = pytest.mark.fast_paths

HEAD = """.version 8.6
.target sm_90a
.address_size 64
.visible .entry kernel(.param .u64 given, .param .u64 out)
{
  .reg .pred %p<8>; .reg .b32 %r<24>; .reg .b64 %rd<12>;
  .shared .align 1024 .b8 stage[1024];
  .shared .align 8 .b64 phase[2];
  ld.param.u64 %rd0, [given]; ld.param.u64 %rd1, [out];
  mov.u32 %r0, %tid.x; shr.u32 %r1, %r0, 5; and.b32 %r2, %r0, 31;
  mov.u32 %r3, stage; mov.u32 %r4, phase; shl.b32 %r5, %r2, 2; add.u32 %r6, %r3, %r5;
  mul.wide.u32 %rd2, %r0, 4; add.u64 %rd3, %rd1, %rd2; add.u64 %rd4, %rd0, %rd2;
  setp.eq.u32 %p0, %r0, 0; setp.eq.u32 %p1, %r1, 0; setp.eq.u32 %p2, %r2, 0; mov.u32 %r10, 5;
"""
INIT = "  @%p0 mbarrier.init.shared::cta.b64 [%r4], 1;\n  fence.mbarrier_init.release.cluster;\n  bar.sync 0;\n"
STORE, LOAD = "  st.shared.u32 [%r6], %r0;\n", "  ld.shared.u32 %r10, [%r6];\n"
ARRIVE = "  mbarrier.arrive.shared::cta.b64 _, [%r4];\n"
WAIT = "AGAIN:\n  mbarrier.try_wait.parity.shared::cta.b64 %p3, [%r4], 0;\n  @!%p3 bra AGAIN;\n"
COPY = """  @%p0 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r4], 128;
  @%p0 cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r3], [%rd0], 128, [%r4];
"""
# 64 bytes of shared memory, to what is at %rd1
PUT = """  @%p1 st.shared.u32 [%r6], %r0;
  fence.proxy.async.shared::cta;
  bar.sync 0;
  @%p0 cp.async.bulk.global.shared::cta.bulk_group [%rd1], [%r3], 64;
  @%p0 cp.async.bulk.commit_group;
"""
PUT_WAIT = "  @%p0 cp.async.bulk.wait_group 0;\n"
NEXT = "  xor.b32 %r11, %r6, 4;\n  ld.shared.u32 %r10, [%r11];\n"
RESULT = "  st.global.u32 [%rd3+512], %r10;\n"


def warps(first, second):
    """The lines of warp 0, and those of warp 1."""
    return f"  @!%p1 bra SECOND;\n{first}  bra MET;\nSECOND:\n{second}MET:\n"


def left(before):
    """Lanes exit after these lines, but for one, which arrives."""
    return f"{before}  @!%p2 bra LAST;\n{ARRIVE}  bra LAST;\n"


FAULTY = {
    "written by lanes that exited": INIT + warps(left(STORE), WAIT + LOAD + RESULT) + "LAST:\n",
    "read by lanes that exited": STORE.replace("  st", "  @%p1 st")
    + INIT
    + warps(left(LOAD), WAIT + STORE)
    + "LAST:\n",
    "shown by who is left": STORE
    + "  @!%p2 bra LAST;\n  fence.proxy.async.shared::cta;\n"
    + "  @%p0 cp.async.bulk.global.shared::cta.bulk_group [%rd1], [%r3], 64;\n"
    + "  @%p0 cp.async.bulk.commit_group;\n"
    + PUT_WAIT
    + "LAST:\n",
    "an arrival is no meeting": warps(STORE + "  bar.arrive 1, 64;\n" + NEXT, "  bar.sync 1, 64;\n") + RESULT,
    "an arrival on what another warp invalidates": INIT.replace(", 1;", ", 2;")
    + "  @%p1 bra FIRST;\n  @%p2 mbarrier.inval.shared::cta.b64 [%r4];\n  bra MET;\n"
    + "FIRST:\n  @%p2 mbarrier.arrive.shared::cta.b64 _, [%r4];\nMET:\n",
    "registers of half a warp": "  setp.lt.u32 %p3, %r2, 16;\n  @!%p3 bra MET;\n"
    + "  setmaxnreg.dec.sync.aligned.u32 24;\nMET:\n"
    + RESULT,
    "a look at the other parity": INIT
    + COPY
    + "  mbarrier.test_wait.parity.shared::cta.b64 %p3, [%r4], 1;\n  @%p3 bra SEEN;\n"
    + WAIT
    + "SEEN:\n"
    + LOAD
    + RESULT,
    "an update that a read does not wait for": "  @%p0 st.shared.u32 [%r3], 0;\n  bar.sync 0;\n"
    + "  red.shared.add.u32 [%r3], %r0;\n" * 2
    + "  ld.shared.u32 %r10, [%r3];\n"
    + RESULT,
    "a wait without a look": INIT + COPY + "  mbarrier.test_wait.parity.shared::cta.b64 %p3, [%r4], 0;\n",
    "a row is read, of which a copy writes a part": PUT
    + "  @%p0 st.global.u32 [%rd1+64], %r0;\n  bar.sync 0;\n  @%p1 ld.global.u32 %r10, [%rd3];\n"
    + PUT_WAIT
    + RESULT,
    "a row is written, of which a copy writes a part": PUT
    + "  @%p0 st.global.u32 [%rd1+64], %r0;\n  bar.sync 0;\n  @%p1 st.global.u32 [%rd3], %r0;\n"
    + PUT_WAIT,
    "a round of a barrier that another warp may be counted in": warps(
        "  bar.sync 1, 32;\n" + STORE, "  bar.sync 1, 32;\n" + LOAD + RESULT
    ),
    "a look that comes before the copy, and nothing else": INIT
    + COPY
    + "  bar.sync 0;\n  mbarrier.try_wait.parity.shared::cta.b64 %p3, [%r4], 0;\n  @!%p3 bra EARLY;\n"
    + LOAD
    + RESULT
    + "  ret;\nEARLY:\n"
    + LOAD
    + RESULT,
    "a word is written that a copy and a thread read": INIT
    + COPY
    + "  @%p0 ld.global.u32 %r10, [%rd0];\n  bar.sync 0;\n  @%p0 st.global.u32 [%rd0], %r0;\n"
    + WAIT,
}
CLEAN = {
    "all arrive before they exit": INIT.replace(", 1;", ", 32;")
    + warps(STORE + ARRIVE + "  bra LAST;\n", WAIT + LOAD + RESULT)
    + "LAST:\n",
    "a barrier of two warps is a meeting": warps(STORE + "  bar.sync 1, 64;\n" + NEXT, "  bar.sync 1, 64;\n") + RESULT,
    "tokens of one phase": INIT.replace(", 1;", ", 64;")
    + "  st.shared.u32 [%r6], 3;\n"
    + "  mbarrier.arrive.shared::cta.b64 %rd5, [%r4];\nAGAIN:\n"
    + "  mbarrier.try_wait.shared::cta.b64 %p3, [%r4], %rd5;\n  @!%p3 bra AGAIN;\n"
    + NEXT
    + RESULT,
    "invalidated when all have waited": INIT
    + COPY
    + WAIT
    + LOAD
    + "  bar.sync 0;\n  @%p0 mbarrier.inval.shared::cta.b64 [%r4];\n"
    + RESULT,
    "two warps in turn, of which the first one lets itself go on": warps(
        "  bar.arrive 1, 64;\n"
        + "  bar.sync 1, 64;\n"
        + STORE
        + "  bar.arrive 2, 64;\n"
        + "  bar.sync 1, 64;\n"
        + LOAD,
        "  bar.sync 2, 64;\n" + NEXT + "  bar.warp.sync -1;\n" + STORE + "  bar.arrive 1, 64;\n",
    )
    + RESULT,
    "registers of warps": warps("  setmaxnreg.dec.sync.aligned.u32 24;\n", "  setmaxnreg.inc.sync.aligned.u32 240;\n")
    + RESULT,
    "updates of one word": INIT
    + "  @%p0 st.shared.u32 [%r3], 0;\n  bar.sync 0;\n"
    + "  red.shared.add.u32 [%r3], %r0;\n  bar.sync 0;\n  ld.shared.u32 %r10, [%r3];\n"
    + RESULT,
    "updates by two warps without asynchronous work": "  @%p0 st.shared.u32 [%r3], 0;\n  bar.sync 0;\n"
    + "  red.shared.add.u32 [%r3], %r0;\n" * 3
    + "  bar.sync 0;\n  ld.shared.u32 %r10, [%r3];\n"
    + RESULT,
    "a row of which a copy has written a part": PUT + PUT_WAIT + RESULT,
}


def launched(body, way):
    device = ptx.EmulatedDevice("sm_90a", fast_paths=way)
    given, out = (device.array(np.arange(256, dtype=np.uint32), name) for name in ("given", "out"))
    kernel = ptx.parse(HEAD + body + "  ret;\n}\n").kernels["kernel"]
    return outcome(device.launch(kernel, 1, 64, [given, out]), given, out)


@pytest.mark.parametrize("body", FAULTY.values(), ids=FAULTY)
def test_what_nothing_orders_is_not_cleared(body, attempts):
    one, two = (launched(body, way) for way in ("all", "-executor"))
    assert two[1]
    assert attempts == [False]
    assert one == two


@pytest.mark.parametrize("body", CLEAN.values(), ids=CLEAN)
def test_what_is_ordered_is_run(body, attempts):
    one, two = (launched(body, way) for way in ("all", "-executor"))
    assert attempts == [True]
    assert not one[1]
    assert one == two


@pytest.mark.parametrize("way", ["all", "-executor"])
def test_a_map_that_the_kernel_writes_is_that_of_this_launch(way):
    text = BY_A_COPIED_MAP.replace("ROWS", "8").replace("INSTRUCTION", STORE_BOX).replace("MAP", "%rd2")
    for word, part in zip(("PARAMETERS", "GIVEN", "ROOM"), APART, strict=True):
        text = text.replace(word, part)
    # the fence would leave it to the emulator
    lines = [line for line in text.splitlines() if "fence.proxy.tensormap" not in line]
    device = ptx.EmulatedDevice("sm_90a", fast_paths=way)
    room = device.array(np.zeros(64, np.uint32), "room")
    outs = [device.array(np.zeros((32, 32), np.uint32), name) for name in ("first", "second")]
    maps = [device.tensor_map(out, dims=(32, 32), strides=(128,), box=(32, 8)) for out in outs]
    kernel = ptx.parse("\n".join(lines)).kernels["kernel"]
    for number in (0, 0, 1):
        device.launch(kernel, 2, 256, [maps[number], room])
    assert [int(out.numpy().sum()) for out in outs] == [256, 256]


BOX = Case(np.dtype(np.uint32), (8, 4), (32,), (4, 2), (1, 1), (0, 0), "none", "zero", 64)
ONE_LANE, A_WARP = "setp.ne.u32 %p0, %r0, 0;", "setp.ge.u32 %p0, %r0, 32;"
APART_LANES = A_WARP + "\n  and.b32 %r11, %r0, 1;\n  shl.b32 %r11, %r11, 1;"


@pytest.mark.parametrize(("who", "run"), [(ONE_LANE, True), (A_WARP, True), (APART_LANES, False)])
def test_a_box_that_all_lanes_of_a_warp_store(who, run, attempts):
    text = put_box(2, BOX.nbytes)
    assert ONE_LANE in text
    kernel = ptx.parse(text.replace(ONE_LANE, who)).kernels["kernel"]
    given = contents(BOX, 1), contents(BOX, 2)[: BOX.nbytes]
    (one, first), (two, second) = (
        run_store(ptx.EmulatedDevice("sm_90a", fast_paths=way), BOX, *given, kernel) for way in ("all", "-executor")
    )
    assert attempts[-1:] == [run]
    assert [found.message for found in one.findings] == [found.message for found in two.findings]
    np.testing.assert_array_equal(first, second)
