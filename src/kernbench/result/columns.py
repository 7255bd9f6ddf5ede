"""Columns of numbers in JSON: little-endian bytes of the smallest type that fits, deflated, as base64."""

import base64
import binascii
import zlib
from math import prod

import numpy as np

from kernbench.common.dtypes import Array
from kernbench.common.errors import MisuseError
from kernbench.result.reading import Data

WHOLE = ("u1", "u2", "u4", "i4", "i8", "u8")
TYPES = (*WHOLE, "f4", "f8")
# no recording of a kernel is longer
MOST = 1 << 27


def pack(values: Array) -> dict[str, int | list[int] | str]:
    """Encode `values` as a column, with the shape if there is more than one axis."""
    array = np.asarray(values)
    kind = _smallest(array)
    content = zlib.compress(np.ascontiguousarray(array, f"<{kind}").tobytes(), 6)
    packed: Data = {"type": kind, "count": int(array.size), "data": base64.b64encode(content).decode()}
    return packed if array.ndim == 1 else {**packed, "shape": list(array.shape)}


def _smallest(array: Array) -> str:
    if array.dtype.kind == "f":
        return "f4" if array.dtype.itemsize <= 4 else "f8"
    if array.dtype.kind not in "iub":
        raise MisuseError(f"a column holds numbers; got {array.dtype}")
    low, high = (int(array.min()), int(array.max())) if array.size else (0, 0)
    for kind in WHOLE:
        limits = np.iinfo(kind)
        if limits.min <= low and high <= limits.max:
            return kind
    raise MisuseError(f"a column holds numbers of 64 bits at most; got {low} to {high}")


def unpack(data: object, where: str) -> Array:
    """Decode a column; `where` names it in errors. It allocates no more memory than the column states."""
    if not isinstance(data, dict) or not isinstance(data.get("data"), str):
        raise MisuseError(f"{where}: a column is wanted; got {type(data).__name__}")
    kind, count, shape = data.get("type"), data.get("count"), data.get("shape")
    if kind not in TYPES:
        raise MisuseError(f"{where}: a column of type {kind!r}; known: {', '.join(TYPES)}")
    if type(count) is not int or not 0 <= count <= MOST:
        raise MisuseError(f"{where}: a column of {count!r} values; 0 to {MOST:,} are possible")
    content = _inflate(data["data"], count * np.dtype(kind).itemsize, where)
    values = np.frombuffer(content, f"<{kind}")
    if shape is None:
        return values
    if not isinstance(shape, list) or any(type(n) is not int or n < 0 for n in shape) or prod(shape) != count:
        raise MisuseError(f"{where}: {count} values do not have the shape {shape!r}")
    return values.reshape(shape)


def _inflate(text: str, size: int, where: str) -> bytes:
    try:
        inflater = zlib.decompressobj()
        content = inflater.decompress(base64.b64decode(text, validate=True), size + 1)
    except (binascii.Error, ValueError, zlib.error) as error:
        raise MisuseError(f"{where}: a damaged column: {error}") from None
    if len(content) != size or not inflater.eof:
        raise MisuseError(f"{where}: a damaged column: it does not hold the {size} bytes that it should")
    return content
