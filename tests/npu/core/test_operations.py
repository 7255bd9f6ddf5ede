"""Tile operations: what each computes, how it rounds, and that operands which do not fit are refused."""

import ml_dtypes
import numpy as np
import pytest
from tests.npu.small import flag, kinds, run_kernel

from kernbench.common.dtypes import DTYPES
from kernbench.npu.isa.operations import OPERATIONS

RNG = np.random.default_rng(7)
A = RNG.uniform(0.5, 3, (8, 16)).astype(np.float32)
B = RNG.uniform(0.5, 3, (8, 16)).astype(np.float32)
BF16 = ml_dtypes.bfloat16


def vector(body, *arrays, out, **options):
    """Load arrays into tiles, let `body(core, out tile, *tiles)` compute, store."""

    def kernel(core, *tensors):
        tiles = [core.alloc("UB", _padded(t), t.dtype, t.shape, layout=_layout(t)) for t in tensors]
        for tile, tensor in zip(tiles[:-1], tensors[:-1], strict=True):
            core.tload(tile, tensor)
        flag(core, "MTE2", "V")
        body(core, tiles[-1], *tiles[:-1])
        flag(core, "V", "MTE3")
        core.tstore(tensors[-1], tiles[-1])
        core.pipe_sync()

    run = run_kernel(kernel, *arrays, out=out, **options)
    assert run.findings == [], [str(f) for f in run.findings]
    return run.outputs["out"]


def _layout(tensor):
    return "col" if tensor.shape[1] == 1 else "row"


def _padded(tensor):
    per = 32 // DTYPES[tensor.dtype].itemsize
    rows, columns = tensor.shape
    return (-(-rows // per) * per, 1) if columns == 1 else (rows, -(-columns // per) * per)


ELEMENTWISE = {
    "tadd": lambda a, b: a + b,
    "tsub": lambda a, b: a - b,
    "tmul": lambda a, b: a * b,
    "tdiv": lambda a, b: a / b,
    "tmax": np.maximum,
    "tmin": np.minimum,
    "trem": np.fmod,
}
UNARY = {
    "texp": np.exp,
    "tlog": np.log,
    "tsqrt": np.sqrt,
    "trsqrt": lambda a: np.float32(1) / np.sqrt(a),
    "trecip": lambda a: np.float32(1) / a,
    "tabs": np.abs,
    "tneg": np.negative,
    "trelu": lambda a: np.maximum(a, 0),
    "tmov": lambda a: a,
}


@pytest.mark.parametrize("name", ELEMENTWISE)
@pytest.mark.parametrize("kind", [np.float32, BF16, np.float16])
def test_elementwise_rounds_once(name, kind):
    a, b = A.astype(kind), B.astype(kind)
    got = vector(lambda core, o, x, y: getattr(core, name)(o, x, y), a, b, out=np.zeros_like(a))
    want = ELEMENTWISE[name](a.astype(np.float32), b.astype(np.float32)).astype(kind)
    assert np.array_equal(got, want)


@pytest.mark.parametrize("name", UNARY)
@pytest.mark.parametrize("kind", [np.float32, BF16])
def test_unary(name, kind):
    a = A.astype(kind)
    got = vector(lambda core, o, x: getattr(core, name)(o, x), a, out=np.zeros_like(a))
    assert np.array_equal(got, UNARY[name](a.astype(np.float32)).astype(kind))


@pytest.mark.parametrize(
    ("name", "want"),
    [
        ("tadds", A + np.float32(2.5)),
        ("tsubs", A - np.float32(2.5)),
        ("tmuls", A * np.float32(2.5)),
        ("tdivs", A / np.float32(2.5)),
        ("tmaxs", np.maximum(A, np.float32(2.5))),
        ("tmins", np.minimum(A, np.float32(2.5))),
        ("tsubrs", np.float32(2.5) - A),
    ],
)
def test_with_a_number(name, want):
    got = vector(lambda core, o, x: getattr(core, name)(o, x, 2.5), A, out=np.zeros_like(A))
    assert np.array_equal(got, want)


@pytest.mark.parametrize(("name", "function"), [("sum", np.add), ("max", np.maximum), ("min", np.minimum)])
def test_reductions(name, function):
    rows = vector(lambda core, o, x: getattr(core, f"trow{name}")(o, x), A, out=np.zeros((8, 1), np.float32))
    columns = vector(lambda core, o, x: getattr(core, f"tcol{name}")(o, x), A, out=np.zeros((1, 16), np.float32))
    assert np.array_equal(rows, function.reduce(A, axis=1, keepdims=True))
    assert np.array_equal(columns, function.reduce(A, axis=0, keepdims=True))


def test_broadcast_forms():
    column, row = A[:, :1].copy(), A[:1].copy()
    for name, f in (("add", np.add), ("sub", np.subtract), ("mul", np.multiply), ("div", np.divide)):
        by_rows = vector(
            lambda core, o, x, v, name=name: getattr(core, f"trowexpand{name}")(o, x, v),
            B,
            column,
            out=np.zeros_like(B),
        )
        by_columns = vector(
            lambda core, o, x, v, name=name: getattr(core, f"tcolexpand{name}")(o, x, v), B, row, out=np.zeros_like(B)
        )
        assert np.array_equal(by_rows, f(B, column))
        assert np.array_equal(by_columns, f(B, row))
    spread = vector(lambda core, o, v: core.trowexpand(o, v), column, out=np.zeros_like(B))
    assert np.array_equal(spread, np.broadcast_to(column, B.shape))


@pytest.mark.parametrize(
    ("mode", "want"),
    [
        ("rint", [-2, -2, 0, 0, 2, 2]),
        ("round", [-3, -2, -1, 1, 2, 3]),
        ("floor", [-3, -2, -1, 0, 1, 2]),
        ("ceil", [-2, -1, 0, 1, 2, 3]),
        ("trunc", [-2, -1, 0, 0, 1, 2]),
    ],
)
def test_conversion_to_integers(mode, want):
    halves = np.array([[-2.5, -1.5, -0.5, 0.5, 1.5, 2.5]], np.float32)
    got = vector(lambda core, o, x: core.tcvt(o, x, mode), halves, out=np.zeros((1, 6), np.int32))
    assert got.tolist() == [want]


def test_conversion_to_bf16_by_direction():
    wide = np.array([[1.0, 1 + 2.0**-9, 1 + 2.0**-8, 1 + 3 * 2.0**-9, -1 - 2.0**-9]], np.float32)
    steps = {
        "rint": [0, 0, 0, 1, 0],
        "round": [0, 0, 1, 1, 0],
        "floor": [0, 0, 0, 0, -1],
        "ceil": [0, 1, 1, 1, 0],
        "trunc": [0, 0, 0, 0, 0],
        "odd": [0, 1, 1, 1, -1],
    }
    for mode, want in steps.items():
        got = vector(lambda core, o, x, mode=mode: core.tcvt(o, x, mode), wide, out=np.zeros((1, 5), BF16))
        expected = np.sign(wide) * (1 + np.abs(want) * 2.0**-7)
        assert got.astype(np.float32).tolist() == expected.tolist(), mode


def test_compare_select_fill_iota_transpose_gather_sort():
    def chosen(core, o, x, y):
        mask = core.alloc("UB", (8, 32), "i8", (8, 16))
        core.tcmp(mask, x, y, "gt")
        core.pipe_barrier("V")
        core.tsel(o, mask, x, y)

    assert np.array_equal(vector(chosen, A, B, out=np.zeros_like(A)), np.maximum(A, B))
    assert (vector(lambda core, o: core.texpands(o, 3.0), out=np.zeros_like(A)) == 3).all()
    assert vector(lambda core, o: core.tci(o, 5), out=np.zeros((1, 8), np.int32)).tolist() == [list(range(5, 13))]
    assert np.array_equal(vector(lambda core, o, x: core.ttrans(o, x), A, out=np.zeros((16, 8), np.float32)), A.T)
    places = RNG.integers(0, 16, (8, 8)).astype(np.int32)
    got = vector(lambda core, o, x, i: core.tgather(o, x, i), A, places, out=np.zeros((8, 8), np.float32))
    assert np.array_equal(got, np.take_along_axis(A, places, axis=1))

    def sorted_rows(core, o, x):
        core.tsort(o, x, core.alloc("UB", (8, 16), "i32"))

    assert np.array_equal(vector(sorted_rows, A, out=np.zeros_like(A)), -np.sort(-A, axis=1))


def test_fill_pad_and_padded_load():
    part = A[:3, :5].copy()

    def padded(core, o, x):
        core.tfillpad(o, x, -1.0)

    want = np.full((8, 16), -1, np.float32)
    want[:3, :5] = part
    assert np.array_equal(vector(padded, part, out=np.zeros((8, 16), np.float32)), want)

    def kernel(core, a, out):
        tile = core.alloc("UB", (8, 16), "f32")
        core.tload(tile, a, pad=-1.0)
        flag(core, "MTE2", "MTE3")
        core.tstore(out, tile)
        core.pipe_sync()

    run = run_kernel(kernel, part, out=np.zeros((8, 16), np.float32))
    assert run.safe
    assert np.array_equal(run.outputs["out"], want)


def cube(a, b, body=None, kind="f32", **options):
    """a @ b on the cube core; `body(core, c, a, b)` may do it another way."""

    def kernel(core, left, right, out):
        (m, k), n = left.shape, right.shape[1]
        a1, b1 = core.alloc("L1", (m, k), left.dtype), core.alloc("L1", (k, n), left.dtype)
        a0, b0 = core.alloc("L0A", (m, k), left.dtype), core.alloc("L0B", (k, n), left.dtype)
        c0 = core.alloc("L0C", (m, n), "i32" if left.dtype == "i8" else "f32")
        core.tload(a1, left)
        core.tload(b1, right)
        flag(core, "MTE2", "MTE1")
        core.tmov(a0, a1)
        core.tmov(b0, b1)
        flag(core, "MTE1", "M")
        (body or (lambda core, c, a, b: core.tmatmul(c, a, b)))(core, c0, a0, b0)
        flag(core, "M", "FIX")
        core.tstore(out, c0)
        core.pipe_sync()

    run = run_kernel(kernel, a, b, out=np.zeros((a.shape[0], b.shape[1]), DTYPES[kind].numpy), lane="aic", **options)
    assert run.findings == [], [str(f) for f in run.findings]
    return run.outputs["out"]


@pytest.mark.parametrize("kind", [BF16, np.float16, np.float32])
def test_products_are_summed_in_f32(kind):
    a, b = RNG.standard_normal((16, 64)).astype(kind), RNG.standard_normal((64, 32)).astype(kind)
    want = a.astype(np.float64) @ b.astype(np.float64)
    assert np.abs(cube(a, b) - want).max() < 1e-4


def test_integer_products_are_exact_and_results_round_on_the_way_out():
    a, b = (RNG.integers(-128, 128, s).astype(np.int8) for s in ((16, 64), (64, 32)))
    assert np.array_equal(cube(a, b, kind="i32"), a.astype(np.int32) @ b.astype(np.int32))
    x, y = (RNG.standard_normal(s).astype(BF16) for s in ((16, 16), (16, 16)))
    assert np.array_equal(cube(x, y, kind="bf16"), cube(x, y).astype(BF16))


def test_accumulating_adds():
    a, b = (RNG.standard_normal((16, 16)).astype(BF16) for _ in range(2))

    def twice(core, c, x, y):
        core.tmatmul(c, x, y)
        core.tmatmul_acc(c, x, y)

    assert np.allclose(cube(a, b, twice), 2 * (a.astype(np.float32) @ b.astype(np.float32)), atol=1e-4)


def test_bias_and_extract():
    a, b = (RNG.standard_normal((16, 16)).astype(BF16) for _ in range(2))
    bias = RNG.standard_normal((1, 16)).astype(np.float32)

    def kernel(core, left, right, row, out):
        whole = core.alloc("L1", (32, 16), "bf16")
        b1, r1 = core.alloc("L1", (16, 16), "bf16"), core.alloc("L1", (1, 16), "f32")
        a0, b0, c0 = (core.alloc(*p) for p in (("L0A", (16, 16), "bf16"), ("L0B", (16, 16), "bf16"), ("L0C", (16, 16))))
        core.tload(whole.rows(0, 16), right)
        core.tload(whole.rows(16, 16), left)
        core.tload(b1, right)
        core.tload(r1, row)
        flag(core, "MTE2", "MTE1")
        core.textract(a0, whole, 16, 0)
        core.tmov(b0, b1)
        flag(core, "MTE1", "M")
        core.tmatmul_bias(c0, a0, b0, r1)
        flag(core, "M", "FIX")
        core.tstore(out, c0)
        core.pipe_sync()

    run = run_kernel(kernel, a, b, bias, out=np.zeros((16, 16), np.float32), lane="aic")
    assert run.findings == []
    assert np.allclose(run.outputs["out"], a.astype(np.float32) @ b.astype(np.float32) + bias, atol=1e-4)


def test_transposed_load_and_atomic_store():
    def kernel(core, a, out):
        tile = core.alloc("UB", (16, 8), "f32")
        core.tload(tile, a.T)
        flag(core, "MTE2", "MTE3")
        core.tstore(out, tile)
        core.pipe_sync()

    run = run_kernel(kernel, A, out=np.zeros((16, 8), np.float32))
    assert np.array_equal(run.outputs["out"], A.T)


@pytest.mark.parametrize(
    ("body", "kind", "told"),
    [
        (lambda core, o, x: core.tadd(o, x, core.alloc("UB", (8, 8))), "shape", "tadd: valid parts must be equal"),
        (lambda core, o, x: core.texp(core.alloc("UB", (8, 16), "bf16"), x), "dtype", "convert with tcvt"),
        (lambda core, o, x: core.tmatmul(o, x, x), "misuse", "runs on pipe M, which an aiv0 does not have"),
        (lambda core, o, x: core.alloc("L1", (8, 16)), "misuse", "unknown memory of an aiv0 'L1'; known: UB"),
        (lambda core, o, x: core.set_flag("MTE2", "M", 0), "misuse", "unknown pipe of an aiv0 'M'"),
        (lambda core, o, x: core.set_flag("MTE2", "V", 8), "misuse", "event 8; events are 0 to 7"),
        (lambda core, o, x: core.tcvt(o, x, "up"), "misuse", "unknown rounding mode 'up'"),
        (lambda core, o, x: core.alloc("UB", (8, 3), "f32"), "misaligned", "12 bytes: not a multiple of 32"),
    ],
)
def test_operands_that_do_not_fit(body, kind, told):
    def kernel(core, a, out):
        x, o = core.alloc("UB", (8, 16)), core.alloc("UB", (8, 16))
        core.tload(x, a)
        flag(core, "MTE2", "V")
        body(core, o, x)

    run = run_kernel(kernel, A, out=np.zeros_like(A))
    assert run.status == "failed"
    finding = next(f for f in run.findings if f.kind == kind)
    assert told in finding.message + finding.hint
    assert finding.where.file == __file__


def test_every_operation_of_the_table_is_a_method():
    from kernbench.npu import KernelCore

    assert [name for name in OPERATIONS if not hasattr(KernelCore, name)] == []


def test_a_transfer_of_another_shape_is_refused():
    def kernel(core, a, out):
        core.tload(core.alloc("UB", (8, 8)), a)

    run = run_kernel(kernel, A, out=np.zeros_like(A))
    assert kinds(run) == ["shape"]
    assert "8x16 elements, unlike the valid part" in run.findings[0].message


def test_shapes_only_carries_integers_and_no_floats():
    table = np.array([3, 1], np.int32)

    def kernel(core, a, b, out):
        assert core.read(b, 0) == 3
        tile = core.alloc("UB", (8, 16))
        core.tload(tile, a)
        flag(core, "MTE2", "MTE3")
        core.tstore(out, tile)
        core.read(a, 0, 0)
        core.pipe_sync()

    run = run_kernel(kernel, A, table, out=np.zeros_like(A), shapes_only=True)
    assert kinds(run) == ["value-needed"]
    assert "'a'" in run.findings[0].message
    assert run.outputs == {}
