"""Gradients that torch creates: zeros for unused outputs of a function are created on the outputs' device.

Torch's engine creates them on the device it knows, the host.
"""

import functools
from collections.abc import Callable
from typing import Any

import torch

from kernbench.ptx.doors.patching import Patches
from kernbench.ptx.doors.torch_door.modes import transfer
from kernbench.ptx.doors.torch_door.storages import Storages, is_plain

_BACKWARD: Any = torch.autograd.function.BackwardCFunction
_NO_FUNCTION_MODE: Any = torch._C.DisableTorchFunction
_SIDES = "_kernbench_on_device"


def install(patches: Patches, storages: Storages) -> None:
    """Let the program's autograd functions record where their outputs are, and get gradients there."""
    forward, backward = torch.autograd.Function.__dict__["apply"].__func__, _BACKWARD.apply
    patches.set(torch.autograd.Function, "apply", classmethod(_noting(forward, storages)))
    patches.set(_BACKWARD, "apply", _placing(backward, storages))


def _noting(forward: Callable[..., object], storages: Storages) -> Callable[..., object]:
    @functools.wraps(forward)
    def apply(cls: type, *args: object, **kwargs: object) -> object:
        result = forward(cls, *args, **kwargs)
        outputs = result if isinstance(result, tuple) else (result,)
        with _NO_FUNCTION_MODE():
            sides = [isinstance(one, torch.Tensor) and is_plain(one) and storages.holds(one) for one in outputs]
            nodes = {one.grad_fn for one in outputs if isinstance(one, torch.Tensor)} if any(sides) else set()
        for node in nodes:
            if isinstance(node, _BACKWARD):
                setattr(node, _SIDES, sides)
        return result

    return apply


def _placing(backward: Callable[..., object], storages: Storages) -> Callable[..., object]:
    @functools.wraps(backward)
    def apply(node: object, *gradients: object) -> object:
        sides = getattr(node, _SIDES, None)
        if sides is not None and len(sides) == len(gradients):
            gradients = tuple(
                transfer(storages, one, True) if inside and isinstance(one, torch.Tensor) else one
                for one, inside in zip(gradients, sides, strict=True)
            )
        return backward(node, *gradients)

    return apply
