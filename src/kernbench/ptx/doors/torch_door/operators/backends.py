"""`torch.nn.attention.sdpa_kernel`: what torch has for GPUs alone is computed by the definition of attention."""

from collections.abc import Callable

import torch
from torch.nn.functional import scaled_dot_product_attention

ATTENTION: Callable[..., object] = scaled_dot_product_attention
# cuDNN has attention for these
_NARROW = (torch.float16, torch.bfloat16)


def attended(query: torch.Tensor, *args: object, **kwargs: object) -> object:
    """Attention by the backends of the program and, where all of them are a GPU's, by the definition."""
    if not _is_of_gpus(query):
        return ATTENTION(query, *args, **kwargs)
    torch._C._set_sdp_use_math(True)
    try:
        return ATTENTION(query, *args, **kwargs)
    finally:
        torch._C._set_sdp_use_math(False)


def _is_of_gpus(query: torch.Tensor) -> bool:
    """Whether the program chose backends that a CPU does not have, of which one takes the query."""
    here = torch._C._get_math_sdp_enabled() or torch._C._get_flash_sdp_enabled()
    cudnn = getattr(torch._C, "_get_cudnn_sdp_enabled", bool)() and query.dtype in _NARROW
    return not here and (torch._C._get_mem_efficient_sdp_enabled() or cudnn)
