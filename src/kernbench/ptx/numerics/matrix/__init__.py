"""Matrix instructions: fragment layouts, products with the tensor core's bits, ldmatrix and similar."""

from kernbench.ptx.numerics.matrix.fragments import from_fragments, to_fragments
from kernbench.ptx.numerics.matrix.layout import Layout, accumulator, operand_a, operand_b, wgmma_accumulator, wmma
from kernbench.ptx.numerics.matrix.move import load_matrices, store_matrices, transpose_matrix
from kernbench.ptx.numerics.matrix.products import multiply
from kernbench.ptx.numerics.matrix.sync import mma, mma_quads, mma_sparse, wmma_mma

__all__ = [
    "Layout",
    "accumulator",
    "from_fragments",
    "load_matrices",
    "mma",
    "mma_quads",
    "mma_sparse",
    "multiply",
    "operand_a",
    "operand_b",
    "store_matrices",
    "to_fragments",
    "transpose_matrix",
    "wgmma_accumulator",
    "wmma",
    "wmma_mma",
]
