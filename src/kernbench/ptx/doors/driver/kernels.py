"""What the driver says of a kernel: its parameters, and attributes by their number in the driver API."""

from collections.abc import Sequence
from math import prod

from kernbench.ptx.doors.driver.properties import SHARED_BY_DEFAULT
from kernbench.ptx.text.module import Kernel
from kernbench.result.run import Run

# not known without the assembler; programs divide by it
_REGISTERS = 32


def kernel_attributes(kernel: Kernel, shared_bytes: int, capability: int) -> list[int]:
    """The sixteen attributes; `shared_bytes` are those that the kernel declares."""
    block = kernel.reqntid or kernel.maxntid
    cluster = kernel.cluster
    # the architecture that the PTX is for, not the version of PTX: libraries choose their kernels' sizes by it
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
    """Sizes, then offsets, of all parameters, in words of 32 bits."""
    numbers = [p.size for p in kernel.params] + [p.offset for p in kernel.params]
    return b"".join(number.to_bytes(4, "little") for number in numbers)


def split_parameters(kernel: Kernel, data: bytes) -> list[bytes]:
    """The bytes of each parameter of those that lie one behind the other."""
    found, at = [], 0
    for parameter in kernel.params:
        found.append(data[at : at + parameter.size])
        at += parameter.size
    return found


def pointed_to(kernel: Kernel, parameters: Sequence[bytes]) -> dict[int, str]:
    """Names of parameters by the number they hold, where they are as wide as an address; of structs each word's.

    Compilers write the kernel's name in front, which has hundreds of letters in CuTe DSL: it is left out.
    """
    found: dict[int, str] = {}
    prefix = f"{kernel.name}_"
    for one, data in zip(kernel.params, parameters, strict=True):
        for at in range(0, len(data) - 7, 8):
            name = one.name.removeprefix(prefix) + (f"+{at}" if at else "")
            found.setdefault(int.from_bytes(data[at : at + 8], "little"), name)
    return {word: name for word, name in found.items() if word}


def kind_of_stop(run: Run) -> str:
    """How a launch ended its program: "timeout", "assert", "trap", or "" where the program goes on."""
    if str(run.status) != "finished":
        return "timeout"
    for finding in run.findings:
        if finding.kind == "trap":
            return "assert" if "assertion '" in finding.message else "trap"
    return ""
