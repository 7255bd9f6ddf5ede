"""wgmma on the GPU and on the emulator: every type and layout, and what the base offset of a descriptor means."""

import numpy as np
import pytest
from tests.ptx.emulator.asynchronous.matrices import WGMMA_CODES, descriptor
from tests.ptx.emulator.asynchronous.test_wgmma import SPARSE, TYPES, kernel, launch, sparse_kernel, tiles

from kernbench import ptx

pytestmark = pytest.mark.gpu


@pytest.fixture(scope="module")
def gpu():
    with ptx.CudaDevice(0) as device:
        yield device


def same_bits(gpu, code, data, descriptors, n, kind, **options):
    """The registers of both devices, bit by bit."""
    run, ours = launch(code, data, descriptors, n, kind, exact=True, **options)
    assert run.ok or not options.get("checks", True)
    _, theirs = launch(code, data, descriptors, n, kind, device=gpu)
    np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize("mode", ["none", "32B", "64B", "128B"])
@pytest.mark.parametrize("majors", ["KK", "KN", "MK", "MN"])
def test_layouts(gpu, mode, majors):
    trans = majors[0] == "M", majors[1] == "N"
    kinds, n = ("f32", "f16", "f16"), 64
    _, _, data, descriptors = tiles(1, n, 16, kinds, mode, mode, *trans)
    code = kernel(n, kinds, 16, tail=f"1, 1, {int(trans[0])}, {int(trans[1])}")
    same_bits(gpu, code, data, descriptors, n, "f32")


@pytest.mark.parametrize(("d", "a_kind", "b_kind", "k"), TYPES)
@pytest.mark.parametrize("n", [8, 96, 256])
def test_types(gpu, d, a_kind, b_kind, k, n):
    kinds = d, a_kind, b_kind
    _, _, data, descriptors = tiles(2, n, k, kinds, "32B", "none")
    tail = "" if d == "s32" else "1, 1, 0, 0" if k == 16 else "1, 1"
    same_bits(gpu, kernel(n, kinds, k, tail=tail), data, descriptors, n, d)


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
    same_bits(gpu, code, data, (a, b), 16, "f32", checks=False)


# all lanes hold metadata of 8-bit elements: there is nothing to select
CHOICES = sorted({(*case[:4], selector) for case in SPARSE for selector in (0, 1) if case[3] < 64 or selector == 0})


@pytest.mark.parametrize("registers", [False, True])
@pytest.mark.parametrize(("d", "a_kind", "b_kind", "k", "selector"), CHOICES)
def test_sparse(gpu, d, a_kind, b_kind, k, selector, registers):
    """Whole numbers, so that every order of adding gives the same."""
    code, _, _, data, given = sparse_kernel((d, a_kind, b_kind), k, selector, registers, n=64)
    same_bits(gpu, code, data, given, 64, d)


@pytest.mark.parametrize("spread", [1, 4])
@pytest.mark.parametrize(("d", "a_kind", "b_kind", "k", "selector"), [case for case in CHOICES if case[0] != "s32"])
def test_sparse_sums(gpu, d, a_kind, b_kind, k, selector, spread):
    """Fractions and exponents apart: what is cut, and where, shows."""
    code, _, _, data, given = sparse_kernel((d, a_kind, b_kind), k, selector, False, n=64, spread=spread)
    same_bits(gpu, code, data, given, 64, d)


@pytest.mark.parametrize("kind", ["f32", "f16"])
def test_nan_of_the_tensor_core(gpu, kind):
    _, _, data, descriptors = tiles(1, 8, 16, (kind, "f16", "f16"), "none", "none")
    data[:2] = np.array([0xFE01], np.uint16).view(np.uint8)
    same_bits(gpu, kernel(8, (kind, "f16", "f16"), 16, tail="1, 1, 0, 0"), data, descriptors, 8, kind)
