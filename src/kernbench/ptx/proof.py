"""Which mutants of a kernel the checks distinguish from it, and whether those that they do not are harmless.

A mutant is *found* (the checks speak), *hung* (a deadlock, explained), *wrong* (another result), *refused* (it cannot
be run at all), or *harmless*: in no run does anything differ, and the happens-before relation of all its accesses is
the kernel's own, as the checker itself knows it. It is *equivalent* if other accesses are ordered, but none of those
that conflict: every two of them are ordered, by the log of all accesses and not only as far as the checks remember
them, and each access meets at every word the very accesses that it met before. What is none of these is a *survivor*.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from kernbench.common.errors import KernbenchError, MisuseError
from kernbench.ptx.emulator.checks.happens_before.relation import AccessOrder, Change
from kernbench.ptx.mutation import Mutation, mutations
from kernbench.ptx.names.demangling import title
from kernbench.ptx.text.module import Kernel
from kernbench.result.run import Run, Status

SCHEDULES = ("canonical", "eager")
# launches a kernel anew, on arrays made for it: launch(kernel, schedule=..., order=...)
Launcher = Callable[..., Run]


# "canonical", "eager", "reversed" or a seed
Schedule = str | int


@dataclass(frozen=True, slots=True)
class Verdict:
    """What became of one mutant, and what shows it.

    The outcome is "found", "hung", "wrong", "refused", "harmless", "equivalent" or "survivor".
    """

    mutation: Mutation
    outcome: str
    detail: str
    schedule: Schedule = ""

    def __str__(self) -> str:
        return f"{self.outcome}: {self.mutation} ({self.detail})"


@dataclass(frozen=True)
class Proof:
    """The verdicts on all mutants of a kernel."""

    kernel: str
    verdicts: list[Verdict] = field(default_factory=list)

    @property
    def survivors(self) -> list[Verdict]:
        """Mutants that nothing distinguishes, and whose order differs."""
        return [verdict for verdict in self.verdicts if verdict.outcome == "survivor"]

    @property
    def counts(self) -> dict[str, int]:
        """How many there are of each outcome."""
        return dict(Counter(verdict.outcome for verdict in self.verdicts))

    def to_dict(self) -> dict[str, object]:
        """Plain data for JSON."""
        rows = [
            {"line": v.mutation.line, "text": v.mutation.text, "change": v.mutation.change, "outcome": v.outcome}
            | {"detail": v.detail, "schedule": v.schedule}
            for v in self.verdicts
        ]
        return {"kernel": self.kernel, "counts": self.counts, "verdicts": rows}

    def __str__(self) -> str:
        counts = ", ".join(f"{count} {outcome}" for outcome, count in sorted(self.counts.items()))
        return f"{len(self.verdicts)} mutants of '{self.kernel}': {counts or 'none'}"


class _Baseline:
    """The kernel's own runs."""

    def __init__(self, kernel: Kernel, launch: Launcher, schedules: Sequence[Schedule]):
        self._kernel = kernel
        self._launch = launch
        self.schedules = schedules
        # what meets at every word, where somebody asked
        self._words: dict[Schedule, AccessOrder] = {}
        runs = {schedule: launch(kernel, schedule=schedule, order=True) for schedule in schedules}
        for schedule, run in runs.items():
            if run.safe is not True or run.formal:
                findings = "; ".join(map(str, [*run.findings, *run.formal][:3])) or str(run.status)
                raise MisuseError(f"'{title(kernel.name)}' itself is not safe under schedule {schedule!r}: {findings}")
        self.outputs = {schedule: _bytes(run) for schedule, run in runs.items()}
        self.orders: dict[Schedule, AccessOrder] = {schedule: run.recording for schedule, run in runs.items()}

    def verdict(self, mutation: Mutation) -> Verdict:
        """Run a mutant under each schedule until something distinguishes it."""
        changed: list[Change] = []
        for schedule in self.schedules:
            try:
                run = self._launch(mutation.mutant, schedule=schedule, order=True)
            except KernbenchError as problem:
                return Verdict(mutation, "refused", str(problem).split("\n")[0], schedule)
            difference = self._difference(run, schedule)
            if difference is not None:
                return Verdict(mutation, *difference, schedule)
            if not self.orders[schedule].same(run.recording):
                changed += self.orders[schedule].changes(run.recording, 2)
        if changed:
            return self._conflicts(mutation, "; ".join(map(str, changed[:2])))
        return Verdict(mutation, "harmless", "the same accesses come before each access")

    def _conflicts(self, mutation: Mutation, changed: str) -> Verdict:
        """Another order: does it touch accesses that conflict?"""
        for schedule in self.schedules:
            if schedule not in self._words:
                self._words[schedule] = self._launch(self._kernel, schedule=schedule, order="conflicts").recording
            before = self._words[schedule]
            after = self._launch(mutation.mutant, schedule=schedule, order="conflicts").recording
            for first, second in before.torn(after)[:1]:
                what = f"accesses of lines {first} and {second} conflict, and nothing orders them any more"
                return Verdict(mutation, "survivor", what, schedule)
            if before.flow != after.flow:
                return Verdict(mutation, "survivor", changed, schedule)
        return Verdict(mutation, "equivalent", changed)

    def _difference(self, run: Run, schedule: Schedule) -> tuple[str, str] | None:
        found = [*run.findings, *run.formal]
        kinds = ", ".join(sorted({finding.kind for finding in found}))
        if run.status is not Status.FINISHED:
            return "hung", kinds or str(run.status)
        if found:
            return "found", kinds
        if _bytes(run) != self.outputs[schedule]:
            return "wrong", "another result"
        return None


def _bytes(run: Run) -> dict[str, bytes]:
    return {name: array.tobytes() for name, array in run.outputs.items()}


def prove(
    kernel: Kernel,
    launch: Launcher,
    *,
    schedules: Sequence[Schedule] = SCHEDULES,
    among: Iterable[Mutation] | None = None,
    on_verdict: Callable[[Verdict], object] | None = None,
) -> Proof:
    """Run every mutant of a kernel (or those of `among`) and say what becomes of it.

    `launch(kernel, schedule=..., order=...)` makes a device and arrays anew and launches; `on_verdict` is called with
    each verdict as it comes. Loops must turn often enough to use every stage of a pipeline three times.
    """
    baseline = _Baseline(kernel, launch, schedules)
    proof = Proof(title(kernel.name))
    for mutation in mutations(kernel) if among is None else among:
        proof.verdicts.append(baseline.verdict(mutation))
        if on_verdict is not None:
            on_verdict(proof.verdicts[-1])
    return proof
