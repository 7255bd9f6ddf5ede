"""DLPack exchange of emulated CUDA tensors, in Python and in C: tensors on the device report CUDA.

Torch itself only knows the host, so exported tensors are corrected on the way out, and imported ones on the way in. As
everywhere, a tensor is on the device if its address is.
"""

import ctypes
import functools
from collections.abc import Callable
from typing import Any

import torch

from kernbench.ptx.doors.memory import DeviceMemory
from kernbench.ptx.doors.patching import Patches

_HOST, _CUDA = (1, 0), (2, 0)
# names of capsules -> offset of the tensor in their structure
_CAPSULES = {b"dltensor": 0, b"dltensor_versioned": 32}
_TABLE, _ATTRIBUTE = b"dlpack_exchange_api", "__dlpack_c_exchange_api__"
# the memory of the open sessions; consumers keep the function table longer than sessions live
_OPEN: list[DeviceMemory] = []

_API: Any = ctypes.pythonapi
_API.PyCapsule_IsValid.argtypes = [ctypes.py_object, ctypes.c_char_p]
_API.PyCapsule_GetPointer.argtypes = [ctypes.py_object, ctypes.c_char_p]
_API.PyCapsule_GetPointer.restype = ctypes.c_void_p
_API.PyCapsule_New.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
_API.PyCapsule_New.restype = ctypes.py_object
_Function = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)
_Stream = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_int, ctypes.c_int32, ctypes.c_void_p)


class _Tensor(ctypes.Structure):
    """The first fields of a `DLTensor`."""

    _fields_ = (("data", ctypes.c_void_p), ("kind", ctypes.c_int32), ("number", ctypes.c_int32))


class _Exchange(ctypes.Structure):
    """A `DLPackExchangeAPI` of DLPack 1: C functions that take and make tensors."""

    _fields_ = (
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("earlier", ctypes.c_void_p),
        ("allocate", ctypes.c_void_p),
        ("managed_from", ctypes.c_void_p),
        ("managed_to", ctypes.c_void_p),
        ("tensor_from", ctypes.c_void_p),
        ("stream", ctypes.c_void_p),
    )


def install(patches: Patches, memory: DeviceMemory) -> None:
    """Let tensors in a memory report CUDA device 0 in DLPack."""
    _OPEN.append(memory)
    patches.later(lambda: _OPEN.remove(memory))
    for name in ("_to_dlpack", "_to_dlpack_versioned"):
        if hasattr(torch._C, name):
            patches.set(torch._C, name, _exporting(getattr(torch._C, name)))
    patches.set(torch.utils.dlpack, "to_dlpack", _exporting(torch.utils.dlpack.to_dlpack))
    patches.set(torch._C, "_from_dlpack", _importing(torch._C._from_dlpack))
    table = _own_table()
    if table is not None:
        patches.set(torch.Tensor, _ATTRIBUTE, table)


def _say(address: int, device: tuple[int, int]) -> None:
    """Set the device of a `DLTensor` at an address, if its data is in the session's memory."""
    tensor = _Tensor.from_address(address)
    if _OPEN and _OPEN[-1].holds(tensor.data or 0):
        tensor.kind, tensor.number = device


def _of_capsule(capsule: object) -> int | None:
    """The address of a capsule's `DLTensor`; None if it was consumed, or is something else."""
    for name, offset in _CAPSULES.items():
        if _API.PyCapsule_IsValid(capsule, name):
            return int(_API.PyCapsule_GetPointer(capsule, name)) + offset
    return None


def _exporting(export: Callable[..., object]) -> Callable[..., object]:
    @functools.wraps(export)
    def exported(tensor: torch.Tensor, **options: Any) -> object:
        if options.get("dl_device") == _CUDA and tensor.is_cuda:
            options["dl_device"] = None
        capsule = export(tensor, **options)
        address = _of_capsule(capsule)
        if address is not None:
            _say(address, _CUDA)
        return capsule

    return exported


def _importing(take: Callable[..., object]) -> Callable[..., object]:
    @functools.wraps(take)
    def imported(capsule: object) -> object:
        address = _of_capsule(capsule)
        if address is not None:
            _say(address, _HOST)
        return take(capsule)

    return imported


@functools.cache
def _own_table() -> object | None:
    """Torch's function table, corrected; None if torch has none, or one for another DLPack.

    It lives as long as the process: consumers cache it for a tensor type.
    """
    capsule = getattr(torch.Tensor, _ATTRIBUTE, None)
    if capsule is None or not _API.PyCapsule_IsValid(capsule, _TABLE):
        return None
    table = _Exchange.from_buffer_copy(_Exchange.from_address(_API.PyCapsule_GetPointer(capsule, _TABLE)))
    if table.major != 1:
        return None
    table.earlier = None
    _KEPT.extend((capsule, table))
    _replace(table)
    made: object = _API.PyCapsule_New(ctypes.addressof(table), _TABLE, None)
    return made


_KEPT: list[object] = []


def _replace(table: _Exchange) -> None:
    """Replace torch's functions by ours; an error of torch's becomes -1."""
    managed_from, managed_to = _Function(table.managed_from), _Function(table.managed_to)
    tensor_from, stream = table.tensor_from, _Stream(table.stream)
    offset = _CAPSULES[b"dltensor_versioned"]

    def export(given: int, out: int) -> int:
        return _export(managed_from, given, out, lambda: (ctypes.c_void_p.from_address(out).value or 0) + offset)

    def describe(given: int, out: int) -> int:
        return _export(_Function(tensor_from), given, out, lambda: out)

    def take(given: int, out: int) -> int:
        _say(given + offset, _HOST)
        return _call(managed_to, given, out)

    def stream_of(kind: int, number: int, out: int) -> int:
        if not _OPEN or kind != _CUDA[0]:
            return _call(stream, kind, number, out)
        ctypes.c_void_p.from_address(out).value = None
        return 0

    ours = {"managed_from": _Function(export), "managed_to": _Function(take)}
    if tensor_from:
        ours["tensor_from"] = _Function(describe)
    whose = _Stream(stream_of)
    for name, function in ours.items():
        setattr(table, name, ctypes.cast(function, ctypes.c_void_p))
    table.stream = ctypes.cast(whose, ctypes.c_void_p)
    _KEPT.extend((ours, whose))


def _export(function: Callable[..., int], given: int, out: int, where: Callable[[], int]) -> int:
    code = _call(function, given, out)
    if code == 0:
        _say(where(), _CUDA)
    return code


def _call(function: Callable[..., int], *given: int) -> int:
    """Call a function of torch; its exceptions cannot pass through C."""
    try:
        return function(*given)
    except Exception:
        return -1
