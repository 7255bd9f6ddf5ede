"""Packs launch arguments into the bytes of a kernel's parameters, or says why one does not fit."""

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import ml_dtypes
import numpy as np

from kernbench.common.errors import MisuseError
from kernbench.ptx.launching.device_base import DeviceArray
from kernbench.ptx.launching.tensor_map import TENSOR_MAP_BYTES, TensorMap
from kernbench.ptx.text.types import TYPES, ScalarType


class Parameter(Protocol):
    """A kernel parameter, as far as packing needs it; `size` is in bytes, of the whole array if it is one."""

    @property
    def name(self) -> str:
        """The name in the PTX text."""

    @property
    def type(self) -> str:
        """The scalar type's name."""

    @property
    def size(self) -> int:
        """Size in bytes."""


class ArgumentError(MisuseError):
    """An argument that does not fit its parameter; `parameter` names it."""

    def __init__(self, message: str, parameter: str = ""):
        super().__init__(message)
        self.parameter = parameter


# a number of Python, NumPy or ml_dtypes, or an array of one
Scalar = Any
_FLOATS: dict[str, type[np.generic]] = {
    "f16": np.float16,
    "bf16": ml_dtypes.bfloat16,
    "f32": np.float32,
    "tf32": np.float32,
    "f64": np.float64,
}
# a Python float for an untyped parameter is taken as the usual format of that width
_UNTYPED_FLOATS = {32: "f32", 64: "f64"}


def pack_arguments(params: Sequence[Parameter], args: Sequence[object]) -> list[bytes]:
    """The bytes of each parameter, in order; raises `ArgumentError` for an argument that does not fit."""
    if len(params) != len(args):
        expected = ", ".join(f"{p.name}: {_wanted(p)}" for p in params) or "none"
        raise ArgumentError(f"{len(args)} arguments for {len(params)} parameters; the kernel takes ({expected})")
    return [_pack(position, param, arg) for position, (param, arg) in enumerate(zip(params, args, strict=True))]


def _wanted(param: Parameter) -> str:
    scalar = TYPES[param.type]
    return f".{param.type}" if scalar.nbytes == param.size else f"{param.size} bytes"


def _pack(position: int, param: Parameter, arg: object) -> bytes:
    try:
        data = _bytes_of(TYPES[param.type], param.size, arg)
    except _MismatchError as problem:
        where = f"argument {position} for parameter '{param.name}' ({_wanted(param)})"
        raise ArgumentError(f"{where}: {problem}", param.name) from None
    assert len(data) == param.size, f"{param.name}: {len(data)} bytes packed for {param.size}"
    return data


class _MismatchError(Exception):
    """Why an argument does not fit; the caller adds its position."""


def _bytes_of(scalar: ScalarType, size: int, arg: object) -> bytes:
    for accepts, pack in _KINDS:
        if accepts(arg):
            return pack(scalar, size, arg)
    raise _MismatchError(_unknown_kind(arg))


def _unknown_kind(arg: object) -> str:
    kind = type(arg).__name__
    if isinstance(arg, np.ndarray) or hasattr(arg, "__dlpack__") or hasattr(arg, "__cuda_array_interface__"):
        return f"a {kind} lies outside the device: pass device.array(...) of it, or .tobytes() to fill a struct"
    return f"a {kind} is no argument: pass a device array, a tensor map, a number or bytes"


def _pack_array(scalar: ScalarType, size: int, arg: DeviceArray) -> bytes:
    # a struct of eight bytes may consist of a pointer
    struct = scalar.kind == "b" and scalar.bits == 8
    if size != 8 or scalar.kind not in "bus" or not (scalar.bits == 64 or struct):
        raise _MismatchError("a device array passes its 64-bit address, which needs a .u64 parameter")
    return arg.address.to_bytes(8, "little")


def _pack_tensor_map(scalar: ScalarType, size: int, arg: TensorMap) -> bytes:
    if size != TENSOR_MAP_BYTES:
        raise _MismatchError(f"a tensor map has {TENSOR_MAP_BYTES} bytes")
    return arg.encoded


def _pack_bytes(scalar: ScalarType, size: int, arg: Scalar) -> bytes:
    data = bytes(arg)
    if len(data) != size:
        raise _MismatchError(f"got {len(data)} bytes")
    if scalar.nbytes == size and scalar.kind in "usfx":
        raise _MismatchError("bytes fill struct and untyped parameters; pass a number")
    return data


def _pack_number(scalar: ScalarType, size: int, arg: Scalar) -> bytes:
    value = arg[()] if isinstance(arg, np.ndarray) else arg
    if scalar.nbytes != size:
        return _pack_whole(size, value)
    if scalar.kind == "f":
        return _pack_float(scalar.name, value)
    if scalar.kind == "b" and _is_float(value):
        return _pack_untyped_float(scalar, value)
    return _pack_integer(scalar, value)


def _pack_whole(size: int, value: Scalar) -> bytes:
    """The bytes of a NumPy scalar, for a struct of the same size: `__half` is a struct of two bytes."""
    if not isinstance(value, np.generic) or value.dtype.itemsize != size:
        raise _MismatchError(f"got {value!r}; pass bytes of exactly that size, or a NumPy scalar that has it")
    return bytes(value.tobytes())


def _is_record(arg: object) -> bool:
    return (
        isinstance(arg, (np.void, np.ndarray)) and arg.ndim == 0 and arg.dtype.kind == "V" and not arg.dtype.hasobject
    )


def _pack_record(scalar: ScalarType, size: int, arg: Scalar) -> bytes:
    return _pack_bytes(scalar, size, arg.tobytes())


def _is_float(value: object) -> bool:
    """Whether `value` is a float of Python, NumPy or ml_dtypes."""
    return isinstance(value, (float, np.floating)) or _numpy_float(value) is not None


def _numpy_float(value: object) -> str | None:
    """The PTX name of a NumPy scalar's float format."""
    if not isinstance(value, np.generic):
        return None
    return next((ptx for ptx, numpy in _FLOATS.items() if value.dtype == np.dtype(numpy)), None)


def _pack_integer(scalar: ScalarType, value: Scalar) -> bytes:
    low = 0 if scalar.kind == "u" else -(1 << (scalar.bits - 1))
    high = (1 << (scalar.bits - 1 if scalar.kind == "s" else scalar.bits)) - 1
    if _is_float(value) and (not np.isfinite(value) or float(value) != int(value)):
        raise _MismatchError(f"{value!r} is no whole number")
    number = int(value)
    if not low <= number <= high:
        raise _MismatchError(f"{number} does not fit; .{scalar.name} holds {low} to {high}")
    return (number & ((1 << scalar.bits) - 1)).to_bytes(scalar.nbytes, "little")


def _pack_float(name: str, value: Scalar) -> bytes:
    if name not in _FLOATS:
        raise _MismatchError(f"{value!r}: pass the .{name} bits as bytes")
    numpy = _FLOATS[name]
    if _numpy_float(value) == name:
        return bytes(value.tobytes())
    with np.errstate(over="ignore"):
        try:
            rounded = numpy(value)
        except OverflowError:
            raise _MismatchError(f"{value!r} does not fit; it is beyond every .{name}") from None
    if np.isinf(rounded) and (not _is_float(value) or np.isfinite(value)):
        raise _MismatchError(f"{value!r} does not fit; the largest .{name} is {_largest(name)}")
    if not _is_float(value) and int(rounded) != int(value):
        raise _MismatchError(f"{int(value)} is not exact in .{name}; pass the float you mean")
    return bytes(rounded.tobytes())


def _largest(name: str) -> str:
    info: Any = ml_dtypes.finfo
    return repr(float(info(_FLOATS[name]).max))


def _pack_untyped_float(scalar: ScalarType, value: Scalar) -> bytes:
    """A float's bits for an untyped parameter: a NumPy scalar's own format, or the usual one of that width."""
    if isinstance(value, np.generic) and value.itemsize == scalar.nbytes:
        return bytes(value.tobytes())
    if not isinstance(value, float):
        raise _MismatchError(f"{value!r} has {value.itemsize} bytes")
    if scalar.bits not in _UNTYPED_FLOATS:
        raise _MismatchError(f"{value!r}: pass np.float16 or ml_dtypes.bfloat16, to say which format is meant")
    return _pack_float(_UNTYPED_FLOATS[scalar.bits], float(value))


def _is_number(arg: object) -> bool:
    if isinstance(arg, np.ndarray):
        return arg.ndim == 0 and (arg.dtype.kind in "biuf" or _is_float(arg[()]))
    return isinstance(arg, (bool, int, float, np.bool_, np.integer)) or _is_float(arg)


_KINDS: tuple[tuple[Callable[[object], bool], Callable[[ScalarType, int, Any], bytes]], ...] = (
    (lambda arg: isinstance(arg, DeviceArray), _pack_array),
    (lambda arg: isinstance(arg, TensorMap), _pack_tensor_map),
    (lambda arg: isinstance(arg, (bytes, bytearray, memoryview)), _pack_bytes),
    (_is_record, _pack_record),
    (_is_number, _pack_number),
)
