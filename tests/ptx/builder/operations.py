"""Every operation of the builder once or more, as small programs by name; the target they need in `TARGETS`.

Each program takes the context and a bag of registers, one or more of each type, and pointers.
"""

from types import SimpleNamespace

from kernbench.ptx.builder import FULL_MASK, PtxFunction

ALL = FULL_MASK
OPERATIONS = {}
TARGETS = {}


def operation(target="sm_90a"):
    def add(program):
        OPERATIONS[program.__name__] = program
        TARGETS[program.__name__] = target
        return program

    return add


def bag(ctx):
    """Registers r.u32, r.u32b, ..., predicates r.p, r.q and pointers r.x (f32), r.h (f16), ... into one buffer."""
    r = SimpleNamespace()
    types = (
        "u16",
        "s16",
        "u32",
        "s32",
        "u64",
        "s64",
        "f32",
        "f64",
        "f16",
        "bf16",
        "f16x2",
        "bf16x2",
        "b16",
        "b32",
        "b64",
    )
    for type in types:
        place = ctx.pointer("buffer", type)
        setattr(r, type, ctx.load(place, 0))
        setattr(r, type + "b", ctx.load(place, 1))
        setattr(r, type + "c", ctx.load(place, 2))
        setattr(r, "at_" + type, place)
    r.p, r.q = r.u32 < r.u32b, r.f32 == r.f32b
    r.at_u8, r.at_s8 = (ctx.pointer("buffer", type) for type in ("u8", "s8"))
    return r


@operation()
def integers(ctx, r):
    for type in ("u16", "s16", "u32", "s32", "u64", "s64"):
        a, b, c = (getattr(r, type + letter) for letter in ("", "b", "c"))
        for value in (a + b, a - 1, 7 - a, a * b, 3 * a, a // b, a % b, ctx.mad(a, b, c), ctx.mul_hi(a, b)):
            ctx.store(getattr(r, "at_" + type), value)
        for value in (ctx.min(a, b), ctx.max(a, 5), ctx.sad(a, b, c), ctx.mad(a, b, c, part="hi")):
            ctx.store(getattr(r, "at_" + type), value)
    for a in (r.u16, r.s16, r.u32, r.s32):
        ctx.mul_wide(a, a)
        ctx.mad_wide(a, 3, ctx.mul_wide(a, 2))
    for a in (r.s16, r.s32, r.s64):
        ctx.neg(a), ctx.abs(a), -a, abs(a)
    for a, b in ((r.u32, r.u32b), (r.s32, r.s32b)):
        ctx.mul24(a, b), ctx.mul24(a, b, part="hi"), ctx.mad24(a, b, 4)
    ctx.add(r.s32, r.s32b, sat=True), ctx.sub(r.s32, r.s32b, sat=True)
    ctx.min(r.s32, 0, relu=True), ctx.max(r.s32, 0, relu=True)
    ctx.mad(r.s32, r.s32b, r.s32c, part="hi", sat=True)


@operation()
def carries(ctx, r):
    for type in ("u32", "s32", "u64", "s64"):
        a, b = getattr(r, type), getattr(r, type + "b")
        ctx.add(a, b, cc=True), ctx.addc(a, b, cc=True), ctx.addc(a, b)
        ctx.sub(a, b, cc=True), ctx.subc(a, b, cc=True), ctx.subc(a, b)
        ctx.mad(a, b, a, cc=True), ctx.madc(a, b, a, part="hi", cc=True), ctx.madc(a, b, a)


@operation()
def in_place(ctx, r):
    a, x = r.u32, r.f32
    a += 1
    a -= r.u32b
    a *= 3
    a //= 2
    a %= 7
    a &= 0xFF
    a |= r.u32b
    a ^= 1
    a <<= 2
    a >>= 1
    x += 1.5
    x -= r.f32b
    x *= 2
    x /= 3.0
    ctx.add_(a, 1), ctx.sub_(a, 1), ctx.mul_(a, 2), ctx.div_(a, 3), ctx.rem_(a, 5), ctx.min_(a, 9), ctx.max_(a, 1)
    ctx.neg_(x), ctx.abs_(x), ctx.fma_(x, r.f32b, 2.0), ctx.mad_(a, r.u32b, 3), ctx.max_(x, 0.0)
    ctx.xor_(a, 3), ctx.shl_(a, 1), ctx.shr_(a, 1)
    ctx.store(r.at_u32, a)
    ctx.store(r.at_f32, x)
    r.u32c.set(4)
    r.u32c.set(a)
    ctx.mov(5, out=r.u32c, pred=r.p)


@operation()
def floats(ctx, r):
    for type in ("f32", "f64"):
        a, b, c = (getattr(r, type + letter) for letter in ("", "b", "c"))
        for value in (a + b, a - 1.0, 2 - a, a * b, a / b, 1.0 / a, ctx.fma(a, b, c), ctx.fma(a, 2.0, c, rnd="rz")):
            ctx.store(getattr(r, "at_" + type), value)
        for value in (ctx.min(a, b), ctx.max(a, b), -a, abs(a), ctx.rcp(a), ctx.sqrt(a), ctx.copysign(a, b)):
            ctx.store(getattr(r, "at_" + type), value)
        ctx.add(a, b, rnd="rm"), ctx.testp("finite", a), ctx.testp("subnormal", a), ctx.rsqrt(a)
    for function in (ctx.ex2, ctx.lg2, ctx.sin, ctx.cos, ctx.tanh, ctx.exp, ctx.log):
        function(r.f32)
    ctx.ex2(r.f32, ftz=True), ctx.add(r.f32, 1.0, ftz=True, sat=True)
    ctx.div(r.f32, r.f32b, mode="approx"), ctx.div(r.f32, r.f32b, mode="full", ftz=True)
    ctx.rcp(r.f32, mode="approx"), ctx.sqrt(r.f32, mode="approx"), ctx.rcp(r.f64, mode="approx", ftz=True)
    ctx.min(r.f32, r.f32b, NaN=True), ctx.max(r.f32, r.f32b, xorsign=True, abs=True)


@operation()
def halves(ctx, r):
    for type in ("f16", "bf16", "f16x2", "bf16x2"):
        a, b, c = (getattr(r, type + letter) for letter in ("", "b", "c"))
        for value in (a + b, a - b, a * 2.0, 1.5 + a, ctx.fma(a, b, c), ctx.fma(a, b, c, relu=True)):
            ctx.store(getattr(r, "at_" + type), value)
        ctx.min(a, b), ctx.max(a, b), ctx.neg(a), ctx.abs(a), ctx.tanh(a)
    ctx.ex2(r.f16), ctx.ex2(r.f16x2), ctx.ex2(r.bf16, ftz=True)
    ctx.add(r.f16, r.f16b, sat=True), r.f16 < r.f16b, r.bf16 >= r.bf16b
    ctx.setp("lt", r.f16x2, r.f16x2b, pair=True)
    ctx.selp(r.f16, r.f16b, r.p), ctx.selp(r.bf16x2, r.bf16x2b, r.p)


@operation()
def dots(ctx, r):
    ctx.dp4a(r.u32, r.u32b, 0), ctx.dp4a(r.s32, r.u32, r.s32b), ctx.dp4a(r.s32, r.s32b, -1)
    ctx.dp2a(r.u32, r.u32b, r.u32c), ctx.dp2a(r.s32, r.s32b, r.s32c, part="hi")


@operation()
def logic(ctx, r):
    for type in ("u16", "b16", "u32", "s32", "b32", "u64", "b64"):
        a, b = getattr(r, type), getattr(r, type + "b")
        for value in (a & b, a | 1, a ^ b, ~a, a << 3, a >> r.u32, ctx.cnot(a)):
            ctx.store(getattr(r, "at_" + type), value)
    r.p & r.q, r.p | r.q, r.p ^ r.q, ~r.p, r.p == r.q, r.p != r.q
    ctx.shf("l", r.u32, r.u32b, 5), ctx.shf("r", r.b32, r.b32b, r.u32, mode="wrap")
    ctx.lop3(r.u32, r.u32b, r.u32c, 0x96), ctx.prmt(r.u32, r.u32b, 0x3210), ctx.prmt(r.u32, r.u32b, 1, mode="f4e")
    for a in (r.u32, r.s32, r.u64, r.s64):
        ctx.bfe(a, 3, 5), ctx.bfind(a), ctx.bfind(a, shiftamt=True)
    for a, b in ((r.u32, r.u32b), (r.b64, r.b64b)):
        ctx.bfi(a, b, 4, 8), ctx.brev(a), ctx.clz(a), ctx.popc(a)
    ctx.fns(r.b32, 0, 1), ctx.szext(r.u32, 5), ctx.szext(r.s32, 7, mode="wrap"), ctx.bmsk(r.b32, 4)


@operation()
def comparisons(ctx, r):
    for type in ("u16", "s16", "u32", "s32", "u64", "s64", "f32", "f64"):
        a, b = getattr(r, type), getattr(r, type + "b")
        a < b, a <= 1, a > b, a >= b, a == 0, a != b
        ctx.selp(a, b, r.p), ctx.selp(a, 1, r.p.inverted), ctx.where(r.p, 0, a), r.p.select(a, b), ctx.slct(a, b, r.s32)
    r.b32 == r.b32b, r.b64 != 7
    ctx.setp("ltu", r.f32, r.f32b), ctx.setp("num", r.f32, r.f32b), ctx.setp("lo", r.u32, 5)
    ctx.setp("lt", r.u32, 5, combine="and", with_=r.q), ctx.setp("lt", r.u32, 5, combine="or", with_=r.q.inverted)
    ctx.setp("lt", r.f32, 5.0, pair=True), ctx.setp("lt", r.f32, 5.0, ftz=True)
    ctx.set("lt", r.f32, r.f32b), ctx.set("eq", r.s32, 3, type="f32"), ctx.slct(r.f32, r.f32b, r.f32c)
    ctx.selp(1, 2, r.p, type="u32"), ctx.selp(r.f32, -1.0, r.p)


@operation()
def conversions(ctx, r):
    integers = ("u16", "s16", "u32", "s32", "u64", "s64")
    for source in (*integers, "f32", "f64", "f16", "bf16"):
        for target in (*integers, "u8", "s8", "f32", "f64", "f16", "bf16"):
            getattr(r, source).to(target)
    r.f32.to("s32", rnd="rni"), r.f32.to("f32", rnd="rmi"), r.f32.to("f16", rnd="rz"), r.s32.to("u8", sat=True)
    r.f32.to("tf32"), r.f32.to("u32", ftz=True), r.p.to("u32"), r.u32.to("pred"), r.f32.to("bf16", relu=True)
    ctx.cvt_pack("f16x2", r.f32, r.f32b), ctx.cvt_pack("bf16x2", 1.0, r.f32b, rnd="rz")
    f8 = ctx.cvt_pack("e4m3x2", r.f32, r.f32b)
    f8.to("f16x2"), ctx.cvt_pack("e5m2x2", r.f32, r.f32b).to("f16x2"), r.f16x2.to("e4m3x2", satfinite=True)
    r.f32.bits("u32"), r.u32.bits("f32"), r.f64.bits("b64"), r.f16.bits("u16"), r.u32.bits("f16x2"), r.u32.bits("s32")
    ctx.pack("b32", r.f16, r.f16b), ctx.pack("b64", r.u32, r.f32), ctx.pack("f16x2", r.f16, r.f16b)
    ctx.pack("b64", r.u16, r.u16b, r.u16c, r.s16)
    ctx.unpack(r.f16x2, "f16"), ctx.unpack(r.b64, "f32"), ctx.unpack(r.u64, "b16"), ctx.unpack(r.b32, "bf16")
    for type in ("u16", "u32", "f32", "f64", "f16", "bf16x2", "b64"):
        getattr(r, type).copy()
        ctx.const(3, type)
    ctx.mov(r.p), ctx.const(-1, "s32"), ctx.const(float("inf"), "f32"), ctx.const(0.1, "f16"), ctx.mov(7, type="u64")


@operation()
def spaces(ctx, r):
    generic = ctx.cvta(ctx.shared("f32", 4).address.to("u64"), "shared", to_generic=True)
    ctx.isspacep("shared", generic), ctx.isspacep("global", generic), ctx.cvta(generic, "shared")
    ctx.store(ctx.pointer(generic, "f32", space=""), 1.0)
    table = ctx.constant("f32", [1.0, 2.5, -0.5])
    ctx.store(r.at_f32, ctx.load(table, 1))
    ctx.load(ctx.constant("u8", [1, 2, 3]), r.u32)
    counter = ctx.global_array("u32", 4, [1, 2])
    ctx.store(counter, ctx.load(counter, 1) + 1)
    mine = ctx.local("f32", 8)
    ctx.store(mine, r.f32, r.u32 & 7)
    ctx.store(r.at_f32, ctx.load(mine, 3))
    block = ctx.shared_memory("f32", offset=16)
    ctx.store(block, 0.0, ctx.tid_x)
    dynamic = ctx.dynamic_shared("f16", offset=64)
    ctx.store(dynamic, r.f16, r.s32)
    ctx.store(ctx.shared("bf16", (2, 8), name="tile"), r.bf16, 3)
    ctx.param("count"), ctx.param("scale"), ctx.param("half"), ctx.param("bytes", "u32", offset=4)
    ctx.param("bytes", "u8", offset=9)


@operation()
def loads(ctx, r):
    for type in ("u16", "s32", "u64", "f32", "f64", "f16", "bf16x2"):
        place, value = getattr(r, "at_" + type), getattr(r, type)
        ctx.load(place), ctx.load(place, r.u32), ctx.load(place[r.s64 + 1]), ctx.load(place + 2, vec=2)
        ctx.load(place, r.u64, mask=r.p, other=0), ctx.store(place, value, r.s32, mask=r.p.inverted)
        ctx.load(place, mask=r.p, out=value), ctx.load(place, vec=2, mask=r.p, other=(value, 1))
        ctx.store(place, (value, value)), ctx.store(place[5], 1)
    ctx.load(r.at_u8).to("u32"), ctx.load(r.at_s8, r.u16).to("s32"), ctx.store(r.at_u8, r.u32), ctx.store(r.at_u8, 200)
    a = ctx.load(r.at_f32, vec=4)
    ctx.store(r.at_f32, a), ctx.store(r.at_f32, (0.0, a[1], 2.0, a[3])), ctx.load(r.at_f16x2, vec=4)
    for cop in ("ca", "cg", "cs", "lu", "cv"):
        ctx.load(r.at_f32, cop=cop)
    for cop in ("wb", "cg", "cs", "wt"):
        ctx.store(r.at_f32, r.f32, cop=cop)
    ctx.load(r.at_f32, nc=True), ctx.load(r.at_f32, sem="volatile"), ctx.load(r.at_f32, sem="acquire", scope="gpu")
    ctx.load(r.at_f32, l1="L1::evict_last"), ctx.load(r.at_f32, fetch="L2::128B"), ctx.load(r.at_f32, policy=r.u64)
    ctx.load(r.at_f32, nc=True, l1="L1::no_allocate", vec=4), ctx.load(r.at_f32, sem="relaxed", scope="sys")
    ctx.store(r.at_f32, r.f32, sem="release", scope="gpu"), ctx.store(r.at_f32, r.f32, policy=r.u64)
    ctx.store(r.at_f32, r.f32, sem="volatile"), ctx.prefetch(r.at_f32), ctx.prefetch(r.at_f32, "L2")
    ctx.load(r.at_f32.shifted(4).retyped("u32")), ctx.load(r.u64, type="f32"), ctx.store(r.u64, r.f32)
    walker = r.at_f32 + 0
    walker.advance(3), walker.advance(-1), walker.advance(r.u32)
    ctx.op("createpolicy.fractional.L2::evict_first.b64", 1.0)


@operation()
def atomics(ctx, r):
    shared = ctx.shared("u32", 4, name="counters")
    for place in (r.at_u32, shared):
        ctx.atom_add(place, 1), ctx.atom_min(place, r.u32), ctx.atom_max(place, 5, index=2), ctx.atom_and(place, r.u32)
        ctx.atom_or(place, 1), ctx.atom_xor(place, 1), ctx.atom_inc(place, 9), ctx.atom_dec(place, 9)
        ctx.atom_exch(place, 4), ctx.atom_cas(place, 0, r.u32)
        for op in ("add", "min", "max", "and", "or", "xor", "inc", "dec"):
            ctx.red(op, place, 3)
    ctx.atom_add(r.at_s32, -1), ctx.atom_min(r.at_s32, -1), ctx.atom_add(r.at_u64, 1), ctx.atom_add(r.at_s64, r.s64)
    (
        ctx.atom_max(r.at_s64, 4),
        ctx.atom_cas(r.at_u64, 0, 1),
        ctx.atom_exch(r.at_f32, 1.0),
        ctx.atom_exch(r.at_f32, r.f32),
    )
    ctx.atom_add(r.at_f32, 1.0), ctx.atom_add(r.at_f64, r.f64), ctx.atom_add(r.at_f16x2, r.f16x2)
    ctx.atom_add(r.at_bf16x2, r.bf16x2), ctx.atom_add(r.at_f16, r.f16), ctx.atom_add(r.at_bf16, 1.0)
    ctx.red("add", r.at_f32, r.f32), ctx.red("add", r.at_f16x2, r.f16x2), ctx.red("add", r.at_bf16x2, r.bf16x2)
    ctx.atom_add(r.at_u32, 1, sem="acq_rel", scope="gpu"), ctx.red("add", r.at_u32, 1, sem="release", scope="sys")
    ctx.atom_add(r.at_f32, (r.f32, r.f32b)), ctx.red("add", r.at_f32, (1.0, r.f32, r.f32, r.f32))
    ctx.red("add", r.at_f32, 1.0, pred=r.p), ctx.atom_add(r.u64, r.f32), ctx.atom_cas(r.at_f32, 0.0, r.f32)


@operation()
def shuffles(ctx, r):
    for mode in (ctx.shfl_up, ctx.shfl_down, ctx.shfl_bfly, ctx.shfl_idx):
        for value in (r.u32, r.s32, r.f32, r.f16x2, r.b32):
            mode(value, 1, mask=ALL)
        mode(r.f32, r.u32, mask=r.u32b, width=8), mode(r.f32, 1, mask=ALL, pair=True)
        mode(r.f64, 1, mask=ALL), mode(r.u64, 2, mask=ALL), mode(r.f16, 1, mask=ALL), mode(r.u16, 1, mask=ALL)
    ctx.shfl_idx(r.f32, 0, mask=ALL, out=r.f32b)


@operation()
def votes(ctx, r):
    ctx.vote_any(r.p, mask=ALL), ctx.vote_all(r.p.inverted, mask=ALL), ctx.vote_uni(r.p, mask=r.u32)
    ctx.ballot(r.p, mask=ALL), ctx.match_any(r.u32, mask=ALL), ctx.match_any(r.f64, mask=ALL)
    ctx.match_all(r.f32, mask=ALL), ctx.match_all(r.u64, mask=ALL, pair=True)
    for op in ("add", "min", "max"):
        ctx.redux(op, r.u32, mask=ALL), ctx.redux(op, r.s32, mask=ALL)
    for op in ("and", "or", "xor"):
        ctx.redux(op, r.u32, mask=ALL)
    ctx.activemask(), ctx.elect(mask=ALL)


@operation()
def barriers(ctx, r):
    ctx.bar_sync(), ctx.bar_sync(1), ctx.bar_sync(2, 64), ctx.bar_arrive(3, 64), ctx.bar_sync(r.u32, r.u32b)
    ctx.bar_red("and", r.p), ctx.bar_red("or", r.p.inverted, 1), ctx.bar_red("popc", r.p, 2, 64)
    ctx.bar_warp_sync(ALL), ctx.barrier_sync(), ctx.barrier_sync(1, 64, aligned=True), ctx.barrier_arrive(1, 64)
    ctx.cluster_arrive(), ctx.cluster_wait(), ctx.cluster_arrive(sem="relaxed", aligned=True)
    ctx.cluster_wait(sem="acquire", aligned=True)
    for scope in ("cta", "gl", "sys"):
        ctx.membar(scope)
    for scope in ("cta", "cluster", "gpu", "sys"):
        ctx.fence("acq_rel", scope), ctx.fence("sc", scope)
    ctx.fence_proxy("async"), ctx.fence_proxy("async", "shared::cta"), ctx.fence_proxy("alias"), ctx.nanosleep(20)


@operation()
def copies(ctx, r):
    tile = ctx.shared("f32", 64, name="tile")
    ctx.cp_async(tile, r.at_f32, 16), ctx.cp_async(tile[4], r.at_f32[4], 4), ctx.cp_async(tile + r.u32, r.at_f32, 8)
    ctx.cp_async(tile, r.at_f32, 16, r.u32), ctx.cp_async(tile, r.at_f32, 16, 0, mask=r.p)
    ctx.cp_async(tile, r.at_f32, 16, ignore=r.p), ctx.cp_async(tile, r.at_f32, 4, ignore=~r.p, policy=r.u64)
    ctx.cp_async(tile, r.at_f32, 16, cop="ca"), ctx.cp_async(tile, r.at_f32, 16, fetch="L2::128B", policy=r.u64)
    ctx.cp_async_commit(), ctx.cp_async_wait(1), ctx.cp_async_wait(), ctx.cp_async_wait_all()


@operation()
def matrices(ctx, r):
    tile = ctx.shared("f16", 1024, name="tile")
    for num in (1, 2, 4):
        found = ctx.ldmatrix(tile[r.u32], num)
        ctx.ldmatrix(tile, num, trans=True), ctx.stmatrix(tile, found), ctx.stmatrix(tile, found, trans=True)
    ctx.movmatrix(r.f16x2)
    a, b, zero = ctx.ldmatrix(tile, 4), ctx.ldmatrix(tile, 2), (0.0, 0.0, 0.0, 0.0)
    d = ctx.mma("m16n8k16", a, b, zero, types="f32.f16.f16.f32")
    ctx.mma("m16n8k16", a, b, d, types="f32.f16.f16.f32", out=d)
    ctx.mma("m16n8k16", a, b, d, types="f32.bf16.bf16.f32"), ctx.mma("m16n8k8", a, b, d, types="f32.tf32.tf32.f32")
    (
        ctx.mma("m16n8k16", a, b, a[:2], types="f16.f16.f16.f16"),
        ctx.mma("m16n8k8", a[:2], b[:1], d, types="f32.f16.f16.f32"),
    )
    ints = (0, 0, 0, 0)
    (
        ctx.mma("m16n8k32", a, b, ints, types="s32.s8.s8.s32"),
        ctx.mma("m16n8k32", a, b, ints, types="s32.u8.s8.s32", satfinite=True),
    )
    (
        ctx.mma("m16n8k32", a, b, d, types="f32.e4m3.e4m3.f32"),
        ctx.mma("m8n8k4", r.f64, r.f64, (0.0, r.f64), types="f64.f64.f64.f64"),
    )


@operation()
def wmma(ctx, r):
    for place in (ctx.shared("f16", 1024, name="tile"), r.at_f16):
        a = ctx.wmma_load("a", "m16n16k16", place, "f16", 16)
        b = ctx.wmma_load("b", "m16n16k16", place, "f16", r.u32, layout="col")
        c = ctx.wmma_load("c", "m16n16k16", place, "f32", 16)
        d = ctx.wmma_mma("m16n16k16", a, b, c, types="f32.f32")
        ctx.wmma_mma("m16n16k16", a, b, d, types="f32.f32", layouts="row.row", out=d)
        ctx.wmma_store("m16n16k16", place, d, "f32", 16), ctx.wmma_store("m16n16k16", place, d, "f32", layout="col")
    a, b = (ctx.wmma_load(name, "m16n16k16", r.at_bf16, "bf16") for name in "ab")
    ctx.wmma_mma("m16n16k16", a, b, d, types="f32.bf16.bf16.f32")


@operation()
def special(ctx, r):
    for name in ("tid", "ntid", "ctaid", "nctaid", "clusterid", "nclusterid", "cluster_ctaid", "cluster_nctaid"):
        for axis in "xyz":
            getattr(ctx, f"{name}_{axis}")
    for name in ("laneid", "warpid", "nwarpid", "smid", "nsmid", "gridid", "clock", "clock64", "globaltimer"):
        getattr(ctx, name)
    for name in ("eq", "le", "lt", "ge", "gt"):
        getattr(ctx, f"lanemask_{name}")
    ctx.cluster_ctarank, ctx.cluster_nctarank, ctx.is_explicit_cluster, ctx.total_smem_size, ctx.dynamic_smem_size
    ctx.special("%envreg3"), ctx.global_index(), ctx.global_index("y")


@operation()
def control(ctx, r):
    with ctx.if_(r.p):
        r.u32 += 1
    with ctx.if_(r.q.inverted):
        r.u32 += 1
        with ctx.if_(r.p):
            ctx.exit()
    with ctx.else_():
        r.u32 += 2
    with ctx.loop(10) as i, ctx.loop(i, r.u32) as j, ctx.loop(j, 40, 2):
        r.u32 += j
        ctx.break_(r.u32 > 9)
        ctx.continue_(r.u32 == 5)
        r.u32 += 1
    with ctx.loop(10, 0, -2) as i:
        r.s32 += i
    with ctx.loop(r.u64b, type="u64") as i:
        r.u64 += i
    with ctx.while_(lambda: r.u32 < 100):
        r.u32 += 7
        ctx.continue_(r.p)
        r.u32 += 1
    with ctx.loop():
        r.u32 += 1
        ctx.break_(r.u32 > 200)
    again, done = ctx.label(), ctx.label("finished")
    ctx.place(again)
    r.u32 -= 1
    ctx.bra(done, pred=r.u32 == 0, uni=True)
    ctx.bra(again)
    ctx.place(done)
    ctx.trap(r.u32 > 5), ctx.ret(r.p)
    ctx.store(r.at_u32, r.u32)


def _square(ctx):
    x = ctx.param("x")
    ctx.return_(x * x)


def _both(ctx):
    a = ctx.call(SQUARE, ctx.param("x"))
    with ctx.if_(a > 5.0):
        ctx.return_(a, 1)
    ctx.return_(ctx.param("x"), ctx.param("n"))


SQUARE = PtxFunction("square").param("f32", "x").returns("f32").build(_square)
BOTH = PtxFunction("both").param("f32", "x").param("u32", "n").returns("f32", "u32").build(_both)
STORE = PtxFunction("put").param("u64", "to").build(lambda ctx: ctx.store(ctx.pointer("to", "f32"), 1.0))


@operation()
def calls(ctx, r):
    with ctx.loop(3):
        x, n = ctx.call(BOTH, r.f32, 3)
        ctx.store(r.at_f32, ctx.call(SQUARE, x) + n.to("f32"))
    ctx.call(STORE, ctx.param("buffer"))


@operation("sm_100a")
def blackwell(ctx, r):
    pair = ctx.pack("b64", r.f32, r.f32b).bits("f32x2")
    ctx.fma(pair, pair, pair), pair + pair, pair * pair
    ctx.redux("max", r.f32, mask=ALL), ctx.redux("min", r.f32, mask=ALL, abs=True, NaN=True)
    ctx.cvt_pack("e2m1x2", r.f32, r.f32b), ctx.cvt_pack("e2m3x2", r.f32, r.f32b)
    ctx.load(r.at_f32, vec=8), ctx.load(r.at_f64, vec=4, nc=True)
    ctx.max(r.f32, r.f32b)


@operation()
def anything(ctx, r):
    ctx.op("add.rn.ftz.f32", r.f32, 1.0)
    a = ctx.op("ld.global.v4.f32", r.at_f32)
    ctx.op("st.global.v4.f32", r.at_f32[4], a)
    ctx.op("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32", (r.b32,) * 4, (r.b32,) * 2, a, out=a)
    ctx.op("shfl.sync.idx.b32", r.f32.bits("b32"), 0, 31, ALL, pair=True)
    ctx.op("mul.wide.u32", r.u32, 5), ctx.op("bar.sync", 0), ctx.op("membar.gl"), ctx.op("setp.lt.u32", r.u32, 5)
    ctx.op("mov.b32", r.u32, pred=r.p, out=r.u32b), ctx.op("cvt.rn.f16x2.f32", r.f32, r.f32)
