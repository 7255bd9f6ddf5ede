"""Random PTX programs on the emulator and on the reference executor: what they compute, races, deadlocks.

Of every seed there are two programs: one that is safe by construction, and the same with one change to what orders it.
Both executors must agree: on every word of every array where there is no race, on race or no race, and on deadlock or
none. Where a change makes a program that PTX gives no meaning (a barrier with two counts, an mbarrier with too many
arrivals), the emulator must say so.

    python benchmarks/ptx_random.py --count 10000 --seed 0
    python benchmarks/ptx_random.py --seed 4711 --count 1 --changed --show
"""

import argparse
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from kernbench import ptx
from kernbench.ptx.reference import Outcome, execute
from kernbench.ptx.reference.programs import Program, changed_program, safe_program
from kernbench.result.finding import Finding
from kernbench.result.run import Run, Status

SCHEDULES = ("canonical", "reversed", "eager", 1, 2)
# orders of threads on the reference, to see what depends on them
OTHERS = (None, 1, 2, 3)
# a copy that is not waited for may be reported as memory that nobody wrote
RACES = frozenset(("race", "missing-fence", "in-flight", "uninitialised-read"))


@dataclass
class Tally:
    """How many programs of which kind, what became of them, and those on which the two do not agree."""

    programs: Counter[str] = field(default_factory=Counter)
    segments: Counter[str] = field(default_factory=Counter)
    verdicts: Counter[str] = field(default_factory=Counter)
    failures: list[tuple[int, bool, str]] = field(default_factory=list)


def emulate(program: Program, kernel: ptx.Kernel, schedule: str | int) -> tuple[Run, list[np.ndarray]]:
    """A launch on the emulator, and the arrays after it."""
    device = ptx.EmulatedDevice("sm_90a")
    arrays = [device.array(array) for array in program.arrays()]
    run = device.launch(kernel, program.grid, program.block, arrays, schedule=schedule, cluster=program.cluster)
    return run, [array.numpy() for array in arrays]


def disagreement(program: Program, schedule: str | int, order: int | None) -> tuple[str, str]:
    """A verdict on which both agree, and "", or where they do not agree, and how."""
    kernel = ptx.parse(program.text).kernels["kernel"]
    outcome = execute(kernel, program.grid, program.block, program.arrays(), order, program.cluster)
    run, arrays = emulate(program, kernel, schedule)
    # races of lanes that passed a fence together are formal, and races for the reference
    kinds = {finding.kind for finding in (*run.findings, *(one for one in run.formal if one.kind == "race"))}
    shown = f"emulator {run.status}, {sorted(kinds)}; reference {outcome.status}, races {outcome.races[:3]}"
    shown += f", {sorted(set(outcome.misuse))}{_first(run.findings)}"
    if not program.change and (kinds or outcome.races or outcome.misuse or outcome.status != "finished"):
        return "safe", f"a safe program is said not to be: {shown}"
    if outcome.misuse or outcome.status == "stuck" or kinds - RACES - {"deadlock"}:
        return "meaningless", "" if kinds else f"the emulator says nothing: {shown}"
    verdict, problem = _compared(outcome, run, arrays, kinds, shown)
    if outcome.races and "deadlock: " in problem and _ends_by_luck(program, kernel, outcome.status):
        return "race, ends by luck", ""
    return verdict, problem


def _ends_by_luck(program: Program, kernel: ptx.Kernel, status: str) -> bool:
    """Whether a program with a race ends otherwise in another order: a lane may come too late for a phase by parity."""
    others = (
        execute(kernel, program.grid, program.block, program.arrays(), order, program.cluster) for order in OTHERS
    )
    return any(other.status != status for other in others)


def _compared(outcome: Outcome, run: Run, arrays: list[np.ndarray], kinds: set[str], shown: str) -> tuple[str, str]:
    deadlock = outcome.status == "deadlocked"
    verdict = f"{'race' if outcome.races else 'ordered'}, {'deadlock' if deadlock else 'ends'}"
    if bool(outcome.races) != bool(kinds & RACES):
        return verdict, f"{'missed' if outcome.races else 'invented'} race: {shown}"
    if _rounds_mix(outcome, run):
        return "rounds of a barrier mix", ""
    if deadlock != (run.status is Status.DEADLOCKED):
        return verdict, f"{'missed' if deadlock else 'invented'} deadlock: {shown}"
    if not outcome.races:
        if kinds - {"deadlock"}:
            return verdict, f"no race, and yet: {shown}"
        for number, (one, two) in enumerate(zip(outcome.arrays, arrays, strict=True)):
            if not np.array_equal(one, two):
                place = int(np.flatnonzero(one != two)[0])
                return verdict, f"array {number} differs at {place}: {two[place]:#x}, not {one[place]:#x}; {shown}"
    return verdict, ""


def _rounds_mix(outcome: Outcome, run: Run) -> bool:
    """Whether a warp may be counted in one round of a barrier or in another: then who ever goes on is luck."""
    said = any("counted" in finding.message for finding in run.findings if finding.kind == "race")
    return said or any(space == "barrier" for _, _, space, _ in outcome.races)


def _first(findings: list[Finding]) -> str:
    return f"\n    {findings[0]}"[:600] if findings else ""


def programs(seed: int) -> Iterator[Program]:
    """The programs of a seed."""
    yield safe_program(seed)
    changed = changed_program(seed)
    if changed is not None:
        yield changed


def check(program: Program, tally: Tally) -> None:
    """Run one program on both, under an order and a schedule that follow from its seed."""
    tally.programs["changed" if program.change else "safe"] += 1
    tally.segments.update(set(program.kinds))
    schedule = SCHEDULES[program.seed % len(SCHEDULES)]
    try:
        verdict, problem = disagreement(program, schedule, None if program.seed % 3 == 0 else program.seed)
    except Exception as error:
        verdict, problem = "crash", f"{type(error).__name__}: {error}"
    tally.verdicts[verdict] += 1
    if problem:
        tally.failures.append((program.seed, bool(program.change), f"{program.change}\n    {problem}"))


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--count", type=int, default=500, help="seeds; each gives up to two programs")
    arguments.add_argument("--seed", type=int, default=0, help="the first one")
    arguments.add_argument("--changed", action="store_true", help="only the programs with a change")
    arguments.add_argument("--show", action="store_true", help="print the programs")
    options = arguments.parse_args()
    tally, began = Tally(), time.process_time()
    for seed in range(options.seed, options.seed + options.count):
        for program in programs(seed):
            if options.changed and not program.change:
                continue
            if options.show:
                print(f"// seed {seed}: {program.grid} x {program.block}, {program.kinds}, {program.change}")
                print(program.text)
            before = len(tally.failures)
            check(program, tally)
            for number, changed, problem in tally.failures[before:]:
                again = f"--seed {number} --count 1{' --changed' if changed else ''} --show"
                print(f"FAILED {program.kinds}: {problem}\n    python benchmarks/ptx_random.py {again}", flush=True)
        if (seed + 1 - options.seed) % 1000 == 0:
            print(f"{seed + 1 - options.seed} seeds, {time.process_time() - began:.0f} s", flush=True)
    print(f"programs: {dict(tally.programs)}; with segments: {dict(tally.segments)}")
    print(f"agreed on: {dict(tally.verdicts)}; {len(tally.failures)} failures in {time.process_time() - began:.0f} s")
    sys.exit(1 if tally.failures else 0)


if __name__ == "__main__":
    main()
