"""Small kernels written with the builder, for golden texts and runs."""

from kernbench.ptx.builder import FULL_MASK, PtxFunction, PtxKernel


def _vector_add(ctx):
    x, y, z = (ctx.pointer(name, "f32") for name in ("x_ptr", "y_ptr", "z_ptr"))
    i = ctx.global_index()
    with ctx.if_(i < ctx.param("n")):
        ctx.store(z[i], ctx.load(x[i]) + ctx.load(y[i]))


def vector_add(**options):
    kernel = PtxKernel("vector_add", **options).param("u64", "x_ptr").param("u64", "y_ptr")
    return kernel.param("u64", "z_ptr").param("u32", "n").build(_vector_add)


def warp_sum(ctx, value):
    """The sum over a warp, in all its lanes."""
    total = value.copy()
    for step in (16, 8, 4, 2, 1):
        total += ctx.shfl_bfly(total, step, mask=FULL_MASK)
    return total


def _block_sum(ctx):
    """Each block's sum of a grid-stride loop: warps by shuffles, warps together through shared memory."""
    x, out, n = ctx.pointer("x_ptr", "f32"), ctx.pointer("out_ptr", "f32"), ctx.param("n")
    total = ctx.const(0.0, "f32")
    with ctx.loop(ctx.global_index(), n, ctx.ntid_x * ctx.nctaid_x) as i:
        total += ctx.load(x, i)
    partial = ctx.shared("f32", 32, name="partial")
    lane, warp = ctx.tid_x & 31, ctx.tid_x >> 5
    total = warp_sum(ctx, total)
    ctx.store(partial, total, warp, mask=lane == 0)
    ctx.bar_sync()
    with ctx.if_(warp == 0):
        mine = ctx.load(partial, lane, mask=lane < (ctx.ntid_x >> 5), other=0.0)
        ctx.store(out, warp_sum(ctx, mine), ctx.ctaid_x, mask=lane == 0)


def block_sum(**options):
    kernel = PtxKernel("block_sum", **options).param("u64", "x_ptr").param("u64", "out_ptr").param("u32", "n")
    return kernel.build(_block_sum)


TILE = 16


def _matmul(ctx):
    """C = A B of row-major n x n matrices, a tile of each in shared memory; n is a multiple of the tile."""
    a, b, c, n = *(ctx.pointer(name, "f32") for name in ("a_ptr", "b_ptr", "c_ptr")), ctx.param("n")
    tile_a = ctx.shared("f32", TILE * TILE, name="tile_a")
    tile_b = ctx.shared("f32", TILE * TILE, name="tile_b")
    tx, ty = ctx.tid_x, ctx.tid_y
    row, column = ctx.mad(ctx.ctaid_y, TILE, ty), ctx.mad(ctx.ctaid_x, TILE, tx)
    mine = ctx.mad(ty, TILE, tx)
    total = ctx.const(0.0, "f32")
    with ctx.loop(0, n, TILE) as start:
        ctx.store(tile_a, ctx.load(a, ctx.mad(row, n, start + tx)), mine)
        ctx.store(tile_b, ctx.load(b, ctx.mad(start + ty, n, column)), mine)
        ctx.bar_sync()
        line, across = tile_a + ty * TILE, tile_b + tx
        for k in range(TILE):
            ctx.fma_(total, ctx.load(line[k]), ctx.load(across[k * TILE]))
        ctx.bar_sync()
    ctx.store(c, total, ctx.mad(row, n, column))


def matmul(**options):
    kernel = PtxKernel("matmul", **options).param("u64", "a_ptr").param("u64", "b_ptr").param("u64", "c_ptr")
    return kernel.param("u32", "n").reqntid(TILE, TILE).build(_matmul)


def _softmax(ctx):
    """One warp a row: the maximum and the sum in one pass, then the values."""
    x, y, n = ctx.pointer("x_ptr", "f32"), ctx.pointer("y_ptr", "f32"), ctx.param("n")
    row, lane = ctx.ctaid_x * n, ctx.tid_x
    log2e = 1.4426950408889634
    largest, total = ctx.const(float("-inf"), "f32"), ctx.const(0.0, "f32")
    with ctx.loop(lane, n, 32) as i:
        value = ctx.load(x, row + i) * log2e
        before = largest.copy()
        ctx.max_(largest, value)
        total *= ctx.ex2(before - largest)
        total += ctx.ex2(value - largest)
    for step in (16, 8, 4, 2, 1):
        other_largest, other_total = (ctx.shfl_bfly(v, step, mask=FULL_MASK) for v in (largest, total))
        both = ctx.max(largest, other_largest)
        with ctx.if_(both > float("-inf")):
            total *= ctx.ex2(largest - both)
            ctx.fma_(total, other_total, ctx.ex2(other_largest - both))
            largest.set(both)
    inverse = ctx.rcp(total)
    with ctx.loop(lane, n, 32) as i:
        ctx.store(y, ctx.ex2(ctx.load(x, row + i) * log2e - largest) * inverse, row + i)


def softmax(**options):
    kernel = PtxKernel("softmax", **options).param("u64", "x_ptr").param("u64", "y_ptr").param("u32", "n")
    return kernel.build(_softmax)


def _mma_tile(ctx):
    """D = A B^T + 0 of a 16 x 16 and an 8 x 16 matrix of f16, through cp.async, ldmatrix and mma."""
    a, b, d = ctx.pointer("a_ptr", "f16"), ctx.pointer("b_ptr", "f16"), ctx.pointer("d_ptr", "f32")
    lane = ctx.tid_x
    tile_a, tile_b = ctx.shared("f16", 256, name="tile_a"), ctx.shared("f16", 128, name="tile_b")
    ctx.cp_async(tile_a + lane * 8, a + lane * 8, 16)
    with ctx.if_(lane < 16):
        ctx.cp_async(tile_b + lane * 8, b + lane * 8, 16)
    ctx.cp_async_commit()
    ctx.cp_async_wait()
    ctx.bar_sync()
    half = (lane & 7) + ((lane >> 3) & 1) * 8
    left = ctx.ldmatrix(tile_a + (half * 16 + (lane >> 4) * 8), 4)
    right = ctx.ldmatrix(tile_b + ((lane & 7) * 16 + ((lane >> 3) & 1) * 8), 2)
    found = ctx.mma("m16n8k16", left, right, (0.0,) * 4, types="f32.f16.f16.f32")
    first = (lane >> 2) * 8 + (lane & 3) * 2
    ctx.store(d + first, found[:2])
    ctx.store(d + first, found[2:], 64)


def mma_tile(**options):
    kernel = PtxKernel("mma_tile", **options).param("u64", "a_ptr").param("u64", "b_ptr").param("u64", "d_ptr")
    return kernel.build(_mma_tile)


def _clamped(ctx):
    x = ctx.param("x")
    ctx.return_(ctx.min(ctx.max(x, 0.0), ctx.param("limit")))


def _clamp(ctx):
    function = PtxFunction("clamped").param("f32", "x").param("f32", "limit").returns("f32").build(_clamped)
    x, table = ctx.pointer("x_ptr", "f32"), ctx.constant("f32", [1.0, 2.0, 4.0, 8.0])
    i = ctx.tid_x
    limit = ctx.load(table, i & 3)
    ctx.store(x, ctx.call(function, ctx.load(x, i), limit), i)


def clamp(**options):
    return PtxKernel("clamp", **options).param("u64", "x_ptr").build(_clamp)


def _wait(ctx):
    """A while loop, a break, labels, an atomic counter and a vote."""
    counter, x = ctx.pointer("counter_ptr", "u32"), ctx.pointer("x_ptr", "u32")
    i = ctx.global_index()
    n = ctx.load(x, i)
    steps = ctx.const(0, "u32")
    with ctx.while_(lambda: n != 1):
        with ctx.if_((n & 1) == 0):
            n >>= 1
        with ctx.else_():
            ctx.mad(n, 3, 1, out=n)
        steps += 1
        ctx.break_(steps > 500)
    last = ctx.label("last")
    ctx.bra(last, pred=steps > 100)
    ctx.red("add", counter, steps)
    ctx.place(last)
    ctx.store(x, steps, i)
    ctx.red("max", counter, ctx.popc(ctx.ballot(steps > 20, mask=FULL_MASK)), index=1)


def collatz(**options):
    return PtxKernel("collatz", **options).param("u64", "counter_ptr").param("u64", "x_ptr").build(_wait)


SAMPLES = {f.__name__: f for f in (vector_add, block_sum, matmul, softmax, mma_tile, clamp, collatz)}
