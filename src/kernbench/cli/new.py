"""`kernbench new`: a small, working bench to start one's own from."""

from pathlib import Path
from typing import Annotated

import typer

from kernbench.bench.new import TARGETS, write_new
from kernbench.cli.output import results

TARGET = Annotated[str, typer.Argument(help=f"What the kernel is for: {', '.join(TARGETS)}.")]
NAME = Annotated[str, typer.Argument(help="The bench's name; its file is NAME.py.")]
FOLDER = Annotated[Path, typer.Option("--dir", "-d", help="Folder to write it to; made where there is none.")]


def new(target: TARGET, name: NAME, folder: FOLDER = Path()) -> None:
    """Write a small attention kernel with its inputs and golden: right, safe, and yours to change.

    mesh: a K/V ring over PEs; npu: cube and vector tasks; ptx: a warp for each head, built in Python.
    """
    file = write_new(target, name, folder)
    console = results()
    console.print(f"wrote {file}", soft_wrap=True)
    console.print(f"next: kernbench run {file}", soft_wrap=True)
