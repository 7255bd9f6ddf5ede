"""Append keys and values to a paged cache: the operator `kernbench::append`."""

import torch

from kernbench.common.errors import MisuseError
from kernbench.kernels import append as kernels
from kernbench.kernels.attention import NARROW
from kernbench.kernels.caches import PagedCache
from kernbench.torch.launches import Built, Tensors
from kernbench.torch.library import operator
from kernbench.torch.tensors import cache_of, check, check_inference, dtype_name


def slots_of(table: torch.Tensor, positions: torch.Tensor, page_size: int) -> torch.Tensor:
    """The slot of one token of each sequence, at `positions` [sequences], in pages numbered by `table`."""
    where = positions.to(torch.int64)
    page = table.gather(1, (where // page_size)[:, None])[:, 0].to(torch.int64)
    return page * page_size + where % page_size


def append(
    k_new: torch.Tensor,
    v_new: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    slots: torch.Tensor,
    *,
    layout: str = "NHD",
    scales: tuple[float, float] = (1.0, 1.0),
) -> None:
    """Write k_new and v_new [tokens, KV heads, size] into the pages k and v, token i at slots[i] (int64).

    A slot is page number * page size + index in the page. Tokens without an existing slot, such as -1, are skipped.
    Pages of 8 bits (float8_e4m3fn) hold keys and values divided by `scales`.
    """
    check_inference(k_new, v_new, k, v)
    tensors, options = (k_new, v_new, k, v, slots), (layout, *scales)
    known = _RUN.known(tensors, options)
    if known is None:
        torch.ops.kernbench.append(*tensors, *options)
    else:
        known.launch()


def _build(tensors: Tensors, layout: str, key_scale: float, value_scale: float) -> Built:
    """Check everything, and build the kernel."""
    k, slots = tensors["k"], tensors["slots"]
    cache, heads = cache_of(k, layout)
    assert isinstance(cache, PagedCache)
    new = tensors["k_new"].dtype
    narrow = NARROW if k.dtype == torch.float8_e4m3fn else ""
    shape = kernels.AppendShape(heads, k.shape[3], dtype_name(new), cache, narrow)
    kept = k.dtype if narrow else new
    kinds = {"slots": torch.int64, "k": kept, "v": kept}
    for name, tensor in tensors.items():
        check(name, tensor, k.device, kinds.get(name, new))
    if slots.dim() != 1:
        raise MisuseError(f"slots have shape {list(slots.shape)}, and [tokens] is wanted")
    numbers = kernels.arguments(shape, **tensors, scales=(key_scale, value_scale))[len(tensors) :]

    kernel = kernels.AppendKernel(shape)
    ctas = kernel.ctas(slots.shape[0])
    pointers = [(name, 0) for name in ("k_new", "v_new", "k", "v", "slots")]
    return Built(kernel.build(lines=False), kernel.threads, (ctas, 1, 1), pointers, numbers, written=("k", "v"))


_RUN = operator(
    "append",
    {"k_new": "Tensor", "v_new": "Tensor", "k": "Tensor(a!)", "v": "Tensor(b!)", "slots": "Tensor"},
    "str layout, float key_scale, float value_scale",
    _build,
)
