"""Operators that torch has for GPUs alone, or for more element types there: computed by other operators.

Each gets all parameters of torch's own by name, and returns what a GPU leaves.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from types import SimpleNamespace

import torch

from kernbench.ptx.doors.torch_door.operators.attention import attend, attends

# bits of the eight elements of a packed word of int4, in the order of two tiles' columns of a tensor core's operand
_SHIFTS = (0, 16, 4, 20, 8, 24, 12, 28)
_TILE, _ROWS, _LANES = 16, 8, 32


def _histogram(given: SimpleNamespace) -> torch.Tensor:
    """`histc` of integers, which a CPU has of floats only; bounds and bins are computed in integers."""
    values, low, high = given.self.flatten().long(), int(given.min), int(given.max)
    if low == high and values.numel():
        low, high = int(values.min()), int(values.max())
    if low == high:
        low, high = low - 1, high + 1
    inside = values[(values >= low) & (values <= high)]
    at = ((inside - low) * given.bins).div(high - low, rounding_mode="trunc").clamp(max=given.bins - 1)
    found = torch.bincount(at, minlength=given.bins).to(given.self.dtype)
    out = getattr(given, "out", None)
    return found if out is None else out.resize_(given.bins).copy_(found)


def _columns(inner: int) -> torch.Tensor:
    """The column of each element of a packed weight: [lane, word, element] within `inner` tiles of 16 columns."""
    lane, word = torch.arange(_LANES)[:, None, None], torch.arange(inner // 2)[None, :, None]
    element = torch.arange(len(_SHIFTS))
    # in a tile, a lane has columns 2 x (lane % 4) and the next, and those eight further on
    return 2 * _TILE * word + 8 * (element // 2) + 2 * (lane % 4) + element % 2


def _packed(given: SimpleNamespace) -> torch.Tensor:
    """Weights [n, k / 2], two to a byte (the even column in the upper half), in the order of tensor cores."""
    pairs, inner = given.self, given.innerKTiles
    if pairs.dtype is not torch.uint8 or inner not in (2, 4, 8):
        raise RuntimeError(f"expected uint8 and 2, 4 or 8 inner tiles, got {pairs.dtype} and {inner}")
    rows, wide = pairs.shape[0], inner * _TILE
    if 2 * pairs.shape[1] % wide:
        raise RuntimeError(f"{2 * pairs.shape[1]} columns are no multiple of {wide}")
    values = torch.stack([pairs >> 4, pairs & 15], dim=-1).flatten(-2).long()
    values = torch.nn.functional.pad(values, (0, 0, 0, -rows % _ROWS)).view(-1, _ROWS, 2 * pairs.shape[1] // wide, wide)
    # lane t has row t // 4 of its tile
    of_lane = values[:, torch.arange(_LANES) // 4].permute(0, 2, 1, 3)
    columns = _columns(inner)
    taken = of_lane.gather(3, columns.flatten(1).expand(*of_lane.shape[:3], -1)).unflatten(-1, columns.shape[1:])
    return (taken << torch.tensor(_SHIFTS)).sum(-1).to(torch.int32)


def _unpacked(packed: torch.Tensor) -> torch.Tensor:
    """The weights [n, k] of a packed tensor, 0 to 15."""
    tiles, across, lanes, words = packed.shape
    inner = 2 * words
    columns = _columns(inner).flatten(1)
    elements = (packed.long()[..., None] >> torch.tensor(_SHIFTS) & 15).flatten(-2)
    values = torch.zeros((tiles, across, _ROWS, inner * _TILE), dtype=torch.int64)
    row = (torch.arange(lanes) // 4)[:, None].expand_as(columns)
    values[:, :, row, columns] = elements
    return values.permute(0, 2, 1, 3).reshape(tiles * _ROWS, -1)


def _product(given: SimpleNamespace) -> torch.Tensor:
    """The product with packed weights: (weight - 8) x scale + zero, by groups of columns, rounded to its type."""
    x, spread = given.self, given.qScaleAndZeros.float().permute(1, 0, 2).repeat_interleave(given.qGroupSize, dim=1)
    scales, zeros = spread.unbind(-1)
    weights = ((_unpacked(given.mat2) - 8) * scales + zeros).to(x.dtype).float()
    return (x.float() @ weights.t()).to(x.dtype)


_OWN = {"_convert_weight_to_int4pack": _packed, "_weight_int4pack_mm": _product}


def has_own(func: object, args: Sequence[object]) -> bool:
    """Whether an operator is one that `own_results` computes: a CPU has none, or none for these elements."""
    packet = getattr(func, "overloadpacket", None)
    name = getattr(packet, "__name__", "")
    if name == "histc":
        return isinstance(args[0], torch.Tensor) and not args[0].dtype.is_floating_point
    # the overloads for quantised inputs have other parameters
    return (name in _OWN or attends(name)) and getattr(func, "_overloadname", "") == "default"


def own_results(func: torch._ops.OpOverload, args: Sequence[object], kwargs: Mapping[str, object]) -> object:
    """The results of an operator that `has_own` has named."""
    name = func.overloadpacket.__name__
    given = {one.name: one.default_value for one in func._schema.arguments if one.has_default_value()}
    given |= dict(zip((one.name for one in func._schema.arguments), args, strict=False))
    run = partial(attend, name) if attends(name) else _OWN.get(name, _histogram)
    return run(SimpleNamespace(**{**given, **kwargs}))
