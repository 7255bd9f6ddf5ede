"""`kernbench machine`: look at a machine description (a mesh or an npu chip), or check one of one's own."""

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from kernbench.cli.completion import machines
from kernbench.cli.document import JSON, write_document
from kernbench.cli.examples import examples
from kernbench.cli.output import check_targets, results
from kernbench.common.errors import MachineError, unknown
from kernbench.machine import Machine, bundled, load

if TYPE_CHECKING:
    from kernbench.npu import ChipModel

app = typer.Typer(
    help="Machine descriptions: show one with units and limits, or check a file.",
    no_args_is_help=True,
    epilog=examples("kernbench machine show reference", "kernbench machine check mine.toml"),
)
FILE = Annotated[
    str,
    typer.Argument(
        metavar="MACHINE",
        help="A bundled machine's or chip's name, or the path of a TOML file.",
        autocompletion=machines,
    ),
]


@app.command("list", epilog=examples("kernbench machine list"))
def list_machines(json: JSON = None) -> None:
    """List the bundled machines and chips."""
    from kernbench import npu

    check_targets({"--json": json})
    described = [(name, load(name)) for name in bundled()] + [(name, npu.load(name)) for name in npu.bundled()]
    for name, machine in described:
        results().print(f"{name}: {_size(machine)}, hash {machine.hash}")
    write_document(
        json, "machine list", {"machines": [{**_data(machine), "name": name} for name, machine in described]}
    )


@app.command(
    "show",
    short_help="Every key of a machine, with value, unit and allowed range.",
    epilog=examples("kernbench machine show reference", "kernbench machine show mine.toml --json -"),
)
def show(file: FILE, json: JSON = None) -> None:
    """Show every key with value, unit and allowed range; "shape" keys need a new run, "rate" keys only new timing."""
    check_targets({"--json": json})
    machine = _find(file)
    table = Table(title=f"{machine.called} {machine.name}, hash {machine.hash}", title_justify="left")
    for column in ("key", "value", "role", "allowed", "meaning"):
        table.add_column(column, overflow="fold")
    keys = machine.keys()
    for key in keys:
        table.add_row(key.name, key.shown, key.role, key.allowed, key.help)
    results().print(table)
    write_document(json, "machine show", {**_data(machine), "keys": [asdict(key) for key in keys]})


@app.command(
    "check",
    short_help="Is a machine file good? Every problem in it.",
    epilog=examples("kernbench machine check mine.toml"),
)
def check(file: FILE, json: JSON = None) -> None:
    """Check a file: says that it is good, or every problem in it with the key, the value and what is allowed."""
    check_targets({"--json": json})
    machine = _find(file)
    results().print(f"{file}: good; {machine.called} {machine.name}, {_size(machine)}", highlight=False)
    write_document(json, "machine check", {"file": file, **_data(machine)})


def _find(file: str) -> "Machine | ChipModel":
    """The mesh or the chip that is meant."""
    from kernbench import npu

    if npu.is_chip(file):
        return npu.load(file)
    if file not in bundled() and "/" not in file and "." not in file:
        raise MachineError(f"{unknown('machine', file, [*bundled(), *npu.bundled()])} A path to a TOML file works too.")
    return load(file)


def _data(machine: "Machine | ChipModel") -> dict[str, Any]:
    """What is told of every machine."""
    return {"name": machine.name, "kind": machine.called, "size": _size(machine), "hash": machine.hash}


def _size(machine: "Machine | ChipModel") -> str:
    if isinstance(machine, Machine):
        cubes = machine.cubes_per_package
        return f"{cubes} {'cube' if cubes == 1 else 'cubes'} of {machine.pes_per_cube} PEs"
    return f"{machine.clusters.count} clusters of a cube core and two vector cores"
