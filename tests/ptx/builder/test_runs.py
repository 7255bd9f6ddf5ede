"""Kernels of the builder on the emulator: right, safe, and findings at the Python line."""

from pathlib import Path

import numpy as np
import pytest
from tests.ptx.builder.samples import SAMPLES

from kernbench import ptx
from kernbench.ptx.builder import FULL_MASK, PtxKernel


@pytest.fixture
def device():
    return ptx.EmulatedDevice("sm_90a")


@pytest.fixture
def rng():
    return np.random.default_rng(7)


def launch(device, name, grid, block, *args):
    run = device.launch(SAMPLES[name](), grid, block, args)
    assert run.safe, "\n".join(map(str, run.findings))


def test_vector_add(device, rng):
    x, y = rng.standard_normal((2, 1000), np.float32)
    z = device.empty(1000)
    launch(device, "vector_add", 8, 128, device.array(x), device.array(y), z, 1000)
    assert (z.numpy() == x + y).all()


@pytest.mark.parametrize(("grid", "block", "n"), [(1, 32, 5), (3, 96, 1000), (2, 256, 4096)])
def test_block_sum(device, rng, grid, block, n):
    x = rng.integers(-9, 9, n).astype(np.float32)
    out = device.empty(grid)
    launch(device, "block_sum", grid, block, device.array(x), out, n)
    assert out.numpy().sum() == x.sum()


def test_matmul(device, rng):
    a, b = rng.integers(-4, 4, (2, 48, 48)).astype(np.float32)
    c = device.empty((48, 48))
    launch(device, "matmul", (3, 3), (16, 16), device.array(a), device.array(b), c, 48)
    assert (c.numpy() == a @ b).all()


@pytest.mark.parametrize("n", [1, 31, 100])
def test_softmax(device, rng, n):
    x = rng.standard_normal((4, n)).astype(np.float32) * 20
    y = device.empty((4, n))
    launch(device, "softmax", 4, 32, device.array(x), y, n)
    wanted = np.exp(x.astype(float) - x.max(1, keepdims=True))
    np.testing.assert_allclose(y.numpy(), wanted / wanted.sum(1, keepdims=True), rtol=2e-5, atol=1e-30)


def test_mma_tile(device, rng):
    a, b = rng.integers(-4, 4, (16, 16)).astype(np.float16), rng.integers(-4, 4, (8, 16)).astype(np.float16)
    d = device.empty((16, 8))
    launch(device, "mma_tile", 1, 32, device.array(a), device.array(b), d)
    assert (d.numpy() == a.astype(float) @ b.T.astype(float)).all()


def test_functions_and_constants(device):
    x = device.array(np.linspace(-3, 12, 32, dtype=np.float32))
    before = x.numpy()
    launch(device, "clamp", 1, 32, x)
    assert (x.numpy() == np.clip(before, 0, np.tile([1.0, 2.0, 4.0, 8.0], 8))).all()


def test_loops_and_branches(device):
    def steps(n):
        return 0 if n == 1 else 1 + steps(n // 2 if n % 2 == 0 else 3 * n + 1)

    numbers = np.arange(1, 65, dtype=np.uint32)
    x, counter = device.array(numbers), device.array(np.zeros(2, np.uint32))
    launch(device, "collatz", 2, 32, counter, x)
    wanted = np.array([steps(int(n)) for n in numbers])
    assert (x.numpy() == wanted).all()
    long = (wanted > 20).reshape(2, 32).sum(1).max()
    assert counter.numpy().tolist() == [wanted[wanted <= 100].sum(), long]


def test_wide_and_narrow_values_are_shuffled(device):
    def program(ctx):
        lane = ctx.tid_x
        doubles, halves = ctx.pointer("doubles", "f64"), ctx.pointer("halves", "f16")
        ctx.store(doubles, ctx.shfl_idx(lane.to("f64") + 0.5, 31 - lane, mask=FULL_MASK), lane)
        ctx.store(halves, ctx.shfl_up(lane.to("f32").to("f16"), 1, mask=FULL_MASK, width=8), lane)

    doubles, halves = device.empty(32, np.float64), device.empty(32, np.float16)
    kernel = PtxKernel("k").param("u64", "doubles").param("u64", "halves").build(program)
    assert device.launch(kernel, 1, 32, [doubles, halves]).safe
    assert (doubles.numpy() == np.arange(32)[::-1] + 0.5).all()
    assert (halves.numpy() == [i - 1 if i % 8 else i for i in range(32)]).all()


def test_several_results_of_a_function(device):
    def both(ctx):
        x = ctx.param("x")
        ctx.return_((x // 7).to("u16"), x.to("f64"), x % 7)

    function = ptx.PtxFunction("both").param("u32", "x").returns("u16", "f64", "u32").build(both)

    def program(ctx):
        out = ctx.pointer("out", "f64")
        quotient, whole, rest = ctx.call(function, ctx.tid_x * 3)
        ctx.store(out, quotient.to("f64") * 1000.0 + rest.to("f64") * 100.0 + whole / 3.0, ctx.tid_x)

    out = device.empty(32, np.float64)
    assert device.launch(PtxKernel("k").param("u64", "out").build(program), 1, 32, [out]).safe
    i = np.arange(32)
    assert (out.numpy() == 3 * i // 7 * 1000 + 3 * i % 7 * 100 + i).all()


def test_a_finding_names_the_python_line(device):
    def program(ctx):
        out = ctx.pointer("out", "f32")
        ctx.store(out, 1.0, ctx.tid_x + 1)  # out of bounds

    out = device.empty(32)
    run = device.launch(PtxKernel("k").param("u64", "out").build(program), 1, 32, [out])
    found = next(f for f in run.findings if f.kind == "out-of-bounds")
    line = next(i for i, text in enumerate(Path(__file__).read_text().splitlines(), 1) if "# out of bounds" in text)
    assert (found.where.file, found.where.line) == (__file__, line)
    assert [(o.role, o.where.file) for o in found.others] == [("in PTX", "<ptx k>")]
    assert f"(PTX line {found.others[0].where.line}): thread (31, 0, 0)" in found.message


def test_a_line_that_is_unrolled_is_one_finding_for_each_array(device):
    def program(ctx):
        left, right, out = (ctx.pointer(name, "f32") for name in ("left", "right", "out"))
        for k in range(8):
            product = ctx.load(left, ctx.tid_x + 32 * k) * ctx.load(right, ctx.tid_x + 32 * k)
            ctx.store(out, product, ctx.tid_x + 32 * k)

    kernel = PtxKernel("k").param("u64", "left").param("u64", "right").param("u64", "out").build(program)
    left, right, out = device.array(np.zeros(240, "f4")), device.empty(256), device.empty(256)
    run = device.launch(kernel, 1, 32, [left, right, out])
    by_array = {name: f for f in run.findings[:2] for name in ("'left'", "'right'") if name in f.message}
    assert [f.kind for f in run.findings] == ["uninitialised-read", "out-of-bounds", "output-unwritten"]
    assert by_array["'left'"].count == 16
    unwritten = by_array["'right'"]
    lines = [o.where.line for o in unwritten.others if o.role == "in PTX"]
    assert f"(PTX lines {', '.join(map(str, lines))} and 4 more)" in unwritten.message
    assert (len(lines), unwritten.count) == (4, 256)


def test_a_register_is_set_where_a_condition_holds(device):
    def program(ctx):
        out = ctx.pointer("out", "u32")
        value = ctx.mov(7, type="u32")
        value.set(9, pred=ctx.tid_x < 4)
        ctx.store(out, value, ctx.tid_x)

    out = device.empty(32, np.uint32)
    assert device.launch(PtxKernel("k").param("u64", "out").build(program), 1, 32, [out]).safe
    assert out.numpy().tolist() == [9] * 4 + [7] * 28
