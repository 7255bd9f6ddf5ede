"""`kernbench machine`: look at a machine description, or check one of one's own."""

from typing import Annotated

import typer
from rich.table import Table

from kernbench.cli.output import results
from kernbench.machine import bundled, load

app = typer.Typer(help="Machine descriptions: show one with units and limits, or check a file.", no_args_is_help=True)
FILE = Annotated[str, typer.Argument(help="A bundled machine's name or the path of a TOML file.")]


@app.command("list")
def list_machines() -> None:
    """List the bundled machines."""
    for name in bundled():
        machine = load(name)
        cubes = machine.cubes_per_package
        results().print(
            f"{name}: {cubes} {'cube' if cubes == 1 else 'cubes'} of {machine.pes_per_cube} PEs, hash {machine.hash}"
        )


@app.command("show")
def show(file: FILE) -> None:
    """Show every key with value, unit and allowed range; "shape" keys need a new run, "rate" keys only new timing."""
    machine = load(file)
    table = Table(title=f"machine {machine.name}, hash {machine.hash}", title_justify="left")
    for column in ("key", "value", "role", "allowed", "meaning"):
        table.add_column(column, overflow="fold")
    keys = machine.keys()
    for key in keys:
        table.add_row(key.name, key.shown, key.role, key.allowed, key.help)
    results().print(table)


@app.command("check")
def check(file: FILE) -> None:
    """Check a file: silent success or every problem in it."""
    machine = load(file)
    pes = machine.cubes_per_package * machine.pes_per_cube
    results().print(f"{file}: good; machine {machine.name}, {pes:,} PEs", highlight=False)
