"""`kernbench new`: a small, working bench to start from."""

import shlex
from pathlib import Path
from typing import Annotated

import typer

from kernbench.bench.discovery.new import targets, write_new
from kernbench.cli.output.console import check_targets, results
from kernbench.cli.output.document import JSON, write_document
from kernbench.targets.registry import listed

TARGET = Annotated[
    str,
    typer.Argument(
        metavar="TARGET",
        help=f"What the kernel is for: {', '.join(targets())}.",
        autocompletion=lambda incomplete: [name for name in targets() if name.startswith(incomplete)],
    ),
]
NAME = Annotated[str, typer.Argument(metavar="NAME", help="The bench's name; its file is NAME.py.")]
FOLDER = Annotated[
    Path, typer.Option("--dir", "-d", metavar="FOLDER", help="Folder to write it to; made where there is none.")
]


def new(target: TARGET, name: NAME, folder: FOLDER = Path(), json: JSON = None) -> None:
    """Write a small attention kernel with its inputs and golden: right, safe, and yours to change."""
    check_targets({"--json": json})
    file = write_new(target, name, folder)
    console = results()
    console.print(f"wrote {file}", soft_wrap=True)
    following = f"kernbench run {shlex.quote(str(file))}"
    console.print(f"next: {following}", soft_wrap=True)
    write_document(json, "new", {"target": target, "name": name, "file": str(file), "next": following})


_IDEAS = "; ".join(f"{row.name}: {row.template}" for row in listed() if row.template)
new.__doc__ = f"{new.__doc__}\n\n{_IDEAS}."
