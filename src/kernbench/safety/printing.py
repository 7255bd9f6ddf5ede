"""Formats the values that a kernel prints with `tl.device_print` or the npu's `tprint`."""

from collections.abc import Sequence
from math import prod

import numpy as np

from kernbench.common.dtypes import Array

# largest number of elements printed in full; of larger arrays this many at each end of each axis
_MOST = 64
_EDGE = 3
# most elements shown of an array of many short axes
_MOST_SHOWN = 4096
# most characters of one value
_LONGEST = 100_000


def lines_of(prefix: str, values: Sequence[tuple[object, Array | None, str]], hexadecimal: bool) -> list[str]:
    """A line for each value, several for a matrix; a value is (itself, its data if it carries any, its description)."""
    if not values:
        return [_cut(prefix)]
    prefix = _cut(prefix)
    lines = []
    for number, (value, data, described) in enumerate(values):
        name = prefix if len(values) == 1 else f"{prefix}[{number}]"
        text = f"{described} without data" if data is None and described else _text(value, data, hexadecimal)
        lines.append(f"{name} {described}\n{text}" if "\n" in text else f"{name} {text}")
    return lines


def _text(value: object, data: Array | None, hexadecimal: bool) -> str:
    if data is None:
        return _cut(hex(value) if hexadecimal and isinstance(value, int) else str(value))
    shown = _corners(data)
    # what `_corners` left out is marked: all axes that it shortened are longer than two edges
    threshold = _MOST if data.size <= _MOST else 0
    if hexadecimal:
        bits = np.ascontiguousarray(shown).view(f"u{data.dtype.itemsize}").reshape(shown.shape)
        digits = 2 * data.dtype.itemsize
        text = np.array2string(
            bits, threshold=threshold, edgeitems=_EDGE, formatter={"int": lambda one: f"0x{int(one):0{digits}x}"}
        )
        return str(text)
    wide = shown.astype(np.float64) if data.dtype.kind not in "iub" else shown
    return str(np.array2string(wide, threshold=threshold, edgeitems=_EDGE, precision=6, floatmode="maxprec"))


def _corners(data: Array) -> Array:
    """The elements that are shown of an array, without a copy of the others: a view may have more than fit memory.

    Of an array whose axes are too many to be shown by corners, the first and the last elements, in one row.
    """
    if data.size <= _MOST:
        return data
    kept = [_ends(size) for size in data.shape]
    if prod(map(len, kept)) > _MOST_SHOWN:
        return data.flat[_ends(data.size)]
    return data[np.ix_(*kept)]


def _ends(size: int) -> list[int]:
    """The first and the last indices of an axis, and one between them if there are more."""
    return list(range(size)) if size <= 2 * _EDGE + 1 else [*range(_EDGE + 1), *range(size - _EDGE, size)]


def _cut(text: str) -> str:
    """A text that is not longer than a value may be."""
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}... ({len(text):,} characters in all)"
