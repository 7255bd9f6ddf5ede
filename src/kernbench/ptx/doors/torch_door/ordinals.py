"""Numbers of devices: there is one GPU, and others are refused in CUDA's and torch's words."""

from typing import Any

import torch

from kernbench.ptx.doors.lost import cuda_error

_NO_SUCH = "CUDA error: invalid device ordinal\nGPU device may be out of range, do you have enough GPUs?"


def ordinal_of(device: object) -> int | None:
    """The number in what stands for a device of CUDA; None where it has none."""
    if isinstance(device, int):
        return device
    number = getattr(device, "index", None) if isinstance(device, torch.device) else str(device).partition(":")[2]
    return int(number) if number is not None and str(number).isdecimal() else None


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


def first_argument(args: Any, kwargs: Any) -> object:
    """What a function is given as its device."""
    return args[0] if args else kwargs.get("device")
