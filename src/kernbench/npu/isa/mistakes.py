"""Errors that operations raise, as findings, whether or not the kernel catches them."""

from collections.abc import Callable
from functools import wraps
from traceback import walk_tb
from types import FrameType
from typing import Any, ParamSpec, TypeVar

from kernbench.common.errors import KernbenchError, KernelError
from kernbench.npu.isa.operations import OPERATIONS, Operation, call_of

__kernbench_internal__ = True
# what operations raise for wrong arguments: an AttributeError if an operand lacks what tiles, tensors or FIFOs have
MISTAKES = (KernbenchError, AttributeError)
_LOOKED_FOR = ("number", "shape", "record", "buffer", "offset", "strides", "valid", "space")
P = ParamSpec("P")
R = TypeVar("R")


def explained(error: BaseException) -> tuple[str, str, str] | None:
    """Kind, message and hint of what an operation refused; None for an error that is the kernel's own."""
    if isinstance(error, KernelError):
        return error.kind, error.message, error.hint
    if isinstance(error, KernbenchError):
        return "misuse", str(error), ""
    if isinstance(error, AttributeError) and error.name in _LOOKED_FOR and _is_ours(error):
        called = next((name for name in (_operation(f) for f, _ in walk_tb(error.__traceback__)) if name), "the core")
        message = f"{called} got {error.obj!r} where something else is wanted"
        hint = "dst, a, b are tiles; destinations come first: tload(tile, tensor), tstore(tensor, tile)"
        return "misuse", message, hint
    return None


def _is_ours(error: BaseException) -> bool:
    *_, (frame, _) = walk_tb(error.__traceback__)
    return "__kernbench_internal__" in frame.f_globals


def _operation(frame: FrameType) -> str:
    """The name of the operation whose method runs in a frame; empty if it is no operation."""
    op = frame.f_locals.get("op") or OPERATIONS.get(frame.f_code.co_name)
    internal = "__kernbench_internal__" in frame.f_globals
    return call_of(op) if internal and isinstance(op, Operation) else ""


def refusing(method: Callable[P, R]) -> Callable[P, R]:
    """Wrap a method of an object with a `context`: its errors are recorded, in case the program catches them."""

    @wraps(method)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return method(*args, **kwargs)
        except MISTAKES as error:
            owner: Any = args[0]
            owner.context.refuse(error)
            raise

    return call
