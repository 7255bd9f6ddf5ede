"""Device ordinals: there is one GPU, and others are refused in CUDA's and torch's words."""

from collections.abc import Mapping, Sequence
from typing import TypeVar

import torch

from kernbench.ptx.doors.lost import cuda_error

Anything = TypeVar("Anything")
_NO_SUCH = "CUDA error: invalid device ordinal\nGPU device may be out of range, do you have enough GPUs?"


def ordinal_of(device: object) -> int | None:
    """The ordinal in a CUDA device argument; None if it has none."""
    if isinstance(device, int):
        return device
    number = getattr(device, "index", None) if isinstance(device, torch.device) else str(device).partition(":")[2]
    return int(number) if number is not None and str(number).isdecimal() else None


def with_device(device: object, value: Anything) -> Anything:
    """The value of a function for the first GPU; raises an error for another one."""
    require_device(device)
    return value


def of_device(device: object, value: Anything) -> Anything:
    """A property of the first GPU; for another one it raises an error as torch does."""
    asked(device)
    return value


def require_device(device: object) -> None:
    """Raise an error if a call is to use a GPU other than the first; negative numbers mean none, and are ignored."""
    number = ordinal_of(device)
    if number is not None and number > 0:
        raise cuda_error(f"{_NO_SUCH}\nthe emulated machine has one GPU, cuda:0; {device} was asked for")


def asked(device: object) -> None:
    """Raise an error if the properties of another GPU are requested."""
    number = ordinal_of(device) if device is not None else None
    if number is not None and number > 0:
        raise AssertionError(f"Invalid device id: the emulated machine has one GPU, cuda:0; {device} was asked for")


def first_argument(args: Sequence[object], kwargs: Mapping[str, object]) -> object:
    """The device argument of a function."""
    return args[0] if args else kwargs.get("device")
