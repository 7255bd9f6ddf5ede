"""Numbers of devices: there is one GPU, and others are refused in CUDA's and torch's words."""

from collections.abc import Mapping, Sequence
from typing import TypeVar

import torch

from kernbench.ptx.doors.lost import cuda_error

Anything = TypeVar("Anything")
_NO_SUCH = "CUDA error: invalid device ordinal\nGPU device may be out of range, do you have enough GPUs?"


def ordinal_of(device: object) -> int | None:
    """The number in what stands for a device of CUDA; None where it has none."""
    if isinstance(device, int):
        return device
    number = getattr(device, "index", None) if isinstance(device, torch.device) else str(device).partition(":")[2]
    return int(number) if number is not None and str(number).isdecimal() else None


def with_device(device: object, value: Anything) -> Anything:
    """What a function of the first GPU gives; raises where it is asked of another."""
    require_device(device)
    return value


def of_device(device: object, value: Anything) -> Anything:
    """A property of the first GPU; raises as torch does where it is asked of another."""
    asked(device)
    return value


def require_device(device: object) -> None:
    """Raise where a call is to use another GPU than the first; a negative number means none, and is passed over."""
    number = ordinal_of(device)
    if number is not None and number > 0:
        raise cuda_error(f"{_NO_SUCH}\nthe emulated machine has one GPU, cuda:0; {device} was asked for")


def asked(device: object) -> None:
    """Raise where the properties of another GPU are asked for."""
    number = ordinal_of(device) if device is not None else None
    if number is not None and number > 0:
        raise AssertionError(f"Invalid device id: the emulated machine has one GPU, cuda:0; {device} was asked for")


def first_argument(args: Sequence[object], kwargs: Mapping[str, object]) -> object:
    """What a function is given as its device."""
    return args[0] if args else kwargs.get("device")
