"""CUDA's own headers, compiled by nvcc, which takes long: nothing in them is taken for a bug."""

from pathlib import Path

import numpy as np
import pytest
from tests.ptx.toolchain import nvcc_ptx

from kernbench import ptx

pytestmark = pytest.mark.named


@pytest.fixture(scope="module")
def module():
    return ptx.parse(nvcc_ptx(Path(__file__).parent / "libraries.cu", "sm_80", "-rdc=true"))


@pytest.fixture
def run(module):
    device = ptx.EmulatedDevice("sm_80")

    def launch(name, grid, block, *args):
        arrays = [device.array(a) if isinstance(a, np.ndarray) else a for a in args]
        run = device.launch(module.kernels[name], grid, block, arrays)
        assert run.findings == []
        assert run.status == "finished"
        return [a.numpy() if hasattr(a, "address") else a for a in arrays]

    launch.empty = device.empty
    return launch


@pytest.fixture
def rng():
    return np.random.default_rng(5)


def test_cub_sum(run, rng):
    x = rng.integers(-100, 100, 512).astype("i4")
    _, out = run("block_sum", 4, 128, x, run.empty(4, "i4"))
    assert (out == x.reshape(4, 128).sum(1)).all()


def test_cub_sort(run, rng):
    x = rng.integers(0, 1 << 32, 1024).astype("u4")
    _, out = run("block_sort", 2, 128, x, run.empty(1024, "u4"))
    assert (out.reshape(2, 512) == np.sort(x.reshape(2, 512), axis=1)).all()


def test_cub_scan_of_a_partial_tile(run, module, rng):
    x = rng.integers(-100, 100, 201).astype("i4")
    _, out, _, _ = run("partial_scan", 1, 64, x, run.empty(201, "i4"), 201, 201)
    assert (out == np.maximum.accumulate(x)).all()
    device = ptx.EmulatedDevice("sm_80")
    taken = device.launch(module.kernels["partial_scan"], 1, 64, [device.array(x), device.empty(202, "i4"), 201, 202])
    assert [f.kind for f in taken.findings] == ["uninitialised-read"]


@pytest.mark.parametrize("options", [(), ("-G",)], ids=["optimised", "debug"])
def test_cub_exclusive_sum_of_a_partial_tile(options, rng):
    text = nvcc_ptx(Path(__file__).parent / "libraries.cu", "sm_80", "-rdc=true", *options)
    kernel, device = ptx.parse(text).kernels["partial_exclusive_sum"], ptx.EmulatedDevice("sm_80")
    x = rng.integers(-100, 100, 201).astype("i4")
    # what is stored of item 201 is the sum of all others
    for stored, kinds in ((202, []), (203, ["uninitialised-read"])):
        out = device.empty(stored, "i4")
        run = device.launch(kernel, 1, 64, [device.array(x), out, 201, stored])
        assert [f.kind for f in run.findings] == kinds
        assert (out.numpy()[:202] == np.append(0, np.cumsum(x))).all()


def test_a_debug_build_of_a_sum_of_a_partial_tile(rng):
    text = nvcc_ptx(Path(__file__).parent / "libraries.cu", "sm_80", "-rdc=true", "-G")
    kernel, device = ptx.parse(text).kernels["partial_sum"], ptx.EmulatedDevice("sm_80")
    x = device.array(rng.integers(-100, 100, 41).astype("i4"))
    assert device.launch(kernel, 1, 64, [x, device.empty(1, "i4"), 41, 41]).findings == []
    (found,) = device.launch(kernel, 1, 64, [x, device.empty(1, "i4"), 41, 42]).findings
    assert found.kind == "uninitialised-read"
    assert "local memory that nobody wrote (4 bytes) is read and passed to other lanes" in found.message
    assert found.hint == "set the variable on every path that leads here"


def test_cub_sum_of_a_partial_tile(run, module, rng):
    x = rng.integers(-100, 100, 41).astype("i4")
    _, out, _, _ = run("partial_sum", 1, 64, x, run.empty(1, "i4"), 41, 41)
    assert out[0] == x.sum()
    device = ptx.EmulatedDevice("sm_80")
    taken = device.launch(module.kernels["partial_sum"], 1, 64, [device.array(x), device.empty(1, "i4"), 41, 42])
    assert [f.kind for f in taken.findings] == ["uninitialised-read"]
    assert "was never set and is passed to other lanes, and the value is stored" in taken.findings[0].message


def test_cooperative_tiles(run, rng):
    x = rng.standard_normal(256).astype("f4")
    _, out = run("tiles", 2, 128, x, run.empty(32, "f4"))
    assert np.allclose(out, x.reshape(32, 8).sum(1), atol=1e-5)


def test_coalesced_threads(run, rng):
    x = rng.integers(-100, 100, 500).astype("i4")
    _, out, count, _ = run("compact", 4, 128, x, np.zeros(500, "i4"), np.zeros(1, "i4"), 500)
    assert sorted(out[: count[0]]) == sorted(x[x > 0])


def test_bitonic_sort(run, rng):
    x = rng.integers(0, 1000, 512).astype("i4")
    (out,) = run("bitonic", 2, 256, x)
    assert (out.reshape(2, 256) == np.sort(x.reshape(2, 256), axis=1)).all()


def test_warps_with_roles(run, rng):
    x = rng.integers(0, 1000, 512).astype("i4")
    _, out, _ = run("pipeline", 1, 128, x, run.empty(512, "i4"), 8)
    assert (out == 2 * x).all()


def test_virtual_functions(run):
    (out,) = run("virtual_calls", 1, 64, run.empty(64, "f4"))
    t = np.arange(64.0)
    assert (out == np.where(t % 3 == 0, t * t, 3 * t * t)).all()


def test_printing(module):
    run = ptx.EmulatedDevice("sm_80").launch(module.kernels["printing"], 1, 32, [4])
    assert run.findings == []
    assert run.views["printf"] == [f"thread {t} of four: {0.5 * t:5.2f} 10000000000%\n" for t in range(4)]


def test_a_failed_assertion(module):
    run = ptx.EmulatedDevice("sm_80").launch(module.kernels["asserting"], 1, 32, [30])
    (found,) = run.findings
    assert found.kind == "trap"
    assert found.count == 2
    assert "assertion 'threadIdx.x < n' of void asserting(int) failed at" in found.message
