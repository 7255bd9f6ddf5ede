"""Operators that accumulate 16-bit floats: a GPU does so in float32, some CPU kernels in the narrow type.

On the device they are computed in float32 and rounded once, so that a program's reference is as exact as on a GPU,
whatever the host's processor. Block-scaled products (`_scaled_mm` of MX and NVFP4), which only GPUs have, are computed
that way as well. Integer division by zero, which raises an error on a CPU, gives the results of a GPU.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol, cast

import torch

from kernbench.ptx.doors.torch_door.storages import is_plain

_SHORT = (torch.float16, torch.bfloat16)
# operator -> for each result the argument whose element type it has; None for statistics, which stay float32
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
# keyword arguments that do not affect types
_FACTORS = {"alpha", "beta"}


class Operator(Protocol):
    """An overload of an operator."""

    overloadpacket: object

    def __call__(self, *args: object, **kwargs: object) -> object:
        """Run it."""
        ...


_WIDENED = {getattr(torch.ops.aten, name): types for name, types in _RESULTS.items() if hasattr(torch.ops.aten, name)}


_SCALED = torch.ops.aten._scaled_mm
# scale type by name -> elements that share a scale; older releases of torch lack some
_BLOCKS = {"float8_e8m0fnu": 32, "float8_e4m3fn": 16}
_E2M1 = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)


# integer divisions, and those that round down
_DIVISIONS = {
    getattr(torch.ops.aten, f"{name}{suffix}")
    for name in ("floor_divide", "remainder", "fmod", "div")
    for suffix in ("", "_")
}
_FLOORING = (torch.ops.aten.floor_divide, torch.ops.aten.floor_divide_)


def _is_short(value: object) -> bool:
    return isinstance(value, torch.Tensor) and is_plain(value) and value.dtype in _SHORT


def _wide(value: object) -> object:
    return value.float() if isinstance(value, torch.Tensor) and _is_short(value) else value


def may_widen(func: object) -> bool:
    """Whether an operator is one that `widened` computes for some tensors."""
    packet = getattr(func, "overloadpacket", None)
    return packet in _WIDENED or packet in _DIVISIONS or packet is _SCALED


def widened(
    func: Operator, args: Sequence[object], kwargs: Mapping[str, object], inside: Callable[[object], bool]
) -> "tuple[object, ...] | object | None":
    """The results of an operator on the device, computed in float32 and rounded; None if it runs unchanged."""
    if getattr(func, "overloadpacket", None) in _DIVISIONS:
        given = [value for value in args[:2] if isinstance(value, torch.Tensor)]
        plain = all(is_plain(tensor) for tensor in given) and any(inside(tensor) for tensor in given)
        return _divided(func, args, kwargs) if plain else None
    if getattr(func, "overloadpacket", None) is _SCALED:
        return _block_scaled(args, kwargs) if inside(args[0]) and _block_of(args) else None
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


def _divided(func: Operator, args: Sequence[object], kwargs: Mapping[str, object]) -> torch.Tensor | None:
    """Integer division with zeros among the divisors; None if there are none.

    On GPUs, as in the emulator, all bits of quotient and remainder are set. Where torch rounds down, it subtracts one
    from the quotient of a negative number, as its sign differs from the divisor's.
    """
    number, divisor = (torch.as_tensor(value) for value in args[:2])
    mode = kwargs.get("rounding_mode")
    whole = func.overloadpacket not in (torch.ops.aten.div, torch.ops.aten.div_) or mode is not None
    if not whole or any(kind.dtype.is_floating_point or kind.dtype.is_complex for kind in (number, divisor)):
        return None
    zero = divisor == 0
    if not zero.any():
        return None
    floors = mode == "floor" or func.overloadpacket in _FLOORING
    lower = (number < 0) & zero if floors else torch.zeros_like(zero)
    ones = torch.where(zero, torch.ones_like(divisor), divisor)
    # a Python scalar does not affect the result's type
    safe: object = ones if isinstance(args[1], torch.Tensor) else 1
    result = cast(torch.Tensor, func(args[0], safe, *args[2:], **kwargs))
    bits = torch.full((), -1, dtype=torch.int64).to(result.dtype)
    result[zero.expand(result.shape)] = bits
    if floors:
        result[lower.expand(result.shape)] = bits - 1
    return result


def _type_of(given: "Sequence[torch.dtype | None]", at: int | None) -> "torch.dtype | None":
    return None if at is None or at >= len(given) else given[at]


def _narrow(value: object, dtype: "torch.dtype | None") -> object:
    return value.to(dtype) if dtype is not None and isinstance(value, torch.Tensor) else value


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _block_of(args: Sequence[object]) -> int:
    """The elements that share a scale in a block-scaled product; 0 for scales of whole rows or matrices."""
    scale = args[2] if len(args) > 2 else None
    return _BLOCKS.get(_name(scale.dtype), 0) if isinstance(scale, torch.Tensor) else 0


def _block_scaled(args: Sequence[object], kwargs: Mapping[str, object]) -> torch.Tensor:
    """`torch._scaled_mm` of [m, k] and [k, n] with scales for blocks along k, in the layout of tensor cores."""
    a, b, scale_a, scale_b = (cast(torch.Tensor, value) for value in args[:4])
    more = {**dict(zip(("bias", "scale_result", "out_dtype"), args[4:], strict=False)), **kwargs}
    bias, dtype = cast("torch.Tensor | None", more.get("bias")), cast("torch.dtype | None", more.get("out_dtype"))
    block = _BLOCKS[_name(scale_a.dtype)]
    left, right = _elements(a), _elements(b.t())
    for values, scales in ((left, scale_a), (right, scale_b)):
        values *= _scales(scales, len(values), values.shape[1] // block).repeat_interleave(block, dim=1)
    product = left @ right.t()
    product = product if bias is None else product + bias.float()
    return product.to(dtype or torch.bfloat16)


def _elements(matrix: torch.Tensor) -> torch.Tensor:
    """The rows of a matrix in float32; a byte has two 4-bit floats, the lower half first."""
    if _name(matrix.dtype) != "float4_e2m1fn_x2":
        return matrix.float()
    octets = matrix.view(torch.uint8).contiguous()
    codes = torch.stack([octets & 15, octets >> 4], dim=-1).flatten(-2)
    table = torch.tensor([*_E2M1, *(-value for value in _E2M1)])
    return table[codes.long()]


def _scales(scales: torch.Tensor, rows: int, columns: int) -> torch.Tensor:
    """Scales as [rows, columns]; the layout has tiles of 128 rows by four columns, with every 32nd row adjacent."""
    across, down = -(-rows // 128), -(-columns // 4)
    octets = scales.contiguous().view(torch.uint8).reshape(across, down, 32, 4, 4).permute(0, 3, 2, 1, 4)
    octets = octets.reshape(128 * across, 4 * down)[:rows, :columns].contiguous()
    if _name(scales.dtype) == "float8_e8m0fnu":
        return torch.exp2(octets.float() - 127)
    return octets.view(scales.dtype).float()
