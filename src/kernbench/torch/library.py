"""The operators `torch.ops.kernbench`: how they are declared, and where they run."""

from collections.abc import Callable

import torch

_LIBRARY = torch.library.Library("kernbench", "DEF")
# torch.compile gives operators their tensors as the program has them
_TAGS = tuple(getattr(torch.Tag, name) for name in ("needs_exact_strides",) if hasattr(torch.Tag, name))


def operator(schema: str, run: Callable[..., None]) -> None:
    """Declare an operator that gives nothing back and writes into tensors that its schema marks.

    It runs alike on GPUs and, on the emulator, for tensors on the CPU; traced, it leaves everything as it is.
    """
    name = schema.partition("(")[0]
    _LIBRARY.define(schema, tags=_TAGS)
    for key in ("CPU", "CUDA"):
        _LIBRARY.impl(name, run, key)
    torch.library.register_fake(f"kernbench::{name}", _nothing, lib=_LIBRARY)


def _nothing(*_: object) -> None:
    """What a traced operator does."""
