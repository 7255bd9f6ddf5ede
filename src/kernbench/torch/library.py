"""Declares the operators `torch.ops.kernbench` and registers their implementations."""

from collections.abc import Callable, Mapping

import torch

from kernbench.torch.launches import Built, Operation

_LIBRARY = torch.library.Library("kernbench", "DEF")
# torch.compile then passes tensors to operators with the strides that the program gave them
_TAGS = tuple(getattr(torch.Tag, name) for name in ("needs_exact_strides",) if hasattr(torch.Tag, name))


def operator(
    name: str, tensors: Mapping[str, str], options: str, build: Callable[..., Built | list[Built]]
) -> Operation:
    """Declare an operator without a result, which writes into the tensors whose types say so.

    `tensors` are its tensors with their types in the schema, `options` its other arguments. The same implementation is
    registered for CUDA and CPU tensors (on the emulator); when traced, it does nothing.
    """
    run = Operation(list(tensors), build)
    arguments = ", ".join([*(f"{kind} {one}" for one, kind in tensors.items()), *([options] if options else [])])
    _LIBRARY.define(f"{name}({arguments}) -> ()", tags=_TAGS)
    for key in ("CPU", "CUDA"):
        _LIBRARY.impl(name, run, key)
    torch.library.register_fake(f"kernbench::{name}", _nothing, lib=_LIBRARY)
    return run


def _nothing(*_: object) -> None:
    """The fake implementation, for tracing: the operator has no result."""
