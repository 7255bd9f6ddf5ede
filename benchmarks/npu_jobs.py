"""Random programs of the npu, safe and with planted bugs, in 1, 2, 3 and 16 processes: is the outcome always the same?

    python benchmarks/npu_jobs.py --count 500 --first 0

Every launch is divided before its first block. Exit status 1 if one differs.
"""

import argparse
import importlib
import os
import sys
from collections import Counter
from dataclasses import astuple
from pathlib import Path
from typing import Any

from kernbench.npu.execution import dividing
from kernbench.result.run import Run

ROOT = Path(__file__).resolve().parent.parent
JOBS = (2, 3, 16)


def everything(run: Run) -> dict[str, object]:
    """All that a launch of the npu gives, to be compared."""
    recording = run.recording
    tables = recording.tables
    return {
        "status": run.status,
        "findings": [astuple(finding) for finding in run.findings],
        "outputs": {name: (array.dtype, array.shape, array.tobytes()) for name, array in run.outputs.items()},
        "metrics": run.metrics,
        "printed": run.views.get("printf"),
        "rows": recording.array().tobytes() if recording.rows else b"",
        "bytes": b"".join(recording.rows),
        "blocks": (recording.block_first, recording.block_task, recording.block_index),
        "orchestration": (recording.tasks, recording.commands),
        "tables": (tables.sites, tables.tiles, tables.tile_names, tables.patterns, tables.nesting),
        "time": None if run.timeline is None else (run.timeline.unit, run.metrics.get("time_ps")),
    }


def compare(kernels: Any, seed: int, planted: str, tally: Counter[str]) -> bool:
    """Whether the program of a seed has the same outcome in any number of processes."""
    program = kernels.make(seed, planted)
    schedule = ("canonical", "reversed", seed)[seed % 3]
    os.environ["KERNBENCH_JOBS"] = "1"
    alone = everything(kernels.launch(program, schedule))
    for jobs in JOBS:
        os.environ["KERNBENCH_JOBS"] = str(jobs)
        if everything(kernels.launch(program, schedule)) != alone:
            print(f"seed {seed}, {planted or 'safe'}, {schedule}: {jobs} processes give something else", flush=True)
            return False
        tally["divided" if program.chip.division.parts > 1 else program.chip.division.why] += 1
    return True


def main() -> int:
    """Compare, and say how many launches were divided and why others were not."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--first", type=int, default=0)
    given = parser.parse_args()
    sys.path.insert(0, str(ROOT))
    random_kernels: Any = importlib.import_module("tests.npu.random_kernels")
    dividing.AFTER = -1.0
    os.environ["KERNBENCH_START_METHOD"] = "fork"
    tally: Counter[str] = Counter()
    differ = 0
    for seed in range(given.first, given.first + given.count):
        planted = random_kernels.planted_bug(seed) if seed % 2 else ""
        differ += not compare(random_kernels, seed, planted, tally)
        if seed % 20 == 19:
            print(f"{seed + 1 - given.first} programs, {differ} differ", flush=True)
    print(f"{given.count} programs, {differ} differ; launches: {dict(tally)}")
    return min(differ, 1)


if __name__ == "__main__":
    sys.exit(main())
