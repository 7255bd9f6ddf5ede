"""wgmma on the GPU and on the emulator: every type and layout, and what the base offset of a descriptor means."""

import numpy as np
import pytest
from tests.ptx.emulator.asynchronous.matrices import WGMMA_CODES, descriptor
from tests.ptx.emulator.asynchronous.test_wgmma import SPARSE, TYPES, kernel, launch, sparse_kernel, tiles, values

from kernbench import ptx

pytestmark = pytest.mark.gpu


@pytest.fixture(scope="module")
def gpu():
    with ptx.CudaDevice(0) as device:
        yield device


def both(gpu, code, data, descriptors, n, kind):
    run, ours = launch(code, data, descriptors, n, kind)
    assert run.ok
    _, theirs = launch(code, data, descriptors, n, kind, device=gpu)
    return values(ours, n, kind), values(theirs, n, kind)


@pytest.mark.parametrize("mode", ["none", "32B", "64B", "128B"])
@pytest.mark.parametrize("majors", ["KK", "KN", "MK", "MN"])
def test_layouts(gpu, mode, majors):
    trans = majors[0] == "M", majors[1] == "N"
    kinds, n = ("f32", "f16", "f16"), 64
    _, _, data, descriptors = tiles(1, n, 16, kinds, mode, mode, *trans)
    code = kernel(n, kinds, 16, tail=f"1, 1, {int(trans[0])}, {int(trans[1])}")
    ours, theirs = both(gpu, code, data, descriptors, n, "f32")
    np.testing.assert_allclose(ours, theirs, atol=1e-5)


@pytest.mark.parametrize(("d", "a_kind", "b_kind", "k"), TYPES)
@pytest.mark.parametrize("n", [8, 96, 256])
def test_types(gpu, d, a_kind, b_kind, k, n):
    kinds = d, a_kind, b_kind
    _, _, data, descriptors = tiles(2, n, k, kinds, "32B", "none")
    tail = "" if d == "s32" else "1, 1, 0, 0" if k == 16 else "1, 1"
    ours, theirs = both(gpu, kernel(n, kinds, k, tail=tail), data, descriptors, n, d)
    # the tensor core keeps fewer bits of sums of 8-bit floats
    atol = 0 if d == "s32" else 2e-2 if d == "f16" else 2e-3 if k == 32 else 1e-4
    np.testing.assert_allclose(ours, theirs, atol=atol, rtol=2e-3 if d == "f16" else 0)


@pytest.mark.parametrize(("d", "a_kind", "b_kind", "k"), TYPES)
@pytest.mark.parametrize("n", [8, 96, 256])
def test_exact_launches_give_the_same_bits(gpu, d, a_kind, b_kind, k, n):
    kinds = d, a_kind, b_kind
    for seed in range(3):
        _, _, data, descriptors = tiles(seed, n, k, kinds, "32B", "none")
        code = kernel(n, kinds, k, tail="" if d == "s32" else "1, 1, 0, 0" if k == 16 else "1, 1")
        _, ours = launch(code, data, descriptors, n, d, exact=True)
        _, theirs = launch(code, data, descriptors, n, d, device=gpu)
        np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize("mode", ["32B", "64B", "128B"])
@pytest.mark.parametrize("row", [0, 1, 3])
@pytest.mark.parametrize("base", [0, 1, 3])
def test_base_offset(gpu, mode, row, base):
    """Tiles that begin in the middle of the swizzle's pattern."""
    rng = np.random.default_rng(row + 8 * base)
    data = rng.standard_normal(8192).astype(np.float16).view(np.uint8)
    width = {"32B": 32, "64B": 64, "128B": 128}[mode]
    start = 128 * row
    a = descriptor(start, 16, 8 * width, WGMMA_CODES[mode]) | base << 49
    b = descriptor(9216 if width == 128 else 8192, 16, 8 * width, WGMMA_CODES[mode])
    code = kernel(16, ("f32", "f16", "f16"), 16, tail="1, 1, 0, 0")
    _, ours = launch(code, data, (a, b), 16, "f32", checks=False)
    _, theirs = launch(code, data, (a, b), 16, "f32", device=gpu)
    np.testing.assert_allclose(values(ours, 16, "f32"), values(theirs, 16, "f32"), atol=1e-4)


# all lanes hold metadata of 8-bit elements: there is nothing to select
CHOICES = sorted({(*case[:4], selector) for case in SPARSE for selector in (0, 1) if case[3] < 64 or selector == 0})


@pytest.mark.parametrize("registers", [False, True])
@pytest.mark.parametrize(("d", "a_kind", "b_kind", "k", "selector"), CHOICES)
def test_sparse(gpu, d, a_kind, b_kind, k, selector, registers):
    """Whole numbers, so that every order of adding gives the same."""
    code, _, _, data, given = sparse_kernel((d, a_kind, b_kind), k, selector, registers, n=64)
    ours, theirs = both(gpu, code, data, given, 64, d)
    np.testing.assert_array_equal(ours, theirs)
