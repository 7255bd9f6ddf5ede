"""torch tensors as kernels use them: names of types, checks, and conversion from NumPy."""

from collections.abc import Sequence

import ml_dtypes
import numpy as np
import torch

from kernbench.common.dtypes import Array
from kernbench.common.errors import MisuseError
from kernbench.kernels.caches import DenseCache, PagedCache

DTYPES = {torch.float16: "f16", torch.bfloat16: "bf16", torch.float32: "f32"}


def dtype_name(dtype: torch.dtype) -> str:
    """The kernels' name of an element type."""
    if dtype not in DTYPES:
        raise MisuseError(f"{dtype}: one of {', '.join(map(str, DTYPES))}")
    return DTYPES[dtype]


def check(name: str, tensor: torch.Tensor, device: torch.device, dtype: torch.dtype) -> None:
    """Raise MisuseError if a tensor is on another device, of another type, or not contiguous."""
    if tensor.device != device:
        raise MisuseError(f"{name} is on {tensor.device}, and {device} is wanted")
    if tensor.dtype != dtype:
        raise MisuseError(f"{name} has type {tensor.dtype}, and {dtype} is wanted")
    if not tensor.is_contiguous():
        raise MisuseError(f"{name} has strides {tuple(tensor.stride())}: give it as it lies, or {name}.contiguous()")


def cache_of(k: torch.Tensor, layout: str | None) -> tuple[DenseCache | PagedCache, int]:
    """The kind of cache that k is (paged with a `layout`, else dense), and its number of heads."""
    if k.dim() != (3 if layout is None else 4):
        words = "a dense cache has 3 dimensions" if layout is None else "pages have 4 dimensions"
        raise MisuseError(f"k has shape {list(k.shape)}, and {words}")
    if layout is None:
        return DenseCache(), k.shape[1]
    page, heads = k.shape[1:3] if layout == "NHD" else reversed(k.shape[1:3])
    return PagedCache(page, layout), heads


def check_table(
    cache: PagedCache, lengths: Sequence[int], k: torch.Tensor, table: torch.Tensor | None, entries: bool
) -> None:
    """Raise MisuseError if a table does not fit the lengths; with `entries` also if it names pages that k lacks."""
    if table is None:
        raise MisuseError("the plan has pages: table= names those of each sequence")
    cache.check_table(lengths, table)
    if not entries:
        return
    numbers, pages = table.cpu().numpy(), k.shape[0]
    used = -(-np.asarray(lengths) // cache.page_size)
    wrong = (np.arange(numbers.shape[1]) < used[:, None]) & ((numbers < 0) | (numbers >= pages))
    if wrong.any():
        sequence, number = (int(axis[0]) for axis in np.nonzero(wrong))
        raise MisuseError(
            f"table[{sequence}, {number}] is {int(numbers[sequence, number])}, and the cache has {pages} pages"
        )


def check_inference(*tensors: torch.Tensor | None) -> None:
    """Raise MisuseError if gradients would be needed: the kernels have no backward pass."""
    for tensor in tensors:
        if tensor is not None and tensor.requires_grad and torch.is_grad_enabled():
            raise MisuseError("these kernels have no gradient: call them under torch.no_grad(), or detach the tensors")


def signature(tensor: torch.Tensor) -> tuple[object, ...]:
    """The properties that checks depend on, so that tensors of equal signatures need no further checks."""
    return tensor.dtype, tensor.shape, tensor.is_contiguous(), tensor.get_device()


def from_array(array: Array) -> torch.Tensor:
    """A CPU tensor that shares an array's memory; unsigned integers become signed ones with the same bits."""
    if array.dtype == np.dtype(ml_dtypes.bfloat16):
        return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
    if array.dtype == np.dtype(ml_dtypes.float8_e4m3fn):
        return torch.from_numpy(array.view(np.uint8)).view(torch.float8_e4m3fn)
    return torch.from_numpy(array.view(array.dtype.str.replace("u", "i")) if array.dtype.kind == "u" else array)
