"""What several cores give outside the emulated GPU: the npu's large case and the mesh with data, checks and time on.

    python benchmarks/many_cores.py --jobs 1 2 16

For each: seconds by the clock and their ratio to one core in the same run; beside it the CPU seconds of the process
itself and of all its copies, which say what an idle machine would give on one that is not. The outcome must be that of
one core to the last bit. Run with one BLAS thread.
"""

import argparse
import os
import sys
import time
from hashlib import sha256

import numpy as np

from kernbench.bench import find, run_bench
from kernbench.benches.paged_attention import FORMS
from kernbench.result.run import Run

# name: bench, panel, size, settings
CASES: dict[str, tuple[str, str, str | None, dict[str, object]]] = {
    **{f"npu, large case, {form}": ("paged_attention", "served", "8k", {"form": form}) for form in FORMS},
    "mesh, prefill of 1,024": ("milestone_gqa_llama70b", "single_user_prefill", None, {"context": 1024}),
    "mesh, decode of 16 users": (
        "milestone_gqa_llama70b", "multi_user_decode", None, {"context": 4096, "users": 16, "lengths": ()},
    ),
}  # fmt: skip


def measured(name: str, jobs: int) -> tuple[float, float, float, Run]:
    """Seconds by the clock, CPU seconds of this process and of its copies, and the run."""
    bench, panel, size, settings = CASES[name]
    os.environ["KERNBENCH_JOBS"] = str(jobs)
    before, began = os.times(), time.perf_counter()
    run = run_bench(find(bench), panel, settings, timed=True, size=size)
    wall, after = time.perf_counter() - began, os.times()
    return wall, sum(after[:2]) - sum(before[:2]), sum(after[2:4]) - sum(before[2:4]), run


def digest(run: Run) -> str:
    """Sixteen digits for all that a run gives."""
    found = sha256(repr((run.status, run.findings, run.comparison, run.metrics)).encode())
    for name, array in sorted(run.outputs.items()):
        found.update(name.encode() + np.ascontiguousarray(array).tobytes())
    if hasattr(run.recording, "array"):
        found.update(run.recording.array().tobytes() + repr(run.recording.tables.sites).encode())
    return found.hexdigest()[:16]


def main() -> int:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--cases", nargs="+", default=list(CASES), metavar="NAME")
    given = parser.parse_args()
    # what is compiled or imported once does not count
    run_bench(find("paged_attention"), "context_33", timed=True)
    run_bench(find("milestone_gqa_llama70b"), "single_user_prefill", {"context": 64}, timed=True)
    wrong = 0
    for name in given.cases:
        alone, wanted = 0.0, ""
        for jobs in given.jobs:
            wall, own, copies, run = measured(name, jobs)
            found = digest(run)
            alone, wanted = alone or wall, wanted or found
            wrong += found != wanted
            same = "the same" if found == wanted else "DIFFERENT"
            print(
                f"{name}, {jobs} process{'es'[: 2 * (jobs > 1)]}: {wall:.2f} s, {alone / wall:.2f} times; "
                f"CPU {own:.2f} s here, {copies:.2f} s in copies; {same}",
                flush=True,
            )
    return min(wrong, 1)


if __name__ == "__main__":
    sys.exit(main())
