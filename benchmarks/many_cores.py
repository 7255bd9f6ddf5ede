"""What several cores give outside the emulated GPU: the npu's large case, the mesh with data, and `kernbench check` of
a folder, checks and time on.

    python benchmarks/many_cores.py --jobs 1 2 16

For each: seconds by the clock and their ratio to one core in the same run; beside it the CPU seconds of the process
itself and of all its copies, which say what an idle machine would give on one that is not. The outcome must be that of
one core to the last bit. The aim is 1.8 times on two cores, 10 on sixteen. Run with one BLAS thread.
"""

import argparse
import os
import sys
import tempfile
import time
from hashlib import sha256
from pathlib import Path

import numpy as np

from kernbench.bench import find, run_bench
from kernbench.bench.checking.check import Conditions, check_files
from kernbench.benches.paged_attention import FORMS
from kernbench.result.run import Run

# name: bench, panel, size, settings
CASES: dict[str, tuple[str, str, str | None, dict[str, object]]] = {
    **{f"npu, large case, {form}": ("paged_attention", "served", "8k", {"form": form}) for form in FORMS},
    "mesh, prefill of 1,024": ("milestone_gqa_llama70b", "single_user_prefill", None, {"context": 1024}),
    "mesh, decode of 16 users": (
        "milestone_gqa_llama70b", "multi_user_decode", None, {"context": 4096, "users": 16, "lengths": ()},
    ),
    # in the two before, eight ranks at most have work
    "mesh, prefill of 2,048 on 64 ranks": (
        "milestone_gqa_llama70b", "single_user_prefill", None, {"machine": "large", "n_ranks": 64, "context": 2048},
    ),
}  # fmt: skip


# folders to check: of eight files no more than eight are checked at once
CHECKS = {f"check of a folder of {files} files": files for files in (8, 48)}
# by the number of cores
AIMS = {2: 1.8, 16: 10.0}
_FILE = """from dataclasses import replace

from kernbench.benches import milestone_gqa_llama70b as whole

bench = replace(whole.bench, name="file_{0}", panels={{"one": whole.bench.panels["single_user_prefill"]}}, sizes={{}})
"""


def checked(count: int, jobs: int) -> str:
    """What `kernbench check` says of each of so many files, without its seconds."""
    with tempfile.TemporaryDirectory() as folder:
        files = [Path(folder) / f"file_{number}.py" for number in range(count)]
        for number, file in enumerate(files):
            file.write_text(_FILE.format(number))
        cases = list(check_files(files, Conditions(jobs=jobs)))
    assert [case.passed for case in cases] == [True] * count, [case.error for case in cases]
    return sha256(
        repr([(case.file.name, case.panel, case.run and digest(case.run)) for case in cases]).encode()
    ).hexdigest()


def measured(name: str, jobs: int) -> tuple[float, float, float, str]:
    """Seconds by the clock, CPU seconds of this process and of its copies, and digits for the outcome."""
    os.environ["KERNBENCH_JOBS"] = str(jobs)
    before, began = os.times(), time.perf_counter()
    if name in CHECKS:
        os.environ["KERNBENCH_JOBS"] = "1"
        found = checked(CHECKS[name], jobs)
    else:
        bench, panel, size, settings = CASES[name]
        run = run_bench(find(bench), panel, settings, timed=True, size=size)
    wall, after = time.perf_counter() - began, os.times()
    found = found if name in CHECKS else digest(run)
    return wall, sum(after[:2]) - sum(before[:2]), sum(after[2:4]) - sum(before[2:4]), found


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
    parser.add_argument("--cases", nargs="+", default=[*CASES, *CHECKS], metavar="NAME")
    given = parser.parse_args()
    # what is compiled or imported once does not count
    run_bench(find("paged_attention"), "context_33", timed=True)
    run_bench(find("milestone_gqa_llama70b"), "single_user_prefill", {"context": 64}, timed=True)
    wrong = 0
    for name in given.cases:
        alone, wanted = 0.0, ""
        for jobs in given.jobs:
            wall, own, copies, found = measured(name, jobs)
            alone, wanted = alone or wall, wanted or found
            wrong += found != wanted
            aim = f" (at least {AIMS[jobs]:g})" if jobs in AIMS else ""
            same = "the same" if found == wanted else "DIFFERENT"
            print(
                f"{name}, {jobs} process{'es'[: 2 * (jobs > 1)]}: {wall:.2f} s, {alone / wall:.2f} times{aim}; "
                f"CPU {own:.2f} s here, {copies:.2f} s in copies; {same}",
                flush=True,
            )
    return min(wrong, 1)


if __name__ == "__main__":
    sys.exit(main())
