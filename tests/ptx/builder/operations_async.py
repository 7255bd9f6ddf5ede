"""Operations of the asynchronous units, added to the table of all."""

from tests.ptx.builder.operations import ALL, operation


@operation()
def mbarriers(ctx, r):
    full = ctx.mbarriers(4, name="full")
    ctx.mbarrier_init(full[0], 1), ctx.mbarrier_init(full[1], r.u32, pred=r.p), ctx.fence_mbarrier_init()
    for place in (full, full[1], full[r.u32 & 1], full + r.u32):
        token = ctx.mbarrier_arrive(place, state=True)
        ctx.mbarrier_arrive(place), ctx.mbarrier_arrive(place, 2), ctx.mbarrier_arrive(place, pred=r.p)
        ctx.mbarrier_arrive(place, no_complete=True), ctx.mbarrier_arrive(place, r.u32, no_complete=True)
        ctx.mbarrier_arrive(place, scope="cluster"), ctx.mbarrier_arrive(place, sem="relaxed", scope="cta")
        ctx.mbarrier_arrive_drop(place), ctx.mbarrier_arrive_drop(place, 1, state=True)
        ctx.mbarrier_arrive_expect_tx(place, 4096), ctx.mbarrier_arrive_expect_tx(place, r.u32, scope="cluster")
        ctx.mbarrier_expect_tx(place, 64), ctx.mbarrier_expect_tx(place, r.u32, scope="cluster", pred=r.p)
        ctx.mbarrier_complete_tx(place, 64), ctx.mbarrier_complete_tx(place, 64, scope="cta")
        ctx.mbarrier_pending_count(token)
        ctx.mbarrier_test_wait(place, 0), ctx.mbarrier_test_wait(place, state=token)
        ctx.mbarrier_try_wait(place, r.u32), ctx.mbarrier_try_wait(place, 1, timeout=1000, scope="cluster")
        ctx.mbarrier_try_wait(place, state=token, timeout=r.u32), ctx.mbarrier_test_wait(place, 1, sem="relaxed")
        ctx.mbarrier_wait(place, 0), ctx.mbarrier_wait(place, r.u32), ctx.mbarrier_wait(place, state=token)
        ctx.mbarrier_wait(place, r.u32, scope="cluster")
    remote = ctx.mapa(full + 1, 0)
    ctx.mbarrier_arrive(remote), ctx.mbarrier_arrive(remote, 2, scope="cluster")
    ctx.mbarrier_arrive_expect_tx(remote, 64), ctx.mbarrier_expect_tx(remote, 64, scope="cluster")
    ctx.mbarrier_inval(full), ctx.mbarrier_inval(full[1], pred=r.p)
    ctx.cp_async_mbarrier_arrive(full[2]), ctx.cp_async_mbarrier_arrive(full[2], noinc=True)


@operation()
def clusters(ctx, r):
    here = ctx.shared("f32", 16, name="here")
    there = ctx.mapa(here, r.u32)
    ctx.store(r.at_f32, ctx.load(there, 3)), ctx.store(there, r.f32, r.u32), ctx.mapa(here[4], 1)
    ctx.mapa(here.address, r.u32), ctx.cluster_sync(), ctx.cluster_sync(aligned=False)
    leader = ctx.elect_one()
    ctx.store(r.at_u32, 1, mask=leader), ctx.elect_one(ALL)
    ctx.setmaxnreg_inc(240), ctx.setmaxnreg_dec(24)
    ctx.griddepcontrol_wait(), ctx.griddepcontrol_launch_dependents()
    ctx.fence_proxy_async(), ctx.fence_proxy_async(None), ctx.fence_proxy_async("global"), ctx.fence_mbarrier_init()
    ctx.fence_proxy_async("shared::cluster", pred=r.p)
    ctx.fence_proxy_async_generic("release"), ctx.fence_proxy_async_generic("acquire")
    ctx.fence_proxy_tensormap("release"), ctx.fence_proxy_tensormap("acquire", r.at_u64, "sys")


@operation()
def tensor_copies(ctx, r):
    tile, full = ctx.shared("f32", 1024, align=128, name="tile"), ctx.mbarriers(2, name="full")
    map = ctx.tensor_map("map")
    ctx.prefetch_tensormap(map)
    for rank in range(1, 6):
        at = (0, r.u32, r.s32, -1, 7)[:rank]
        ctx.tma_load(tile, map, at, full[0]), ctx.tma_load(tile[512], map, at, full[r.u32], pred=r.p)
        ctx.tma_load(tile, map, at, full, multicast=3), ctx.tma_load(tile, map, at, full, policy=r.u64)
        ctx.tma_load(tile, map, at, full, multicast=r.u16, policy=0x12F0000000000000)
        ctx.tma_load(tile, map, at, full, mode="tile"), ctx.tma_load(tile, map, at, full, dst="shared::cta")
        ctx.tma_store(map, at, tile), ctx.tma_store(map, at, tile + 32, policy=r.u64, pred=r.p)
        for op in ("add", "min", "max", "inc", "dec", "and", "or", "xor"):
            ctx.tma_reduce(op, map, at, tile)
        ctx.tma_prefetch(map, at), ctx.tma_prefetch(map, at, policy=r.u64)
    ctx.tma_load(tile, map, (0, 0, 0), full, mode="im2col", offsets=(r.u16,))
    ctx.tma_prefetch(map, (0, 0, 0), mode="im2col", offsets=(r.u16,))
    ctx.bulk_commit(), ctx.bulk_wait(), ctx.bulk_wait(1, read=True), ctx.bulk_commit(pred=r.p)
    ctx.bulk_wait(0, pred=r.p)


@operation()
def bulk_copies(ctx, r):
    tile, full = ctx.shared("f32", 1024, align=128, name="tile"), ctx.mbarriers(2, name="full")
    ctx.cp_async_bulk(tile, r.at_f32, 4096, full), ctx.cp_async_bulk(tile[4], r.at_f32[8], r.u32, full[1])
    ctx.cp_async_bulk(tile, r.at_f32, 64, full, multicast=r.u16), ctx.cp_async_bulk(tile, r.at_f32, 64, full, policy=1)
    ctx.cp_async_bulk(ctx.mapa(tile, 1), tile, 64, ctx.mapa(full, 1), pred=r.p)
    ctx.cp_async_bulk(r.at_f32, tile, 64), ctx.cp_async_bulk(r.at_f32, tile + 4, r.u32, policy=r.u64)
    ctx.cp_reduce_async_bulk("add", r.at_f32, tile, 64), ctx.cp_reduce_async_bulk("and", r.at_u32, tile, 64)
    ctx.cp_reduce_async_bulk("add", r.at_bf16, tile, 64), ctx.cp_reduce_async_bulk("min", r.at_f16, tile, 64)
    ctx.cp_reduce_async_bulk("add", r.at_s32, tile, 64, policy=r.u64)
    ctx.cp_reduce_async_bulk("max", ctx.mapa(tile, 1), tile, 64, ctx.mapa(full, 1), type="u32")
    ctx.cp_async_bulk_prefetch(r.at_f32, 64), ctx.cp_async_bulk_prefetch(r.at_f32, r.u32, policy=r.u64)
    there, arrived = ctx.mapa(tile, 0), ctx.mapa(full, 0)
    (
        ctx.st_async(there, r.f32, arrived),
        ctx.st_async(there[4], (r.f32, 1.0), arrived),
        ctx.st_async(there, 1.0, arrived),
    )
    ctx.st_async(there.retyped("u64"), r.u64, arrived, pred=r.p)
    ctx.red_async("add", there.retyped("u32"), r.u32, arrived), ctx.red_async("or", there, 1, arrived, type="u32")


@operation("sm_90a")
def tensor_maps_changed(ctx, r):
    held = ctx.shared("b8", 128, align=128, name="held")
    ctx.tensormap_replace("global_address", held, r.u64), ctx.tensormap_replace("global_dim", held, r.u32, index=1)
    ctx.tensormap_replace("global_stride", held, r.u64, index=0), ctx.tensormap_replace("rank", held, 2)
    ctx.tensormap_replace("swizzle_mode", r.at_u64, 3), ctx.tensormap_copy_fence(r.at_u64, held)


@operation("sm_100a")
def blackwell_copies(ctx, r):
    tile, full = ctx.shared("f32", 1024, align=128, name="tile"), ctx.mbarriers(2, name="full")
    map = ctx.tensor_map("map")
    ctx.tma_load(tile, map, (0, 1), full, group="cta_group::2"), ctx.tma_load(tile, map, (0, 1), full, multicast=1)
    ctx.tma_load(tile, map, (0, 1, 2, 3, r.u32), full, mode="tile::gather4")
    ctx.tma_store(map, (0, 1, 2, 3, r.u32), tile, mode="tile::scatter4")
    ctx.cp_async_bulk(r.at_f32, tile, 64, byte_mask=r.u16)


@operation()
def wgmma(ctx, r):
    d, h, i = ctx.wgmma_accumulator(64), ctx.wgmma_accumulator(64, "f16"), ctx.wgmma_accumulator(64, "s32")
    place = ctx.wgmma_place()
    ctx.store(r.at_u32, place.row(7) * 64 + place.column(7)), ctx.wgmma_place(r.u32).row(0)
    ctx.wgmma_fence()
    pool = ctx.dynamic_shared("b8", align=1024)
    for swizzle in ("none", "32B", "64B", "128B"):
        for major in ("K", "MN"):
            how = {"swizzle": swizzle, "major": major, "at": pool}
            a, b = ctx.shared_tile("bf16", 128, 64, stages=2, **how), ctx.shared_tile("bf16", 64, 64, **how)
            one, two = ctx.wgmma_descriptor(a), ctx.wgmma_descriptor(b, k=16)
            ctx.wgmma("m64n64k16", d, one.at(row=64, k=32, stage=1), two.at(k=32), types="f32.bf16.bf16")
            ctx.wgmma("m64n64k16", d, one.at(stage=r.u32), two, types="f32.bf16.bf16", accumulate=r.p)
            ctx.wgmma("m64n64k16", d, (r.u32,) * 4, two, types="f32.bf16.bf16", accumulate=False, negate_b=True)
            ctx.wgmma_descriptor(a.stage(r.u32)), ctx.wgmma_descriptor(a.stage(1)).at(k=48)
    raw = two.register
    ctx.wgmma("m64n64k16", h, raw, raw, types="f16.f16.f16", trans_b=True)
    ctx.wgmma("m64n64k8", d, raw, raw, types="f32.tf32.tf32", negate_a=True)
    (
        ctx.wgmma("m64n64k32", d, raw, raw, types="f32.e4m3.e5m2"),
        ctx.wgmma("m64n64k32", h, raw, raw, types="f16.e4m3.e4m3"),
    )
    ctx.wgmma("m64n64k32", i, raw, raw, types="s32.s8.u8"), ctx.wgmma("m64n64k256", i, raw, raw, types="s32.b1.b1")
    ctx.wgmma("m64n64k32", i, raw, raw, types="s32.u8.u8", satfinite=True)
    ctx.wgmma("m64n64k32", d, raw, raw, types="f32.f16.f16", sparse=(r.u32, 0))
    ctx.wgmma_commit(), ctx.wgmma_wait(1), ctx.wgmma_wait()


@operation("sm_100a")
def tensor_memory(ctx, r):
    slot = ctx.shared("b32", 1, name="slot")
    ctx.tcgen05_alloc(slot, 512), ctx.tcgen05_alloc(slot, r.u32), ctx.tcgen05_relinquish()
    memory = ctx.tensor_memory(slot, 512)
    mine = memory.at(lane=(ctx.tid_x >> 5 & 3) * 32)
    for shape, per, most in (("32x32b", 1, 128), ("16x64b", 1, 128), ("16x128b", 2, 64), ("16x256b", 4, 32)):
        for num in (1, 2, 16, most):
            values = ctx.tcgen05_ld(mine, num, shape=shape, type="f32")
            assert [value.type for value in values] == ["f32"] * per * num
            ctx.tcgen05_wait_ld(), ctx.tcgen05_st(memory, values, shape=shape), ctx.tcgen05_wait_st()
    ctx.tcgen05_ld(mine.at(column=16), 8, pack=True), ctx.tcgen05_ld(mine.at(16, r.u32), 2, shape="16x32bx2", split=4)
    ctx.tcgen05_st(mine.at(column=16), (r.u32,) * 8, unpack=True)
    ctx.tcgen05_st(mine, (r.u32,) * 2, shape="16x32bx2", split=4)
    ctx.tcgen05_ld(mine, 2, out=(r.u32b, r.u32c))
    ctx.tcgen05_fence_before(), ctx.tcgen05_fence_after()
    ctx.tcgen05_shift(memory), ctx.tcgen05_dealloc(memory), ctx.tcgen05_dealloc(memory.at(column=32), 32)


@operation("sm_100a")
def tensor_products(ctx, r):
    slot, done = ctx.shared("b32", 1, name="slot"), ctx.mbarriers(1, name="done")
    memory = ctx.tensor_memory(slot, 512)
    d, held, scales = memory.at(column=0, columns=256), memory.at(column=256, columns=64), memory.at(column=320)
    pool = ctx.dynamic_shared("b8", align=1024)
    for swizzle in ("none", "32B", "64B", "128B"):
        for major in ("K", "MN"):
            how = {"swizzle": swizzle, "major": major, "at": pool}
            a = ctx.tcgen05_descriptor(ctx.shared_tile("bf16", 128, 64, **how))
            b = ctx.tcgen05_descriptor(ctx.shared_tile("bf16", 64, 64, stages=3, **how))
            ctx.tcgen05_mma("m128n64k16", d, a.at(k=16), b.at(k=48, stage=2), types="f32.bf16.bf16")
            ctx.tcgen05_mma("m64n64k16", d.at(lane=16), a, b, types="f32.bf16.bf16", accumulate=False, pred=r.p)
            ctx.tcgen05_mma("m128n64k16", d, held, b, types="f32.bf16.bf16", accumulate=r.p, negate_a=True)
    raw = a.register
    ctx.tcgen05_mma("m128n64k8", d, raw, raw, types="f32.tf32.tf32", trans_b=True)
    (
        ctx.tcgen05_mma("m128n64k32", d, raw, raw, types="f16.e4m3.e2m1"),
        ctx.tcgen05_mma("m128n64k32", d, raw, raw, types="s32.s8.u8"),
    )
    ctx.tcgen05_mma("m128n64k16", d, raw, raw, types="f32.f16.f16", disable_lanes=(r.u32, 0, 0, 0))
    ctx.tcgen05_mma("m128n64k16", d, raw, raw, types="f32.f16.f16", scale_d=2, collector="collector::a::fill")
    ctx.tcgen05_mma("m64n64k16", d, held, raw, types="f32.f16.f16", ws=True)
    ctx.tcgen05_mma("m128n64k16", d, raw, raw, types="f32.f16.f16", instruction=r.u32)
    both = (scales, scales.at(column=8))
    ctx.tcgen05_mma("m128n64k32", d, raw, raw, types="f32.e4m3.e4m3", kind="mxf8f6f4", scales=both, vector="block32")
    bits = ctx.tcgen05_instruction("m128n64k16", "f32.bf16.bf16")
    assert bits == 1 << 4 | 1 << 7 | 1 << 10 | 8 << 17 | 8 << 24
    for shape in ("128x256b", "4x256b", "128x128b", "64x128b", "32x128b"):
        ctx.tcgen05_cp(d, a, shape), ctx.tcgen05_cp(d, raw, shape, format="b8x16", sformat="b4x16_p64")
    ctx.tcgen05_cp(d, raw, "64x128b", multicast="warpx2::01_23")
    ctx.tcgen05_commit(done), ctx.tcgen05_commit(done[0], multicast=3, pred=r.p)


@operation("sm_100a")
def paired_products(ctx, r):
    slot, done = ctx.shared("b32", 1, name="slot"), ctx.mbarriers(1, name="done")
    ctx.tcgen05_alloc(slot, 64, group=2), ctx.tcgen05_relinquish(group=2)
    d = ctx.tensor_memory(slot, 64)
    a = ctx.tcgen05_descriptor(ctx.shared_tile("f16", 128, 64))
    b = ctx.tcgen05_descriptor(ctx.shared_tile("f16", 32, 64))
    ctx.tcgen05_mma("m256n64k16", d, a, b, types="f32.f16.f16", group=2)
    ctx.tcgen05_mma("m128n64k16", d, a, b, types="f32.f16.f16", group=2), ctx.tcgen05_shift(d, group=2)
    ctx.tcgen05_cp(d, a, "128x128b", group=2)
    ctx.tcgen05_commit(done, group=2), ctx.tcgen05_commit(done, group=2, multicast=3)
    ctx.tcgen05_dealloc(d, group=2)
