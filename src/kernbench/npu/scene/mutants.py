"""Is each flag, barrier and direction of C++ sources needed, and is it noticed where one is missing or wrong?

A flag or barrier is left out by its line: the kernel is not compiled again, its records of that line are skipped.
A direction is changed where the orchestration submits: each tensor argument of each line is declared as each of the
other two.

A mutant that no check reports is compared with the original by the order of all accesses. If that is the same, the
line is redundant (harmless). Otherwise it is unnoticed: the line separates operations that share no data, or a check
misses what they share. A person has to decide which.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from kernbench.npu.chip import Chip
from kernbench.npu.cpp.kernel import CppKernel
from kernbench.npu.cpp.orchestration import CppOrchestration, Redeclared
from kernbench.npu.scene.cases import Case
from kernbench.npu.scene.modules import offered
from kernbench.npu.scene.sources import changes_of, kernels_of, orchestration_of, value_of
from kernbench.npu.tasks.task import BOTH, READS, WRITES
from kernbench.result.finding import SourceLocation
from kernbench.result.run import Run
from kernbench.safety.budget import Budget

DIRECTIONS = (READS, WRITES, BOTH)
ORDERS = ("set_flag", "wait_flag", "pipe_barrier")
FOUND, HARMLESS, UNNOTICED = "found", "harmless", "unnoticed"


@dataclass(frozen=True)
class Mutant:
    """A line that was left out, or an argument that was declared otherwise (`change`), and the result."""

    where: SourceLocation
    outcome: str
    kinds: tuple[str, ...] = ()
    change: str = "left out"


def mutants(case: Case, budget: Budget | None = None) -> Iterator[Mutant]:
    """Each line of the case's kernels with a flag or barrier left out, and each direction changed, one at a time."""
    with offered(case.file):
        given = case.test().generate_args(case.params)
        arguments = [value_of(spec) for spec in given.specs]
        orchestrate = orchestration_of(case, given.specs)
        kernels = kernels_of(case)
        whole, chip = _launch(case, kernels, orchestrate, arguments, budget)
        digest = chip.order_digest(whole)

        def judged(where: SourceLocation, run: Run, chip: Chip, change: str = "left out") -> Mutant:
            kinds = tuple(dict.fromkeys(f.kind for f in run.findings))
            same = not kinds and chip.order_digest(run) == digest
            return Mutant(where, FOUND if kinds else HARMLESS if same else UNNOTICED, kinds, change)

        for where in _lines(whole):
            without = {n: (kernel.without(where.file, where.line), core) for n, (kernel, core) in kernels.items()}
            yield judged(where, *_launch(case, without, orchestrate, arguments, budget))
        for where, change, direction in _directions(orchestrate):
            other = orchestrate.redeclaring(change)
            title = f"argument {change.position}, {direction}, declared {change.direction}"
            yield judged(where, *_launch(case, kernels, other, arguments, budget), title)


def _directions(program: CppOrchestration) -> Iterator[tuple[SourceLocation, Redeclared, str]]:
    """Each argument of each submitting line, declared otherwise; and its original direction."""
    for where, directions in sorted(program.submits.items(), key=lambda one: (one[0].file, one[0].line)):
        for position, direction in enumerate(directions):
            for other in DIRECTIONS if direction in DIRECTIONS else ():
                if other != direction:
                    yield where, Redeclared(where.file, where.line, position, other), direction


def _launch(
    case: Case,
    kernels: dict[int, tuple[CppKernel, str]],
    orchestrate: CppOrchestration,
    arguments: list[object],
    budget: Budget | None,
) -> tuple[Run, Chip]:
    chip = Chip(case.chip, changes_of(case), kernels=kernels, budget=budget)
    return chip.launch(orchestrate, *arguments), chip


def _lines(run: Run) -> list[SourceLocation]:
    """The lines of a run that have a flag or a barrier."""
    from kernbench.npu.isa.operations import OPERATIONS
    from kernbench.npu.recording.record import NpuRecording

    assert isinstance(run.recording, NpuRecording)
    rows = run.recording.array()
    codes = [OPERATIONS[name].code for name in ORDERS]
    sites = sorted({int(row["site"]) for row in rows if int(row["op"]) in codes})
    found = [replace(run.recording.tables.sites[site], function="") for site in sites]
    return sorted(dict.fromkeys(found), key=lambda where: (where.file, where.line))
