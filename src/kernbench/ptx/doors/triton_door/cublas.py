"""A stand-in for cuBLAS, with which Triton's programs compare their products.

CuBLAS is machine code, so torch computes.
"""

from typing import NoReturn

import torch

_TYPES = (torch.float8_e4m3fn, torch.float16, torch.float32, torch.bfloat16)


class CublasLt:
    """Replaces `triton._C.libtriton.nvidia.cublas.CublasLt`, for tensors of one session."""

    def __init__(self, workspace: object):
        """The workspace is unused."""

    def matmul(self, a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> None:
        """c = a @ b.T."""
        c.copy_(_product(a, b))

    def gemm(
        self, a: torch.Tensor, b: torch.Tensor, c: torch.Tensor, d: torch.Tensor, alpha: float, beta: float
    ) -> None:
        """d = alpha * a @ b.T + beta * c."""
        product = alpha * _product(a, b)
        d.copy_(product if beta == 0 else product + beta * c.float())

    def block_scaled_matmul_mxfp8(self, *args: object) -> NoReturn:
        """Not supported."""
        self._refuse("mxfp8")

    def block_scaled_matmul_nvfp4(self, *args: object) -> NoReturn:
        """Not supported."""
        self._refuse("nvfp4")

    def _refuse(self, kind: str) -> NoReturn:
        raise RuntimeError(
            f"cuBLAS is machine code, and kernbench computes plain products in its place, not those of {kind} with "
            "scales: compare with torch, or leave this comparison out"
        )


def _product(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    if a.dtype != b.dtype or a.dtype not in _TYPES:
        raise RuntimeError(f"Unsupported dtype for cublasLt.matmul: {a.dtype} and {b.dtype}")
    if a.dim() != 2 or b.dim() != 2 or a.shape[1] != b.shape[1]:
        raise RuntimeError(f"K dimensions must match: {tuple(a.shape)} and {tuple(b.shape)}")
    return a.float() @ b.float().T
