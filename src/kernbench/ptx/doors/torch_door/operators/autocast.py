"""`torch.autocast("cuda")`: emulated CUDA tensors are CPU tensors, so it also enables the CPU's autocast."""

from collections.abc import Callable

import torch

from kernbench.ptx.doors.patching import Patches


class Autocast:
    """Tracks what the program set for each of the two devices; the CPU's autocast is on if either is."""

    def __init__(self) -> None:
        self._enabled: Callable[[str, bool], None] = torch.set_autocast_enabled
        self._dtype: Callable[[str, torch.dtype], None] = torch.set_autocast_dtype
        self._asked = {"cpu": torch.is_autocast_enabled("cpu"), "cuda": False}
        self._types = {name: torch.get_autocast_dtype(name) for name in self._asked}

    def install(self, patches: Patches) -> None:
        """Replace the two functions that `torch.autocast` calls."""
        patches.set(torch, "set_autocast_enabled", self.set_enabled)
        patches.set(torch, "set_autocast_dtype", self.set_dtype)
        patches.later(self._leave)

    def set_enabled(self, *given: "str | bool") -> None:
        """`torch.set_autocast_enabled`, with a device or, as in older programs, without."""
        device, on = given if len(given) == 2 else ("cuda", *given)
        self._enabled(str(device), bool(on))
        if device in self._asked:
            self._asked[str(device)] = bool(on)
            self._settle()

    def set_dtype(self, device: str, dtype: torch.dtype) -> None:
        """`torch.set_autocast_dtype`."""
        self._dtype(device, dtype)
        if device in self._types:
            self._types[device] = dtype
            self._settle()

    def _settle(self) -> None:
        self._enabled("cpu", self._asked["cpu"] or self._asked["cuda"])
        self._dtype("cpu", self._types["cuda" if self._asked["cuda"] else "cpu"])

    def _leave(self) -> None:
        self._asked["cuda"] = False
        self._settle()
