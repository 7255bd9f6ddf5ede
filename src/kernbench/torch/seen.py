"""Tensors that were seen before: a number each, the same for all of one signature, without reading them again.

To read type, shape, strides and device of eight tensors takes Python longer than the driver takes to launch a kernel.
A tensor keeps its number until it dies or is read again; `Operation.known` in launches reads those again that lie
where none of their kind lay before, or with other strides, since a tensor can be moved and turned in place.
"""

import weakref
from collections.abc import Iterable

import torch

from kernbench.torch.tensors import signature

# the number of None
NOT_GIVEN = 0

_of_signature: dict[tuple[object, ...], int] = {}
_of_object: dict[int, int] = {id(None): NOT_GIVEN}
# when a tensor dies its number is forgotten, before another object can have its id
_alive: dict[int, weakref.KeyedRef[int, torch.Tensor]] = {}


def seen(tensors: Iterable[torch.Tensor | None]) -> list[int | None]:
    """The number of each as it was read last; one of a class that is not torch's own, which may listen, has none."""
    given = tuple(tensors)
    found: list[int | None] = [*map(_of_object.get, map(id, given))]
    if None in found:
        for index, tensor in enumerate(given):
            if found[index] is None and type(tensor) is torch.Tensor:
                found[index] = read(tensor)
    return found


def read(tensor: torch.Tensor | None) -> int:
    """The number of a tensor as it is now, to be seen from now on."""
    if tensor is None:
        return NOT_GIVEN
    number = _of_signature.setdefault(signature(tensor), len(_of_signature) + 1)
    key = id(tensor)
    if _of_object.get(key) != number and type(tensor) is torch.Tensor:
        _alive[key] = weakref.KeyedRef(tensor, _forget, key)
        _of_object[key] = number
    return number


def _forget(reference: weakref.KeyedRef[int, torch.Tensor]) -> None:
    # a tensor that was read again has a newer reference
    if _alive.get(reference.key) is reference:
        del _alive[reference.key], _of_object[reference.key]
