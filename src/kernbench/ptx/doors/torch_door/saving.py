"""Saves and sends tensors of the device: they are on the device again when loaded or received.

Another process has its own device and gets a copy. On a GPU, processes would share the memory.
"""

from collections.abc import Callable
from multiprocessing.reduction import ForkingPickler
from typing import Any

import torch
from torch.multiprocessing import reductions

from kernbench.ptx.doors.patching import Patches
from kernbench.ptx.doors.torch_door.modes import transfer
from kernbench.ptx.doors.torch_door.storages import Storages, is_plain

# ahead of torch's own rule for the host, which matches all storages here
_FIRST = 5


def install(patches: Patches, storages: Storages) -> None:
    """Teach `torch.save`, `torch.load` and queues between processes about the device."""
    registry: list[object] = torch.serialization._package_registry

    def tag(storage: Any) -> str | None:
        return "cuda:0" if storages.memory.holds(int(storage.data_ptr())) else None

    def restore(storage: Any, location: str) -> object:
        if not location.startswith("cuda"):
            return None
        raw = storage.untyped() if hasattr(storage, "untyped") else storage
        return storages.new(raw.nbytes(), "a loaded tensor", raw.data_ptr())

    entry = (_FIRST, tag, restore)
    registry.insert(0, entry)
    patches.later(lambda: registry.remove(entry))
    reducers: dict[type, object] = vars(ForkingPickler)["_extra_reducers"]
    for kind in (torch.Tensor, torch.nn.Parameter):
        patches.item(reducers, kind, _reducer(storages))


def _reducer(storages: Storages) -> Callable[[torch.Tensor], object]:
    def reduce(tensor: torch.Tensor) -> object:
        if not is_plain(tensor) or not storages.holds(tensor):
            return reductions.reduce_tensor(tensor)
        with torch.no_grad():
            host = transfer(storages, tensor.detach(), False)
        return arrived, (host, bool(tensor.requires_grad), isinstance(tensor, torch.nn.Parameter))

    return reduce


def arrived(host: torch.Tensor, requires_grad: bool, parameter: bool) -> torch.Tensor:
    """A tensor received from another process's device, on this one's."""
    tensor = host.to("cuda")
    return torch.nn.Parameter(tensor, requires_grad) if parameter else tensor.requires_grad_(requires_grad)
