"""mma.sync and wmma.mma, from fragments to fragments, for all warps of a row at once."""

from collections.abc import Callable, Sequence

import numpy as np

from kernbench.common.dtypes import Array
from kernbench.ptx.numerics.matrix.aligned import Layouts, is_aligned, multiply_rows
from kernbench.ptx.numerics.matrix.fragments import from_fragments, to_fragments
from kernbench.ptx.numerics.matrix.layout import (
    LANES,
    Index,
    Layout,
    accumulator,
    dimensions,
    operand_a,
    operand_b,
    quad_accumulator,
    quad_operand,
    wmma,
)
from kernbench.ptx.numerics.matrix.products import multiply
from kernbench.ptx.numerics.matrix.sparse import columns_of, expanded

Rows = Sequence[Array]
Kinds = tuple[str, str, str, str]


def mma(
    shape: str, kinds: Kinds, a: Rows, b: Rows, c: Rows, out: Rows, satfinite: bool = False, xor: bool = False
) -> None:
    """mma.sync.aligned.shape.row.col: `kinds` are the types of D, A, B, C; operands are rows, one for each register."""
    _multiplied(_of_mma, shape, kinds, (a, b, c, out), satfinite, xor)


def _of_mma(shape: str, kinds: Kinds) -> Layouts:
    return Layouts(operand_a(shape, kinds[1]), operand_b(shape, kinds[2]), accumulator(shape), accumulator(shape))


def _multiplied(
    of: Callable[[str, Kinds], Layouts], shape: str, kinds: Kinds, rows: Sequence[Rows], satfinite: bool, xor: bool
) -> None:
    """D = A B + C in registers with the layouts that `of` gives for a shape."""
    if is_aligned(kinds):
        multiply_rows(of, shape, kinds, rows)
        return
    layouts, (a, b, c, out) = of(shape, kinds), rows
    left = from_fragments(a, layouts.a, kinds[1])
    right = from_fragments(b, layouts.b, kinds[2])
    addend = from_fragments(c, layouts.c, kinds[3])
    to_fragments(multiply(left, right, addend, kinds, satfinite, xor), layouts.d, out)


def mma_sparse(
    shape: str, kinds: Kinds, a: Rows, b: Rows, c: Rows, e: Array, selector: int, out: Rows, satfinite: bool = False
) -> None:
    """mma.sp: A holds half of its elements, and `e` the metadata with their positions."""
    m, n, k = dimensions(shape)
    held = from_fragments(a, operand_a(f"m{m}n{n}k{k // 2}", kinds[1]), kinds[1])
    left = expanded(held, columns_of(e, shape, kinds[1], selector), k)
    right = from_fragments(b, operand_b(shape, kinds[2]), kinds[2])
    addend = from_fragments(c, accumulator(shape), kinds[3])
    to_fragments(multiply(left, right, addend, kinds, satfinite), accumulator(shape), out)


def mma_quads(majors: tuple[str, str], kinds: Kinds, a: Rows, b: Rows, c: Rows, out: Rows) -> None:
    """mma.m8n8k4 of f16: four matrices per warp, each in lanes 4q..4q+3 and 16+4q..16+4q+3."""
    layouts = quad_operand("a", majors[0]), quad_operand("b", majors[1]), quad_accumulator(kinds[3])
    results = [row.reshape(-1, LANES) for row in out]
    for quad in range(4):
        lanes = np.r_[4 * quad : 4 * quad + 4, 16 + 4 * quad : 20 + 4 * quad]
        left, right, addend = (
            _from_quad(rows, layout, kind, lanes)
            for rows, layout, kind in zip((a, b, c), layouts, (kinds[1], kinds[2], kinds[3]), strict=True)
        )
        _to_quad(multiply(left, right, addend, kinds), quad_accumulator(kinds[0]), lanes, results)


def _from_quad(rows: Rows, layout: Layout, kind: str, lanes: Index) -> Array:
    words = np.stack([np.asarray(row).reshape(-1, LANES)[:, lanes] for row in rows], axis=-1)
    width = 16 if kind == "f16" else 32
    elements = words.view(f"uint{width}").reshape(len(words), -1)
    matrix = np.empty((len(words), layout.shape[0] * layout.shape[1]), elements.dtype)
    matrix[:, (layout.rows[lanes] * layout.shape[1] + layout.columns[lanes]).ravel()] = elements
    return matrix.reshape(-1, *layout.shape)


def _to_quad(matrix: Array, layout: Layout, lanes: Index, out: Rows) -> None:
    order = (layout.rows[lanes] * layout.shape[1] + layout.columns[lanes]).ravel()
    elements = np.ascontiguousarray(matrix.reshape(len(matrix), -1)[:, order])
    words = elements.view(np.uint32).reshape(len(matrix), 8, len(out))
    for number, row in enumerate(out):
        row[:, lanes] = words[:, :, number]


def wmma_mma(
    shape: str, kinds: Kinds, a: Rows, b: Rows, c: Rows, out: Rows, satfinite: bool = False, xor: bool = False
) -> None:
    """wmma.mma, with fragments in the emulator's own order (`layout.wmma`)."""
    _multiplied(_of_wmma, shape, kinds, (a, b, c, out), satfinite, xor)


def _of_wmma(shape: str, kinds: Kinds) -> Layouts:
    to, left, right, addend = kinds
    return Layouts(wmma(shape, "a", left), wmma(shape, "b", right), wmma(shape, "c", addend), wmma(shape, "c", to))
