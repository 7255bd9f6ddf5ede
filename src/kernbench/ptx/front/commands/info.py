"""`kernbench ptx info`: what a PTX module contains."""

from collections import Counter
from dataclasses import asdict
from pathlib import Path

from rich.console import Console
from rich.table import Table

from kernbench import ptx
from kernbench.cli.output.console import check_targets, errors, results
from kernbench.cli.output.document import JSON, write_document
from kernbench.common.errors import KernbenchError
from kernbench.ptx.devices.assembler import KernelResources
from kernbench.ptx.front.commands.launching import read_module
from kernbench.ptx.front.commands.options import FILE
from kernbench.ptx.names.demangling import demangled
from kernbench.ptx.text.module import Kernel, Module
from kernbench.ptx.text.walking import instructions_of


def info(file: FILE, json: JSON = None) -> None:
    """Kernels with their parameters, registers and shared memory, the instructions they use, and what ptxas says."""
    check_targets({"--json": json})
    module = read_module(file)
    console = results()
    version = ".".join(map(str, module.version))
    console.print(f"{file}: version {version}, target {', '.join(module.target)}, {module.address_size}-bit addresses")
    resources = _resources(module)
    for kernel in module.kernels.values():
        _show_kernel(console, kernel, resources)
    for function in module.functions.values():
        console.print(f"device function {function.name}{'' if function.body else ' (declared only)'}")
    write_document(json, "ptx info", _data(file, module, resources))


def _data(file: Path, module: Module, resources: dict[str, KernelResources]) -> dict[str, object]:
    functions = [{"name": f.name, "defined": f.body is not None} for f in module.functions.values()]
    return {
        "file": str(file),
        "version": list(module.version),
        "targets": list(module.target),
        "address_size": module.address_size,
        "kernels": [_kernel_data(kernel, resources) for kernel in module.kernels.values()],
        "functions": functions,
    }


def _kernel_data(kernel: Kernel, resources: dict[str, KernelResources]) -> dict[str, object]:
    parameters = [
        {"name": p.name, "type": p.type, "shape": list(p.dims), "bytes": p.size, "alignment": p.alignment}
        for p in kernel.params
    ]
    return {
        "name": kernel.name,
        "title": demangled(kernel.name),
        "parameters": parameters,
        "block": kernel.reqntid,
        "largest_block": kernel.maxntid,
        "cluster": kernel.cluster,
        "ptxas": asdict(resources[kernel.name]) if kernel.name in resources else None,
        "instructions": _counts(kernel),
    }


def _resources(module: Module) -> dict[str, KernelResources]:
    try:
        return dict(ptx.assemble(module, arch=module.arch).kernels)
    except KernbenchError as error:
        errors().print(f"no figures of ptxas: {error}", soft_wrap=True)
        return {}


def _show_kernel(console: Console, kernel: Kernel, resources: dict[str, KernelResources]) -> None:
    table = Table(title=f"kernel {demangled(kernel.name)}", title_justify="left")
    for column in ("parameter", "type", "bytes", "alignment"):
        table.add_column(column)
    for p in kernel.params:
        table.add_row(p.name, p.type + "".join(f"[{n}]" for n in p.dims), str(p.size), str(p.alignment))
    console.print(table)
    demands = {"block": kernel.reqntid, "at most a block of": kernel.maxntid, "cluster": kernel.cluster}
    for name, value in demands.items():
        if value is not None:
            console.print(f"  {name} {'x'.join(map(str, value))}")
    if kernel.name in resources:
        console.print(f"  ptxas: {_amounts(resources[kernel.name])}")
    counts = _counts(kernel)
    opcodes = ", ".join(f"{opcode} {count}" for opcode, count in counts.items())
    console.print(f"  {sum(counts.values()):,} instructions: {opcodes}", soft_wrap=True)


def _amounts(resources: KernelResources) -> str:
    """ptxas's figures of a kernel (registers, spills, bytes) as text."""
    return ", ".join(f"{value} {name.replace('_', ' ')}" for name, value in asdict(resources).items())


def _counts(kernel: Kernel) -> dict[str, int]:
    """How often each opcode occurs, the most frequent first."""
    return dict(Counter(i.opcode for i in instructions_of(kernel.function.body)).most_common())
