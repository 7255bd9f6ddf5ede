"""Arrays on a GPU: own memory, and arrays of other libraries used without a copy."""

import ctypes
import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, Protocol

import ml_dtypes
import numpy as np

from kernbench.common.dtypes import Array, dtype_of
from kernbench.common.errors import MisuseError
from kernbench.ptx.launching.device_base import DeviceArray, Tensor, is_torch, torch_dtype

_DLPACK_CUDA = (2, 13)
_LEGACY_STREAM = 1


class Memory(Protocol):
    """The part of a device that an array needs; `index` is the GPU's number."""

    index: int

    def read(self, address: int, into: Array) -> None:
        """Copy from the GPU."""

    def release(self, address: int) -> None:
        """Free an allocation."""


class CudaArray(DeviceArray):
    """An array on a GPU; `borrowed` ones belong to another library, and are kept alive but never freed here.

    Own memory is freed by `free()`, by closing the device, or with the last reference.
    """

    def __init__(
        self,
        memory: Memory,
        address: int,
        shape: tuple[int, ...],
        dtype: np.dtype[np.generic],
        name: str = "",
        owner: object = None,
        fresh: bool = False,
    ):
        super().__init__(address, shape, dtype, name)
        self.borrowed = owner is not None
        self.freed = False
        self.fresh = fresh
        self.memory = memory
        self._owner = owner
        self._finalizer = None if self.borrowed or not address else weakref.finalize(self, memory.release, address)
        if self._finalizer is not None:
            # at exit the process frees everything at once, in arbitrary order
            self._finalizer.atexit = False

    def numpy(self) -> Array:
        """A copy on the host."""
        self.check_usable()
        out: Array = np.empty(self.shape, self.dtype)
        if out.nbytes:
            self.memory.read(self.address, out)
        return out

    def free(self) -> None:
        """Free the memory, or release a borrowed array."""
        self.freed = True
        self._owner = None
        if self._finalizer is not None:
            self._finalizer()

    def check_usable(self) -> None:
        """Raise an error if the memory was freed."""
        if self.freed:
            raise MisuseError(f"{self!r} was freed: make a new array")

    @property
    def __cuda_array_interface__(self) -> dict[str, object]:
        """For CuPy, torch and numba: this memory without a copy."""
        self.check_usable()
        return {
            "version": 3,
            "shape": self.shape,
            "typestr": self.dtype.str,
            "data": (self.address, False),
            "strides": None,
            "stream": _LEGACY_STREAM,
        }


@dataclass(frozen=True)
class Borrowed:
    """Another library's array: `stream` must be synchronised before use; `owner` keeps the memory alive."""

    address: int
    shape: tuple[int, ...]
    dtype: np.dtype[np.generic]
    device: int | None
    owner: object
    stream: int | None = None


def borrow(value: object, stream: int) -> Borrowed | None:
    """`value`'s memory if it is on a GPU, else None; it will be used on `stream`."""
    if is_torch(value):
        return _from_torch(value) if value.device.type == "cuda" else None
    if hasattr(value, "__dlpack_device__"):
        kind, number = (int(n) for n in value.__dlpack_device__())
        return _from_dlpack(value, number, stream) if kind in _DLPACK_CUDA else None
    if hasattr(value, "__cuda_array_interface__"):
        return _from_interface(value)
    return None


def _contiguous(what: str, dense: bool) -> None:
    if not dense:
        raise MisuseError(
            f"a {what} with gaps or another order of axes cannot be passed as it lies: make it contiguous"
        )


def _from_torch(tensor: Tensor) -> Borrowed:
    _contiguous("torch tensor", tensor.is_contiguous())
    return Borrowed(tensor.data_ptr(), tuple(tensor.shape), torch_dtype(tensor), tensor.device.index, tensor)


def _from_interface(value: Any) -> Borrowed:
    found = value.__cuda_array_interface__
    shape, dtype = tuple(found["shape"]), np.dtype(found["typestr"])
    _contiguous(type(value).__name__, _is_dense(shape, found.get("strides"), dtype.itemsize))
    return Borrowed(found["data"][0] or 0, shape, dtype, None, value, found.get("stream"))


def _is_dense(shape: tuple[int, ...], strides: Sequence[int] | None, unit: int) -> bool:
    """Whether `strides` (None: dense) are contiguous in row-major order, with `unit` between elements."""
    if strides is None or prod(shape) == 0:
        return True
    for size, stride in zip(reversed(shape), reversed(tuple(strides)), strict=True):
        if size != 1 and stride != unit:
            return False
        unit *= size
    return True


class _DLTensor(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )


# DLPack's (code, bits) -> NumPy type
_DLPACK_TYPES: dict[tuple[int, int], np.dtype[np.generic]] = {
    **{(0, n): dtype_of(f"int{n}") for n in (8, 16, 32, 64)},
    **{(1, n): dtype_of(f"uint{n}") for n in (8, 16, 32, 64)},
    **{(2, n): dtype_of(f"float{n}") for n in (16, 32, 64)},
    (4, 16): dtype_of(ml_dtypes.bfloat16),
    (5, 64): dtype_of(np.complex64),
    (5, 128): dtype_of(np.complex128),
    (6, 8): dtype_of(np.bool_),
    (10, 8): dtype_of(ml_dtypes.float8_e4m3fn),
    (12, 8): dtype_of(ml_dtypes.float8_e5m2),
    (14, 8): dtype_of(ml_dtypes.float8_e8m0fnu),
}


def _from_dlpack(value: Any, device: int, stream: int) -> Borrowed:
    """Borrow through DLPack without consuming the capsule.

    It keeps the memory alive, and its destructor releases it.
    """
    capsule = value.__dlpack__(stream=stream)
    tensor = read_capsule(capsule)
    key = (tensor.code, tensor.bits)
    if key not in _DLPACK_TYPES or tensor.lanes != 1:
        raise MisuseError(
            f"DLPack elements of code {tensor.code}, {tensor.bits} bits x {tensor.lanes} are not known here"
        )
    shape = tuple(tensor.shape[: tensor.ndim])
    strides = tensor.strides[: tensor.ndim] if tensor.strides else None
    _contiguous(type(value).__name__, _is_dense(shape, strides, 1))
    return Borrowed((tensor.data or 0) + tensor.byte_offset, shape, _DLPACK_TYPES[key], device, capsule)


def read_capsule(capsule: object) -> "_DLTensor":
    """The DLTensor inside a capsule."""
    get_pointer = ctypes.pythonapi.PyCapsule_GetPointer
    get_pointer.restype = ctypes.c_void_p
    get_pointer.argtypes = (ctypes.py_object, ctypes.c_char_p)
    return _DLTensor.from_address(get_pointer(capsule, b"dltensor"))
