"""Records of a session as JSON lines, written immediately: one file for each process, append-only.

A program that crashes, is killed or forks keeps what it had written. A launch is announced before it runs, so that a
launch in which the process died is known.
"""

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

from kernbench.result.run import Run

# of a session; for a launch, what `Launch.to_dict` wrote
Record = dict[str, Any]
SUFFIX = ".launches.jsonl"
# stands for a kernel's name: calls of the host with findings
HOST = "(calls of the host)"
RUN_SUFFIX = ".run.json"
# a launch with the explanation of its time
TIME_SUFFIX = ".time.json"


class RecordWriter:
    """Appends records of this process to a file in `folder`; a forked child continues in a file of its own."""

    def __init__(self, folder: Path):
        self._folder = folder
        self._process = 0
        self._file = -1

    def write(self, record: Record) -> None:
        """Append one record, unbuffered."""
        if self._process != os.getpid():
            self._open()
        line = json.dumps({"process": self._process, "time": time.time(), **record}, default=str)
        os.write(self._file, line.encode() + b"\n")

    def _open(self) -> None:
        self._process = os.getpid()
        self._folder.mkdir(parents=True, exist_ok=True)
        path = self._folder / f"{self._process}-{uuid4().hex[:8]}{SUFFIX}"
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)

    def write_run(self, number: int, run: Run, suffix: str = RUN_SUFFIX) -> None:
        """Save a whole run beside the records, with its timeline."""
        self._folder.mkdir(parents=True, exist_ok=True)
        run.save(run_file(self._folder, os.getpid(), number, suffix))


def run_file(folder: Path, process: int, number: int, suffix: str) -> Path:
    """Where the run of a launch is saved."""
    return folder / f"{process}-{number:06}{suffix}"


def read_records(folder: Path) -> Iterator[Record]:
    """All records of a session, in order for each process; truncated lines are skipped."""
    for path in sorted(folder.glob(f"*{SUFFIX}"), key=lambda path: path.stat().st_mtime):
        for line in path.read_text(errors="replace").splitlines():
            try:
                record = json.loads(line)
            except ValueError:
                continue
            if isinstance(record, dict):
                yield record
