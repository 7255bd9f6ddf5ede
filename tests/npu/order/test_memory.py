"""Tiles and device memory: past the end, overlapping, not aligned, never written, or touched in no order."""

import numpy as np
import pytest
from tests.npu.small import flag, kinds, line_of, run_kernel

from kernbench import npu

A = np.arange(128, dtype=np.float32).reshape(8, 16) / 64
OUT = np.zeros((8, 16), np.float32)


def found(run, kind):
    return next(f for f in run.findings if f.kind == kind)


def two_tiles(core):
    return core.tile("UB", (8, 16), "f32", 0, name="x"), core.tile("UB", (8, 16), "f32", 0x200, name="y")


def test_tiles_past_the_end_of_their_memory():
    def kernel(core, a, out):
        x = core.tile("UB", (8, 16), "f32", 192 * 1024 - 256, name="x")
        core.tload(x, a)
        flag(core, "MTE2", "MTE3")
        core.tstore(out, x)
        core.pipe_sync()

    run = run_kernel(kernel, A, out=OUT)
    assert kinds(run) == ["tile-bounds"]
    assert "ends at byte 0x30100 of UB, which has 0x30000 (192 KiB)" in run.findings[0].message
    assert run_kernel(kernel, A, out=OUT, chip="a5").safe


def test_the_allocator_is_checked():
    def kernel(core, a, out):
        for _ in range(3):
            core.alloc("L0A", (128, 128), "bf16")

    run = run_kernel(kernel, A, out=OUT, lane="aic")
    assert "tile-bounds" in kinds(run)


def test_misaligned_tiles():
    def kernel(core, a, out):
        x = core.tile("UB", (8, 16), "f32", 16)
        core.tload(x, a)
        flag(core, "MTE2", "MTE3")
        core.tstore(out, x)
        core.pipe_sync()

    assert kinds(run_kernel(kernel, A, out=OUT)) == ["misaligned"]


@pytest.mark.parametrize("place", [256, 0])
def test_live_tiles_that_overlap(place):
    def kernel(core, a, out):
        x = core.tile("UB", (8, 16), "f32", 0, name="x")
        y = core.tile("UB", (8, 16), "f32", place, name="y")
        core.tload(x, a)
        flag(core, "MTE2", "V")
        core.texpands(y, 1.0)
        flag(core, "V", "MTE3")
        core.tstore(out, x)
        core.pipe_sync()

    run = run_kernel(kernel, A, out=OUT)
    assert kinds(run) == ["tile-overlap"]
    assert f"what lies there was written as 'y' (8x16 f32 at UB {place:#x})" in run.findings[0].message


def test_a_tile_placed_again_is_the_same_tile():
    def kernel(core, a, out):
        core.tload(core.tile("UB", (8, 16), "f32", name="x"), a)
        flag(core, "MTE2", "MTE3")
        core.tstore(out, core.tile("UB", (8, 16), "f32", name="x"))
        core.pipe_sync()

    assert run_kernel(kernel, A, out=OUT).safe


def test_each_kernel_has_its_own_names_for_one_place():
    def first(core, a, out):
        x = core.tile("UB", (8, 16), "f32", name="first")
        core.tload(x, a)
        flag(core, "MTE2", "MTE3")
        core.tstore(out, x)
        core.pipe_sync()

    def second(core, a, out):
        core.tstore(out, core.tile("UB", (8, 16), "f32", name="second"))
        core.pipe_sync()

    def orchestrate(rt, a, out):
        (b,) = rt.submit(aiv0=first, args=[npu.IN(a), npu.CREATE((8, 16), "f32", "b")]).outputs
        rt.submit(aiv0=second, args=[npu.IN(b), npu.OUT(out)])

    run = npu.Chip("a2a3").launch(orchestrate, A, OUT)
    assert kinds(run) == ["uninitialised-read"]
    assert "reads 'second' (8x16 f32 at UB 0x0)" in run.findings[0].message


def test_dead_tiles_and_views_may_overlap():
    def kernel(core, a, out):
        x = core.tile("UB", (8, 16), "f32", 0, name="x")
        core.tload(x, a)
        flag(core, "MTE2", "V")
        core.texpands(x.rows(4, 4), 1.0)
        core.tmuls(x.rows(0, 4).view(valid=(4, 8)), x.rows(0, 4).view(valid=(4, 8)), 2.0)
        flag(core, "V", "MTE3")
        core.tstore(out, x.reshape(8, 16))
        flag(core, "MTE3", "V", 1)
        other = core.tile("UB", (4, 8), "f32", 0, name="other")
        core.texpands(other, 3.0)
        core.pipe_sync()

    run = run_kernel(kernel, A, out=OUT)
    assert run.safe
    want = A.copy()
    want[:4, :8] *= 2
    want[4:] = 1
    assert np.array_equal(run.outputs["out"], want)


def test_uninitialised_tiles_by_the_byte():
    def kernel(core, a, out):
        x = core.tile("UB", (8, 16), "f32", 0, name="x")
        core.tload(x.view(valid=(8, 13)), a[:, :13])
        flag(core, "MTE2", "MTE3")
        core.tstore(out[:, :width], x.view(valid=(8, width)))
        core.pipe_sync()

    for width in (13, 14):
        run = run_kernel(kernel, A, out=OUT)
        assert ("uninitialised-read" in kinds(run)) is (width == 14)


def test_memory_is_fresh_in_every_block():
    def kernel(core, a, out):
        x = core.tile("UB", (8, 16), "f32", 0, name="x")
        if core.block_idx == 0:
            core.tload(x, a)
        flag(core, "MTE2", "MTE3")
        if core.block_idx == 1:
            core.tstore(out, x)
        core.pipe_sync()

    run = run_kernel(kernel, A, out=OUT, blocks=2)
    assert kinds(run) == ["uninitialised-read"]
    assert "block 1" in run.findings[0].message
    assert np.isnan(run.outputs["out"]).all()


@pytest.mark.parametrize("ordered", [True, False])
def test_device_memory_written_and_read_in_one_block(ordered):
    def kernel(core, a, out):
        x, y = two_tiles(core)
        core.texpands(x, 2.0)
        flag(core, "V", "MTE3")
        core.tstore(out, x)
        if ordered:
            flag(core, "MTE3", "MTE2")
        core.tload(y, out)
        flag(core, "MTE2", "MTE3")
        core.pipe_sync()

    run = run_kernel(kernel, A, out=OUT)
    assert kinds(run) == ([] if ordered else ["race"])
    if not ordered:
        assert "touch the same elements of 'out'" in run.findings[0].message


def test_device_memory_of_other_elements_is_no_race():
    def kernel(core, a, out):
        x, y = two_tiles(core)
        core.texpands(x, 2.0)
        flag(core, "V", "MTE3")
        core.tstore(out[:, :8], x.view(valid=(8, 8)))
        core.tload(y.view(valid=(8, 8)), a[:, 8:])
        flag(core, "MTE2", "MTE3")
        core.tstore(out[:, 8:], y.view(valid=(8, 8)))
        core.pipe_sync()

    assert run_kernel(kernel, A, out=OUT).safe


def test_an_index_from_a_table_says_where_it_came_from():
    table = np.array([[0, 9]], np.int32)

    def kernel(core, a, b, out):
        page = core.read(b, 0, 1)
        x = core.tile("UB", (1, 16), "f32", 0)
        core.tload(x, a[page : page + 1])
        flag(core, "MTE2", "MTE3")
        core.tstore(out[:1], x)
        core.pipe_sync()

    run = run_kernel(kernel, A, table, out=OUT)
    finding = found(run, "out-of-bounds")
    assert (
        "index 9:10 of axis 0 of 'a' (8x16 f32), which has 8 there; the index was read from b[0, 1]" in finding.message
    )
    assert finding.where.line == line_of(kernel, "a[page")
    assert np.isnan(run.outputs["out"][0]).all()


@pytest.mark.parametrize("met", [0, 1])
def test_of_stores_in_one_line_the_one_that_meets_counts(met):
    """The columns of the two stores interleave in memory, so that only their elements tell which one a load meets."""

    def kernel(core, a, out):
        x, y = (core.tile("UB", (8, 8), "f32", place, name=name) for name, place in (("x", 0), ("y", 0x200)))
        core.tload(x, a[:, 0:8])
        flag(core, "MTE2", "MTE3")
        for half in range(2):
            core.tstore(out[:, 8 * half : 8 * half + 8], x)
        core.tload(y, out[:, 8 * met : 8 * met + 8])
        core.pipe_sync()

    assert kinds(run_kernel(kernel, A, out=OUT)) == ["race"]
