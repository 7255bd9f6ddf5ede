"""Arrays whose element type differs from the kernel's accesses: a hint if a result is wrong.

It is not a finding, since bytes may be read as any type. Arrays of unsigned numbers are the usual way to pass bits.
"""

from collections.abc import Sequence

import numpy as np

from kernbench.ptx.emulator.inspect.naming import ELEMENT_TYPES
from kernbench.ptx.emulator.program.program import Program
from kernbench.ptx.launching.device_base import DeviceArray


def type_hints(program: Program, given: Sequence[object]) -> list[str]:
    """A sentence for each array of a launch that probably has a wrong type."""
    found = []
    for parameter, array in zip(program.kernel.params, given, strict=True):
        kind, site = program.parameter_types.get(parameter.name, ("", None))
        if site is None or kind not in ELEMENT_TYPES or not isinstance(array, DeviceArray):
            continue
        wanted = ELEMENT_TYPES[kind]
        if _unlike(array.dtype, wanted):
            found.append(
                f"'{array.name or parameter.name}' holds {array.dtype.name}, and the kernel takes its elements for "
                f"{wanted.name} (line {site.line}: `{site.text}`): give it as {wanted.name}, or where bits are meant "
                "as unsigned numbers"
            )
    return found


def _unlike(held: np.dtype[np.generic], wanted: np.dtype[np.generic]) -> bool:
    """Whether the element types differ, unless bits are passed on purpose."""
    if held == wanted or held.kind in "ub":
        return False
    if _is_float(held) or _is_float(wanted):
        return True
    return held.itemsize != wanted.itemsize


def _is_float(dtype: np.dtype[np.generic]) -> bool:
    return dtype.kind not in "iub"
