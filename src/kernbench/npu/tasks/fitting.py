"""Conversion of numbers to the element types of tensors."""

from typing import TYPE_CHECKING, Any

import numpy as np

from kernbench.common.dtypes import DTYPES, cast
from kernbench.npu.tasks.opaque import Opaque

if TYPE_CHECKING:
    from kernbench.npu.tasks.task import Context

__kernbench_internal__ = True


def fitting(context: "Context", value: Any, dtype: str) -> object:
    """A number as a tensor of a type stores it; one out of range is refused."""
    row = DTYPES[dtype]
    is_number = isinstance(value, (int, float, np.number, np.bool_)) or hasattr(value, "__float__")
    if not is_number or isinstance(value, Opaque):
        context.fail("misuse", f"{value!r} is no number for a tensor of {dtype}")
    if row.kind == "int":
        limits = np.iinfo(row.numpy)
        if int(value) != value or not limits.min <= value <= limits.max:
            context.fail("misuse", f"{value!r} is no value of a tensor of {dtype} ({limits.min} to {limits.max})")
        return row.numpy.type(int(value))
    return cast(np.asarray(value, np.float64), dtype)[()]
