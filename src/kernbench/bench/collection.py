"""All benches of a folder, run one after the other: what a check before a merge needs."""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kernbench.bench.definition import Bench
from kernbench.bench.recognising import makes_bench
from kernbench.bench.registry import load_file
from kernbench.bench.runner import run_bench
from kernbench.common.errors import BenchError, KernbenchError
from kernbench.result.acknowledged import Entry
from kernbench.result.run import Run

# how the names of files begin that hold no bench
LEFT_ALONE = ("_", "test_", "conftest")
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


def python_files(folder: Path) -> list[Path]:
    """Python files under a folder, but for hidden folders, environments, tests and private files; a file is itself."""
    if folder.is_file():
        return [folder]
    if not folder.is_dir():
        meant = folder.with_suffix(".py") if folder.name else folder
        guess = f"; did you mean the file {meant}?" if meant.is_file() else ""
        raise BenchError(f"there is no folder {folder}{guess}")
    found = [file for file in sorted(folder.rglob("*.py")) if not file.is_dir()]
    return [file for file in found if _belongs(file.relative_to(folder))]


def _belongs(path: Path) -> bool:
    hidden = any(part.startswith(".") or part in _SKIPPED for part in path.parts)
    return not hidden and not path.name.startswith(LEFT_ALONE)


def check_files(
    files: Sequence[Path], seed: int = 0, schedule: Any = None, baseline: list[Entry] | None = None
) -> Iterator[Case]:
    """Each panel of each bench among files, as it is run; a bench that cannot be loaded is a case that failed.

    Files that do not make a bench when they are imported are left alone; a single file is taken at its word.
    """
    for file in files:
        began = time.perf_counter()
        makes: bool | None = True
        try:
            makes = len(files) == 1 or makes_bench(file)
            if makes is False:
                continue
            bench = load_file(file)
        except KernbenchError as error:
            if makes is None:
                continue
            yield Case(file, "load", time.perf_counter() - began, error=str(error))
            continue
        panels: list[str | None] = [*bench.panels]
        for panel in panels or [None]:
            yield _case(file, bench, panel, seed, schedule, baseline)


def _case(file: Path, bench: Bench, panel: str | None, seed: int, schedule: Any, baseline: list[Entry] | None) -> Case:
    began = time.perf_counter()
    run, error = None, ""
    try:
        run = run_bench(bench, panel, seed=seed, schedule=schedule, timed=True, baseline=baseline)
    except KernbenchError as raised:
        error = str(raised)
    return Case(file, panel or bench.name, time.perf_counter() - began, run, error)
