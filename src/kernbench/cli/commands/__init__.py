"""The table of commands: modules, and lines of the list. Modules of other commands than the named one are not
imported.
"""

import importlib
from collections.abc import Collection
from dataclasses import dataclass

import typer

from kernbench.cli.arguments.examples import examples
from kernbench.targets.registry import BUNDLED, listed


@dataclass(frozen=True)
class Command:
    """A command: its module and function, its line in the list, and examples below its help."""

    module: str
    function: str
    short_help: str
    examples: tuple[str, ...]


@dataclass(frozen=True)
class Group:
    """Commands below one word: the module with their `app`, and their line in the list."""

    module: str
    short_help: str


COMMANDS = {
    "list": Command(
        "kernbench.cli.commands.list",
        "list_benches",
        "The bundled benches and their panels.",
        ("kernbench list", "kernbench list --json -"),
    ),
    "run": Command(
        "kernbench.cli.commands.run",
        "run",
        "Run a bench: is it right, is it safe, how fast and why.",
        (
            "kernbench run my_ring.py --set n_ranks=8 --html my_ring.html",
            "kernbench run milestone_gqa_llama70b -p single_user_decode -m small",
            "kernbench run my_ring.py --json - | jq '.runs[].safe'",
        ),
    ),
    "show": Command(
        "kernbench.cli.commands.show",
        "show",
        "A bench's parameters, source, and a rank's last commands.",
        ("kernbench show milestone_gqa_llama70b --rank 2 --no-source",),
    ),
    "sweep": Command(
        "kernbench.cli.commands.sweep",
        "sweep",
        "A bench over many values of parameters and machine keys.",
        ("kernbench sweep my_ring.py --over n_ranks=2,4,8 --over S=32,64",),
    ),
    "tune": Command(
        "kernbench.cli.commands.tune",
        "tune",
        "Which values make a bench fastest, by predicted time.",
        ("kernbench tune my_ring.py --over n_ranks=2,4,8 --over S=32,64",),
    ),
    "report": Command(
        "kernbench.cli.commands.report",
        "report",
        "Saved runs as one page to open.",
        ("kernbench report runs.json --html runs.html",),
    ),
    "compare": Command(
        "kernbench.cli.commands.compare",
        "compare",
        "Two saved runs beside each other, and why they differ.",
        ("kernbench compare before.json after.json --html change.html",),
    ),
    "check": Command(
        "kernbench.cli.commands.check",
        "check",
        "All benches of a folder: right and safe, or not.",
        ("kernbench check kernels --junit verdicts.xml", "kernbench check kernels --baseline known.toml"),
    ),
    "new": Command(
        "kernbench.cli.commands.new",
        "new",
        "A small, working bench to start from.",
        (f"kernbench new {BUNDLED[0].name} my_ring", f"kernbench new {BUNDLED[-1].name} my_kernel --dir kernels"),
    ),
}
GROUPS = {
    "cache": Group("kernbench.cli.commands.cache", "Compiled loops: show, export, import, clear, compile ahead."),
    "machine": Group("kernbench.cli.commands.machine", "Machine descriptions: list, show one, check a file."),
}


def commands() -> dict[str, Command]:
    """Commands of kernbench, then those of targets."""
    own = [one for row in listed() for one in row.top_commands]
    return {**COMMANDS, **{one.name: Command(one.module, one.function, one.short_help, one.examples) for one in own}}


def groups() -> dict[str, Group]:
    """Command groups of kernbench, then those of targets."""
    own = [row.commands for row in listed() if row.commands is not None]
    return {**GROUPS, **{one.word: Group(one.module, one.short_help) for one in own}}


def add_commands(app: typer.Typer, words: Collection[str] | None = None) -> None:
    """Add every command; with the words of a command line, the others are only added to the list."""
    for name, command in commands().items():
        function = _unread
        if words is None or name in words:
            function = getattr(importlib.import_module(command.module), command.function)
        app.command(name, short_help=command.short_help, epilog=examples(*command.examples))(function)
    for name, group in groups().items():
        held = typer.Typer()
        if words is None or name in words:
            held = importlib.import_module(group.module).app
        app.add_typer(held, name=name, short_help=group.short_help)


def _unread() -> None:
    """Replaces a command in the list that the command line does not name."""
    raise AssertionError("a command that no word names is called")
