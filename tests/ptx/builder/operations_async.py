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
