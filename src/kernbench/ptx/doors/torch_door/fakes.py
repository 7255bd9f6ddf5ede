"""Fake tensors, with which torch traces programs without data: they say which device the program put them on.

As for other tensors, torch itself only knows the host; a CPU build aborts the process where a fake tensor on CUDA gets
a gradient. A fake tensor has no address that could show where it is, so those of the device have a mark.
"""

import functools
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import cast

import torch
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode

from kernbench.ptx.doors.patching import Patches
from kernbench.ptx.doors.torch_door.operators.wishes import WISH

_MARK = "_kernbench_on_device"


class Below(threading.local):
    """Whether torch runs an operator of fake tensors in this thread: then every tensor is where torch believes."""

    operator = False


BELOW = Below()
_HOST, _DEVICE = torch.device("cpu"), torch.device("cuda", 0)


def is_fake(tensor: object) -> bool:
    """Whether a tensor is a fake one."""
    return isinstance(tensor, FakeTensor)


def is_marked(tensor: torch.Tensor) -> bool:
    """Whether a fake tensor is on the device."""
    return getattr(tensor, _MARK, False)


def mark(tensor: torch.Tensor) -> None:
    """Put a fake tensor on the device."""
    setattr(tensor, _MARK, True)


def install(patches: Patches) -> None:
    """Let fake tensors say where they are, and be fakes of tensors of the device."""
    raw = cast(property, vars(FakeTensor)["device"])

    def device(self: torch.Tensor) -> torch.device:
        found = cast(torch.device, raw.__get__(self))
        return _DEVICE if found.type == "cpu" and is_marked(self) and not BELOW.operator else found

    patches.set(FakeTensor, "device", property(device, raw.fset))
    patches.set(FakeTensor, "__new__", staticmethod(_made(FakeTensor.__new__)))
    patches.set(FakeTensorMode, "dispatch", _below(FakeTensorMode.dispatch))
    believed = vars(FakeTensor).get("fake_device")
    # an attribute in older releases
    if isinstance(believed, property):
        patches.set(FakeTensor, "fake_device", property(believed.fget, _believing(believed)))


def _believing(believed: property) -> Callable[[torch.Tensor, torch.device], None]:
    """The setter of the device that torch believes: the host, and a mark for the device."""
    set_believed = cast(Callable[[torch.Tensor, torch.device], None], believed.fset)

    def believe(self: torch.Tensor, wanted: torch.device) -> None:
        if wanted.type == "cuda":
            mark(self)
        set_believed(self, _HOST if wanted.type == "cuda" else wanted)

    return believe


def _made(new: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
    """`FakeTensor.__new__`: one of a tensor of the device is marked instead."""

    @functools.wraps(new)
    def made(cls: type, mode: object, elem: object, device: object, *args: object, **more: object) -> torch.Tensor:
        inside = torch.device(cast(str, device)).type == "cuda"
        tensor = new(cls, mode, elem, _HOST if inside else device, *args, **more)
        if inside:
            mark(tensor)
        return tensor

    return made


def _below(dispatch: Callable[..., object]) -> Callable[..., object]:
    """`FakeTensorMode.dispatch`: results of fake tensors of the device are there, too."""

    @functools.wraps(dispatch)
    def run(mode: object, func: object, types: object, args: object = (), kwargs: object = None) -> object:
        before, BELOW.operator = BELOW.operator, True
        try:
            result = dispatch(mode, func, types, args, kwargs or {})
        finally:
            BELOW.operator = before
        given = list(_tensors((args, kwargs)))
        if WISH.device or (WISH.device is None and any(tensor.is_cuda for tensor in given)):
            for tensor in _tensors((result,)):
                # a tensor that was written stays where it is
                if is_fake(tensor) and not any(tensor is one for one in given):
                    mark(tensor)
        return result

    return run


def _tensors(values: Iterable[object]) -> Iterator[torch.Tensor]:
    """The tensors among values, also in lists."""
    for value in values:
        if isinstance(value, torch.Tensor):
            yield value
        elif isinstance(value, (list, tuple)):
            yield from _tensors(value)
        elif isinstance(value, dict):
            yield from _tensors(value.values())
