"""The asynchronous units through the builder, on the emulator: right, safe, late and early."""

import ml_dtypes
import numpy as np
import pytest

from kernbench import ptx
from kernbench.ptx.builder import PtxKernel

SCHEDULES = ["canonical", "eager"]


def whole(rng, *shape):
    return rng.integers(-4, 5, shape)


def tile_map(device, tile, array):
    """The map of a matrix [rows, depth] (K-major) or [depth, rows] (MN-major) whose box is one panel."""
    inner, outer = array.shape[1], array.shape[0]
    strides = (inner * array.itemsize,)
    return device.tensor_map(device.array(array), dims=(inner, outer), strides=strides, box=tile[0], swizzle=tile[1])


def box(lines, swizzle, nbytes=2):
    return ({"none": 16, "32B": 32, "64B": 64, "128B": 128}[swizzle] // nbytes, lines), swizzle


def load_panels(ctx, tile, tensor_map, barrier):
    for panel in range(tile.panels):
        ctx.tma_load(tile.panel(panel), tensor_map, (panel * tile.box[0], 0), barrier)


def wgmma_kernel(n, swizzle, majors, registers):
    def program(ctx):
        a = ctx.shared_tile("bf16", 64, 64, swizzle=swizzle, major=majors[0], name="a")
        b = ctx.shared_tile("bf16", n, 64, swizzle=swizzle, major=majors[1], name="b")
        ready = ctx.mbarriers(1, name="ready")
        out = ctx.pointer("out", "f32")
        with ctx.if_(ctx.tid_x == 0):
            ctx.mbarrier_init(ready, 1)
            ctx.fence_mbarrier_init()
            ctx.mbarrier_arrive_expect_tx(ready, a.nbytes + b.nbytes)
            load_panels(ctx, a, ctx.tensor_map("a_map"), ready)
            load_panels(ctx, b, ctx.tensor_map("b_map"), ready)
        ctx.bar_sync()
        ctx.mbarrier_wait(ready, 0)
        d = ctx.wgmma_accumulator(n)
        one, two = ctx.wgmma_descriptor(a), ctx.wgmma_descriptor(b)
        fragments = [a_fragment(ctx, k) if registers else one.at(k=k) for k in range(0, 64, 16)]
        ctx.wgmma_fence()
        for step, fragment in enumerate(fragments):
            shape = f"m64n{n}k16"
            ctx.wgmma(shape, d, fragment, two.at(k=16 * step), types="f32.bf16.bf16", accumulate=step > 0)
        ctx.wgmma_commit()
        ctx.wgmma_wait()
        place = ctx.wgmma_place()
        for i, value in enumerate(d):
            ctx.store(out, value, place.row(i) * n + place.column(i))

    kernel = PtxKernel("k").param("tensormap", "a_map").param("tensormap", "b_map")
    return kernel.param("u64", "out").param("u64", "a").build(program)


def a_fragment(ctx, k):
    """A of one step from global memory: rows g and g + 8, then the same of the upper half of K."""
    place, a = ctx.wgmma_place(), ctx.pointer("a", "b32")
    return [
        ctx.load(a, (place.first_row + 8 * (i % 2)) * 32 + (place.first_column >> 1) + (k // 2 + 4 * (i // 2)))
        for i in range(4)
    ]


@pytest.mark.parametrize(
    ("swizzle", "majors", "registers"),
    [
        ("128B", ("K", "K"), False),
        ("128B", ("MN", "MN"), False),
        ("64B", ("K", "MN"), False),
        ("32B", ("MN", "K"), False),
        ("none", ("K", "K"), False),
        ("none", ("MN", "MN"), False),
        ("128B", ("K", "MN"), True),
    ],
)
def test_wgmma_of_tiles_that_tensor_copies_bring(swizzle, majors, registers):
    rng, n = np.random.default_rng(3), 128
    a, b = whole(rng, 64, 64), whole(rng, n, 64)
    kernel = wgmma_kernel(n, swizzle, majors, registers)
    for schedule in SCHEDULES:
        device = ptx.EmulatedDevice("sm_90a")
        given = []
        for matrix, major in zip((a, b), majors, strict=True):
            laid = np.ascontiguousarray(matrix if major == "K" else matrix.T).astype(ml_dtypes.bfloat16)
            given.append(tile_map(device, box(laid.shape[0], swizzle), laid))
        out = device.empty((64, n), np.float32)
        plain = device.array(a.astype(ml_dtypes.bfloat16))
        run = device.launch(kernel, 1, 128, [*given, out, plain], schedule=schedule)
        assert run.safe, "\n".join(map(str, run.findings))
        assert (out.numpy() == a @ b.T).all()


def tcgen05_kernel(m, n, swizzle, majors, in_memory):
    def program(ctx):
        a = ctx.shared_tile("f16", m, 64, swizzle=swizzle, major=majors[0], name="a")
        b = ctx.shared_tile("f16", n, 64, swizzle=swizzle, major=majors[1], name="b")
        ready, done = ctx.mbarriers(1, name="ready"), ctx.mbarriers(1, name="done")
        slot = ctx.shared("b32", 1, name="slot")
        out, thread = ctx.pointer("out", "f32"), ctx.tid_x
        with ctx.if_(thread == 0):
            for barrier in (ready, done):
                ctx.mbarrier_init(barrier, 1)
            ctx.fence_mbarrier_init()
        with ctx.if_((thread >> 5) == 0):
            ctx.tcgen05_alloc(slot, 256)
            ctx.tcgen05_relinquish()
        ctx.tcgen05_fence_before()
        ctx.bar_sync()
        ctx.tcgen05_fence_after()
        memory = ctx.tensor_memory(slot, 256)
        d, held = memory.at(columns=128), memory.at(column=128, columns=128)
        mine = (thread >> 5) * 32
        if in_memory:
            rows = [ctx.load(ctx.pointer("a", "b32"), thread * 32 + i) for i in range(32)]
            ctx.tcgen05_st(held.at(lane=mine), rows)
            ctx.tcgen05_wait_st()
            ctx.tcgen05_fence_before()
            ctx.bar_sync()
            ctx.tcgen05_fence_after()
        with ctx.if_(thread == 0):
            ctx.mbarrier_arrive_expect_tx(ready, a.nbytes + b.nbytes)
            load_panels(ctx, a, ctx.tensor_map("a_map"), ready)
            load_panels(ctx, b, ctx.tensor_map("b_map"), ready)
            ctx.mbarrier_wait(ready, 0)
            one, two = ctx.tcgen05_descriptor(a), ctx.tcgen05_descriptor(b)
            for k in range(0, 64, 16):
                left = held.at(column=k // 2) if in_memory else one.at(k=k)
                shape = f"m{m}n{n}k16"
                ctx.tcgen05_mma(shape, d, left, two.at(k=k), types="f32.f16.f16", accumulate=k > 0)
            ctx.tcgen05_commit(done)
        ctx.bar_warp_sync(0xFFFFFFFF)
        ctx.mbarrier_wait(done, 0)
        ctx.tcgen05_fence_after()
        values = ctx.tcgen05_ld(d.at(lane=mine), n, type="f32")
        ctx.tcgen05_wait_ld()
        for i, value in enumerate(values):
            ctx.store(out, value, thread * n + i)
        ctx.tcgen05_fence_before()
        ctx.bar_sync()
        with ctx.if_((thread >> 5) == 0):
            ctx.tcgen05_dealloc(memory)

    kernel = PtxKernel("k").param("tensormap", "a_map").param("tensormap", "b_map")
    return kernel.param("u64", "out").param("u64", "a").build(program)


@pytest.mark.parametrize(
    ("swizzle", "majors", "in_memory"),
    [
        ("128B", ("K", "K"), False),
        ("128B", ("MN", "MN"), False),
        ("64B", ("MN", "K"), False),
        ("32B", ("K", "MN"), False),
        ("none", ("MN", "K"), False),
        ("128B", ("K", "K"), True),
    ],
)
def test_tcgen05_of_tiles_that_tensor_copies_bring(swizzle, majors, in_memory):
    rng, m, n = np.random.default_rng(4), 128, 64
    a, b = whole(rng, m, 64), whole(rng, n, 64)
    kernel = tcgen05_kernel(m, n, swizzle, majors, in_memory)
    for schedule in SCHEDULES:
        device = ptx.EmulatedDevice("sm_100a")
        given = []
        for matrix, major in zip((a, b), majors, strict=True):
            laid = np.ascontiguousarray(matrix if major == "K" else matrix.T).astype(np.float16)
            given.append(tile_map(device, box(laid.shape[0], swizzle), laid))
        out = device.empty((m, n), np.float32)
        run = device.launch(kernel, 1, 128, [*given, out, device.array(a.astype(np.float16))], schedule=schedule)
        assert run.safe, "\n".join(map(str, run.findings))
        assert (out.numpy() == a @ b.T).all()


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_a_store_beside_a_copy_races_even_with_the_same_value(schedule):
    def program(ctx):
        tile, ready = ctx.shared("f32", 32, align=128, name="tile"), ctx.mbarriers(1, name="ready")
        ctx.mbarrier_init(ready, 1)
        ctx.fence_mbarrier_init()
        ctx.mbarrier_arrive_expect_tx(ready, 128)
        ctx.cp_async_bulk(tile, ctx.pointer("zeros", "f32"), 128, ready)
        ctx.store(tile, 0.0, 3)
        ctx.mbarrier_wait(ready, 0)

    device = ptx.EmulatedDevice("sm_90a")
    kernel = PtxKernel("k").param("u64", "zeros").build(program)
    run = device.launch(kernel, 1, 1, [device.array(np.zeros(32, np.float32))], schedule=schedule)
    assert [finding.kind for finding in run.findings] == ["race"]


def test_a_block_that_ends_while_a_copy_fills_its_memory():
    def program(ctx, waits):
        tile, ready = ctx.shared("f32", 32, align=128, name="tile"), ctx.mbarriers(1, name="ready")
        ctx.mbarrier_init(ready, 1)
        ctx.fence_mbarrier_init()
        ctx.mbarrier_arrive_expect_tx(ready, 128)
        ctx.cp_async_bulk(tile, ctx.pointer("x", "f32"), 128, ready)
        if waits:
            ctx.mbarrier_wait(ready, 0)

    for waits, wanted in ((True, []), (False, ["in-flight"])):
        device = ptx.EmulatedDevice("sm_90a")
        kernel = PtxKernel("k").param("u64", "x").build(lambda ctx, waits=waits: program(ctx, waits))
        run = device.launch(kernel, 1, 1, [device.array(np.ones(32, np.float32))])
        assert [finding.kind for finding in run.formal] == wanted
        assert not run.findings
