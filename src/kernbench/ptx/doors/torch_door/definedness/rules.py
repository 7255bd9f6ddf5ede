"""How undefined elements pass through operators of torch.

An operator with a rule gives the masks of its results. Results of all others are seen by value: what still contains the
content of unwritten memory is undefined. An operator that drops a value (a selection, a mask) makes nothing undefined.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import cast

import torch

from kernbench.ptx.doors.torch_door.definedness.operators import Operator, name_of, tags_of, tensors

# the masks of an operator's results, None for a defined one
Outcome = list[torch.Tensor | None]
_POINTWISE = getattr(torch.Tag, "pointwise", None)
_ELEMENTWISE = {"clone", "_to_copy", "contiguous", "native_dropout", "lift_fresh_copy"}
# their results do not depend on values of the first argument
_FILLS = {
    "fill", "zero", "normal", "uniform", "random", "bernoulli", "exponential", "geometric", "cauchy", "log_normal",
    "zeros_like", "ones_like", "full_like", "rand_like", "randn_like", "randint_like", "empty_like", "eye", "arange",
}  # fmt: skip
# operators that only move elements -> the positions of arguments with elements, or with a value for some
_MOVES = {
    "cat": (0,), "stack": (0,), "index": (0,), "_unsafe_index": (0,), "index_select": (0,), "gather": (0,),
    "take": (0,), "flip": (0,), "roll": (0,), "repeat": (0,), "constant_pad_nd": (0, 2), "tril": (0,), "triu": (0,),
    "slice_scatter": (0, 1), "select_scatter": (0, 1), "index_put": (0, 2), "index_copy": (0, 3), "scatter": (0, 3),
    "masked_scatter": (0, 2), "index_fill": (0, 3), "_unsafe_view": (0,), "_reshape_copy": (0,), "view_copy": (0,),
    "permute_copy": (0,), "transpose_copy": (0,), "expand_copy": (0,), "diag_embed": (0,), "unfold_copy": (0,),
    "repeat_interleave": (0,), "embedding": (0,), "masked_select": (0,), "masked_fill": (0, 2),
}  # fmt: skip
_REDUCTIONS = {
    "sum", "mean", "prod", "max", "min", "amax", "amin", "all", "any", "argmax", "argmin", "var", "std", "norm",
    "linalg_vector_norm", "logsumexp", "var_mean", "std_mean", "aminmax", "count_nonzero",
}  # fmt: skip


@dataclass(frozen=True)
class Call:
    """A call of an operator, with the masks of its arguments by their identity."""

    func: Operator
    args: Sequence[object]
    kwargs: Mapping[str, object]
    masks: Mapping[int, torch.Tensor]

    @property
    def name(self) -> str:
        """The operator's name, without the mark of one that changes its first argument."""
        name = name_of(self.func)
        return name.removesuffix("_") if not name.endswith("__") else name

    def mask(self, value: object) -> torch.Tensor | None:
        """The mask of an argument; None if it is defined."""
        return self.masks.get(id(value))


def fills(func: Operator) -> bool:
    """Whether an operator that changes its first argument does not read it."""
    return name_of(func).removesuffix("_") in _FILLS


def outcome(call: Call, shapes: Sequence[torch.Size]) -> Outcome | None:
    """The masks of results of these shapes; None if there is no rule for the operator."""
    rule = _rule(call)
    if rule is None:
        return None
    try:
        found = rule(call, shapes)
        return [_fitting(mask, shape) for mask, shape in zip(found, shapes, strict=True)]
    except (RuntimeError, IndexError, TypeError, ValueError, NotImplementedError):
        # a form of the operator that the rule does not know
        return None


def _fitting(mask: torch.Tensor | None, shape: torch.Size) -> torch.Tensor | None:
    if mask is None or not bool(mask.any()):
        return None
    return mask.expand(shape) if mask.numel() != shape.numel() else mask.reshape(shape)


def _rule(call: Call) -> Callable[[Call, Sequence[torch.Size]], Outcome] | None:
    name = call.name
    if name in _OWN:
        return _OWN[name]
    if name in _FILLS:
        return lambda call, shapes: [None] * len(shapes)
    if name in _MOVES:
        return _moved
    if name in _REDUCTIONS:
        return _reduced
    if name in _ELEMENTWISE or (_POINTWISE is not None and _POINTWISE in tags_of(call.func)):
        return lambda call, shapes: [_any(call, call.args)] * len(shapes)
    return None


def _any(call: Call, values: Sequence[object]) -> torch.Tensor | None:
    """The elements at which one of some arguments is undefined."""
    found: torch.Tensor | None = None
    for value in values:
        mask = call.mask(value)
        if mask is not None:
            found = mask if found is None else found | mask
    return found


def _where(call: Call, shapes: Sequence[torch.Size]) -> Outcome:
    """A selection: what is not selected is dropped."""
    condition, left, right = (cast(torch.Tensor, one) for one in call.args)
    chosen = torch.where(condition.bool(), _or_none(call, left), _or_none(call, right))
    of_condition = call.mask(condition)
    return [chosen if of_condition is None else chosen | of_condition]


def _dominated(dominating: bool) -> Callable[[Call, Sequence[torch.Size]], Outcome]:
    """`and` and `or`: an element is defined where one defined operand decides it."""

    def rule(call: Call, shapes: Sequence[torch.Size]) -> Outcome:
        found = _any(call, call.args)
        for value, other in zip(call.args, reversed(call.args), strict=True):
            if found is not None and call.mask(other) is not None:
                found = found & ~_deciding(call, value, dominating)
        return [found]

    return rule


def _deciding(call: Call, value: object, dominating: bool) -> torch.Tensor:
    """Where one operand is defined and decides `or` (`dominating`) or `and`, whatever the other one is."""
    mask, operand = call.mask(value), torch.as_tensor(value)
    # a number that is not 0 decides no `or` of bits
    if dominating and operand.dtype is not torch.bool:
        return torch.zeros((), dtype=torch.bool)
    decided = operand.bool() == dominating
    return decided if mask is None else decided & ~mask


def _added(call: Call, shapes: Sequence[torch.Size]) -> Outcome:
    """Elements that are added to others by their index."""
    target, dim, index, source = call.args
    packet = getattr(torch.ops.aten, call.name)
    added = packet(_or_none(call, target).int(), dim, index, _or_none(call, source).int())
    return [cast(torch.Tensor, added) != 0]


def _along(call: Call, shapes: Sequence[torch.Size]) -> Outcome:
    """Each element depends on all of its row."""
    mask, dim = call.mask(call.args[0]), cast(int, call.args[1])
    return [None if mask is None else mask.any(dim, keepdim=True).expand(shapes[0])]


def _copied(call: Call, shapes: Sequence[torch.Size]) -> Outcome:
    """`copy_`: what is there now is what was in the second argument."""
    return [call.mask(call.args[1])]


def _or_none(call: Call, value: object) -> torch.Tensor:
    """A mask for an argument, of its shape; a number has one that is False."""
    mask = call.mask(value)
    if mask is not None:
        return mask
    return torch.zeros(value.shape if isinstance(value, torch.Tensor) else (), dtype=torch.bool)


def _moved(call: Call, shapes: Sequence[torch.Size]) -> Outcome:
    """Elements that are moved: so are their masks, by the same operator."""
    args = list(call.args)
    for position in _MOVES[call.name]:
        if position < len(args):
            value = args[position]
            many = isinstance(value, (list, tuple))
            args[position] = [_or_none(call, one) for one in tensors(value)] if many else _or_none_or_false(call, value)
    known = {name: value for name, value in call.kwargs.items() if name in ("dim", "largest", "accumulate")}
    # `scatter_` as well as `scatter`
    packet = getattr(torch.ops.aten, call.name)
    return [cast(torch.Tensor, packet(*args, **known))]


def _or_none_or_false(call: Call, value: object) -> torch.Tensor | bool:
    return _or_none(call, value) if isinstance(value, torch.Tensor) else False


def _reduced(call: Call, shapes: Sequence[torch.Size]) -> Outcome:
    """A result is undefined where one of the elements it is made of is."""
    mask = call.mask(call.args[0])
    if mask is None:
        return [None] * len(shapes)
    if shapes[0].numel() == 1:
        return [mask.any()] * len(shapes)
    position = 2 if call.name in ("norm", "linalg_vector_norm") else 1
    dims = call.kwargs.get("dim", call.args[position] if len(call.args) > position else None)
    chosen = [dims] if isinstance(dims, int) else cast(Sequence[int], dims) or range(mask.dim())
    for dim in sorted({one % mask.dim() for one in chosen}, reverse=True):
        mask = mask.any(dim)
    return [mask] * len(shapes)


_OWN: dict[str, Callable[[Call, Sequence[torch.Size]], Outcome]] = {
    "where": _where,
    "logical_and": _dominated(False),
    "bitwise_and": _dominated(False),
    "__and__": _dominated(False),
    "__iand__": _dominated(False),
    "logical_or": _dominated(True),
    "bitwise_or": _dominated(True),
    "__or__": _dominated(True),
    "__ior__": _dominated(True),
    "copy": _copied,
    "index_add": _added,
    "scatter_add": _added,
    "_softmax": _along,
    "_log_softmax": _along,
}
