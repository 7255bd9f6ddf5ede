"""A kernel that is loaded once and launched many times, at the cost of one driver call."""

import ctypes
import struct
from collections.abc import Sequence

from kernbench.common.errors import MisuseError
from kernbench.ptx.devices.cuda_driver import Driver, Handle
from kernbench.ptx.launching.device_base import Extent
from kernbench.ptx.text.module import Parameter

# `struct` format characters of parameter types; other types are bytes
_CODES = {"u64": "Q", "s64": "q", "b64": "Q", "u32": "I", "s32": "i", "b32": "I", "f32": "f", "f64": "d"}


class PackedValues:
    """The values of all parameters in the driver's format; immutable, so that any thread may launch."""

    def __init__(self, form: struct.Struct, params: Sequence[Parameter], values: Sequence[object]):
        self._buffer = ctypes.create_string_buffer(max(1, form.size))
        try:
            form.pack_into(self._buffer, 0, *values)
        except struct.error as error:
            raise MisuseError(f"values of a prepared launch: {error}") from None
        start = ctypes.addressof(self._buffer)
        addresses = [start + parameter.offset for parameter in params]
        self._pointers = (ctypes.c_void_p * max(1, len(addresses)))(*addresses)
        self.address = ctypes.addressof(self._pointers)


class PreparedLaunch:
    """A loaded kernel; `launch` enqueues it on a stream and returns at once, without checks, waits or allocations.

    Values are in the order of the parameters: numbers, addresses as numbers, and the bytes of tensor maps. `pack`
    prepares them once for many launches. Wrong values only show on the device; the caller that prepares a launch checks
    its arguments.
    """

    def __init__(self, driver: Driver, function: Handle, params: Sequence[Parameter], block: Extent, shared_bytes: int):
        self._driver, self._function = driver, function
        self._launch, self._success = driver.api.cuLaunchKernel, driver.api.CUresult.CUDA_SUCCESS
        self._block, self._shared_bytes = block, shared_bytes
        self._params, self._form = params, packing(params)

    def pack(self, *values: object) -> PackedValues:
        """Pack values for any number of launches."""
        return PackedValues(self._form, self._params, values)

    def launch(self, grid: Extent, stream: int, packed: PackedValues) -> None:
        """Enqueue the kernel on a stream (a handle); the driver copies the values before it returns."""
        (status,) = self._launch(self._function, *grid, *self._block, self._shared_bytes, stream, packed.address, 0)
        if status != self._success:
            raise self._driver.error("cuLaunchKernel", status.name)


def packing(params: Sequence[Parameter]) -> struct.Struct:
    """The format of the parameter block, each parameter at its offset."""
    form, end = "<", 0
    for parameter in params:
        form += "x" * (parameter.offset - end)
        form += _CODES.get(parameter.type, "") if parameter.size <= 8 else f"{parameter.size}s"
        end = parameter.offset + parameter.size
    made = struct.Struct(form)
    if made.size != end:
        raise MisuseError(f"parameters of types {[one.type for one in params]}: not all can be prepared")
    return made
