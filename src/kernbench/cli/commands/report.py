"""`kernbench report`: a page of runs that were saved as JSON."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from kernbench.cli.output.console import check_targets, errors, results
from kernbench.cli.output.document import JSON, write_document
from kernbench.common.errors import MisuseError
from kernbench.report import formal_text, page_html, runs_table, titles
from kernbench.result.load import Loaded, load_runs
from kernbench.result.run import Run, write_bytes

FILES = Annotated[list[Path], typer.Argument(metavar="FILES", help="Files of kernbench run --json, or of Run.save.")]
HTML = Annotated[
    Path | None,
    typer.Option(
        "--html", metavar="FILE", help="The page to write; without it, beside the first file and named after it."
    ),
]


def report(files: FILES, html: HTML = None, json: JSON = None) -> None:
    """Write saved runs as one page that needs nothing else: verdict, timeline, critical path, mesh or tasks, errors."""
    loaded = [load_runs(file) for file in files]
    runs = named(files, loaded)
    target = html or files[0].with_suffix(".html")
    for option, file in (("--html", target), ("--json", json)):
        if file is not None and file.resolve() in {one.resolve() for one in files}:
            raise MisuseError(f"{file} is a file to read from: name another with {option}")
    check_targets({"--html": target, "--json": json})
    benches = list(dict.fromkeys(one.bench for one in loaded if one.bench))
    title = ", ".join(benches) or runs[0][0]
    write_page(target, title, runs)
    console = results()
    console.print(runs_table(title, runs, console.width))
    for name, run in runs:
        if run.formal:
            console.print(f"{name}:", formal_text(run), highlight=False, soft_wrap=True)
    rows = [
        {"name": name, "right": run.right, "safe": run.safe, "time_ps": run.metrics.get("time_ps")}
        | {"formal": [finding.to_dict() for finding in run.formal]}
        for name, run in runs
    ]
    write_document(json, "report", {"title": title, "page": str(target), "shown": rows})


def named(files: Sequence[Path], loaded: Sequence[Loaded]) -> list[tuple[str, Run]]:
    """All runs with their names; with several files, preceded by the file's."""
    pairs = [(file, name, run) for file, one in zip(files, loaded, strict=True) for name, run in _named_in(one)]
    names = [name if len(files) == 1 else f"{file.stem}: {name}" for file, name, _ in pairs]
    if len(set(names)) < len(names):
        names = [f"{file}: {name}" for file, name, _ in pairs]
    return [(name, run) for name, (_, _, run) in zip(names, pairs, strict=True)]


def _named_in(loaded: Loaded) -> list[tuple[str, Run]]:
    return list(zip(titles(loaded.runs), loaded.runs, strict=True))


def write_page(file: Path, title: str, runs: Sequence[tuple[str, Run]]) -> None:
    """Write the page atomically, and print its path."""
    content = page_html(title, runs).encode("utf-8", "replace")
    write_bytes(file, content)
    errors().print(f"page of {len(runs)} {'run' if len(runs) == 1 else 'runs'} written to {file}", soft_wrap=True)
