"""Arguments and options that several commands on benches share."""

from pathlib import Path
from typing import Annotated

import typer

from kernbench.cli.arguments.completion import benches, machines, panels, settings
from kernbench.common.errors import BenchError, MachineError
from kernbench.machine.units import parse
from kernbench.safety.confined import LEAST_MEMORY
from kernbench.targets.registry import MACHINE as MACHINE_WORD
from kernbench.targets.registry import listed

_OWN_WORDS = ", ".join(
    f"{row.machine}=... on the {row.name}" for row in listed() if row.machine not in ("", MACHINE_WORD)
)

NAME = Annotated[
    str,
    typer.Argument(
        metavar="BENCH", help="A bench's name, or the path of a .py file that defines one.", autocompletion=benches
    ),
]
PANEL = Annotated[
    str | None,
    typer.Option("--panel", "-p", metavar="NAME", help="One panel; without it all panels run.", autocompletion=panels),
]
SETTINGS = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        "-s",
        metavar="KEY=VALUE",
        help="A parameter, or machine.KEY (chip.KEY) of the machine file; may be given often.",
        autocompletion=settings,
    ),
]
SEED = Annotated[int, typer.Option("--seed", metavar="N", help="Seed of the inputs.", min=0)]
DTYPE = Annotated[str | None, typer.Option("--dtype", metavar="TYPE", help="Element type; short for --set dtype=...")]
MACHINE = Annotated[
    str | None,
    typer.Option(
        "--machine",
        "-m",
        metavar="NAME",
        help=f"A bundled machine or chip, or a TOML file; short for --set {MACHINE_WORD}=... ({_OWN_WORDS}).",
        autocompletion=machines,
    ),
]
SHAPES = Annotated[
    bool, typer.Option("--shapes-only", help="Carry no data: real sizes, safe and timed, but not judged by the golden.")
]
RAY = Annotated[
    str | None, typer.Option("--ray", metavar="ADDRESS", help="Run on a Ray cluster; local: start Ray here.")
]
BLOCKS = Annotated[
    str | None,
    typer.Option("--blocks", metavar="0-3,17", help="Run these blocks of each grid; the others are taken as not run."),
]
JOBS = Annotated[
    int,
    typer.Option(
        "--jobs",
        metavar="N",
        envvar="KERNBENCH_JOBS",
        show_envvar=False,
        help="Processes for a launch and its golden, with the same outcome; 0: one for each core.",
        min=0,
    ),
]
STRICT = Annotated[
    bool,
    typer.Option("--strict", help="Formal findings, which change no result on hardware that exists, count as faults."),
]
SCHEDULE = Annotated[
    str,
    typer.Option(
        "--schedule", metavar="ORDER", help="Order in which programs take turns: canonical, reversed or a seed."
    ),
]
HTML = Annotated[
    Path | None, typer.Option("--html", metavar="FILE", help="Write all runs to this file, as a page to open.")
]


def schedule_of(text: str) -> str | int:
    """The schedule given as text: a name, or a seed."""
    return int(text) if text.isdecimal() and text.isascii() else text


def memory_limit(text: str | None) -> int | None:
    """The bytes that --max-memory names; None without it."""
    if text is None:
        return None
    try:
        size = int(parse(text, "bytes"))
    except MachineError as error:
        raise BenchError(f"--max-memory {text}: {error}") from None
    if size < LEAST_MEMORY:
        raise BenchError(f"--max-memory {text}: a process needs {LEAST_MEMORY // 2**20} MiB at least; give it more")
    return size
