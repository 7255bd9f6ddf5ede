"""The operators `torch.ops.kernbench`: how they are declared, and where they run."""

from collections.abc import Callable, Mapping

import torch

from kernbench.torch.launches import Built, Operation

_LIBRARY = torch.library.Library("kernbench", "DEF")
# torch.compile gives operators their tensors as the program has them
_TAGS = tuple(getattr(torch.Tag, name) for name in ("needs_exact_strides",) if hasattr(torch.Tag, name))


def operator(
    name: str, tensors: Mapping[str, str], options: str, build: Callable[..., Built | list[Built]]
) -> Operation:
    """Declare an operator that gives nothing back and writes into the tensors whose types say so.

    `tensors` are its tensors with their types in a schema, `options` its other arguments. It runs alike on GPUs and,
    on the emulator, for tensors on the CPU; traced, it leaves everything as it is.
    """
    run = Operation(list(tensors), build)
    arguments = ", ".join([*(f"{kind} {one}" for one, kind in tensors.items()), *([options] if options else [])])
    _LIBRARY.define(f"{name}({arguments}) -> ()", tags=_TAGS)
    for key in ("CPU", "CUDA"):
        _LIBRARY.impl(name, run, key)
    torch.library.register_fake(f"kernbench::{name}", _nothing, lib=_LIBRARY)
    return run


def _nothing(*_: object) -> None:
    """What a traced operator does."""
