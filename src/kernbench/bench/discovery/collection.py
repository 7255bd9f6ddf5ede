"""The files of a folder that may hold benches, and the results of their panels."""

from dataclasses import dataclass
from pathlib import Path

from kernbench.bench.discovery.registry import known
from kernbench.common.errors import BenchError
from kernbench.result.run import Run

# prefixes of files without benches
LEFT_ALONE = ("_", "test_", "conftest")
_SKIPPED = {"__pycache__", "node_modules", "build", "dist"}


@dataclass(frozen=True)
class Case:
    """One panel of one file: its run, or why there is none, and the end of its printed output."""

    file: Path
    panel: str
    seconds: float
    run: Run | None = None
    error: str = ""
    output: str = ""

    @property
    def passed(self) -> bool:
        """Whether it ran, right and safe."""
        return self.run is not None and self.run.ok and self.run.right is not None


def python_files(folder: Path) -> list[Path]:
    """Python files under a folder, except hidden folders, environments, tests and private files; a file is itself."""
    if folder.is_file():
        return [folder]
    if not folder.is_dir():
        meant = folder.with_suffix(".py") if folder.name else folder
        guess = f"; did you mean the file {meant}?" if meant.is_file() else ""
        raise BenchError(
            f"there is no folder {folder}{guess or '; a folder of benches or a file is wanted, such as my_bench.py'}"
            f"{_bundled(folder)}"
        )
    found = [file for file in sorted(folder.rglob("*.py")) if not file.is_dir()]
    return [file for file in found if _belongs(file.relative_to(folder))]


def _bundled(folder: Path) -> str:
    """How to run a bundled bench, if its name was given as a folder."""
    return f"; a bundled bench is run with kernbench run {folder}" if str(folder) in known() else ""


def _belongs(path: Path) -> bool:
    hidden = any(part.startswith(".") or part in _SKIPPED for part in path.parts)
    return not hidden and not path.name.startswith(LEFT_ALONE)
