"""The mesh on 1, 2 and 16 processes, and with every iteration of `tl.range` run: is the outcome always the same?

    python benchmarks/mesh_jobs.py --count 500
    python benchmarks/mesh_jobs.py --benches

Random kernels, half of them with a planted bug, or all algorithms of all panels of the llama-70B bench, with data.
Exit status 1 if one differs.
"""

import argparse
import importlib
import os
import sys
from collections.abc import Callable
from dataclasses import astuple
from pathlib import Path
from typing import Any
from unittest import mock

from kernbench.bench import find, run_bench
from kernbench.benches._algorithms import ALGORITHMS
from kernbench.mesh import Host
from kernbench.mesh.dividing import division
from kernbench.result.run import Run

ROOT = Path(__file__).resolve().parent.parent
BENCH = "milestone_gqa_llama70b"
JOBS = (1, 2, 16)


def everything(run: Run) -> dict[str, object]:
    """All that a launch of the mesh gives, to be compared."""
    recording = run.recording
    return {
        "status": run.status,
        "findings": [astuple(finding) for finding in run.findings],
        "outputs": {name: (array.dtype, array.shape, array.tobytes()) for name, array in run.outputs.items()},
        "comparison": repr(run.comparison),
        "metrics": run.metrics,
        "printed": run.views.get("printf"),
        "rows": [(s.rows.columns().tobytes(), s.views.columns().tobytes()) for s in recording.streams],
        "tables": (recording.tables.sites, recording.tables.types, recording.tables.patterns),
        "time": None if run.timeline is None else (run.timeline.unit, run.timeline.start.tobytes()),
    }


def differ(launch: Callable[[], Run]) -> list[str]:
    """In which ways a launch gives something else than with one process."""
    found: dict[str, dict[str, object]] = {}
    for jobs in JOBS:
        os.environ["KERNBENCH_JOBS"] = str(jobs)
        found[f"{jobs} processes"] = everything(launch())
    os.environ["KERNBENCH_JOBS"] = "1"
    begin = Host.__init__

    def without(host: Host, *args: Any, **options: Any) -> None:
        begin(host, *args, **options)
        host.folds = False

    with mock.patch.object(Host, "__init__", without):
        found["every iteration run"] = everything(launch())
    first = found["1 processes"]
    return [f"{way}: {key}" for way, one in found.items() for key in first if one[key] != first[key]]


def settings_of(panel: str, algorithm: str) -> dict[str, object]:
    """A small case of a panel, with short blocks, so that loops have many iterations."""
    small: dict[str, object] = {"algorithm": algorithm, "context": 128 if "prefill" in panel else 256, "block_kv": 16}
    return {**small, "users": 2, "lengths": ()} if "multi" in panel else small


def main() -> int:
    """Compare, and say what differs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--benches", action="store_true", help="panels of the bench instead of random kernels")
    given = parser.parse_args()
    sys.path.insert(0, str(ROOT))
    # short launches, too, are divided over processes
    division.AFTER = 0.0
    kernels: Any = importlib.import_module("tests.mesh.random_kernels")
    cases: dict[str, Callable[[], Run]] = {}
    if given.benches:
        for panel in find(BENCH).panels:
            for name in ALGORITHMS:
                chosen = settings_of(panel, name)
                cases[f"{panel}, {name}"] = lambda p=panel, c=chosen: run_bench(find(BENCH), p, c, timed=True)  # type: ignore[misc]
    else:
        for seed in range(given.first, given.first + given.count):
            program = kernels.make(seed, kernels.planted_bug(seed) if seed % 2 else "")
            cases[f"seed {seed}"] = lambda p=program, s=seed: kernels.launch(p, ("canonical", "reversed", s)[s % 3])  # type: ignore[misc]
    wrong = 0
    for number, (name, launch) in enumerate(cases.items()):
        ways = differ(launch)
        wrong += bool(ways)
        if ways:
            print(f"{name}: {', '.join(ways)}", flush=True)
        if given.benches or number % 50 == 49:
            print(f"{number + 1} of {len(cases)}, {wrong} differ", flush=True)
    print(f"{len(cases)} cases, {wrong} differ")
    return min(wrong, 1)


if __name__ == "__main__":
    sys.exit(main())
