"""Merge attention outputs over parts of the keys: the operator `kernbench::merge`."""

import torch

from kernbench.common.errors import MisuseError
from kernbench.kernels import merge as kernels
from kernbench.torch.launches import Built, Tensors
from kernbench.torch.library import operator
from kernbench.torch.tensors import check, check_inference, dtype_name


def merge(
    parts: torch.Tensor,
    lses: torch.Tensor,
    *,
    out: torch.Tensor | None = None,
    lse: torch.Tensor | None = None,
    dtype: torch.dtype | None = None,
) -> torch.Tensor:
    """Merge parts [parts, tokens, heads, size] into one output [tokens, heads, size], weighted by lses.

    lses [parts, tokens, heads], f32, are natural logarithms of the softmax's sums; `lse` receives that of all parts.
    The output has the type `dtype`, by default that of the parts.
    """
    check_inference(parts, lses)
    if out is None:
        out = torch.empty(parts.shape[1:], dtype=dtype or parts.dtype, device=parts.device)
    tensors = parts, lses, out, lse
    known = _RUN.known(tensors, ())
    if known is None:
        torch.ops.kernbench.merge(*tensors)
    else:
        known.launch()
    return out


def _build(tensors: Tensors) -> Built:
    """Check all tensors and build the kernel."""
    parts, lses, out, lse = tensors["parts"], tensors["lses"], tensors["out"], tensors.get("lse")
    if parts.dim() != 4:
        raise MisuseError(f"parts have shape {list(parts.shape)}, and [parts, tokens, heads, head size] is wanted")
    check("parts", parts, parts.device, parts.dtype)
    check("out", out, parts.device, out.dtype)
    for name, tensor in (("lses", lses), ("lse", lse)):
        if tensor is not None:
            check(name, tensor, parts.device, torch.float32)
    shape = kernels.MergeShape(parts.shape[2], parts.shape[3], dtype_name(parts.dtype), dtype_name(out.dtype))
    numbers = kernels.arguments(shape, parts, lses, out, lse)[4:]

    kernel = kernels.MergeKernel(shape)
    ctas = kernel.ctas(parts.shape[1])
    pointers = [(name if name in tensors else "", 0) for name in ("parts", "lses", "out", "lse")]
    return Built(kernel.build(lines=False), kernel.threads, (ctas, 1, 1), pointers, numbers, written=("out", "lse"))


_RUN = operator("merge", {"parts": "Tensor", "lses": "Tensor", "out": "Tensor(a!)", "lse": "Tensor(b!)?"}, "", _build)
