"""`kernbench machine`: look at a machine description (a mesh or an npu chip), or check one of one's own."""

from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from kernbench.cli.output import results
from kernbench.common.errors import MachineError, unknown
from kernbench.machine import Machine, bundled, load

if TYPE_CHECKING:
    from kernbench.npu import ChipModel

app = typer.Typer(help="Machine descriptions: show one with units and limits, or check a file.", no_args_is_help=True)
FILE = Annotated[str, typer.Argument(help="A bundled machine's or chip's name, or the path of a TOML file.")]


@app.command("list")
def list_machines() -> None:
    """List the bundled machines and chips."""
    from kernbench import npu

    described = [(name, load(name)) for name in bundled()] + [(name, npu.load(name)) for name in npu.bundled()]
    for name, machine in described:
        results().print(f"{name}: {_size(machine)}, hash {machine.hash}")


@app.command("show")
def show(file: FILE) -> None:
    """Show every key with value, unit and allowed range; "shape" keys need a new run, "rate" keys only new timing."""
    machine = _find(file)
    table = Table(title=f"{_kind(machine)} {machine.name}, hash {machine.hash}", title_justify="left")
    for column in ("key", "value", "role", "allowed", "meaning"):
        table.add_column(column, overflow="fold")
    keys = machine.keys()
    for key in keys:
        table.add_row(key.name, key.shown, key.role, key.allowed, key.help)
    results().print(table)


@app.command("check")
def check(file: FILE) -> None:
    """Check a file: silent success or every problem in it."""
    machine = _find(file)
    results().print(f"{file}: good; {_kind(machine)} {machine.name}, {_size(machine)}", highlight=False)


def _find(file: str) -> "Machine | ChipModel":
    """The mesh or the chip that is meant."""
    from kernbench import npu

    if npu.is_chip(file):
        return npu.load(file)
    if file not in bundled() and "/" not in file and "." not in file:
        raise MachineError(f"{unknown('machine', file, [*bundled(), *npu.bundled()])} A path to a TOML file works too.")
    return load(file)


def _kind(machine: "Machine | ChipModel") -> str:
    return "machine" if isinstance(machine, Machine) else "chip"


def _size(machine: "Machine | ChipModel") -> str:
    if isinstance(machine, Machine):
        cubes = machine.cubes_per_package
        return f"{cubes} {'cube' if cubes == 1 else 'cubes'} of {machine.pes_per_cube} PEs"
    return f"{machine.clusters.count} clusters of a cube core and two vector cores"
