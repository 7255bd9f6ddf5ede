"""What the builder refuses, word for word, at the line that asks for it."""

from pathlib import Path

import pytest
from tests import sampled

from kernbench import ptx
from kernbench.common.errors import KernbenchError
from kernbench.ptx.builder import PtxBuildError, PtxFunction, PtxKernel, PtxModule


def build(program, **options):
    kernel = PtxKernel("k", **options).param("u64", "x").param("u32", "n").param("f32", "s").param("b8", "b", count=8)
    return kernel.shared_memory(64).build(program)


def refused(program, **options):
    with pytest.raises(PtxBuildError) as caught:
        build(program, **options)
    return caught.value


def test_an_error_shows_the_python_line():
    def program(ctx):
        n = ctx.param("n")
        ctx.add(n, ctx.param("s"))  # the wrong line

    error = refused(program)
    line = next(i for i, text in enumerate(Path(__file__).read_text().splitlines(), 1) if "# the wrong line" in text)
    assert (error.where.file, error.where.line) == (__file__, line)
    assert isinstance(error, KernbenchError)
    assert str(error) == (
        f"{error.where}: add of <u32 %r1> and <f32 %f1>: convert one with .to('u32'), or take its bits with "
        ".bits('u32')\n    ctx.add(n, ctx.param(\"s\"))  # the wrong line"
    )


# one refusal a line: the program, and what it is told
REFUSALS = {
    "signed and unsigned": (
        lambda ctx, n, s, x: n + n.to("s32"),
        "add of <u32 %r1> and <s32 %r2>: convert one with .to('u32'), or take its bits with .bits('u32')",
    ),
    "bits of floats": (
        lambda ctx, n, s, x: s & 1,
        "and has no form for .f32; it has .b16, .b32, .b64, .pred",
    ),
    "arithmetic of bits": (
        lambda ctx, n, s, x: n.bits("b32") + 1,
        "add has no form for .b32; it has .bf16, .bf16x2, .f16, .f16x2, .f32, .f32x2, .f64, .s16, .s16x2, .s32, .s64, "
        ".u16, .u16x2, .u32, .u64",
    ),
    "float where an integer is": (
        lambda ctx, n, s, x: n + 1.5,
        "1.5 is a float, and .u32 is wanted: write a whole number",
    ),
    "too large": (lambda ctx, n, s, x: n + (1 << 32), "4294967296 does not fit .u32, which holds 0 to 4294967295"),
    "negative": (lambda ctx, n, s, x: n + -1, "-1 does not fit .u32, which holds 0 to 4294967295"),
    "float too large": (lambda ctx, n, s, x: s * 1e40, "1e+40 does not fit .f32"),
    "half too large": (lambda ctx, n, s, x: s.to("f16") * 1e5, "100000.0 does not fit .f16"),
    "numbers only": (
        lambda ctx, n, s, x: ctx.add(1, 2),
        "add of numbers only: compute it in Python, or put one in a register with ctx.const",
    ),
    "integer division": (
        lambda ctx, n, s, x: n / 2,
        "<u32 %r1> / ...: integers divide with //, which rounds towards zero as PTX does",
    ),
    "a register as a condition of Python": (
        lambda ctx, n, s, x: bool(n < 3),
        "%p1 has no value while the kernel is built: branch on it with `with ctx.if_(p):`, or choose with ctx.selp",
    ),
    "no mask for a shuffle": (
        lambda ctx, n, s, x: ctx.shfl_down(s, 1),
        "shfl.down needs mask=, the lanes that take part: 0xffffffff for the whole warp",
    ),
    "no mask for a vote": (
        lambda ctx, n, s, x: ctx.vote_any(n < 3),
        "vote.any needs mask=, the lanes that take part: 0xffffffff for the whole warp",
    ),
    "a masked load without other": (
        lambda ctx, n, s, x: ctx.load(x, mask=n < 3),
        "a masked load needs other=, the value of threads that do not load, or out=, registers with one",
    ),
    "other without a mask": (
        lambda ctx, n, s, x: ctx.load(x, other=0.0),
        "other= is the value of masked threads, and there is no mask=",
    ),
    "the wrong type stored": (
        lambda ctx, n, s, x: ctx.store(x, n),
        "store: the value is <u32 %r1>, and f32 lies there: convert it with .to('f32')",
    ),
    "bf16 is not f16": (
        lambda ctx, n, s, x: s.to("f16") + s.to("bf16"),
        "add of <f16 %rs1> and <bf16 %rs2>: convert one with .to('f16'), or take its bits with .bits('f16')",
    ),
    "a float index": (
        lambda ctx, n, s, x: ctx.load(x, s),
        "element <f32 %f1> of <pointer to f32 in global at %rd2+0>: an index is an integer register or a whole number",
    ),
    "an unknown parameter": (
        lambda ctx, n, s, x: ctx.param("m"),
        "unknown parameter 'm'; known: x, n, s, b.",
    ),
    "past a parameter": (
        lambda ctx, n, s, x: ctx.param("b", "u64", offset=4),
        "u64 at byte 4 reaches past parameter 'b' of 8 bytes",
    ),
    "an unknown type": (
        lambda ctx, n, s, x: s.to("f33"),
        "unknown type 'f33'; known: ",
    ),
    "an unknown instruction": (
        lambda ctx, n, s, x: ctx.op("addd.u32", n, n),
        "unknown instruction 'addd'; known: ",
    ),
    "an unknown modifier": (
        lambda ctx, n, s, x: ctx.op("add.rn.u32", n, n),
        "add.rn.u32 is no instruction; forms near it: add(.u16|.u32|.u64|.s16|.s32|.s64) =d, a, b; ",
    ),
    "a modifier the form lacks": (
        lambda ctx, n, s, x: ctx.add(n, n, ftz=True),
        "add has no form with .u32.ftz; forms near it: ",
    ),
    "too few operands": (
        lambda ctx, n, s, x: ctx.op("fma.rn.f32", s, s),
        "fma.rn.f32 takes (a: .f32, b: .f32, c: .f32), and got (f32, f32)",
    ),
    "the wrong type in a named instruction": (
        lambda ctx, n, s, x: ctx.op("add.f32", s, n),
        "add.f32: b is <u32 %r1>, and .f32 is wanted: convert it with .to('f32'), or take its bits with .bits('f32')",
    ),
    "a fragment too short": (
        lambda ctx, n, s, x: ctx.mma("m16n8k16", (n,) * 3, (n,) * 2, (s,) * 4, types="f32.f16.f16.f32"),
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 takes (a: 4 x .b32, b: 2 x .b32, c: 4 x .f32), and got "
        "(3 x u32, 2 x u32, 4 x f32)",
    ),
    "a guard that is no predicate": (
        lambda ctx, n, s, x: ctx.add(n, 1, pred=n, out=n),
        "a guard is a predicate, as comparisons give them; got <u32 %r1>",
    ),
    "a condition that is no predicate": (
        lambda ctx, n, s, x: ctx.if_(n),
        "a condition is a predicate, as comparisons give them; got <u32 %r1>",
    ),
    "out of the wrong type": (
        lambda ctx, n, s, x: ctx.add(s, 1.0, out=n),
        "add.rn.f32: out= is <u32 %r1>, and it sets .f32",
    ),
    "bits of another width": (
        lambda ctx, n, s, x: n.bits("f64"),
        "<u32 %r1> has not as many bits as .f64: convert it with .to('f64')",
    ),
    "bits have no value": (
        lambda ctx, n, s, x: n.bits("b32").to("f32"),
        "<b32 %r2> to .f32: untyped bits have no value to convert; .bits('f32') takes them",
    ),
    "break outside of a loop": (lambda ctx, n, s, x: ctx.break_(), "break_ stands in no loop"),
    "else without if": (
        lambda ctx, n, s, x: ctx.else_().__enter__(),
        "ctx.else_() comes right after the body of ctx.if_(), with nothing between them",
    ),
    "a step of zero": (lambda ctx, n, s, x: ctx.loop(0, 9, 0), "a loop whose step is 0 never ends"),
    "a loop over floats": (lambda ctx, n, s, x: ctx.loop(s), "a loop counts with integers, not .f32"),
    "a loop that cannot count down": (
        lambda ctx, n, s, x: ctx.loop(n, 0, -1),
        "a loop over .u32 cannot count down past 0: say type='s32'",
    ),
    "a while without a function": (
        lambda ctx, n, s, x: ctx.while_(n < 3),
        "the condition of a while loop is computed in each turn: give a function, `lambda: i < n`",
    ),
    "a label nobody placed": (
        lambda ctx, n, s, x: ctx.bra(ctx.label("far")),
        "nobody placed label far: ctx.place(label) says where it is",
    ),
    "a register never set": (
        lambda ctx, n, s, x: ctx.store(x, ctx.reg("f32")),
        "st.global.f32 reads %f2, which is not set on every path that leads here: set it before the branch or loop, "
        "and change it there with += or .set (x = x + y makes another register)",
    ),
    "an array without elements": (
        lambda ctx, n, s, x: ctx.shared("f32", 0),
        "an array has a positive number of elements; got 0",
    ),
    "an odd alignment": (
        lambda ctx, n, s, x: ctx.shared("f32", 4, align=12),
        "align=12: an alignment is a power of two",
    ),
    "outside of shared memory": (
        lambda ctx, n, s, x: ctx.shared_memory("f32", offset=64),
        "byte 64 lies outside the 64 bytes of shared memory",
    ),
    "a copy of a strange size": (
        lambda ctx, n, s, x: ctx.cp_async(ctx.shared("f32", 4), x, 12),
        "cp.async copies 4, 8 or 16 bytes, not 12",
    ),
    "a group of three lanes": (
        lambda ctx, n, s, x: ctx.shfl_up(s, 1, mask=1, width=3),
        "width=3: the lanes of a group are a power of two, up to 32",
    ),
    "an unknown option of a load": (
        lambda ctx, n, s, x: ctx.load(x, cache="cg"),
        "unknown option of an access 'cache'; known: cop, fetch, l1, l2, mmio, nc, policy, scope, sem.",
    ),
    "an unknown special register": (
        lambda ctx, n, s, x: ctx.special("%tidx"),
        "unknown special register '%tidx'; known: ",
    ),
    "too many values for a function": (
        lambda ctx, n, s, x: ctx.call(ONE, s, s),
        "'one' takes 1 values (f32 y); got 2",
    ),
}


ONE = PtxFunction("one").param("f32", "y").returns("f32").build(lambda ctx: ctx.return_(ctx.param("y")))


@sampled.each(REFUSALS)
def test_refusals(name):
    program, message = REFUSALS[name]
    error = refused(lambda ctx: program(ctx, ctx.param("n"), ctx.param("s"), ctx.pointer("x", "f32")))
    whole = not message.endswith(("known: ", "it: ", "; "))
    assert error.message == message if whole else error.message.startswith(message)
    assert error.where.file == __file__


def test_instructions_the_target_does_not_have():
    def program(ctx):
        ctx.cp_async_commit()

    assert refused(program, target="sm_75").message == (
        "cp.async.commit_group needs sm_80 or later, and the kernel is built for sm_75"
    )
    assert refused(program, version="6.4").message == (
        "cp.async.commit_group needs .version 7.0, and the kernel is built for 6.4"
    )
    assert refused(lambda ctx: ctx.cluster_ctarank, target="sm_80").message == (
        "%cluster_ctarank needs sm_90 or later, and the kernel is built for sm_80"
    )
    assert refused(lambda ctx: None, target="sm_5").message.startswith("unknown target 'sm_5'; known: sm_75, sm_80")


def test_instructions_that_no_target_has_together():
    def program(ctx):
        ctx.op("wgmma.fence.sync.aligned")
        ctx.op("tcgen05.fence::before_thread_sync")

    error = refused(program)
    assert error.message.startswith("tcgen05.fence::before_thread_sync needs sm_100a, but wgmma.fence.sync.aligned (")
    assert error.message.endswith(") needs sm_90a")


def test_the_least_target_and_version_are_chosen():
    def target(program):
        module = build(program).module
        return module.arch, module.version

    assert target(lambda ctx: None) == ("sm_75", (6, 3))
    assert target(lambda ctx: ctx.cp_async_commit()) == ("sm_80", (7, 0))
    assert target(lambda ctx: ctx.param("s").to("bf16")) == ("sm_80", (7, 0))
    assert target(lambda ctx: ctx.cluster_arrive()) == ("sm_90", (7, 8))
    assert target(lambda ctx: ctx.elect(mask=1)) == ("sm_90", (8, 0))
    assert target(lambda ctx: ctx.op("wgmma.fence.sync.aligned")) == ("sm_90a", (8, 0))
    assert target(lambda ctx: ctx.op("tcgen05.wait::ld.sync.aligned")) == ("sm_100a", (8, 6))
    module = build(lambda ctx: None, target="sm_90a", version="8.5").module
    assert (module.arch, module.version) == ("sm_90a", (8, 5))


def test_a_register_set_on_one_side_only():
    def program(ctx):
        x, n = ctx.pointer("x", "f32"), ctx.param("n")
        value = ctx.reg("f32")
        with ctx.if_(n > 3):
            value.set(1.0)
        ctx.store(x, value)

    error = refused(program)
    assert error.where.text == "ctx.store(x, value)"
    assert error.message.startswith("st.global.f32 reads %f1, which is not set on every path")


@pytest.mark.parametrize("turns", [None, 4])
def test_a_value_made_in_a_loop_is_not_there_after_it(turns):
    def program(ctx):
        x, total = ctx.pointer("x", "f32"), ctx.const(0.0, "f32")
        with ctx.loop(turns or ctx.param("n")) as i:
            total = total + i.to("f32")
        ctx.store(x, total)

    assert refused(program).where.text == "ctx.store(x, total)"


def test_a_break_before_the_value():
    def program(ctx):
        x, n = ctx.pointer("x", "f32"), ctx.param("n")
        with ctx.loop():
            ctx.break_(n > 5)
            last = n.to("f32")
            ctx.break_(n > 3)
        ctx.store(x, last)

    assert refused(program).where.text == "ctx.store(x, last)"


def test_registers_set_on_all_paths():
    def program(ctx):
        x, n = ctx.pointer("x", "f32"), ctx.param("n")
        value, other, guarded = ctx.reg("f32"), ctx.reg("f32"), ctx.reg("f32")
        with ctx.if_(n > 3):
            value.set(1.0)
        with ctx.else_():
            value.set(2.0)
        with ctx.if_(n > 5):
            ctx.ret()
        with ctx.else_():
            other.set(1.0)
        p = n > 7
        ctx.load(x, mask=p, out=guarded)
        ctx.store(x, guarded, mask=p)
        ctx.mov(0.0, out=guarded, pred=p.inverted)
        ctx.store(x, value + other + guarded)
        with ctx.loop():
            last = value + 1.0
            ctx.break_(last > 5.0)
        ctx.store(x, last)

    build(program)


def test_a_guard_whose_predicate_changed():
    def program(ctx):
        x, n = ctx.pointer("x", "f32"), ctx.param("n")
        value, p = ctx.reg("f32"), n > 7
        ctx.load(x, mask=p, out=value)
        ctx.setp("lt", n, 3, out=p)
        ctx.store(x, value, mask=p)

    assert refused(program).where.text == "ctx.store(x, value, mask=p)"


def test_registers_of_another_kernel():
    found = []
    build(lambda ctx: found.append(ctx.param("n")))
    error = refused(lambda ctx: ctx.add(found[0], 1))
    assert error.message == "<u32 %r1> belongs to 'k', and this is 'k': pass it as a parameter"


def test_a_context_that_is_used_afterwards():
    found = []
    build(found.append)
    with pytest.raises(PtxBuildError, match="'k' is already built: its context can add nothing more"):
        found[0].const(1, "u32")


def test_names():
    with pytest.raises(PtxBuildError, match="'2k' cannot be the name of a function"):
        PtxKernel("2k")
    with pytest.raises(PtxBuildError, match="'k' has two parameters 'x'"):
        PtxKernel("k").param("u32", "x").param("u32", "x")
    module = PtxModule()
    module.kernel("k").build(lambda ctx: None)
    with pytest.raises(PtxBuildError, match="the module has a kernel 'k' already"):
        module.kernel("k")


def test_a_function_without_its_result():
    with pytest.raises(PtxBuildError, match=r"'f' ends without ctx.return_\(value\)"):
        PtxFunction("f").returns("f32").build(lambda ctx: None)
    with pytest.raises(PtxBuildError, match="'f' returns f32, and this is <u32 %r1>"):
        PtxFunction("f").param("u32", "n").returns("f32").build(lambda ctx: ctx.return_(ctx.param("n")))


def test_the_public_names():
    assert ptx.PtxKernel is PtxKernel
    assert ptx.PtxBuildError is PtxBuildError
    assert ptx.PtxModule is PtxModule
    assert ptx.PtxFunction is PtxFunction


@pytest.mark.parametrize("use", [range, int, float, [1, 2].__getitem__])
def test_a_register_where_python_wants_a_number(use):
    error = refused(lambda ctx: use(ctx.param("n")))
    assert error.message.startswith("%r1 has no value while the kernel is built")


def test_a_program_that_is_none():
    with pytest.raises(PtxBuildError, match="give the function that writes 'k'"):
        PtxKernel("k").build(None)
    with pytest.raises(PtxBuildError, match="takes one argument, the context"):
        PtxKernel("k").build(lambda: None)


def test_more_shared_memory_than_a_block_has():
    with pytest.raises(PtxBuildError, match="have 1,073,741,824 bytes; a block of sm_80 has 49,152"):
        PtxKernel("k", target="sm_80").shared_memory(1 << 30).build(lambda ctx: ctx.shared_memory("f32"))
