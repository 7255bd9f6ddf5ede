"""Bits of wgmma: every type, exact sums of sparse products, and the NaN of the tensor core."""

import numpy as np
import pytest
from tests.ptx.emulator.asynchronous.matrices import TYPES, assert_products, unfragment
from tests.ptx.emulator.asynchronous.test_wgmma import SPARSE, kernel, launch, sparse_kernel, tiles
from tests.ptx.numerics.matrix.test_exact import expected

ROWS = (0, 9, 22, 63)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("registers", [False, True])
@pytest.mark.parametrize(("d", "a_kind", "b_kind", "k", "selector"), [case for case in SPARSE if case[0] == "f32"])
def test_sparse_products_are_added_as_dense_ones(d, a_kind, b_kind, k, selector, registers):
    """Elements that are not there are no terms: those that are there are added at once, cut where dense ones are."""
    kinds = d, a_kind, b_kind
    code, full, b, data, given = sparse_kernel(kinds, k, selector, registers, spread=3)
    run, words = launch(code, data, given, 16, d)
    assert not run.findings
    found = unfragment(words, 16, d).view(np.float32)
    for row in ROWS:
        wanted = [expected(full[row].astype(np.float32), b[n].astype(np.float32), 0.0, kinds) for n in range(16)]
        np.testing.assert_array_equal(found[row], np.array(wanted, np.float32))


@pytest.mark.parametrize(("kind", "nan"), [("f32", 0x7FFFFFFF), ("f16", 0x7FFF)])
def test_nan_has_the_bits_of_the_tensor_core(kind, nan):
    """Whatever the payload and the sign of the operand, and whatever the processor makes of it here."""
    _, _, data, descriptors = tiles(1, 8, 16, (kind, "f16", "f16"), "none", "none")
    # the first element of A: a NaN of a payload and a sign of its own
    data[:2] = np.array([0xFE01], np.uint16).view(np.uint8)
    code = kernel(8, (kind, "f16", "f16"), 16, tail="1, 1, 0, 0")
    _, words = launch(code, data, descriptors, 8, kind)
    bits = unfragment(words, 8, kind)
    assert (bits[0] == nan).all()
    assert not (bits[1:] == nan).any()


@pytest.mark.sampled(10)
@pytest.mark.parametrize(("d", "a_kind", "b_kind", "k"), TYPES)
@pytest.mark.parametrize("n", [8, 96, 256])
def test_types(d, a_kind, b_kind, k, n):
    kinds = d, a_kind, b_kind
    a, b, data, descriptors = tiles(2, n, k, kinds, "32B", "none")
    tail = "" if d == "s32" else "1, 1, 0, 0" if k == 16 else "1, 1"
    run, words = launch(kernel(n, kinds, k, tail=tail), data, descriptors, n, d)
    assert not run.findings
    assert_products(words, n, kinds, a, b)
