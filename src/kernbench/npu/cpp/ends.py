"""Messages for C++ programs that ended without returning, with their lines."""

from pathlib import Path
from struct import Struct

from kernbench.common.errors import KernelError
from kernbench.npu.cpp.locations import of_calls
from kernbench.result.finding import SourceLocation

__kernbench_internal__ = True
# signal number, address, whether it is in device memory, and return addresses in the library; a text follows
_END = Struct("<3Q8Q")
_TRAP = "a function ends without the value that it returns, or a number is divided by 0"
_SIGNALS = {
    4: _TRAP,
    5: _TRAP,
    6: "an abort",
    7: "a bus error",
    8: "a division by zero, or another wrong number",
    11: "a segmentation fault",
    24: "an endless loop",
}
_WITH_ADDRESS = (7, 11)
# numbers beside those of signals
_EXITED, _THROWN = 256, 257


def crash(payload: bytes, who: str, library: Path, otherwise: SourceLocation) -> KernelError:
    """The error of a program that crashed; `otherwise` is its location if its library has no line information."""
    number, address, is_device, *calls = _END.unpack_from(payload)
    where = of_calls(library, calls) or otherwise
    words = payload[_END.size :].decode(errors="replace")
    message = f"{who} {_in_words(number, address, bool(is_device), words)}"
    return KernelError("kernel-error", message, "mend the program's own code at this line", where)


def _in_words(number: int, address: int, is_device: bool, words: str) -> str:
    if number == _EXITED:
        return "calls exit, and should return"
    if number == _THROWN:
        return f"throws an exception that nobody catches{f': {words}' if words else ''}"
    at = f" at address {address:#x}{' of device memory' if is_device else ''}" if number in _WITH_ADDRESS else ""
    return f"crashed: {_SIGNALS.get(number, f'signal {number}')}{at}"
