"""Options that commands share: the command line has them one by one, the command together."""

from dataclasses import dataclass
from typing import Annotated

import typer
from typer.testing import CliRunner

from kernbench.cli.arguments.grouped import grouped


@dataclass(frozen=True)
class Limits:
    """Two options."""

    seconds: Annotated[float, typer.Option("--max-seconds", help="Seconds.")] = 60.0
    steps: Annotated[int, typer.Option("--budget", min=1)] = 7


def asked(*words: str):
    """What a command with the group gets, and what is printed."""
    seen = []
    app = typer.Typer()

    @app.command()
    @grouped
    def command(file: Annotated[str, typer.Argument()], *, first: bool = False, limits: Limits, last: int = 3) -> None:
        """What it does."""
        seen.append((file, first, limits, last))

    done = CliRunner().invoke(app, list(words))
    return done, seen


def test_a_command_gets_its_options_together():
    done, seen = asked("a.ptx", "--budget", "9", "--last", "4", "--first")
    assert done.exit_code == 0
    assert seen == [("a.ptx", True, Limits(60.0, 9), 4)]


def test_the_command_line_has_them_one_by_one_and_in_their_place():
    done, _ = asked("--help")
    places = [done.output.index(word) for word in ("What it does", "--first", "--max-seconds", "--budget", "--last")]
    assert places == sorted(places)
    assert "default: 60.0" in done.output


def test_a_value_that_an_option_refuses_does_not_reach_the_command():
    done, seen = asked("a.ptx", "--budget", "0")
    assert done.exit_code == 2
    assert seen == []
