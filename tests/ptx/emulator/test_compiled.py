"""Kernels that nvcc compiled run unchanged, match NumPy, and are found safe."""

from pathlib import Path

import numpy as np
import pytest
from tests.ptx.toolchain import nvcc_ptx

from kernbench import ptx


@pytest.fixture(scope="module")
def module():
    return ptx.parse(nvcc_ptx(Path(__file__).parent / "samples.cu", "sm_80", "-lineinfo"))


class Bench:
    def __init__(self, module):
        self.module = module
        self.device = ptx.EmulatedDevice("sm_80")

    def run(self, name, grid, block, *args, shared_bytes=0, **options):
        arrays = [self.device.array(a) if isinstance(a, np.ndarray) and a.ndim else a for a in args]
        self.arrays = arrays
        run = self.device.launch(self.module.kernels[name], grid, block, arrays, shared_bytes, **options)
        assert run.findings == []
        assert run.status == "finished"
        return run

    def empty(self, shape, dtype, name="out"):
        return self.device.empty(shape, dtype, name)


@pytest.fixture
def bench(module):
    return Bench(module)


@pytest.fixture
def rng():
    return np.random.default_rng(7)


def test_block_reduce(bench, rng):
    x = rng.standard_normal(2000).astype("f4")
    out = bench.run("block_reduce", 8, 256, x, bench.empty(8, "f4"), 2000).outputs["out"]
    padded = np.pad(x, (0, 48)).reshape(8, 256)
    assert np.allclose(out, padded.sum(1), rtol=1e-5, atol=1e-5)


def test_warp_reduce(bench, rng):
    x = rng.standard_normal(5000).astype("f4")
    out = bench.run("warp_reduce", 1, 192, x, bench.empty(1, "f4"), 5000).outputs["out"]
    assert np.allclose(out, x.sum(), rtol=1e-4)


def test_scan(bench, rng):
    x = rng.integers(-50, 50, 200).astype("i4")
    run = bench.run("scan", 1, 256, x, bench.empty(200, "i4"), 200, shared_bytes=2 * 256 * 4)
    assert (run.outputs["out"] == np.cumsum(x)).all()


def test_matmul(bench, rng):
    a, b = rng.standard_normal((2, 40, 40)).astype("f4")
    out = bench.run("matmul", (3, 3), (16, 16), a, b, bench.empty((40, 40), "f4"), 40).outputs["out"]
    assert np.allclose(out, a @ b, rtol=1e-4, atol=1e-4)


def test_softmax(bench, rng):
    x = rng.standard_normal((12, 300)).astype("f4")
    out = bench.run("softmax", 12, 128, x, bench.empty((12, 300), "f4"), 300).outputs["out"]
    p = np.exp(x - x.max(1, keepdims=True))
    assert np.allclose(out, p / p.sum(1, keepdims=True), rtol=1e-5)


def test_histogram(bench, rng):
    x = rng.integers(0, 256, 4000).astype("u1")
    bench.run("histogram", 6, 128, x, np.zeros(256, "u4"), 4000)
    assert (bench.arrays[1].numpy() == np.bincount(x, minlength=256)).all()


def test_loops_of_different_length(bench):
    x = np.arange(1, 301, dtype="u4")

    def steps(n):
        count = 0
        while n != 1:
            if n % 2:
                n = 3 * n + 1
                if count > 500:
                    break
            else:
                n //= 2
            count += 1
        return count

    out = bench.run("collatz", 3, 128, x, bench.empty(300, "u4"), 300).outputs["out"]
    assert out.tolist() == [steps(int(n)) for n in x]


def test_switch(bench, rng):
    kind = rng.integers(0, 9, 500).astype("i4")
    x = rng.standard_normal(500).astype("f4")
    out = bench.run("choose", 4, 128, kind, x, bench.empty(500, "f4"), 500).outputs["out"]
    expected = np.zeros(500, "f4")
    for i, (k, v) in enumerate(zip(kind, x, strict=True)):
        if k == 4:
            for step in range(i % 7):
                v = v * np.float32(0.5) + np.float32(step)
        cases = {0: v + 1, 1: v * v, 2: abs(v) ** 0.5, 3: -v, 4: v, 5: np.sin(v), 6: 1 / (1 + v * v)}
        expected[i] = cases.get(int(k), 0)
    assert np.allclose(out, expected, rtol=1e-5, atol=1e-6)


def test_calls_with_structs(bench, rng):
    a, b = rng.integers(1, 1000, (2, 200)).astype("i4")
    run = bench.run("calls", 2, 128, a, b, bench.empty(200, "i4"), bench.empty(200, "f8", "means"), 200)
    expected = np.gcd(a, b) + np.where(np.arange(200) % 2, 0, 1000)
    assert (run.outputs["out"] == expected).all()
    assert (run.outputs["means"] == (a + b) / 2).all()


def test_recursion(bench):
    out = bench.run("recursion", 1, 64, bench.empty(64, "u4")).outputs["out"]
    fibonacci = [0, 1, 1, 2, 3, 5, 8, 13, 21, 34, 55]
    assert out.tolist() == [fibonacci[i % 11] for i in range(64)]


def test_calls_through_a_table(bench, rng):
    which = rng.integers(0, 2, 100).astype("i4")
    out = bench.run("pointers", 1, 128, which, bench.empty(100, "i4"), 100).outputs["out"]
    i = np.arange(100)
    assert (out == np.where(which, i * 3, i + 3)).all()


def test_local_arrays(bench, rng):
    x = rng.integers(0, 1000, 1024).astype("i4")
    out = bench.run("local_array", 2, 32, x, bench.empty(1024, "i4"), 1024).outputs["out"]
    assert (out.reshape(64, 16) == np.sort(x.reshape(64, 16), axis=1)).all()


def test_the_last_block_finishes(bench, rng):
    x = rng.standard_normal(3000).astype("f4")
    out = bench.run(
        "last_block", 10, 128, x, bench.empty(10, "f4", "parts"), bench.empty(1, "f4"), np.zeros(1, "u4"), 3000
    ).outputs["out"]
    assert np.allclose(out, x.sum(), rtol=1e-4, atol=1e-4)


def test_blocks_wait_for_each_other(bench):
    run = bench.run("grid_barrier", 20, 64, np.zeros(1, "i4"), bench.empty(1280, "i4", "data"), bench.empty(1280, "i4"))
    assert (run.outputs["out"].reshape(20, 64) == (np.arange(1, 21) % 20 + 1)[:, None]).all()


def test_spin_lock(bench):
    bench.run("spin_lock", 3, 64, np.zeros(1, "i4"), np.zeros(1, "i4"))
    assert bench.arrays[1].numpy()[0] == 192


def test_half_precision(bench, rng):
    a, b = rng.standard_normal((2, 300, 2)).astype("f2")
    out = bench.run("half_math", 3, 128, a, b, bench.empty((300, 2), "f2"), 300).outputs["out"]
    expected = (a.astype("f8") * b + (a + b)).astype("f2")
    assert (out == expected).all()


def test_warp_operations(bench, rng):
    x = rng.integers(0, 100, 256).astype("i4")
    run = bench.run("votes", 4, 64, x, bench.empty(8, "u4", "ballots"), bench.empty(256, "i4", "counts"))
    warps, odd = x.reshape(8, 32), x.reshape(8, 32) % 2 == 1
    assert run.outputs["ballots"].tolist() == [sum(1 << i for i in range(32) if row[i]) for row in odd]
    for w in range(8):
        for lane in range(32):
            together = sum(odd[w] & (warps[w] % 8 == warps[w, lane] % 8))
            any_large = bool((odd[w] & (warps[w] > 90)).any())
            wanted = together + 100 * any_large if odd[w, lane] else int((~odd[w]).sum())
            assert run.outputs["counts"][w * 32 + lane] == wanted


def test_long_division_and_double(bench, rng):
    a = rng.integers(-(10**15), 10**15, 200)
    b = rng.integers(-(10**6), 10**6, 200)
    b[::17] = 0
    run = bench.run("long_division", 2, 128, a, b, bench.empty(200, "i8"), bench.empty(200, "f8", "root"), 200)
    expected = [
        0 if q == 0 else int(abs(int(p)) // abs(int(q))) * (1 if (p < 0) == (q < 0) else -1)
        for p, q in zip(a, b, strict=True)
    ]
    assert run.outputs["out"].tolist() == expected
    assert np.allclose(run.outputs["root"], np.sqrt(abs(a)) + np.exp(np.arange(200) % 10), rtol=1e-14)


def test_constant_memory(bench, rng):
    x = rng.standard_normal(300).astype("f4")
    out = bench.run("stencil", 3, 128, x, bench.empty(300, "f4"), 300).outputs["out"]
    j = np.clip(np.arange(300)[:, None] + np.arange(-2, 3), 0, 299)
    assert np.allclose(out, x[j] @ np.array([1, 4, 6, 4, 1]) / 16, rtol=1e-5, atol=1e-6)
