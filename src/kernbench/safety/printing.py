"""Formats the values that a kernel prints with `tl.device_print` or the npu's `tprint`."""

from collections.abc import Sequence

import numpy as np

from kernbench.common.dtypes import Array

# largest number of elements printed in full
_MOST = 64


def lines_of(prefix: str, values: Sequence[tuple[object, Array | None, str]], hexadecimal: bool) -> list[str]:
    """A line for each value, several for a matrix; a value is (itself, its data if it carries any, its description)."""
    if not values:
        return [prefix]
    lines = []
    for number, (value, data, described) in enumerate(values):
        name = prefix if len(values) == 1 else f"{prefix}[{number}]"
        text = f"{described} without data" if data is None and described else _text(value, data, hexadecimal)
        lines.append(f"{name} {described}\n{text}" if "\n" in text else f"{name} {text}")
    return lines


def _text(value: object, data: Array | None, hexadecimal: bool) -> str:
    if data is None:
        return hex(value) if hexadecimal and isinstance(value, int) else str(value)
    if hexadecimal:
        bits = np.ascontiguousarray(data).view(f"u{data.dtype.itemsize}").reshape(data.shape)
        digits = 2 * data.dtype.itemsize
        text = np.array2string(
            bits, threshold=_MOST, edgeitems=3, formatter={"int": lambda element: f"0x{int(element):0{digits}x}"}
        )
        return str(text)
    wide = data.astype(np.float64) if data.dtype.kind not in "iub" else data
    return str(np.array2string(wide, threshold=_MOST, edgeitems=3, precision=6, floatmode="maxprec"))
