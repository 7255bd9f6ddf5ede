"""Numbers for signatures of tensors, cached by tensor object, so that known tensors are not inspected again.

Reading type, shape, strides and device of eight tensors takes Python longer than the driver takes to launch a kernel.
A tensor keeps its number until it is freed or read again. Since tensors can be resized or transposed in place,
`Operation.known` in launches reads them again if their addresses or strides are new.
"""

import weakref
from collections.abc import Iterable

import torch

from kernbench.torch.tensors import signature

# the number of None
NOT_GIVEN = 0

_of_signature: dict[tuple[object, ...], int] = {}
_of_object: dict[int, int] = {id(None): NOT_GIVEN}
# removes a tensor's number when it is freed, before another object can have its id
_alive: dict[int, weakref.KeyedRef[int, torch.Tensor]] = {}


def seen(tensors: Iterable[torch.Tensor | None]) -> list[int | None]:
    """The cached number of each tensor; None for subclasses of torch.Tensor, which may override operators."""
    given = tuple(tensors)
    found: list[int | None] = [*map(_of_object.get, map(id, given))]
    if None in found:
        for index, tensor in enumerate(given):
            if found[index] is None and type(tensor) is torch.Tensor:
                found[index] = read(tensor)
    return found


def read(tensor: torch.Tensor | None) -> int:
    """The number of a tensor's present signature, which is cached for `seen`."""
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
