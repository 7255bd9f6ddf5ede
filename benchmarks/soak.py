"""Random kernels of mesh and npu, checked and timed under three schedules: does time ever contradict the result?

Every kernel is safe by construction and runs under the canonical, the reversed and a random schedule. A violation is
- a finding, where there is nothing to find;
- two accesses to a common byte, one of which writes, that are timed otherwise than they were computed;
- an output, or a time, that depends on the schedule.
Of every four kernels one is also run with a planted bug, which must be found, and one with a change that may be a bug
or not: if nothing is found, its time must agree with its result. A violation names its kernel by target and seed:

    python benchmarks/soak.py --target npu --seed SEED --count 1

runs that kernel again. Exit status 1 if there was a violation.
"""

import argparse
import importlib
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))
TARGETS = ("mesh", "npu")
EVERY = 4
MOST_SHOWN = 20


@dataclass
class Tally:
    """What was run, and what went wrong."""

    kernels: int = 0
    runs: int = 0
    planted: int = 0
    doubtful_safe: int = 0
    violations: list[str] = field(default_factory=list)


def kernels_of(target: str) -> Any:
    """The module that makes and runs random kernels of a target."""
    return importlib.import_module(f"tests.{target}.random_kernels")


def problems(kernels: Any, seed: int, tally: Tally) -> Iterator[str]:
    """Everything that is wrong with the kernel of a seed."""
    tally.kernels += 1
    yield from _safe(kernels, seed, tally)
    if seed % EVERY == 0:
        yield from _planted(kernels, seed // EVERY, tally)
    if seed % EVERY == 1 and kernels.DOUBTFUL:
        yield from _doubtful(kernels, seed, tally)


def _safe(kernels: Any, seed: int, tally: Tally) -> Iterator[str]:
    program = kernels.make(seed)
    first = None
    for schedule in (*kernels.SCHEDULES, seed):
        run = kernels.launch(program, schedule)
        tally.runs += 1
        if run.safe is not True:
            yield f"schedule {schedule}: a safe kernel is {run.status.value}, with {run.findings[:1]}"
            continue
        found, total = kernels.contradictions(run, program)
        yield from (f"schedule {schedule}: {one}" for one in found[:1])
        result = (kernels.outputs(run), total)
        first = result if first is None else first
        if result[0] != first[0]:
            yield f"schedule {schedule}: other outputs than under {kernels.SCHEDULES[0]}"
        if result[1] != first[1]:
            yield f"schedule {schedule}: a time of {result[1]} ps, not {first[1]}"


def _planted(kernels: Any, number: int, tally: Tally) -> Iterator[str]:
    """The kernel of `number` with a bug, each kind in turn."""
    bug = kernels.planted_bug(number)
    run = kernels.launch(kernels.make(EVERY * number, bug))
    tally.planted += 1
    kinds = {finding.kind for finding in run.findings}
    if not kinds & kernels.PLANTED[bug]:
        yield f"planted ({bug}) and not found; findings: {sorted(kinds)}"


def _doubtful(kernels: Any, seed: int, tally: Tally) -> Iterator[str]:
    program = kernels.make(seed, kernels.DOUBTFUL[seed // EVERY % len(kernels.DOUBTFUL)])
    run = kernels.launch(program)
    tally.runs += 1
    if run.safe is True:
        tally.doubtful_safe += 1
        found, _ = kernels.contradictions(run, program)
        yield from (f"{program.planted}, called safe: {one}" for one in found[:1])


def soak(target: str, first: int, count: int) -> Tally:
    """All kernels of a target."""
    kernels, tally = kernels_of(target), Tally()
    for seed in range(first, first + count):
        for problem in problems(kernels, seed, tally):
            tally.violations.append(f"{target} seed {seed}: {problem}")
            if len(tally.violations) <= MOST_SHOWN:
                print(tally.violations[-1], flush=True)
                print(f"  again: python benchmarks/soak.py --target {target} --seed {seed} --count 1", flush=True)
    return tally


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--target", choices=TARGETS, action="append", help="only this one (both unless given)")
    parser.add_argument("--count", type=int, default=10_000, help="kernels of each target (10,000)")
    parser.add_argument("--seed", type=int, default=0, help="the first kernel's seed (0)")
    chosen = parser.parse_args()
    violations = 0
    for target in chosen.target or TARGETS:
        began = time.process_time()
        tally = soak(target, chosen.seed, chosen.count)
        violations += len(tally.violations)
        print(
            f"{target}: {tally.kernels:,} kernels from seed {chosen.seed}, {tally.runs:,} runs timed, "
            f"{tally.planted:,} planted bugs, {tally.doubtful_safe:,} doubtful ones called safe, "
            f"{len(tally.violations)} violations, "
            f"{time.process_time() - began:.0f} s of CPU",
            flush=True,
        )
    return 1 if violations else 0


if __name__ == "__main__":
    sys.exit(main())
