"""Predicates: comparisons that the scheduler makes when a task is ready; if one does not hold, the task is skipped."""

import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from kernbench.common.dtypes import DTYPES, Array
from kernbench.common.errors import KernelError, MisuseError, unknown
from kernbench.npu.tasks.tensors import Tensor

__kernbench_internal__ = True
OPERATORS: dict[str, Callable[[Any, Any], bool]] = {
    "eq": operator.eq,
    "ne": operator.ne,
    "gt": operator.gt,
    "lt": operator.lt,
    "ge": operator.ge,
    "le": operator.le,
}
_LEAST, _MOST = -(2**63), 2**63 - 1


@dataclass(frozen=True)
class Predicate:
    """`element` compared with a whole number of 64 bits by `op`."""

    element: Tensor
    op: str
    target: int

    def __post_init__(self) -> None:
        if not isinstance(self.element, Tensor) or self.element.shape:
            raise KernelError("shape", f"predicate {self.element!r}: one element of a tensor is wanted, such as t[0]")
        if self.op not in OPERATORS:
            raise MisuseError(unknown("comparison of a predicate", self.op, OPERATORS))
        whole = isinstance(self.target, int) and not isinstance(self.target, bool)
        if not whole or not _LEAST <= self.target <= _MOST:
            raise MisuseError(f"a predicate compares with a whole number of 64 bits; got {self.target!r}")
        if DTYPES[self.element.dtype].kind == "float" and (self.op not in ("eq", "ne") or self.target):
            raise KernelError(
                "dtype",
                f"predicate {self.describe()}: the scheduler compares an element's bits as a whole number, and "
                f"{self.element.buffer.describe()} holds floats",
                "keep what decides in an integer tensor; of floats only whether all bits are 0 can be asked",
            )

    def describe(self) -> str:
        """In words, such as `gate gt 0`."""
        return f"{self.element.name} {self.op} {self.target}"

    def holds(self, array: Array) -> bool:
        """Whether the element, in the buffer's memory, passes."""
        value = array[self.element.offset]
        if value.dtype.kind not in "iub":
            value = value.tobytes().strip(b"\0") != b""
        return bool(OPERATORS[self.op](int(value), self.target))


def PREDICATE(element: Tensor, op: str = "ne", target: int = 0) -> Predicate:  # noqa: N802
    """`element` (such as t[0]) compared with a whole number: op is eq, ne, gt, lt, ge or le."""
    return Predicate(element, op, target)


def predicate_of(given: Predicate | Tensor | None) -> Predicate | None:
    """The argument `predicate` of a submit: a predicate, or an element that must not be 0."""
    return given if given is None or isinstance(given, Predicate) else Predicate(given, "ne", 0)
