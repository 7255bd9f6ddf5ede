"""`kernbench ptx emit` and `kernbench ptx show`: a module in its stable form, its programs as the executor's rows."""

from pathlib import Path
from typing import Annotated, TypedDict

import typer

from kernbench.cli.output.console import check_targets
from kernbench.cli.output.document import JSON, STDOUT, write_document
from kernbench.common.errors import BenchError
from kernbench.ptx.front.commands.launching import at_its_line, read_module
from kernbench.ptx.front.commands.options import FILE, KERNEL
from kernbench.ptx.front.launch_file import choose_kernel
from kernbench.ptx.text.errors import PtxError
from kernbench.ptx.text.module import Kernel
from kernbench.ptx.validation.validation import validate
from kernbench.result.run import write_bytes

OUT = Annotated[Path | None, typer.Option("--out", "-o", metavar="FILE", help="Write to this file; without it, print.")]
PROGRAM = Annotated[bool, typer.Option("--program", help="The rows that the emulator's executor runs.")]


class _Shown(TypedDict):
    """A kernel's rows as text, or why the executor has none."""

    name: str
    reason: str | None
    text: str


def emit(file: FILE, out: OUT = None, json: JSON = None) -> None:
    """Parse a file and print it again in its stable form."""
    check_targets({"--out": out, "--json": json}, replaces="--out")
    module = read_module(file)
    text = module.emit()
    if out is not None:
        write_bytes(out, text.encode("utf-8", errors="surrogateescape"))
    elif json != STDOUT:
        typer.echo(text, nl=False)
    data = {"file": str(file), "written": None if out is None else str(out), "kernels": list(module.kernels)}
    write_document(json, "ptx emit", {**data, "text": text})


def show(file: FILE, program: PROGRAM = False, kernel: KERNEL = "", json: JSON = None) -> None:
    """Print what the emulator makes of a file, for reading and for diff.

    --program prints the rows of each kernel, block by block: operation, operands, immediate, and the line of the
    instruction; or in one line why the executor does not run the kernel.
    """
    check_targets({"--json": json})
    if not program:
        raise BenchError("say what to show: --program for the rows that the emulator's executor runs")
    module = read_module(file)
    try:
        validate(module)
        kernels = [choose_kernel(module, kernel)] if kernel else list(module.kernels.values())
        shown = [_shown(one) for one in kernels]
    except PtxError as error:
        raise BenchError(at_its_line(file, error)) from None
    if json != STDOUT:
        typer.echo("".join(one["text"] for one in shown), nl=False)
    write_document(json, "ptx show", {"file": str(file), "kernels": shown})


def _shown(kernel: Kernel) -> _Shown:
    # the emulator, which other commands do not need before they launch
    from kernbench.ptx.emulator.analysis.building import program_of
    from kernbench.ptx.executor.listing import listing
    from kernbench.ptx.executor.running import rows_for

    program = program_of(kernel)
    rows = rows_for(program)
    if isinstance(rows, str):
        return _Shown(name=kernel.name, reason=rows, text=f"kernel {kernel.name}: not run by the executor: {rows}\n")
    head = f"kernel {kernel.name}: {len(rows.operations)} rows, {rows.nbytes} bytes of registers for each warp"
    return _Shown(name=kernel.name, reason=None, text="\n".join([head, *listing(program, rows), ""]))
