"""`kernbench machine`: look at a machine description of any target, or check one of one's own."""

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from kernbench.cli.arguments.completion import machines
from kernbench.cli.arguments.examples import examples
from kernbench.cli.output.console import check_targets, results
from kernbench.cli.output.document import JSON, write_document
from kernbench.common.errors import MachineError, unknown
from kernbench.targets import registry

if TYPE_CHECKING:
    from kernbench.targets.target import Machines

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
    check_targets({"--json": json})
    kinds = [target.machines for target in registry.with_machines()]
    described = [(name, kind, kind.load(name)) for kind in kinds for name in kind.bundled()]
    for name, kind, machine in described:
        results().print(f"{name}: {kind.size(machine)}, hash {machine.hash}")
    rows = [{**_data(kind, machine), "name": name} for name, kind, machine in described]
    write_document(json, "machine list", {"machines": rows})


@app.command(
    "show",
    short_help="Every key of a machine, with value, unit and allowed range.",
    epilog=examples("kernbench machine show reference", "kernbench machine show mine.toml --json -"),
)
def show(file: FILE, json: JSON = None) -> None:
    """Show every key with value, unit and allowed range; "shape" keys need a new run, "rate" keys only new timing."""
    check_targets({"--json": json})
    kind, machine = _find(file)
    table = Table(title=f"{machine.called} {machine.name}, hash {machine.hash}", title_justify="left")
    for column in ("key", "value", "role", "allowed", "meaning"):
        table.add_column(column, overflow="fold")
    keys = machine.keys()
    for key in keys:
        table.add_row(key.name, key.shown, key.role, key.allowed, key.help)
    results().print(table)
    write_document(json, "machine show", {**_data(kind, machine), "keys": [asdict(key) for key in keys]})


@app.command(
    "check",
    short_help="Is a machine file good? Every problem in it.",
    epilog=examples("kernbench machine check mine.toml"),
)
def check(file: FILE, json: JSON = None) -> None:
    """Check a file: says that it is good, or every problem in it with the key, the value and what is allowed."""
    check_targets({"--json": json})
    kind, machine = _find(file)
    results().print(f"{file}: good; {machine.called} {machine.name}, {kind.size(machine)}", highlight=False)
    write_document(json, "machine check", {"file": file, **_data(kind, machine)})


def _find(file: str) -> "tuple[Machines, Any]":
    """The machine that is meant, and the kind it is of: the default one where its file does not say."""
    kinds = [target.machines for target in registry.with_machines()]
    kind = next((kind for kind in kinds if kind.owns(file)), kinds[0])
    names = [name for one in kinds for name in one.bundled()]
    if file not in names and "/" not in file and "." not in file:
        raise MachineError(f"{unknown('machine', file, names)} A path to a TOML file works too.")
    return kind, kind.load(file)


def _data(kind: "Machines", machine: Any) -> dict[str, object]:
    """What is reported of every machine."""
    return {"name": machine.name, "kind": machine.called, "size": kind.size(machine), "hash": machine.hash}
