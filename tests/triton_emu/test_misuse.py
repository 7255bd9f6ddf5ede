"""Misuse: what has no meaning is refused at the kernel's own line, and inside a launch becomes a finding."""

from dataclasses import dataclass
from math import inf, nan

import numpy as np
import pytest
from tests import sampled

from kernbench import mesh
from kernbench.common.errors import KernelError
from kernbench.common.pe_commands import TensorHandle
from kernbench.result.run import Status
from kernbench.triton_emu import TLContext, run_kernel
from kernbench.triton_emu.operations import numerics


@dataclass
class Given:
    """What a case works with."""

    tl: TLContext
    pointer: int

    def __post_init__(self):
        make = self.tl.full
        self.x = make((3, 4), 1.0, "f16")
        self.y = make((3, 4), 2.0, "f32")
        self.row = make((5,), 1.0, "f16")
        self.cube = make((2, 3, 4), 1.0, "f16")
        self.i = make((3, 4), 3, "i32")
        self.b = make((3, 4), 3, "i8")
        self.mask = self.x > 0


def case(name, kind, says, body):
    """One misuse; `body` must be a lambda on one line, whose number is then the line to be named."""
    return pytest.param(kind, says, body, id=name)


SHAPES = [
    case("dot not transposed", "shape", "tl.trans", lambda g: g.tl.dot(g.x, g.y)),
    case("dot of inner sizes", "shape", "4 columns meet 5 rows", lambda g: g.tl.dot(g.x, g.tl.zeros((5, 2)))),
    case("dot of one axis", "shape", "(5,)", lambda g: g.tl.dot(g.row, g.row)),
    case("dot of 2 and 3 axes", "shape", "(2, 3, 4)", lambda g: g.tl.dot(g.cube, g.x.T)),
    case("dot of batches", "shape", "batch", lambda g: g.tl.dot(g.cube, g.tl.zeros((5, 4, 3)))),
    case("dot of four axes", "shape", "batch", lambda g: g.tl.dot(g.tl.zeros((1, 1, 2, 2)), g.tl.zeros((1, 1, 2, 2)))),
    case("dot onto another shape", "shape", "acc has shape (3, 4)", lambda g: g.tl.dot(g.x, g.x.T, g.y)),
    case("add", "shape", "(3, 4) and (5,)", lambda g: g.x + g.row),
    case("compare", "shape", "do not broadcast", lambda g: g.x < g.row),
    case("maximum", "shape", "maximum: shapes", lambda g: g.tl.maximum(g.x, g.row)),
    case("where", "shape", "where: shapes", lambda g: g.tl.where(g.mask, g.row, 0.0)),
    case("fma", "shape", "fma: shapes", lambda g: g.tl.fma(g.x, g.row, g.x)),
    case("reshape", "shape", "12 elements", lambda g: g.x.reshape(5, 2)),
    case("reshape with a gap", "shape", "reshape of (3, 4)", lambda g: g.x.reshape(-1, 5)),
    case("reshape with two gaps", "shape", "reshape of (3, 4)", lambda g: g.x.reshape(-1, -1)),
    case("reshape to a negative size", "shape", "reshape of (3, 4)", lambda g: g.x.reshape(-3, -4)),
    case("reshape to a word", "shape", "whole numbers", lambda g: g.x.reshape("ab")),
    case("cat of other sizes", "shape", "cat of shapes (3, 4) and (5,)", lambda g: g.tl.cat(g.x, g.row)),
    case("cat along the wrong axis", "shape", "must agree", lambda g: g.tl.cat(g.x, g.tl.zeros((2, 4)), axis=1)),
    case("cat along no axis", "shape", "cat: axis 2", lambda g: g.tl.cat(g.x, g.x, axis=2)),
    case("index past the end", "shape", "index 3 of an axis of 3", lambda g: g.x[3]),
    case("index before the start", "shape", "index -4 of an axis of 3", lambda g: g.x[-4]),
    case("too many indices", "shape", "3 indices", lambda g: g.x[0, 0, 0]),
    case("slice past the end", "shape", "slice 0:5 of an axis of 4", lambda g: g.x[:, 0:5]),
    case("trans of one axis", "shape", "two axes", lambda g: g.row.T),
    case("trans of repeated axes", "shape", "(0, 0)", lambda g: g.tl.trans(g.x, 0, 0)),
    case("trans of too few axes", "shape", "(1, 0)", lambda g: g.tl.trans(g.cube, 1, 0)),
    case("expand_dims twice", "shape", "expand_dims: axis (0, 0)", lambda g: g.tl.expand_dims(g.x, (0, 0))),
    case("expand_dims", "shape", "expand_dims: axis 4", lambda g: g.tl.expand_dims(g.x, 4)),
    case("broadcast_to", "shape", "(3, 4)", lambda g: g.tl.broadcast_to(g.x, (3, 5))),
    case("broadcast_to fewer axes", "shape", "does not stretch", lambda g: g.tl.broadcast_to(g.x, (4,))),
    case("max along no axis", "shape", "max: axis 2 of a handle of shape (3, 4)", lambda g: g.tl.max(g.x, 2)),
    case("sum along no axis", "shape", "sum: axis -3", lambda g: g.tl.sum(g.x, axis=-3)),
    case("argmax along no axis", "shape", "argmax: axis 2", lambda g: g.tl.argmax(g.x, 2)),
    case("sum along two axes", "shape", "axis", lambda g: g.tl.sum(g.x, axis=(0, 1))),
    case("max along a word", "shape", "axis", lambda g: g.tl.max(g.x, axis="rows")),
    case("softmax along no axis", "shape", "softmax: axis 5", lambda g: g.tl.softmax(g.x, 5)),
    case("softmax of a scalar", "shape", "softmax: axis -1", lambda g: g.tl.softmax(g.x[0, 0])),
    case("max of nothing", "shape", "empty axis", lambda g: g.tl.max(g.x[:, 0:0], 1)),
    case("softmax of nothing", "shape", "empty axis", lambda g: g.tl.softmax(g.x[:, 0:0])),
    case("negative size", "shape", "negative", lambda g: g.tl.zeros((-1, 4))),
    case("a word as a shape", "shape", "whole numbers", lambda g: g.tl.zeros("ab")),
    case("half a row", "shape", "whole numbers", lambda g: g.tl.zeros((3 / 2, 4))),
    case("half a row to load", "shape", "whole numbers", lambda g: g.tl.load(g.pointer, shape=(3 / 2, 4))),
    case("arange backwards", "shape", "before the start", lambda g: g.tl.arange(4, 2)),
    case("strides for other axes", "shape", "1 strides", lambda g: g.tl.load(g.pointer, (2, 2), strides=(1,))),
    case("one number as strides", "shape", "stride", lambda g: g.tl.load(g.pointer, (2, 2), strides=2)),
    case("out too small", "shape", "out= holds 64 bytes", lambda g: g.tl.exp(g.cube.to("f32"), out=g.row)),
    case("bool of many", "shape", "no single value", lambda g: bool(g.x > 0)),
    case("item of many", "shape", "no single value", lambda g: g.x.item()),
]

DTYPES = [
    case("cast to nothing", "dtype", "known: f32", lambda g: g.x.to("f99")),
    case("load of nothing", "dtype", "known: f32", lambda g: g.tl.load(g.pointer, (2,), "float46")),
    case("full of nothing", "dtype", "known: f32", lambda g: g.tl.full((2,), 1, "f64")),
    case("recv of nothing", "dtype", "known: f32", lambda g: g.tl.recv("E", (2,), "f64")),
    case("sum in nothing", "dtype", "known: f32", lambda g: g.tl.sum(g.x, 0, dtype="f64")),
    case("dot in nothing", "dtype", "known: f32", lambda g: g.tl.dot(g.x, g.x.T, out_dtype="f64")),
    case("a built handle of nothing", "dtype", "known: f32", lambda g: TensorHandle(addr=g.x.addr, dtype="f64")),
    case("dot of float and integer", "dtype", "dot of f16 and i8", lambda g: g.tl.dot(g.x, g.b.T)),
    case("dot of wide integers", "dtype", "dot of i32 and i32", lambda g: g.tl.dot(g.i, g.i.T)),
    case("dot of integers onto floats", "dtype", "acc", lambda g: g.tl.dot(g.b, g.b.T, g.tl.zeros((3, 3)))),
    case("where on floats", "dtype", "the condition is f16", lambda g: g.tl.where(g.x, g.x, 0.0)),
    case("floor division of floats", "dtype", "floordiv needs integers", lambda g: g.x // 2),
    case("and of floats", "dtype", "and needs integers", lambda g: g.x & g.x),
    case("or of float and integer", "dtype", "or needs integers", lambda g: g.x | g.i),
    case("xor with a float", "dtype", "xor needs integers", lambda g: g.i ^ 1.5),
    case("not of floats", "dtype", "not needs integers", lambda g: ~g.x),
    case("sum of masks", "dtype", "add has no meaning on masks", lambda g: g.mask + g.mask),
    case("maximum of masks", "dtype", "no meaning on masks", lambda g: g.tl.maximum(g.mask, g.mask)),
    case("minus a mask", "dtype", "mask", lambda g: -g.mask),
    case("number past i8", "dtype", "300 does not fit i8", lambda g: g.b + 300),
    case("number below i8", "dtype", "-129 does not fit i8", lambda g: -129 * g.b),
    case("number past i32", "dtype", "does not fit i32", lambda g: g.i + 2**31),
    case("numpy number past i8", "dtype", "200 does not fit i8", lambda g: g.b & np.int64(200)),
    case("comparison past i8", "dtype", "300 does not fit i8", lambda g: g.b < 300),
    case("mask and number past i32", "dtype", "does not fit i32", lambda g: g.mask + 2**40),
    case("where past i8", "dtype", "300 does not fit i8", lambda g: g.tl.where(g.mask, g.b, 300)),
    case("where of numbers past i32", "dtype", "does not fit i32", lambda g: g.tl.where(g.mask, 2**40, 0)),
    case("full past i8", "dtype", "300 does not fit i8", lambda g: g.tl.full((2,), 300, "i8")),
    case("full past i32", "dtype", "does not fit i32", lambda g: g.tl.full((2,), 2**40, "i32")),
    case("arange past i32", "dtype", "i32", lambda g: g.tl.arange(2**31, 2**31 + 4)),
    case("full of infinite integers", "dtype", "i32", lambda g: g.tl.full((2,), inf, "i32")),
]

ARGUMENTS = [
    case("send of an array", "misuse", "send needs a tensor handle", lambda g: g.tl.send("E", np.zeros(3))),
    case("send of a number", "misuse", "got 3", lambda g: g.tl.send(dir="E", src=3)),
    case("send_async of nothing", "misuse", "got None", lambda g: g.tl.send_async("E", None)),
    case("store of a number", "misuse", "store needs a tensor handle", lambda g: g.tl.store(g.pointer, 1.0)),
    case("dot of an array", "misuse", "dot needs a tensor handle", lambda g: g.tl.dot(g.x, np.zeros((4, 3)))),
    case("dot onto a number", "misuse", "dot needs a tensor handle", lambda g: g.tl.dot(g.x, g.x.T, 0)),
    case("fma of numbers", "misuse", "fma needs a tensor handle", lambda g: g.tl.fma(1.0, 2.0, 3.0)),
    case("cat of a list", "misuse", "cat needs a tensor handle", lambda g: g.tl.cat([g.x, g.x], g.x)),
    case("where on a word", "misuse", "where needs a tensor handle", lambda g: g.tl.where("yes", g.x, g.x)),
    case("sum of a number", "misuse", "sum needs a tensor handle", lambda g: g.tl.sum(3)),
    case("add a word", "misuse", "'two' is neither a handle nor a number", lambda g: g.x + "two"),
    case("add nothing", "misuse", "None is neither", lambda g: g.x * None),
    case("add an array", "misuse", "neither a handle nor a number", lambda g: g.x + np.zeros((3, 4))),
    case("array first", "misuse", "neither a handle nor a number", lambda g: np.zeros((3, 4)) - g.x),
    case("compare with nothing", "misuse", "None is neither", lambda g: g.x == None),  # noqa: E711
    case("unfinished receive", "misuse", "wait for", lambda g: g.x + g.tl.recv_async("E", (3, 4), "f16")),
    case(
        "store an unfinished receive",
        "misuse",
        "wait",
        lambda g: g.tl.store(g.pointer, g.tl.recv_async("E", (2,), "f16")),
    ),
    case("send to nowhere", "misuse", "known: N, S, E, W", lambda g: g.tl.send("up", g.x)),
    case("send to a list", "misuse", "known: N, S, E, W", lambda g: g.tl.send(["E"], g.x)),
    case("recv from nowhere", "misuse", "unknown direction 'X'", lambda g: g.tl.recv("X", (2,))),
    case("wait on a number", "misuse", "3 is nothing to wait for", lambda g: g.tl.wait(3)),
    case("wait on a handle", "misuse", "nothing to wait for", lambda g: g.tl.wait(g.x)),
    case("wait on nothing", "misuse", "None is nothing to wait for", lambda g: g.tl.wait(None)),
    case("axis of the grid", "misuse", "0 is the PE, 1 the cube, 2 the package", lambda g: g.tl.program_id(3)),
    case("count along no axis", "misuse", "axis -1", lambda g: g.tl.num_programs(-1)),
    case("static_assert", "misuse", "static_assert failed: odd", lambda g: g.tl.static_assert(False, "odd")),
    case("load from an array", "misuse", "", lambda g: g.tl.load(np.zeros(3))),
    case("load below zero", "misuse", "-8 is no byte address", lambda g: g.tl.load(-8)),
    case("load from a float", "misuse", "64.0 is no byte address", lambda g: g.tl.load(64.0)),
    case("load from nan", "misuse", "nan is no byte address", lambda g: g.tl.load(nan)),
    case("load from a value", "misuse", "address", lambda g: g.tl.load(g.tl.arange(0, 4))),
    case("store to a word", "misuse", "'o'", lambda g: g.tl.store("o", g.x)),
    case("full of a handle", "shape", "full of a handle of shape (3, 4)", lambda g: g.tl.full((2,), g.x)),
    case("index by a word", "misuse", "'a' is no index", lambda g: g.x["a"]),
    case("index by a float", "misuse", "1.5", lambda g: g.x[1.5]),
    case("index by a mask", "misuse", "True", lambda g: g.x[True]),
    case("index by a list", "misuse", "is no index", lambda g: g.x[[0, 1]]),
    case("two ellipses", "misuse", "", lambda g: g.x[..., ...]),
    case("slice by a float", "misuse", "1.5", lambda g: g.x[0:1.5]),
    case("slice in no steps", "misuse", "step", lambda g: g.x[::0]),
    case("out= of a number", "misuse", "out=", lambda g: g.tl.exp(g.x, out=3)),
    case("out= of a later part", "misuse", "whole live scratch value", lambda g: g.tl.exp(g.x[0], out=g.x[1])),
    case("out= of a first part", "misuse", "whole live scratch value", lambda g: g.tl.exp(g.x[0], out=g.x[0])),
    case("out= of a transposed view", "misuse", "whole live scratch value", lambda g: g.tl.exp(g.x, out=g.x.T)),
    case("out= of nothing alive", "misuse", "whole", lambda g: g.tl.exp(g.x, out=TensorHandle(addr=1 << 21, shape=4))),
    case("unknown operation", "misuse", "Did you mean 'softmax'", lambda g: g.tl.sofmax(g.x)),
]

misuses = sampled.each_row([misuse.values for misuse in SHAPES + DTYPES + ARGUMENTS])


@misuses
def test_misuse_is_refused_at_the_kernels_line(kind, says, body):
    def kernel(*, tl):
        body(Given(tl, 0x1000))

    with pytest.raises(KernelError) as caught:
        run_kernel(kernel, TLContext())
    error = caught.value
    assert error.kind == kind
    assert says in str(error)
    assert (error.where.file, error.where.line) == (__file__, body.__code__.co_firstlineno)
    assert f"test_misuse.py:{body.__code__.co_firstlineno}: " in str(error)


@misuses
def test_misuse_in_a_launch_is_a_finding_of_that_kind(kind, says, body):
    def kernel(x_ptr, *, tl):
        body(Given(tl, x_ptr))

    host = mesh.Host("small", ranks=1)
    run = host.launch(kernel, host.replicate(np.ones((3, 4), np.float16)))
    assert run.status is Status.FAILED
    # a receive where no neighbour is comes with a finding of its own
    (finding,) = [f for f in run.findings if f.kind != "no-neighbour"]
    assert (finding.kind, finding.ranks, finding.count) == (kind, (0,), 1)
    assert says in f"{finding.message} {finding.hint}"
    assert (finding.where.file, finding.where.line) == (__file__, body.__code__.co_firstlineno)


def test_an_unknown_name_is_still_no_attribute():
    tl = TLContext()
    assert not hasattr(tl, "sofmax")
    assert not hasattr(tl, "__deepcopy__")
    assert getattr(tl, "sofmax", None) is None


def test_the_kernels_own_mistake_is_a_finding_at_its_line():
    def kernel(*, tl):
        return {}["missing"]

    (finding,) = mesh.Host("small", ranks=1).launch(kernel).findings
    assert finding.kind == "kernel-error"
    assert finding.message == "KeyError: 'missing'"
    assert finding.where.text == 'return {}["missing"]'


def test_an_error_deep_inside_an_operation_still_points_at_the_kernel(monkeypatch):
    monkeypatch.setitem(numerics.UNARY, "exp", None)

    def kernel(*, tl):
        tl.exp(tl.zeros((2,), "f16"))

    (finding,) = mesh.Host("small", ranks=1).launch(kernel).findings
    assert finding.kind == "kernel-error"
    assert finding.where.text == 'tl.exp(tl.zeros((2,), "f16"))'


@pytest.mark.parametrize("known_first", [False, True])
def test_a_size_that_is_no_int_never_reaches_a_command(known_first):
    """S / 2 gives 2.0: taken as 2 or refused, the first time and every later time."""

    def kernel(*, tl):
        if known_first:
            tl.load(0, shape=(2, 4))
        try:
            shape = tl.load(64, shape=(4 / 2, 4)).shape
        except KernelError as error:
            return error.kind
        return [type(n) for n in (*shape, tl.commands[-1].nbytes)]

    assert run_kernel(kernel, TLContext()) in ([int, int, int], "shape")


def test_a_refused_call_records_nothing_and_keeps_no_memory():
    def kernel(*, tl):
        x = tl.zeros((3, 4))
        used = tl.scratch_peak
        for bad in (lambda: tl.dot(x, x), lambda: x + tl.sum(x, 1).reshape(3)[0:2], lambda: x.reshape(5)):
            with pytest.raises(KernelError):
                bad()
        return used, tl.scratch_peak

    tl = TLContext()
    used, peak = run_kernel(kernel, tl)
    assert [c.op for c in tl.commands] == ["full", "sum"]
    assert peak == used + 64


def test_clean_code_of_the_same_kinds_passes():
    def kernel(x_ptr, o_ptr, *, tl):
        x = tl.load(x_ptr, shape=(3, 4))
        y = tl.dot(x, tl.trans(x)) + tl.max(x, 1)
        y = tl.where(y > 0, y, 0.0)
        y = tl.cat(y, y[0:1], axis=0).reshape(-1, 3)
        tl.store(o_ptr, y)

    host = mesh.Host("small", ranks=1)
    assert host.launch(kernel, host.replicate(np.ones((3, 4), np.float16)), host.empty((4, 3))).safe


def test_an_unknown_name_of_a_handle_is_explained():
    def kernel(*, tl):
        tl.zeros((2, 2)).sofmax()

    with pytest.raises(AttributeError, match="Did you mean 'softmax'") as raised:
        run_kernel(kernel, TLContext())
    assert isinstance(raised.value, KernelError)


def test_an_unknown_name_of_something_else_is_the_kernels_own_mistake():
    def kernel(*, tl):
        (2, 2).sofmax()

    with pytest.raises(AttributeError) as raised:
        run_kernel(kernel, TLContext())
    assert not isinstance(raised.value, KernelError)
