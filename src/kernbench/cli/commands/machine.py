"""`kernbench machine`: show a machine description of any target, or check a file."""

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
    from collections.abc import Sequence

    from kernbench.targets.target import Target

app = typer.Typer(
    help="Machine descriptions: show one with units and limits, or check a file.",
    no_args_is_help=True,
    epilog=examples("kernbench machine show reference", "kernbench machine check mine.toml"),
)
FILE = Annotated[
    str,
    typer.Argument(
        metavar="MACHINE",
        help="A bundled machine's or chip's name (TARGET:NAME where two targets have it), or the path of a TOML file.",
        autocompletion=machines,
    ),
]


@app.command("list", epilog=examples("kernbench machine list"))
def list_machines(json: JSON = None) -> None:
    """List the bundled machines and chips."""
    check_targets({"--json": json})
    targets = registry.with_machines()
    described = [(name, target, target.machines.load(name)) for target in targets for name in target.machines.bundled()]
    for name, target, machine in described:
        called = name if len(_owning(name, targets)) == 1 else f"{target.name}:{name}"
        results().print(f"{called}: {target.machines.size(machine)}, hash {machine.hash}")
    rows = [{**_data(target, machine), "name": name} for name, target, machine in described]
    write_document(json, "machine list", {"machines": rows})


@app.command(
    "show",
    short_help="Every key of a machine, with value, unit and allowed range.",
    epilog=examples("kernbench machine show reference", "kernbench machine show mine.toml --json -"),
)
def show(file: FILE, json: JSON = None) -> None:
    """Show every key with value, unit and allowed range; "shape" keys need a new run, "rate" keys only new timing."""
    check_targets({"--json": json})
    target, machine = _find(file)
    table = Table(title=f"{machine.called} {machine.name}, hash {machine.hash}", title_justify="left")
    for column in ("key", "value", "role", "allowed", "meaning"):
        table.add_column(column, overflow="fold")
    keys = machine.keys()
    for key in keys:
        table.add_row(key.name, key.shown, key.role, key.allowed, key.help)
    results().print(table)
    write_document(json, "machine show", {**_data(target, machine), "keys": [asdict(key) for key in keys]})


@app.command(
    "check",
    short_help="Is a machine file good? Every problem in it.",
    epilog=examples("kernbench machine check mine.toml"),
)
def check(file: FILE, json: JSON = None) -> None:
    """Check a file: reports that it is valid, or every problem in it with the key, the value and what is allowed."""
    check_targets({"--json": json})
    target, machine = _find(file)
    results().print(f"{file}: good; {machine.called} {machine.name}, {target.machines.size(machine)}", highlight=False)
    write_document(json, "machine check", {"file": file, **_data(target, machine)})


def _find(file: str) -> "tuple[Target, Any]":
    """The machine of a name, and its target: the default one if its file does not say."""
    targets = registry.with_machines()
    word, _, rest = file.partition(":")
    named = [target for target in targets if rest and target.name == word]
    targets, name = (named, rest) if named else (targets, file)
    owning = _owning(name, targets)
    if len(owning) > 1:
        ways = " or ".join(f"{target.name}:{name}" for target in owning)
        raise MachineError(f"{len(owning)} targets have a machine {name}: say which you mean, {ways}")
    names = [name for target in targets for name in target.machines.bundled()]
    if name not in names and "/" not in name and "." not in name:
        raise MachineError(f"{unknown('machine', name, names)} A path to a TOML file works too.")
    target = next((target for target in targets if target.machines.owns(name)), targets[0])
    return target, target.machines.load(name)


def _owning(name: str, targets: "Sequence[Target]") -> "list[Target]":
    """The targets that have a bundled machine of this name."""
    return [target for target in targets if name in target.machines.bundled()]


def _data(target: "Target", machine: Any) -> dict[str, object]:
    """The entry of a machine in documents."""
    size = target.machines.size(machine)
    return {"name": machine.name, "target": target.name, "kind": machine.called, "size": size, "hash": machine.hash}
