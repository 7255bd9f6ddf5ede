"""Products from registers to registers give the bits of those of matrices, whatever the registers hold."""

import numpy as np
import pytest

from kernbench.ptx.numerics.matrix import products
from kernbench.ptx.numerics.matrix.aligned import is_aligned
from kernbench.ptx.numerics.matrix.fragments import from_fragments, to_fragments
from kernbench.ptx.numerics.matrix.layout import accumulator, operand_a, operand_b, wmma
from kernbench.ptx.numerics.matrix.sync import mma, wmma_mma

# zeros, subnormals, the largest, infinities and NaN of f16 and of bf16
SPECIAL = np.array(
    [0, 0x8000, 1, 0x8001, 0x3FF, 0x400, 0x7BFF, 0x7C00, 0xFC00, 0x7C01, 0x7F80, 0xFF80, 0x7FC0, 0x3C00], np.uint16
)
WARPS = 3


def words(rng, how):
    count = 32 * WARPS
    if how == "bits":
        return rng.integers(0, 1 << 32, count, dtype=np.uint32)
    if how == "special":
        return rng.choice(SPECIAL, 2 * count).view(np.uint32)
    if how == "halves":
        return rng.normal(size=2 * count).astype(np.float16).view(np.uint32)
    return (rng.normal(size=count) * 10.0 ** rng.integers(-40, 38, count)).astype(np.float32).view(np.uint32)


def layouts(which, shape, kind):
    if which == "wmma":
        return wmma(shape, "a", kind), wmma(shape, "b", kind), wmma(shape, "c", "f32")
    return operand_a(shape, kind), operand_b(shape, kind), accumulator(shape)


@pytest.mark.parametrize(
    ("which", "shape", "kind"),
    [
        ("mma", "m16n8k16", "f16"),
        ("mma", "m16n8k16", "bf16"),
        ("mma", "m16n8k8", "f16"),
        ("mma", "m16n8k8", "tf32"),
        ("wmma", "m16n16k16", "f16"),
    ],
)
def test_registers_are_multiplied_as_matrices_are(which, shape, kind):
    kinds = ("f32", kind, kind, "f32")
    assert is_aligned(kinds)
    rng = np.random.default_rng(5)
    for how in ("bits", "special", "halves", "floats"):
        for added in ("bits", "floats"):
            of = layouts(which, shape, kind)
            per = 1 if kind == "tf32" else 2
            a, b = ([words(rng, how) for _ in range(one.elements // per)] for one in of[:2])
            c = [words(rng, added) for _ in range(of[2].elements)]
            matrices = [from_fragments(x, one, t) for x, one, t in zip((a, b, c), of, kinds[1:], strict=True)]
            expected = [np.zeros(32 * WARPS, np.uint32) for _ in c]
            with np.errstate(all="ignore"):
                to_fragments(products.multiply(*matrices, kinds), of[2], expected)
            # in place, as most kernels accumulate
            (wmma_mma if which == "wmma" else mma)(shape, kinds, a, b, c, c)
            assert all(np.array_equal(x, y) for x, y in zip(c, expected, strict=True)), (how, added)


def test_rows_may_have_gaps():
    """Operands, and results: what lies between their elements stays."""
    rng = np.random.default_rng(6)
    kinds = ("f32", "f16", "f16", "f32")
    gaps = [np.repeat(words(rng, "halves"), 2)[::2] for _ in range(10)]
    whole = [row.copy() for row in gaps]
    wide = [np.full(64 * WARPS, 7, np.uint32) for _ in range(4)]
    expected = [np.zeros(32 * WARPS, np.uint32) for _ in range(4)]
    mma("m16n8k16", kinds, gaps[:4], gaps[4:6], gaps[6:], [row[::2] for row in wide])
    mma("m16n8k16", kinds, whole[:4], whole[4:6], whole[6:], expected)
    assert all(np.array_equal(row[::2], one) for row, one in zip(wide, expected, strict=True))
    assert all((row[1::2] == 7).all() for row in wide)
