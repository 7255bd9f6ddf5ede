"""All benches of a folder, run one after the other: what a check before a merge needs."""

import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kernbench.bench.definition import Bench
from kernbench.bench.registry import load_file
from kernbench.bench.runner import run_bench
from kernbench.common.errors import BenchError, KernbenchError
from kernbench.result.run import Run

_SKIPPED = {"__pycache__", "node_modules", "build", "dist"}


@dataclass(frozen=True)
class Case:
    """One panel of one file: its run, or why there is none."""

    file: Path
    panel: str
    seconds: float
    run: Run | None = None
    error: str = ""

    @property
    def passed(self) -> bool:
        """Whether it ran, right and safe."""
        return self.run is not None and self.run.ok and self.run.right is not None


def bench_files(folder: Path) -> list[Path]:
    """Python files under a folder that define a bench, by their text; hidden folders and environments are left out."""
    if folder.is_file():
        return [folder]
    if not folder.is_dir():
        raise BenchError(f"there is no folder {folder}")
    return [file for file in sorted(folder.rglob("*.py")) if _belongs(file.relative_to(folder)) and _mentions(file)]


def _belongs(path: Path) -> bool:
    hidden = any(part.startswith(".") or part in _SKIPPED for part in path.parts)
    return not hidden and not path.name.startswith(("_", "test_", "conftest"))


def _mentions(file: Path) -> bool:
    text = file.read_text(encoding="utf-8", errors="replace")
    return "kernbench" in text and "Bench(" in text


def check_files(files: list[Path], seed: int = 0, schedule: Any = None) -> Iterator[Case]:
    """Each panel of each file, as it is run; a file that cannot be loaded is a case that failed."""
    for file in files:
        began = time.perf_counter()
        try:
            bench = load_file(file)
        except KernbenchError as error:
            yield Case(file, "load", time.perf_counter() - began, error=str(error))
            continue
        panels: list[str | None] = [*bench.panels]
        for panel in panels or [None]:
            yield _case(file, bench, panel, seed, schedule)


def _case(file: Path, bench: Bench, panel: str | None, seed: int, schedule: Any) -> Case:
    began = time.perf_counter()
    run, error = None, ""
    try:
        run = run_bench(bench, panel, seed=seed, schedule=schedule, timed=True)
    except KernbenchError as raised:
        error = str(raised)
    return Case(file, panel or bench.name, time.perf_counter() - began, run, error)
