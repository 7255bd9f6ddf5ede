"""Kernels are built once for a file of tests: many of them launch one shape, and each mutant beside the others."""

from typing import Protocol

from kernbench import ptx


class Built(Protocol):
    """What has a kernel's shape and builds its text."""

    def build(self) -> ptx.Kernel: ...


_KERNELS: dict[str, ptx.Kernel] = {}


def built(way: Built) -> ptx.Kernel:
    """What it builds; two ways with the same settings build the same."""
    settings = f"{type(way).__qualname__} {sorted(vars(way).items())!r}"
    assert " at 0x" not in settings, "settings that have no value cannot be compared"
    if settings not in _KERNELS:
        _KERNELS[settings] = way.build()
    return _KERNELS[settings]


def forget() -> None:
    """No test launches them any more."""
    _KERNELS.clear()
