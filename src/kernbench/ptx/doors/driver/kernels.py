"""Kernel properties as the driver reports them: parameters, and attributes by their number in the driver API."""

from collections.abc import Sequence
from math import prod

from kernbench.ptx.doors.driver.properties import SHARED_BY_DEFAULT
from kernbench.ptx.text.module import Kernel
from kernbench.result.run import Run

# unknown without ptxas, but programs divide by it
_REGISTERS = 32


def kernel_attributes(kernel: Kernel, shared_bytes: int, capability: int) -> list[int]:
    """The sixteen attributes; `shared_bytes` is what the kernel declares."""
    block = kernel.reqntid or kernel.maxntid
    cluster = kernel.cluster
    # the target architecture of the PTX, not the PTX version: libraries choose launch sizes by it
    virtual = int("".join(filter(str.isdecimal, kernel.module.arch)) or 0)
    constant = sum(v.size or 0 for v in kernel.module.variables.values() if v.space == "const")
    values = [0] * 16
    values[0] = min(1024, prod(block)) if block else 1024
    values[1], values[2] = shared_bytes, constant
    values[4], values[5], values[6] = _REGISTERS, virtual, capability
    values[8] = max(0, SHARED_BY_DEFAULT - shared_bytes)
    values[9] = -1
    if cluster is not None:
        values[10:14] = [1, *cluster]
    return values


def parameter_layout(kernel: Kernel) -> bytes:
    """Sizes, then offsets, of all parameters, as 32-bit words."""
    numbers = [p.size for p in kernel.params] + [p.offset for p in kernel.params]
    return b"".join(number.to_bytes(4, "little") for number in numbers)


def split_parameters(kernel: Kernel, data: bytes) -> list[bytes]:
    """Split the concatenated bytes of all parameters."""
    found, at = [], 0
    for parameter in kernel.params:
        found.append(data[at : at + parameter.size])
        at += parameter.size
    return found


def pointed_to(kernel: Kernel, parameters: Sequence[bytes]) -> dict[int, str]:
    """Names of parameters by value, if they are as wide as an address; for structs, one for each word.

    Compilers prefix names with the kernel's name, which has hundreds of letters in CuTe DSL: it is dropped.
    """
    found: dict[int, str] = {}
    prefix = f"{kernel.name}_"
    for one, data in zip(kernel.params, parameters, strict=True):
        for at in range(0, len(data) - 7, 8):
            name = one.name.removeprefix(prefix) + (f"+{at}" if at else "")
            found.setdefault(int.from_bytes(data[at : at + 8], "little"), name)
    return {word: name for word, name in found.items() if word}


def kind_of_stop(run: Run) -> str:
    """How a launch ended its program: "timeout", "assert" or "trap"; empty if the program goes on."""
    if str(run.status) != "finished":
        return "timeout"
    for finding in run.findings:
        if finding.kind == "trap":
            return "assert" if "assertion '" in finding.message else "trap"
    return ""
