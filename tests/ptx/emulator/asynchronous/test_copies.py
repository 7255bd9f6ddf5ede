"""Bulk copies of plain bytes, reductions, groups, tensor maps that kernels make, and copies of threads that arrive."""

# ruff: noqa: E501

import ml_dtypes
import numpy as np
import pytest
from tests.ptx.emulator.asynchronous.boxes import Case, contents, run_store
from tests.ptx.emulator.asynchronous.conftest import kinds
from tests.ptx.emulator.asynchronous.kernels import HEAD, put_box

from kernbench import ptx
from kernbench.common.errors import MisuseError
from kernbench.ptx.text.errors import PtxError

FRAME = (
    HEAD.format(arch="{arch}")
    + """
.visible .entry kernel(.param .u64 from, .param .u64 to, .param .u32 size)
{{
  .reg .pred %p<8>; .reg .b32 %r<32>; .reg .b64 %rd<16>; .reg .b16 %h<4>;
  .shared .align 128 .b8 buffer[2048];
  .shared .align 8 .b64 bar;
  mov.u32 %r0, %tid.x;
  mov.u32 %r1, buffer;
  mov.u32 %r2, bar;
  ld.param.u64 %rd1, [from];
  ld.param.u64 %rd2, [to];
  ld.param.u32 %r3, [size];
  setp.ne.u32 %p0, %r0, 0;
  @!%p0 mbarrier.init.shared::cta.b64 [%r2], {count};
  @!%p0 fence.mbarrier_init.release.cluster;
  bar.sync 0;
{body}
  ret;
}}
"""
)
WAIT = "WAIT:\n  mbarrier.try_wait.parity.shared::cta.b64 %p1, [%r2], 0;\n  @!%p1 bra WAIT;\n"
THROUGH = (
    """  @!%p0 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r2], %r3;
  @!%p0 cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r1], [%rd1], %r3, [%r2];
"""
    + WAIT
    + """  @!%p0 cp.async.bulk.global.shared::cta.bulk_group [%rd2], [%r1], %r3;
  @!%p0 cp.async.bulk.commit_group;
  @!%p0 cp.async.bulk.wait_group 0;
"""
)


def launch(body, source, target, size, count=1, arch="sm_90a", block=32, **options):
    device = ptx.EmulatedDevice(arch)
    arrays = [device.array(source, "source"), device.array(target, "target")]
    text = FRAME.format(body=body, count=count, arch=arch)
    run = device.launch(ptx.parse(text).kernels["kernel"], 1, block, [*arrays, size], **options)
    return run, arrays[1].numpy()


@pytest.mark.parametrize("size", [16, 48, 2048])
@pytest.mark.parametrize("schedule", ["canonical", "eager"])
def test_through_shared_memory(size, schedule):
    source, target = np.arange(512, dtype=np.uint32), np.zeros(512, np.uint32)
    run, got = launch(THROUGH, source, target, size, schedule=schedule)
    assert run.findings == []
    assert (got[: size // 4] == source[: size // 4]).all()
    assert (got[size // 4 :] == 0).all()


@pytest.mark.parametrize("behind", [False, True])
def test_what_is_only_read_lies_far_from_what_has_shadow_cells(behind):
    """Of 32 copies at once, lines of those to come are fetched ahead; of the source there are none, on either side."""
    body = """  mul.wide.u32 %rd3, %r0, 131072;
  add.u64 %rd1, %rd1, %rd3;
  shl.b32 %r4, %r0, 4;
  add.u32 %r4, %r1, %r4;
  mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r2], 16;
  cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r4], [%rd1], 16, [%r2];
"""
    body += WAIT + "  ld.shared.u32 %r5, [%r4];\n  mul.wide.u32 %rd4, %r0, 4;\n  add.u64 %rd2, %rd2, %rd4;\n"
    body += "  st.global.u32 [%rd2], %r5;\n"
    device = ptx.EmulatedDevice("sm_90a")
    given = [np.arange(1 << 20, dtype=np.uint32), np.zeros(32, np.uint32)]
    order = (1, 0) if behind else (0, 1)
    made = {which: device.array(given[which]) for which in order}
    kernel = ptx.parse(FRAME.format(body=body, count=32, arch="sm_90a")).kernels["kernel"]
    run = device.launch(kernel, 1, 32, [made[0], made[1], 16])
    assert run.findings == []
    assert (made[1].numpy() == np.arange(32) * 32768).all()


def test_sizes_and_addresses_are_multiples_of_16():
    source, target = np.arange(512, dtype=np.uint32), np.zeros(512, np.uint32)
    run, _ = launch(THROUGH, source, target, 24)
    assert "misaligned" in kinds(run)
    assert "the size 0x18" in next(f.message for f in run.findings if f.kind == "misaligned")


def test_a_copy_from_outside_an_array():
    run, _ = launch(THROUGH, np.arange(8, dtype=np.uint32), np.zeros(512, np.uint32), 64)
    assert "out-of-bounds" in kinds(run)
    assert "the copy that thread (0, 0, 0) of block (0, 0, 0) begins reads a byte" in run.findings[0].message


def test_a_copy_to_outside_shared_memory():
    run, _ = launch(
        THROUGH.replace("[%r1], [%rd1]", "[%r1+1920], [%rd1]"), np.zeros(512, np.uint32), np.zeros(512, np.uint32), 256
    )
    assert "out-of-bounds" in kinds(run)


def test_masked_bytes():
    body = THROUGH.replace("bulk_group [%rd2], [%r1], %r3;", "bulk_group.cp_mask [%rd2], [%r1], %r3, %h1;")
    body = "  mov.u16 %h1, 0x000F;\n" + body
    run, got = launch(body, np.arange(16, dtype=np.uint32) + 1, np.zeros(16, np.uint32), 64, arch="sm_100a")
    assert run.findings == []
    assert got.tolist() == [1, 0, 0, 0, 5, 0, 0, 0, 9, 0, 0, 0, 13, 0, 0, 0]


def test_groups_are_the_threads_own():
    """Each lane stores its own piece and waits for it."""
    body = """  mul.lo.u32 %r4, %r0, 16;
  add.u32 %r5, %r1, %r4;
  st.shared.b32 [%r5], %r0;
  st.shared.b32 [%r5+4], %r0;
  st.shared.b32 [%r5+8], %r0;
  st.shared.b32 [%r5+12], %r0;
  fence.proxy.async.shared::cta;
  cvt.u64.u32 %rd3, %r4;
  add.u64 %rd3, %rd2, %rd3;
  cp.async.bulk.global.shared::cta.bulk_group [%rd3], [%r5], 16;
  cp.async.bulk.commit_group;
  cp.async.bulk.wait_group.read 0;
  st.shared.b32 [%r5], %r3;
"""
    run, got = launch(body, np.zeros(4, np.uint32), np.zeros(128, np.uint32), 0)
    assert run.findings == []
    assert (got.reshape(32, 4) == np.arange(32)[:, None]).all()


def test_what_only_one_lane_waits_for():
    body = """  mul.lo.u32 %r4, %r0, 16;
  add.u32 %r5, %r1, %r4;
  st.shared.b32 [%r5], %r0;
  fence.proxy.async.shared::cta;
  cvt.u64.u32 %rd3, %r4;
  add.u64 %rd3, %rd2, %rd3;
  cp.async.bulk.global.shared::cta.bulk_group [%rd3], [%r5], 16;
  cp.async.bulk.commit_group;
  @!%p0 cp.async.bulk.wait_group.read 0;
  bar.sync 0;
  st.shared.b32 [%r5], %r3;
"""
    run, _ = launch(body, np.zeros(4, np.uint32), np.zeros(128, np.uint32), 0)
    assert "race" in kinds(run)


@pytest.mark.parametrize(
    ("operation", "dtype", "function"),
    [
        ("add", np.uint32, np.add),
        ("min", np.int32, np.minimum),
        ("max", np.uint32, np.maximum),
        ("xor", np.uint32, np.bitwise_xor),
        ("add", np.float32, np.add),
        ("add", np.float16, np.add),
        ("add", ml_dtypes.bfloat16, np.add),
    ],
)
def test_reductions_of_boxes(operation, dtype, function):
    """Rows end inside a piece of 16 bytes, which is reduced whole."""
    dtype = np.dtype(dtype)
    unit = 16 // dtype.itemsize
    case = Case(dtype, (unit + 1, 4), (48,), (2 * unit, 2), (1, 1), (0, 1), "none", "zero", 192 // dtype.itemsize)
    values = np.arange(192 // dtype.itemsize).astype(dtype)
    box = (np.arange(4 * unit) * 3).astype(dtype)
    kernel = ptx.parse(put_box(2, case.nbytes, operation)).kernels["kernel"]
    run, got = run_store(ptx.EmulatedDevice("sm_90a"), case, values.view(np.uint8), box.view(np.uint8), kernel)
    assert run.findings == []
    expected = values.copy().reshape(4, -1)
    expected[1:3, : 2 * unit] = function(expected[1:3, : 2 * unit], box.reshape(2, -1))
    assert (got.view(dtype).reshape(4, -1) == expected).all()


SUMS = """.version 8.0
.target sm_90
.address_size 64
.visible .entry kernel(.param .u64 out)
{
  .reg .pred %p<2>; .reg .b32 %r<8>; .reg .b64 %rd<4>;
  .shared .align 128 .b8 part[128];
  ld.param.u64 %rd1, [out];
  mov.u32 %r0, %tid.x;
  mov.u32 %r1, %ctaid.x;
  add.u32 %r1, %r1, 1;
  shl.b32 %r2, %r0, 2;
  mov.u32 %r3, part;
  add.u32 %r4, %r3, %r2;
  st.shared.u32 [%r4], %r1;
  fence.proxy.async.shared::cta;
  bar.sync 0;
  setp.eq.u32 %p0, %r0, 0;
  @%p0 cp.reduce.async.bulk.global.shared::cta.bulk_group.add.u32 [%rd1], [%r3], 128;
  @%p0 cp.async.bulk.commit_group;
  @%p0 cp.async.bulk.wait_group 0;
  ret;
}
"""


@pytest.mark.parametrize("schedule", ["canonical", "eager"])
def test_reductions_of_many_blocks_to_one_place(schedule):
    """None is lost, though all blocks run their copies at once."""
    device = ptx.EmulatedDevice("sm_90a")
    out = device.array(np.full(32, 100, np.uint32), "out")
    run = device.launch(ptx.parse(SUMS), 5, 32, [out], schedule=schedule)
    assert run.findings == []
    assert (out.numpy() == 100 + 15).all()
    array, data = device.array(np.zeros((4, 4), np.float32), "tensor"), device.array(np.ones(8, np.float32), "data")
    described = device.tensor_map(array, (4, 4), (16,), (4, 2))
    kernel = ptx.parse(put_box(2, 32, "add")).kernels["kernel"]
    run = device.launch(kernel, 3, 128, [described, data, 0, 1], schedule=schedule)
    assert run.findings == []
    assert (array.numpy() == np.array([0, 3, 3, 0])[:, None]).all()


def test_stores_that_begin_before_the_tensor_are_refused():
    case = Case(np.dtype(np.uint32), (8, 4), (32,), (4, 2), (1, 1), (0, -1), "none", "zero", 64)
    kernel = ptx.parse(put_box(2, case.nbytes)).kernels["kernel"]
    run, _ = run_store(ptx.EmulatedDevice("sm_90a"), case, contents(case, 1), contents(case, 2)[: case.nbytes], kernel)
    assert kinds(run) == ["out-of-bounds"]
    assert "stores a box at (0, -1)" in run.findings[0].message


def test_coordinates_inside_a_piece_are_refused():
    case = Case(np.dtype(np.uint32), (8, 4), (32,), (4, 2), (1, 1), (1, 0), "none", "zero", 64)
    kernel = ptx.parse(put_box(2, case.nbytes)).kernels["kernel"]
    run, _ = run_store(ptx.EmulatedDevice("sm_90a"), case, contents(case, 1), contents(case, 2)[: case.nbytes], kernel)
    assert kinds(run) == ["misaligned"]


def test_interleaved_tensors_are_refused():
    device = ptx.EmulatedDevice("sm_90a")
    array = device.array(np.zeros(4096, np.float32))
    with pytest.raises(MisuseError, match="interleave '16B' cannot be emulated"):
        device.tensor_map(array, (16, 4, 4), (64, 256), (16, 2, 2), interleave="16B")


def test_copies_of_threads_that_arrive():
    """cp.async, then an arrival when it is done: the other warp reads after its wait."""
    body = """  shl.b32 %r4, %r0, 4;
  add.u32 %r5, %r1, %r4;
  cvt.u64.u32 %rd3, %r4;
  setp.ge.u32 %p2, %r0, 32;
  @%p2 bra READ;
  add.u64 %rd4, %rd1, %rd3;
  cp.async.cg.shared.global [%r5], [%rd4], 16;
  cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%r2];
  bra DONE;
READ:
WAIT:
  mbarrier.try_wait.parity.shared::cta.b64 %p1, [%r2], 0;
  @!%p1 bra WAIT;
  ld.shared.b32 %r6, [%r5+-512];
  shr.u32 %r7, %r4, 2;
  cvt.u64.u32 %rd5, %r7;
  add.u64 %rd5, %rd2, %rd5;
  st.global.b32 [%rd5+-128], %r6;
DONE:
"""
    source = np.arange(128, dtype=np.uint32)
    for schedule in ("canonical", "eager"):
        run, got = launch(body, source, np.zeros(32, np.uint32), 0, count=32, block=64, schedule=schedule)
        assert run.findings == []
        assert (got == source[::4]).all()
    run, _ = launch(body.replace("  @!%p1 bra WAIT;\n", ""), source, np.zeros(32, np.uint32), 0, count=32, block=64)
    assert "race" in kinds(run)


MADE = """  .reg .b64 %m<4>;
  .shared .align 128 .b8 draft[128];
  shl.b32 %r4, %r0, 2;
  mov.u32 %r5, draft;
  add.u32 %r6, %r5, %r4;
  mov.u32 %r7, 0;
  st.shared.b32 [%r6], %r7;
  bar.warp.sync -1;
  mov.b64 %m0, draft;
  cvta.shared.u64 %m1, %m0;
  @!%p0 tensormap.replace.tile.global_address.shared::cta.b1024.b64 [%m0], %rd1;
  @!%p0 tensormap.replace.tile.rank.shared::cta.b1024.b32 [%m0], 0x1;
  mov.u32 %r8, 8;
  @!%p0 tensormap.replace.tile.box_dim.shared::cta.b1024.b32 [%m0], 0x0, %r8;
  @!%p0 tensormap.replace.tile.box_dim.shared::cta.b1024.b32 [%m0], 0x1, %r8;
  mov.u32 %r9, 16;
  @!%p0 tensormap.replace.tile.global_dim.shared::cta.b1024.b32 [%m0], 0x0, %r9;
  @!%p0 tensormap.replace.tile.global_dim.shared::cta.b1024.b32 [%m0], 0x1, %r9;
  mov.b64 %m2, 64;
  @!%p0 tensormap.replace.tile.global_stride.shared::cta.b1024.b64 [%m0], 0x0, %m2;
  mov.u32 %r10, 1;
  @!%p0 tensormap.replace.tile.element_stride.shared::cta.b1024.b32 [%m0], 0x0, %r10;
  @!%p0 tensormap.replace.tile.element_stride.shared::cta.b1024.b32 [%m0], 0x1, %r10;
  @!%p0 tensormap.replace.tile.elemtype.shared::cta.b1024.b32 [%m0], 0x2;
  @!%p0 tensormap.replace.tile.swizzle_mode.shared::cta.b1024.b32 [%m0], 0x0;
  bar.warp.sync -1;
  tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.gpu.sync.aligned [%rd2], [%m0], 128;
  fence.proxy.tensormap::generic.acquire.gpu [%rd2], 128;
  mov.u32 %r11, 4;
  @!%p0 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r2], 256;
  @!%p0 cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%r1], [%rd2, {%r11, %r10}], [%r2];
WAIT:
  mbarrier.try_wait.parity.shared::cta.b64 %p1, [%r2], 0;
  @!%p1 bra WAIT;
  shl.b32 %r12, %r0, 3;
  add.u32 %r12, %r1, %r12;
  ld.shared.v2.b32 {%r13, %r14}, [%r12];
  mul.wide.u32 %rd5, %r0, 8;
  add.u64 %rd5, %rd2, %rd5;
  st.global.v2.b32 [%rd5+256], {%r13, %r14};
"""


def test_a_tensor_map_that_the_kernel_makes():
    source = np.arange(256, dtype=np.uint32)
    run, got = launch(MADE, source, np.zeros(192, np.uint32), 0)
    assert run.findings == []
    assert (got[64:128].reshape(8, 8) == source.reshape(16, 16)[1:9, 4:12]).all()


def test_bytes_that_are_no_tensor_map():
    body = MADE.replace(
        "  tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.gpu.sync.aligned [%rd2], [%m0], 128;\n",
        "",
    )
    run, _ = launch(body, np.arange(256, dtype=np.uint32), np.zeros(192, np.uint32), 0)
    assert any("these 128 bytes are no tensor map" in f.message for f in run.findings)


def test_register_counts():
    run, _ = launch("  setmaxnreg.inc.sync.aligned.u32 240;\n", np.zeros(4, np.uint32), np.zeros(4, np.uint32), 0)
    assert run.findings == []
    with pytest.raises(PtxError, match="takes a multiple of 8 from 24 to 256 as count, not 100"):
        launch("  setmaxnreg.inc.sync.aligned.u32 100;\n", np.zeros(4, np.uint32), np.zeros(4, np.uint32), 0)
    alone = "  @!%p0 bra ONE;\n  bra ALL;\nONE:\n  setmaxnreg.dec.sync.aligned.u32 40;\nALL:\n  bar.sync 0;\n"
    run, _ = launch(alone, np.zeros(4, np.uint32), np.zeros(4, np.uint32), 0)
    assert kinds(run) == ["warp-mask"]


def test_a_made_tensor_map_that_was_not_acquired():
    body = MADE.replace("  fence.proxy.tensormap::generic.acquire.gpu [%rd2], 128;\n", "")
    run, _ = launch(body, np.arange(256, dtype=np.uint32), np.zeros(192, np.uint32), 0)
    assert kinds(run) == ["missing-fence"]
    assert "no proxy fence has shown it to the copy engine" in run.findings[0].message


@pytest.mark.parametrize("schedule", ["canonical", "eager"])
def test_a_thread_that_ends_before_its_copy_was_read(schedule):
    body = THROUGH.replace("  @!%p0 cp.async.bulk.wait_group 0;\n", "")
    run, _ = launch(body, np.arange(512, dtype=np.uint32), np.zeros(512, np.uint32), 64, schedule=schedule)
    assert kinds(run) == ["in-flight"]
    assert run.safe
    assert "cp.async.bulk.global.shared::cta" in run.formal[0].where.text
    assert "ends while this copy may still read shared memory" in run.formal[0].message


@pytest.mark.parametrize("schedule", ["canonical", "eager"])
def test_a_thread_that_ends_before_two_copies_were_read(schedule):
    copy = next(line for line in THROUGH.splitlines() if "cp.async.bulk.global.shared::cta" in line)
    first = copy.replace(", %r3;", ", 32;")
    second = first.replace("[%rd2]", "[%rd2+32]").replace("[%r1]", "[%r1+32]")
    body = THROUGH.replace("  @!%p0 cp.async.bulk.wait_group 0;\n", "").replace(copy, f"{first}\n{second}")
    run, _ = launch(body, np.arange(512, dtype=np.uint32), np.zeros(512, np.uint32), 64, schedule=schedule)
    assert (run.findings, len(run.formal)) == ([], 1)


UNEVEN_GROUPS = """.version 8.0
.target sm_90
.address_size 64
.visible .entry kernel(.param .u64 out)
{{
  .reg .pred %p<4>; .reg .b32 %r<8>; .reg .b64 %rd<4>;
  .shared .align 128 .b8 stages[256];
  ld.param.u64 %rd1, [out];
  mov.u32 %r0, %tid.x;
  setp.eq.u32 %p0, %r0, 0;
  mov.u32 %r1, 0;
ROUND:
  and.b32 %r2, %r1, 1;
  shl.b32 %r2, %r2, 7;
  mov.u32 %r3, stages;
  add.u32 %r3, %r3, %r2;
  shl.b32 %r4, %r0, 2;
  add.u32 %r4, %r3, %r4;
  st.shared.u32 [%r4], %r1;
  fence.proxy.async.shared::cta;
  bar.sync 0;
  @%p0 cp.async.bulk.commit_group;
  cp.async.bulk.global.shared::cta.bulk_group [%rd1], [%r3], 128;
  cp.async.bulk.commit_group;
  cp.async.bulk.wait_group.read {keep};
  bar.sync 0;
  add.u64 %rd1, %rd1, 128;
  add.u32 %r1, %r1, 1;
  setp.lt.u32 %p1, %r1, 4;
  @%p1 bra ROUND;
  cp.async.bulk.wait_group 0;
  ret;
}}
"""


@pytest.mark.parametrize("schedule", ["canonical", "eager"])
def test_threads_of_a_warp_with_different_numbers_of_groups(schedule):
    """One thread commits an empty group before each copy; what a wait leaves in flight is the same for all."""
    device = ptx.EmulatedDevice("sm_90")
    out = device.array(np.zeros(128, np.uint32), "out")
    for keep, told in ((2, {"race"}), (1, set())):
        run = device.launch(ptx.parse(UNEVEN_GROUPS.format(keep=keep)), 1, 32, [out], schedule=schedule)
        assert {f.kind for f in run.findings} == told
    assert (out.numpy().reshape(4, 32) == np.arange(4)[:, None]).all()
