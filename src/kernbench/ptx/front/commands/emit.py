"""`kernbench ptx emit`: a module in its stable form."""

from pathlib import Path
from typing import Annotated

import typer

from kernbench.cli.output.console import check_targets
from kernbench.cli.output.document import JSON, STDOUT, write_document
from kernbench.ptx.front.commands.launching import read_module
from kernbench.ptx.front.commands.options import FILE
from kernbench.result.run import write_bytes

OUT = Annotated[Path | None, typer.Option("--out", "-o", metavar="FILE", help="Write to this file; without it, print.")]


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
