"""Random PTX programs on 1, 2, 3 and 16 processes: outputs, findings, counts and views must be the same to the bit.

Batches are made small, so that the few CTAs of a program make several, and every launch is worth dividing. Of every
seed there are two programs, one that is safe by construction and one with a change to what orders it; each runs with
batches of one cluster and of several, in the three schedules that are divided.

    python benchmarks/ptx_jobs.py --count 500 --seed 0
"""

import argparse
import sys
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor

import numpy as np

from kernbench import ptx
from kernbench.ptx.emulator.engine import launch as launching
from kernbench.ptx.emulator.engine import splitting
from kernbench.ptx.reference.programs import Program, changed_program, safe_program
from kernbench.result.run import Run
from kernbench.result.spans import timeline_dict

JOBS = (2, 3, 16)
SCHEDULES = ("canonical", "reversed", "eager")
# CTAs of a batch
WIDTHS = (1, 2, 64)


def launched(program: Program, kernel: ptx.Kernel, schedule: str, jobs: int) -> tuple[Run, list[np.ndarray], str]:
    """A launch, the arrays after it, and how it was divided."""
    device = ptx.EmulatedDevice("sm_90a")
    arrays = [device.array(array) for array in program.arrays()]
    run = device.launch(
        kernel, program.grid, program.block, arrays, schedule=schedule, cluster=program.cluster, jobs=jobs
    )
    return run, [array.numpy() for array in arrays], device.division.reason or "divided"


def differences(one: Run, two: Run) -> list[str]:
    """In what two runs differ."""
    found = [name for name in ("findings", "metrics", "status", "checked", "views") if _of(one, name) != _of(two, name)]
    if _drawn(one) != _drawn(two):
        found.append("timeline")
    same = one.outputs.keys() == two.outputs.keys()
    same = same and all(one.outputs[name].tobytes() == two.outputs[name].tobytes() for name in one.outputs)
    return found if same else [*found, "outputs"]


def _drawn(run: Run) -> object:
    return None if run.timeline is None else timeline_dict(run.timeline)


def _of(run: Run, name: str) -> str:
    return repr(getattr(run, name))


def compare(program: Program, schedule: str, width: int, tally: Counter[str], many: Sequence[int] = JOBS) -> list[str]:
    """Run one program on several numbers of processes; what differs from one."""
    kernel = ptx.parse(program.text).kernels["kernel"]
    launching._LANES = width * -(-program.block // 32) * 32 * (program.cluster or 1)
    alone, expected, _ = launched(program, kernel, schedule, 1)
    wrong = []
    for jobs in many:
        splitting.forget()
        run, arrays, how = launched(program, kernel, schedule, jobs)
        tally[how] += 1
        found = differences(alone, run)
        if any(not np.array_equal(a, b) for a, b in zip(arrays, expected, strict=True)):
            found.append("arrays")
        if found:
            wrong.append(f"{jobs} jobs, {schedule}, batches of {width}: {', '.join(found)} differ ({how})")
    return wrong


def numbered(number: int, seed: int) -> tuple[Counter[str], list[str]]:
    """Compare one of many programs; what was counted, and what differs."""
    splitting.WORTH, splitting.FIXED_THREADS = 0.0, 0
    seed += number // 2
    tally = Counter[str]()
    program = (changed_program if number % 2 else safe_program)(seed)
    if program is None:
        return tally, []
    tally["programs"] += 1
    wrong = compare(program, SCHEDULES[number % 3], WIDTHS[number // 3 % 3], tally)
    return tally, [f"seed {seed}{' changed' * (number % 2)}: {text}" for text in wrong]


def main() -> int:
    """Run programs of many seeds."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=500)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--processes", type=int, default=1, help="programs that run at once")
    given = parser.parse_args()
    tally, wrong = Counter[str](), 0
    with ProcessPoolExecutor(given.processes) as pool:
        for counts, lines in pool.map(numbered, range(given.count), [given.seed] * given.count):
            tally += counts
            wrong += len(lines)
            for line in lines:
                print(line, flush=True)
    print(", ".join(f"{name}: {count}" for name, count in tally.most_common()))
    print("the same on 1, 2, 3 and 16 processes" if not wrong else f"{wrong} launches DIFFER")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
