"""`kernbench compare`: two saved runs beside each other, as tables and as a page."""

from pathlib import Path
from typing import Annotated

import typer

from kernbench.cli.output.console import check_targets, errors, results
from kernbench.cli.output.document import JSON, write_document
from kernbench.common.errors import MisuseError, unknown
from kernbench.report import difference, difference_text, page_html, titles
from kernbench.result.load import load_runs
from kernbench.result.run import Run, write_bytes

A = Annotated[Path, typer.Argument(metavar="A", help="A file of kernbench run --json.")]
B = Annotated[Path | None, typer.Argument(metavar="B", help="Another; without it, two runs of the first are compared.")]
RUN_A = Annotated[
    str | None,
    typer.Option("--run-a", metavar="NAME", help="Which run of the first file, by the name its page gives it."),
]
RUN_B = Annotated[str | None, typer.Option("--run-b", metavar="NAME", help="Which run of the second file.")]
HTML = Annotated[
    Path | None, typer.Option("--html", metavar="FILE", help="Write a page with the comparison and all runs compared.")
]

Pair = tuple[tuple[str, Run], tuple[str, Run]]


def compare(a: A, b: B = None, run_a: RUN_A = None, run_b: RUN_B = None, html: HTML = None, json: JSON = None) -> None:
    """Compare two saved runs: before and after, two algorithms, emulator and GPU; what changed on the critical path.

    Files with several runs are compared run by run, by name. Exit code 0, or 2 on misuse.
    """
    check_targets({"--html": html, "--json": json})
    for option, file in (("--html", html), ("--json", json)):
        if file is not None and file.resolve() in {one.resolve() for one in (a, b) if one is not None}:
            raise MisuseError(f"{option} {file} is a file to read from: name another")
    pairs = _pairs(a, b, run_a, run_b)
    held = [difference(x[1], y[1], (x[0], y[0])) for x, y in pairs]
    console = results()
    for one in held:
        console.print(difference_text(one))
    if html is not None:
        runs = list({id(run): (name, run) for pair in pairs for name, run in pair}.values())
        content = page_html("comparison", runs, [one.to_dict() for one in held])
        write_bytes(html, content.encode("utf-8", "replace"))
        errors().print(f"page written to {html}", soft_wrap=True)
    write_document(json, "compare", {"comparisons": [one.to_dict() for one in held]})


def _pairs(a: Path, b: Path | None, run_a: str | None, run_b: str | None) -> list[Pair]:
    first = _named(a)
    second = first if b is None else _named(b)
    if run_a is None and run_b is None:
        return _by_name(a, first, b, second)
    x, y = _pick(a, first, run_a, "--run-a"), _pick(b or a, second, run_b, "--run-b")
    if x is y:
        raise MisuseError(f"--run-a and --run-b both name {x[0]}: nothing to compare")
    if b is None or x[0] != y[0]:
        return [(x, y)]
    return [((_full(a, b, 0, x[0]), x[1]), (_full(a, b, 1, y[0]), y[1]))]


def _named(file: Path) -> list[tuple[str, Run]]:
    runs = load_runs(file).runs
    return list(zip(titles(runs), runs, strict=True))


def _pick(file: Path, runs: list[tuple[str, Run]], name: str | None, option: str) -> tuple[str, Run]:
    if name is None and len(runs) == 1:
        return runs[0]
    if name is None:
        raise MisuseError(f"{file} holds {len(runs)} runs: choose one with {option}: {_list(runs)}")
    found = [one for one in runs if one[0] == name]
    if not found:
        raise MisuseError(unknown(f"run of {file}", name, [n for n, _ in runs]))
    return found[0]


def _list(runs: list[tuple[str, Run]]) -> str:
    return ", ".join(repr(name) for name, _ in runs)


def _by_name(a: Path, first: list[tuple[str, Run]], b: Path | None, second: list[tuple[str, Run]]) -> list[Pair]:
    if b is None:
        if len(first) != 2:
            raise MisuseError(
                f"{a} holds {_list(first)}: name a second file, or choose two of them with --run-a and --run-b"
            )
        return [(first[0], first[1])]
    if len(first) == len(second) == 1:
        x, y = first[0], second[0]
        return [((_full(a, b, 0, x[0], y[0]), x[1]), (_full(a, b, 1, y[0], x[0]), y[1]))]
    others = dict(second)
    shared = [(name, run) for name, run in first if name in others]
    if not shared:
        raise MisuseError(
            f"no run is in both files: {a} has {_list(first)}; {b} has {_list(second)}; choose with --run-a and --run-b"
        )
    return [((_full(a, b, 0, name), run), (_full(a, b, 1, name), others[name])) for name, run in shared]


def _full(a: Path, b: Path, which: int, name: str, other: str | None = None) -> str:
    """A run's name, with its file unless the name contains that."""
    if other is not None and name != other:
        return name
    stems = (a.stem, b.stem) if a.stem != b.stem else (str(a), str(b))
    if stems[0] == stems[1]:
        stems = ("A", "B")
    return f"{stems[which]}: {name}"
