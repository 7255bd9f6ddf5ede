"""Values that PTX names: taken from registers and memory where they are named, in the right element of the whole."""

import numpy as np
import pytest
from tests.ptx.toolchain import need_ptxas

from kernbench import ptx
from kernbench.common.errors import KernelError, MisuseError
from kernbench.ptx.text.checkpoints import PtxCheckpoint, checkpoint_of, read_checkpoint
from kernbench.ptx.text.index_expressions import Expression

FOREIGN = """.version 8.0
.target sm_80
.address_size 64
.visible .entry twice(.param .u64 x, .param .u32 n)
{
    .reg .b32 %r<6>;
    .reg .b64 %rd<4>;
    .reg .f32 %f<3>;
    .reg .pred %p<2>;
    .shared .align 4 .b8 buffer[256];
    ld.param.u64 %rd1, [x];
    mov.u32 %r1, %tid.x;
    mul.wide.u32 %rd2, %r1, 4;
    add.u64 %rd3, %rd1, %rd2;
    .loc 1 7 1
    ld.global.f32 %f1, [%rd3];
    add.f32 %f2, %f1, %f1;
    .loc 1 8 1
    mov.u32 %r2, buffer;
    shl.b32 %r3, %r1, 2;
    add.u32 %r4, %r2, %r3;
    st.shared.f32 [%r4], %f2;
    bar.sync 0;
    setp.gt.u32 %p1, %r1, 31;
    @%p1 bra $end;
    st.global.f32 [%rd3], %f2;
$end:
    ret;
}
.file 1 "src/twice.cu"
"""


def launched(kernel, *, points=(), blocks=1, n=64):
    device, taken = ptx.EmulatedDevice("sm_90a"), []
    x = device.array(np.arange(64 * blocks, dtype=np.float32), "x")
    arguments = [x, n][: len(kernel.params)]
    run = device.launch(kernel, blocks, 64, arguments, checkpoints=points, taken=taken.append)
    assert run.safe, run.findings
    return taken


def line_of(text):
    return next(n for n, line in enumerate(FOREIGN.split("\n"), 1) if text in line)


def built(program):
    return ptx.PtxKernel("k").param("u64", "x").build(program)


def halves(ctx):
    """Even and odd threads take other ways; a value is named on one of them, at its very end."""
    thread = ctx.tid_x
    value = ctx.load(ctx.pointer("x", "f32"), thread)
    with ctx.if_(thread < 3):
        value *= 10.0
        ctx.checkpoint("large", value, at=thread)
    pair = ctx.cvt_pack("bf16x2", value, value)
    ctx.checkpoint("pairs", pair, at=("ctaid.x", thread, "i"), step=f"{thread} / 32")
    ctx.store(ctx.pointer("x", "f32"), value, thread)


def test_registers_by_thread_and_only_of_those_that_come_there():
    large, *pairs = launched(built(halves))
    assert (large.name, large.array.tolist(), large.positions[0].tolist()) == ("large", [0, 10, 20], [0, 1, 2])
    assert large.owner(2) == "block (0, 0, 0), thread (2, 0, 0)"
    assert [point.keys for point in pairs] == [{"step": 0}, {"step": 1}]
    assert pairs[1].array[:4].astype(float).tolist() == [32, 32, 33, 33]
    assert [axis[:4].tolist() for axis in pairs[1].positions] == [[0] * 4, [32, 32, 33, 33], [0, 1, 0, 1]]


def test_the_place_is_the_python_line():
    large = launched(built(halves))[0]
    assert large.where.file == __file__
    assert large.where.line == halves.__code__.co_firstlineno + 6


def test_shared_memory_once_for_each_block_and_time():
    def program(ctx):
        thread, memory = ctx.tid_x, ctx.shared("f32", 64)
        with ctx.loop(3) as turn:
            ctx.store(memory, turn.to("f32"), thread)
            ctx.bar_sync()
            ctx.checkpoint("turns", memory, at=(turn, "i"), count=64)
            # the second warp comes later, and must not look again
            ctx.bar_sync()
        ctx.checkpoint("whole", memory + 2, count=(4, 8))

    taken = launched(built(program))
    turns = [point for point in taken if point.name == "turns"]
    assert [point.array[:2].tolist() for point in turns] == [[0, 0], [1, 1], [2, 2]]
    assert [point.positions[0][0] for point in turns] == [0, 1, 2]
    (whole,) = [point for point in taken if point.name == "whole"]
    assert whole.positions is None
    assert len(whole.array) == 32
    assert whole.who == "block (0, 0, 0)"


def test_it_survives_print_and_parse_and_is_no_instruction():
    kernel = built(halves)
    again = ptx.parse(kernel.emit()).kernels["k"]
    assert again.module == kernel.module
    assert [point.array.tobytes() for point in launched(again)] == [p.array.tobytes() for p in launched(kernel)]
    points = [checkpoint_of(s) for s in kernel.function.body.statements if checkpoint_of(s)]
    assert points[0] == checkpoint_of(points[0].directive())


def test_metrics_do_not_count_it():
    device = ptx.EmulatedDevice("sm_90a")
    x = device.array(np.ones(64, np.float32))
    kernel = built(halves)
    plain = device.launch(kernel, 1, 64, [x]).metrics
    named = device.launch(kernel, 1, 64, [x], taken=lambda point: None).metrics
    # steps are those of the executor that ran it
    assert {**named, "steps": 0} == {**plain, "steps": 0}


def test_machine_code_is_the_same_without_it():
    need_ptxas("sm_90a")
    text = "\n".join(line for line in built(halves).emit().split("\n") if ".loc" not in line)
    bare = "\n".join(line for line in text.split("\n") if "kernbench.checkpoint" not in line)
    assert bare != text
    assert ptx.assemble(text, "sm_90a").cubin == ptx.assemble(bare, "sm_90a").cubin


def test_from_outside_by_line_of_the_ptx_and_of_the_source():
    kernel = ptx.parse(FOREIGN).kernels["twice"]
    points = [
        PtxCheckpoint("loaded", ("%f1",), at=("%r1",), line=line_of("add.f32")),
        PtxCheckpoint("doubled", ("%f2",), at=("tid.x",), line="twice.cu:8", when="tid.x < n"),
        PtxCheckpoint(
            "shared", space="shared", base="buffer + 8", type="f32", count=2, at=("i",), line=line_of("setp")
        ),
        PtxCheckpoint("global", space="global", base="x", type="f32", count=4, at=("i",), line=line_of("ret;")),
    ]
    taken = {}
    for point in launched(kernel, points=points, n=8):
        taken.setdefault(point.name, point)
    assert taken["loaded"].array.tolist() == list(range(64))
    assert taken["doubled"].array.tolist() == [2.0 * n for n in range(8)]
    assert taken["doubled"].where.file == "src/twice.cu"
    assert taken["shared"].array.tolist() == [4, 6]
    assert taken["global"].array.tolist()[0] == 0


@pytest.mark.parametrize(
    ("point", "told"),
    [
        (PtxCheckpoint("a", ("%f9",), line=17), "there is no register '%f9'"),
        (PtxCheckpoint("a", ("%r1",), line=17), "its element type must be said"),
        (PtxCheckpoint("a", ("%f1",), at=("tidy",), line=17), "unknown name 'tidy'"),
        (PtxCheckpoint("a", ("%f1",), at=("%r99",), line=17), "unknown name '%r99'"),
        (PtxCheckpoint("a", ("%f1",), line=3), "no instruction stands there; the nearest lines that have one: 11"),
        (PtxCheckpoint("a", ("%f1",), line="other.cu:3"), "the files are src/twice.cu"),
        (PtxCheckpoint("a", space="shared", base="300", type="f32", count=2, line=17), "of 272 bytes of shared memory"),
        (
            PtxCheckpoint("a", space="global", base="0", type="f32", count=10**15, line=17),
            "1,000,000,000,000,000 elements of",
        ),
        (PtxCheckpoint("a", space="tensor", base="0", type="f32", columns=2, line=17), "no tensor memory"),
        (PtxCheckpoint("a", ("%f1",), at=("tid.x / (tid.x - 5)",), line=17), "division by zero"),
    ],
)
def test_what_cannot_be_had_is_told(point, told):
    with pytest.raises((MisuseError, KernelError), match=None) as error:
        launched(ptx.parse(FOREIGN).kernels["twice"], points=[point])
    assert told in str(error.value)


@pytest.mark.parametrize(
    ("table", "told"),
    [
        ({"name": "a"}, "registers = "),
        ({"name": "a", "registers": ["%f1"], "shared": "x"}, "registers = "),
        ({"name": "a", "shared": "x"}, "count = N"),
        ({"name": "a", "registers": ["%f1"], "size": 3}, "unknown key of a checkpoint 'size'"),
        ({"name": "a", "registers": ["%f1"], "at": ["1 +"]}, "cannot be read"),
        ({"name": "a", "registers": ["%f1"], "at": ["f(1)"]}, "unknown function 'f'"),
        ({"name": "a", "registers": ["%f1"], "keys": 3}, "keys = 3: a table"),
        ({"name": "a", "registers": ["%f1:%r3"]}, "a range is written as"),
        ({"name": "a'b", "registers": ["%f1"]}, "without quotes"),
        ({"name": "a", "registers": ["%f1"], "at": ["[1][0]"]}, "does not belong"),
    ],
)
def test_tables_are_checked(table, told):
    with pytest.raises(MisuseError) as error:
        read_checkpoint(table)
    assert told in str(error.value)


def test_ranges_of_registers():
    assert read_checkpoint({"name": "a", "registers": ["%f8:%f11", "%x"]}).registers == (
        "%f8",
        "%f9",
        "%f10",
        "%f11",
        "%x",
    )


def test_expressions():
    known = {"%r1": np.array([[0], [5]]), "i": np.arange(4)[None], "tid.x": np.array([[3], [4]])}

    def value(text):
        return Expression(text).value(known.__getitem__).tolist()

    assert value("%r1 * 4 + i") == [[0, 1, 2, 3], [20, 21, 22, 23]]
    assert value("i %2") == [[0, 1, 0, 1]]
    assert value("i / 2 + (i < 2 and not i == 1)") == [[1, 0, 1, 1]]
    assert value("7 if %r1 else tid.x") == [[3], [7]]
    assert value("max(i, 2) << 1") == [[4, 4, 4, 6]]
    assert Expression("swizzle(i, 128) + %r1").names == ("i", "%r1")
    assert Expression("swizzle(128 + 16, 128)").value(known.__getitem__) == 128
    assert Expression("swizzle(3 * 128 + 1, 64)").value(known.__getitem__) == 3 * 128 + 1 + 48


def test_a_register_that_is_not_set_is_told_where_it_is_named():
    def program(ctx):
        ctx.checkpoint("a", ctx.reg("f32"), at="tid.x")

    with pytest.raises(ptx.PtxBuildError, match="is not set on every path"):
        built(program)


def test_values_that_cannot_be_named_are_told():
    with pytest.raises(ptx.PtxBuildError, match="registers, a pointer with count=, or tensor memory"):
        built(lambda ctx: ctx.checkpoint("a", 3, at="tid.x"))
    with pytest.raises(ptx.PtxBuildError, match="is no index"):
        built(lambda ctx: ctx.checkpoint("a", ctx.tid_x, at=1.5))
