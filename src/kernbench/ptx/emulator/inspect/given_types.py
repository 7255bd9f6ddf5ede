"""Arrays that hold another type than the kernel takes their elements for: reported where a result is wrong.

It is no finding: bytes may be looked at as anything. Arrays of unsigned numbers are how people pass bits on purpose.
"""

from collections.abc import Sequence

import numpy as np

from kernbench.ptx.emulator.inspect.naming import ELEMENT_TYPES
from kernbench.ptx.emulator.program.program import Program
from kernbench.ptx.launching.device_base import DeviceArray


def type_hints(program: Program, given: Sequence[object]) -> list[str]:
    """A sentence for each array of a launch that is likely of a wrong type."""
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
    """Whether elements are something else, and not bits that somebody passes on purpose."""
    if held == wanted or held.kind in "ub":
        return False
    if _is_float(held) or _is_float(wanted):
        return True
    return held.itemsize != wanted.itemsize


def _is_float(dtype: np.dtype[np.generic]) -> bool:
    return dtype.kind not in "iub"
