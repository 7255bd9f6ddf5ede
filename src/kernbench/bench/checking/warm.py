"""Warms up a process for benches of a target: loads or compiles in advance what their first run needs.

A fork of a warm process runs a small bench in tens of milliseconds instead of a second or two.
"""

import re
import tempfile
from collections.abc import Iterable
from functools import cache
from pathlib import Path

from kernbench.bench.discovery.new import filled_in, targets
from kernbench.bench.discovery.registry import load_file
from kernbench.bench.running.runner import run_bench


def targets_named(files: Iterable[Path]) -> list[str]:
    """Targets that files import by name, judging by their text."""
    texts = [text for file in files if (text := _read(file)) is not None]
    return [target for target in targets() if any(_names(target).search(text) for text in texts)]


def _names(target: str) -> re.Pattern[str]:
    return re.compile(rf"\bkernbench\.{target}\b|\bfrom\s+kernbench\s+import\b[^\n]*\b{target}\b")


def _read(file: Path) -> str | None:
    try:
        return file.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None


@cache
def get_ready(target: str) -> None:
    """Run the template bench of a target, once in a process."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "getting_ready.py"
        file.write_text(filled_in(target, file.stem), encoding="utf-8")
        run_bench(load_file(file), timed=True)
