"""Operators that add up numbers of two bytes: a GPU does so in float32, some of the CPU's in the numbers' own type.

On the device they are computed in float32 and rounded once, so that what a program compares with is as exact as on a
GPU, whatever the processor at hand.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

import torch

from kernbench.ptx.doors.torch_door.storages import is_plain

_SHORT = (torch.float16, torch.bfloat16)
# operator -> of each of its results the argument whose element type it has; of statistics None: they stay float32
_RESULTS: dict[str, tuple[int | None, ...]] = {
    **dict.fromkeys(("mm", "bmm", "mv", "dot", "vdot", "addmm", "baddbmm", "addbmm", "addmv", "convolution"), (0,)),
    **dict.fromkeys(("_softmax", "_log_softmax", "_softmax_backward_data", "_log_softmax_backward_data"), (0,)),
    **dict.fromkeys(("logsumexp", "embedding_dense_backward"), (0,)),
    "convolution_backward": (1, 2, 2),
    "native_layer_norm": (0, None, None),
    "native_layer_norm_backward": (1, 5, 5),
    "native_group_norm": (0, None, None),
    "native_group_norm_backward": (1, 4, 4),
}
# keyword arguments that change nothing about types
_FACTORS = {"alpha", "beta"}


class Operator(Protocol):
    """An overload of an operator."""

    overloadpacket: object

    def __call__(self, *args: object, **kwargs: object) -> object:
        """Run it."""
        ...


_WIDENED = {getattr(torch.ops.aten, name): types for name, types in _RESULTS.items() if hasattr(torch.ops.aten, name)}


def _is_short(value: object) -> bool:
    return isinstance(value, torch.Tensor) and is_plain(value) and value.dtype in _SHORT


def _wide(value: object) -> object:
    return value.float() if isinstance(value, torch.Tensor) and _is_short(value) else value


def may_widen(func: object) -> bool:
    """Whether an operator is one that `widened` computes, of whatever tensors."""
    return getattr(func, "overloadpacket", None) in _WIDENED


def widened(
    func: Operator, args: Sequence[object], kwargs: Mapping[str, object], inside: Callable[[object], bool]
) -> "tuple[object, ...] | object | None":
    """The results of an operator on the device, computed in float32 and rounded; None where it runs as it is."""
    types = _WIDENED.get(getattr(func, "overloadpacket", None))
    if types is None or not _FACTORS.issuperset(kwargs):
        return None
    if not any(_is_short(value) and inside(value) for value in args):
        return None
    result = func(*(_wide(value) for value in args), **kwargs)
    given = [value.dtype if isinstance(value, torch.Tensor) else None for value in args]
    if not isinstance(result, tuple):
        return _narrow(result, _type_of(given, types[0]))
    return tuple(_narrow(one, _type_of(given, at)) for one, at in zip(result, types, strict=True))


def _type_of(given: "Sequence[torch.dtype | None]", at: int | None) -> "torch.dtype | None":
    return None if at is None or at >= len(given) else given[at]


def _narrow(value: object, dtype: "torch.dtype | None") -> object:
    return value.to(dtype) if dtype is not None and isinstance(value, torch.Tensor) else value
