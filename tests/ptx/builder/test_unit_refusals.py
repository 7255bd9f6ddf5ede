"""What the builder refuses of the asynchronous units, at the line that asks for it."""

import pytest
from tests import sampled

from kernbench.ptx.builder import PtxBuildError, PtxKernel


class Things:
    """Shared arrays, barriers and tiles for the programs below."""

    def __init__(self, ctx):
        self.ctx = ctx
        self.full = ctx.mbarriers(2, name="full")
        self.small = ctx.shared("f32", 64, name="small")
        self.box = ctx.shared("f32", 64, align=128, name="box")
        self.x = ctx.pointer("x", "f32")

    def tile(self, *shape, **how):
        return self.ctx.shared_tile("bf16", *shape, **how)

    def memory(self, columns=128):
        return self.ctx.tensor_memory(self.ctx.shared("b32", 1), columns)

    @property
    def map(self):
        return self.ctx.tensor_map("map")


def wgmma(ctx, t, **how):
    a, b = (ctx.wgmma_descriptor(t.tile(64, 64)) for _ in range(2))
    shape = how.pop("shape", "m64n64k16")
    a = a.at(k=how.pop("k", 0))
    ctx.wgmma(shape, ctx.wgmma_accumulator(how.pop("n", 64)), a, b, **{"types": "f32.bf16.bf16", **how})


def mma(ctx, t, shape="m128n64k16", types="f32.bf16.bf16", columns=128, **how):
    a, b = ctx.tcgen05_descriptor(t.tile(128, 64)), ctx.tcgen05_descriptor(t.tile(64, 64))
    ctx.tcgen05_mma(shape, t.memory(columns), a, b, types=types, **how)


REFUSALS = {
    "a parity that is none": (lambda ctx, t: ctx.mbarrier_wait(t.full, 2), "parity 2, and a parity is 0 or 1"),
    "parity and state": (lambda ctx, t: ctx.mbarrier_wait(t.full), "waits for a parity, or for the state="),
    "a count too large": (lambda ctx, t: ctx.mbarrier_init(t.full, 1 << 20), "1048576, and 1 to 1048575 is possible"),
    "no arrivals": (lambda ctx, t: ctx.mbarrier_arrive(t.full, 0), "count is 0, and 1 to"),
    "a barrier past its array": (
        lambda ctx, t: ctx.mbarrier_arrive(t.full[2]),
        "mbarrier.arrive: bytes 16 to 23 lie outside 'full' of 16 bytes",
    ),
    "a barrier in global memory": (
        lambda ctx, t: ctx.mbarrier_init(t.x, 1),
        "lies in global memory, and shared memory is wanted",
    ),
    "a barrier askew": (
        lambda ctx, t: ctx.mbarrier_init(t.small[1], 1),
        "byte 4 of 'small' is no multiple of 8",
    ),
    "a number as a barrier": (
        lambda ctx, t: ctx.mbarrier_init(8, 1),
        "8 is no location in shared memory: give an array",
    ),
    "a wait at another block": (
        lambda ctx, t: ctx.mbarrier_wait(ctx.mapa(t.full, 1), 0),
        "works on barriers of the own block only",
    ),
    "a state from another block": (
        lambda ctx, t: ctx.mbarrier_arrive(ctx.mapa(t.full, 1), state=True),
        "gives back no state",
    ),
    "a parameter that is no map": (lambda ctx, t: ctx.tensor_map("x"), "declare it with .param('tensormap', 'x')"),
    "a box that is not aligned": (
        lambda ctx, t: ctx.tma_load(t.small, t.map, (0, 0), t.full),
        "'small' is aligned to 16 bytes: declare it with align=128",
    ),
    "a box inside of a line": (
        lambda ctx, t: ctx.tma_load(t.box[4], t.map, (0, 0), t.full),
        "byte 16 of 'box' is no multiple of 128",
    ),
    "six coordinates": (
        lambda ctx, t: ctx.tma_load(t.box, t.map, (0,) * 6, t.full),
        "1 to 5 coordinates are wanted, innermost first",
    ),
    "a gather of two rows": (
        lambda ctx, t: ctx.tma_load(t.box, t.map, (0, 0), t.full, mode="tile::gather4"),
        "tile::gather4 takes a column and four rows",
    ),
    "odd bytes": (lambda ctx, t: ctx.cp_async_bulk(t.box, t.x, 24, t.full), "24 bytes, and a multiple of 16 is wanted"),
    "bytes past the array": (
        lambda ctx, t: ctx.cp_async_bulk(t.box[16], t.x, 256, t.full),
        "bytes 64 to 319 lie outside 'box' of 256 bytes",
    ),
    "a load without a barrier": (
        lambda ctx, t: ctx.cp_async_bulk(t.box, t.x, 64),
        "cp.async.bulk to shared memory completes on a barrier: give one",
    ),
    "a store with one": (
        lambda ctx, t: ctx.cp_async_bulk(t.x, t.box, 64, t.full),
        "completes in a bulk group, not on a barrier",
    ),
    "mapa of global memory": (
        lambda ctx, t: ctx.mapa(t.x, 0),
        "mapa takes a location in shared memory of the own block",
    ),
    "registers in ones": (lambda ctx, t: ctx.setmaxnreg_inc(100), "setmaxnreg of 100: a multiple of 8 from 24 to 256"),
    "a tile that is too narrow": (
        lambda ctx, t: t.tile(64, 32),
        "has lines of 128 bytes, and depth 32 of bf16 is no multiple of 64",
    ),
    "a tile of seven rows": (lambda ctx, t: t.tile(7, 64), "groups of 8: rows 7 is no multiple"),
    "an unknown swizzle": (lambda ctx, t: t.tile(64, 64, swizzle="256B"), "unknown swizzle '256B'; known: none, 32B"),
    "a tile in unaligned memory": (
        lambda ctx, t: t.tile(64, 64, at=ctx.shared("b8", 8192, align=128, name="pool")),
        "'pool' is aligned to 128 bytes: declare it with align=1024",
    ),
    "a tile past its memory": (
        lambda ctx, t: t.tile(64, 64, stages=2, at=ctx.shared("b8", 8192, align=1024, name="pool")),
        "bytes 0 to 16383 lie outside 'pool' of 8192 bytes",
    ),
    "a stage too many": (lambda ctx, t: t.tile(64, 64, stages=2).stage(2), "stage 2 of a tile with 2"),
    "a descriptor past the tile": (lambda ctx, t: wgmma(ctx, t, k=64), "(0, 64) lies outside a tile of 64 rows"),
    "a descriptor inside a step": (
        lambda ctx, t: wgmma(ctx, t, k=8),
        "a descriptor cannot begin at row 0, k 8 of a K-major tile",
    ),
    "more columns than the tile has rows": (
        lambda ctx, t: wgmma(ctx, t, shape="m64n128k16", n=128),
        "wgmma reads 128 rows and depth 16 of B from (0, 0) on, and the tile has 64 rows and depth 64",
    ),
    "another type": (
        lambda ctx, t: wgmma(ctx, t, types="f32.f16.f16"),
        "the tile of A holds bf16, and the instruction multiplies f16",
    ),
    "too few accumulators": (lambda ctx, t: wgmma(ctx, t, n=32), "takes (d: 32 x .f32"),
    "a swizzle wgmma lacks": (
        lambda ctx, t: ctx.wgmma_descriptor(t.tile(64, 64, swizzle="128B.atom32B")),
        "wgmma has no swizzle 128B.atom32B",
    ),
    "tcgen05's descriptor for wgmma": (
        lambda ctx, t: ctx.wgmma(
            "m64n8k16",
            ctx.wgmma_accumulator(8),
            ctx.tcgen05_descriptor(t.tile(64, 64)),
            ctx.tcgen05_descriptor(t.tile(64, 64)),
            types="f32.bf16.bf16",
        ),
        "a descriptor of ctx.wgmma_descriptor(tile) is wanted",
    ),
    "columns that cannot be reserved": (
        lambda ctx, t: ctx.tcgen05_alloc(t.small, 48),
        "tcgen05.alloc of 48 columns: 32, 64, 128, 256 or 512 are possible",
    ),
    "a column past the end": (lambda ctx, t: t.memory(64).at(column=64), "column 64 of <tensor memory of 64 columns"),
    "a lane past the end": (lambda ctx, t: t.memory(64).at(lane=128), "lane 128: there are 128"),
    "a load past the end": (
        lambda ctx, t: ctx.tcgen05_ld(t.memory(64).at(column=32), 16, shape="16x256b"),
        "tcgen05.ld.16x256b.x16 touches 128 columns of <tensor memory of 32 columns",
    ),
    "a store of three registers": (
        lambda ctx, t: ctx.tcgen05_st(t.memory(), (ctx.tid_x,) * 3),
        "tcgen05.st.32x32b of 3 registers: 1 for each of 1, 2, 4, ... 128 repeats",
    ),
    "a split without its shape": (
        lambda ctx, t: ctx.tcgen05_ld(t.memory(), 4, split=2),
        "split= goes with 16x32bx2 only",
    ),
    "a product past its columns": (
        lambda ctx, t: mma(ctx, t, columns=32),
        "tcgen05.mma: D has 64 columns, and it lies in <tensor memory of 32",
    ),
    "a depth that is none": (
        lambda ctx, t: mma(ctx, t, shape="m128n64k32"),
        "tcgen05.mma of kind f16 has depth 16: write m128n64k16, not m128n64k32",
    ),
    "rows that are none": (
        lambda ctx, t: mma(ctx, t, shape="m96n64k16"),
        "M is 96 (bits 24 to 28); here it is one of 64, 128",
    ),
    "a result of another kind": (
        lambda ctx, t: mma(ctx, t, types="s32.bf16.bf16"),
        "the format of D (bits 4 and 5) is 2, which kind::f16 does not have",
    ),
    "types that do not go together": (
        lambda ctx, t: mma(ctx, t, types="f32.bf16.e4m3"),
        "tcgen05.mma has no kind for A of bf16 and B of e4m3",
    ),
    "ws in a pair": (lambda ctx, t: mma(ctx, t, group=2, ws=True), "tcgen05.mma.ws works in one block"),
    "alone and in a pair": (
        lambda ctx, t: (ctx.tcgen05_relinquish(), ctx.tcgen05_relinquish(group=2)),
        "group=2: this kernel uses tcgen05 with group 1, and may not mix",
    ),
    "an option that is none": (lambda ctx, t: mma(ctx, t, negated=True), "tcgen05 has no form with"),
    "a third block": (lambda ctx, t: mma(ctx, t, group=3), "group=3: a block works alone (1) or with its neighbour"),
}


@sampled.each(REFUSALS)
def test_refused(name):
    program, message = REFUSALS[name]
    kernel = PtxKernel("k").param("u64", "x").param("tensormap", "map")
    with pytest.raises(PtxBuildError) as caught:
        kernel.build(lambda ctx: program(ctx, Things(ctx)))
    assert message in caught.value.message
    assert caught.value.where.file == __file__


@pytest.mark.parametrize(
    ("program", "target", "message"),
    [
        (
            lambda ctx: ctx.wgmma_fence(),
            "sm_100a",
            "wgmma.fence.sync.aligned needs sm_90a, and the kernel is built for",
        ),
        (lambda ctx: ctx.tcgen05_wait_ld(), "sm_90a", "tcgen05.wait::ld.sync.aligned needs sm_100a"),
        (lambda ctx: ctx.setmaxnreg_dec(24), "sm_90", "setmaxnreg.dec.sync.aligned.u32 needs sm_90a"),
        (lambda ctx: ctx.mbarrier_wait(ctx.mbarriers(), 0), "sm_80", "mbarrier.try_wait.parity.shared.b64 needs sm_90"),
        (lambda ctx: ctx.tma_prefetch(ctx.tensor_map("map"), (0,)), "sm_80", "needs sm_90"),
    ],
)
def test_what_a_target_lacks(program, target, message):
    with pytest.raises(PtxBuildError, match=message.replace(".", r"\.")):
        PtxKernel("k", target=target).param("tensormap", "map").build(program)


def test_a_tensor_map_has_its_own_size():
    with pytest.raises(PtxBuildError, match="a tensor map has a size and an alignment of its own"):
        PtxKernel("k").param("tensormap", "map", count=128)
