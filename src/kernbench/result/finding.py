"""Findings: what is unsafe about a kernel, where, and what to try next; folded by kind and source location."""

import linecache
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from kernbench.common.errors import unknown
from kernbench.result.reading import Reader


@dataclass(frozen=True)
class SourceLocation:
    """A source location in a kernel.

    `said` is the text of the line if it was kept (files change); `lines` are the lines around it, by number.
    """

    file: str
    line: int
    function: str = ""
    said: str | None = field(default=None, compare=False, repr=False)
    lines: Mapping[int, str] | None = field(default=None, compare=False, repr=False)

    def __str__(self) -> str:
        return f"{self.short_file}:{self.line}"

    @property
    def short_file(self) -> str:
        """The file, relative to the working directory if it is below it."""
        try:
            return str(Path(self.file).relative_to(Path.cwd()))
        # the working directory itself may have been deleted
        except (ValueError, OSError):
            return self.file

    @property
    def text(self) -> str:
        """The source line itself, stripped; empty if the source cannot be read."""
        if self.said is not None:
            return self.said
        return linecache.getline(self.file, self.line).strip()

    def context(self, around: int = 2) -> list[tuple[int, str]]:
        """Numbered source lines around the location; empty if the source cannot be read."""
        numbers = range(max(1, self.line - around), self.line + around + 1)
        if self.lines is not None:
            return [(n, self.lines[n]) for n in numbers if n in self.lines]
        if self.said is not None:
            return [(self.line, self.said)] if self.said else []
        lines = ((n, linecache.getline(self.file, n)) for n in numbers)
        return [(n, text.rstrip()) for n, text in lines if text]


@dataclass(frozen=True)
class Kind:
    """A kind of finding: its name and what it means in one sentence."""

    name: str
    meaning: str


_KIND_NAME = re.compile("[a-z][a-z0-9]*(-[a-z0-9]+)*")
KINDS: dict[str, Kind] = {
    name: Kind(name, meaning)
    for name, meaning in {
        "deadlock": "every program that has not returned waits for another",
        "no-neighbour": "a send or receive in a direction where no neighbour is installed",
        "message-mismatch": "a receive whose shape or element type differs from the message it got",
        "message-unreceived": "a message was sent and nobody ever received it",
        "missing-wait": "an asynchronous send or receive was never waited for",
        "race": "two accesses to the same memory, at least one a write, with nothing that orders them",
        "out-of-bounds": "an access that reaches outside the array it was meant for",
        "misaligned": "an access whose address is not a multiple of the element size",
        "type-confusion": "memory read as an element type it does not hold",
        "uninitialised-read": "a read of memory nobody wrote",
        "output-unwritten": "elements of an output that no store reached",
        "order-dependent": "a result that depends on the order in which programs take turns",
        "stale-read": "a value read from a core's own cache that memory no longer holds, or may not",
        "unflushed-write": "a value that stays in a core's own cache where others look for it in memory",
        "undrained-store": "a store that may still be under way when its kernel has ended",
        "false-sharing": "a cache line written back whole that holds what another block wrote",
        "output-disagreement": "copies of one output that differ between ranks beyond rounding",
        "scratch-overflow": "a value that does not fit the scratch memory beside those that are live",
        "over-budget": "a program that did not stop within its budget of steps or time",
        "endless-loop": "a loop that came back to an earlier state and looks at nothing that could change",
        "shape": "operands whose shapes do not fit together",
        "dtype": "operands whose element types do not fit together",
        "value-needed": "control flow that needs a value this run does not carry",
        "misuse": "a call or an access that has no meaning",
        "kernel-error": "the kernel's own code raised an error, or crashed",
        "use-after-free": "an access to memory that was given back",
        "divergent-barrier": "a barrier that only part of a warp reaches",
        "warp-mask": "a mask of a warp operation names lanes that never come, leaves out its own, or differs in others",
        "inactive-lane": "a value taken from a lane that does not take part",
        "division": "an integer division by zero, whose result is not defined",
        "trap": "the kernel stopped itself",
        "missing-fence": "ordinary and asynchronous accesses to the same memory without a proxy fence between them",
        "transaction-bytes": "an mbarrier that expects other bytes than its copies deliver",
        "mbarrier-misuse": "an mbarrier used before its initialisation, after its end, or beyond its limits",
        "mbarrier-count": "more arrivals on an mbarrier than a phase has",
        "mbarrier-phase": "a wait for a phase of an mbarrier that may come too late, or pass in another phase",
        "descriptor": "a matrix or instruction descriptor that does not describe what it is used for",
        "in-flight": "registers or memory touched, or left, while an asynchronous operation may still work on them",
        "tensor-memory": "tensor memory leaked, freed twice, or used outside its allocation or the warp's lanes",
        "missing-barrier": "two dependent operations of one pipe without a barrier between them",
        "flag-misuse": "a flag between pipes that is set or waited for at the wrong time",
        "tile-bounds": "a tile that lies outside the memory it was placed in",
        "tile-overlap": "a tile read where another tile was written last",
        "argument-direction": "a task that does to an argument what its direction does not say",
        "undeclared-access": "a task that touches a tensor it was not given",
        "missing-dependence": "two tasks that touch the same elements, at least one writing, and nothing orders them",
        "write-after-read": "a task that overwrites what another still reads",
        "ring-deadlock": "an orchestrator that waits for a ring that can never drain",
    }.items()
}


def add_kinds(kinds: Mapping[str, str]) -> None:
    """Register kinds of findings, name -> meaning, for a target of an installed package."""
    for name, meaning in kinds.items():
        if not _KIND_NAME.fullmatch(name) or not meaning:
            raise ValueError(f"{name!r} is no kind of finding: small letters with hyphens, and a sentence are wanted")
        if name in KINDS and KINDS[name].meaning != meaning:
            raise ValueError(f"{name!r} is a kind of finding already, with the meaning: {KINDS[name].meaning}")
        KINDS[name] = Kind(name, meaning)


@dataclass(frozen=True)
class Other:
    """A second source location of a finding (the other access, a waiter, an allocation) and its role."""

    role: str
    where: SourceLocation | None


# a fault may change a result; a formal finding breaks the letter of the rules, but changes no result on existing
# hardware
FAULT, FORMAL = "fault", "formal"


# whose fault a finding can be, beside the program's own
LIBRARY, COMPILER = "library", "compiler"


@dataclass(frozen=True)
class Blame:
    """Whose fault a finding is, if not the program's own: who (COMPILER, or LIBRARY for a library's kernel), its name,
    and the release that mends it, if one is known.
    """

    who: str
    name: str
    mended_in: str = ""

    def __post_init__(self) -> None:
        if self.who not in (LIBRARY, COMPILER):
            raise ValueError(unknown("party", self.who, (LIBRARY, COMPILER)))

    def __str__(self) -> str:
        if self.who == LIBRARY:
            # a library's kernel may have been given what it does not take
            return f"in a kernel of a library ({self.name}): its fault, or that of its arguments"
        remedy = f"; {self.mended_in} and later do not have it" if self.mended_in else ""
        return f"a fault of the {self.who} ({self.name}), not of the program{remedy}"

    def to_dict(self) -> dict[str, str]:
        """Plain data for JSON."""
        return {"who": self.who, "name": self.name, "mended_in": self.mended_in}


@dataclass(frozen=True)
class Finding:
    """One thing that is unsafe, found on `ranks`, `count` times in total; `others` are further locations involved.

    `severity` is FAULT or FORMAL; `blame` says whose fault it is, if not the program's own.
    """

    kind: str
    message: str
    where: SourceLocation | None = None
    others: tuple[Other, ...] = ()
    hint: str = ""
    count: int = 1
    ranks: tuple[int, ...] = ()
    severity: str = FAULT
    blame: Blame | None = None

    def __post_init__(self) -> None:
        if self.severity not in (FAULT, FORMAL):
            raise ValueError(unknown("severity", self.severity, (FAULT, FORMAL)))
        if self.kind not in KINDS:
            raise ValueError(unknown("finding kind", self.kind, KINDS))

    @property
    def is_compilers(self) -> bool:
        """Whether the compiler made it, so that the program can do nothing about it."""
        return self.blame is not None and self.blame.who == COMPILER

    def __str__(self) -> str:
        location = f"{self.where}: " if self.where else ""
        ranks = f" [{rank_ranges(self.ranks)}]" if self.ranks else ""
        times = f" (x{self.count})" if self.count > 1 else ""
        return f"{location}{self.kind}: {self.message}{ranks}{times}"

    def to_dict(self) -> dict[str, object]:
        """Plain data for JSON."""
        return {
            "kind": self.kind,
            "message": self.message,
            "where": location_dict(self.where),
            "others": [{"role": o.role, "where": location_dict(o.where)} for o in self.others],
            "hint": self.hint,
            "count": self.count,
            "ranks": list(self.ranks),
            "severity": self.severity,
            **({} if self.blame is None else {"blame": self.blame.to_dict()}),
        }


def location_dict(location: SourceLocation | None) -> dict[str, object] | None:
    """Plain data for JSON."""
    if location is None:
        return None
    return {"file": location.file, "line": location.line, "function": location.function, "text": location.text}


def read_location(data: Reader) -> SourceLocation:
    """Read what `location_dict` wrote, with the text of the line at that time."""
    return SourceLocation(data["file"].of(str), data["line"].natural(), data["function"].of(str), data["text"].of(str))


def read_finding(data: Reader) -> Finding:
    """Read what `to_dict` wrote."""
    kind = data["kind"].of(str)
    if kind not in KINDS:
        raise data["kind"].refuse(unknown("finding kind", kind, KINDS))
    # older files contain only faults
    severity = data["severity"].of(str) if "severity" in data.of(dict) else FAULT
    if severity not in (FAULT, FORMAL):
        raise data["severity"].refuse(unknown("severity", severity, (FAULT, FORMAL)))
    return Finding(
        kind,
        data["message"].of(str),
        data["where"].maybe(read_location),
        tuple(Other(one["role"].of(str), one["where"].maybe(read_location)) for one in data["others"]),
        data["hint"].of(str),
        data["count"].natural(),
        data["ranks"].naturals(),
        severity,
        _read_blame(data["blame"]) if "blame" in data.of(dict) else None,
    )


def _read_blame(data: Reader) -> Blame:
    who = data["who"].of(str)
    if who not in (LIBRARY, COMPILER):
        raise data["who"].refuse(unknown("party", who, (LIBRARY, COMPILER)))
    return Blame(who, data["name"].of(str), data["mended_in"].of(str))


def read_fault(data: Reader) -> Finding:
    """Read a finding as a fault, whatever its severity: older versions saved formal findings of strict runs as such."""
    return replace(read_finding(data), severity=FAULT)


def rank_ranges(ranks: Iterable[int]) -> str:
    """Ranks in words: 'rank 3', 'ranks 0-2, 5'."""
    ordered = sorted(set(ranks))
    parts: list[str] = []
    for before, rank in zip([None, *ordered], ordered, strict=False):
        if before is not None and rank == before + 1:
            parts[-1] = f"{parts[-1].split('-')[0]}-{rank}"
        else:
            parts.append(str(rank))
    return ("rank " if len(ordered) == 1 else "ranks ") + ", ".join(parts)


@dataclass
class FindingLog:
    """Collects findings; those of the same kind and source location are folded into the first, and counted."""

    _folded: dict[tuple[object, ...], Finding] = field(default_factory=dict)
    # called with each finding as it is made, for example to stop the run there
    on_finding: Callable[[Finding], None] | None = None

    def add(self, finding: Finding, subject: object = None, restated: bool = False) -> None:
        """Add a finding; `subject` (a tensor's name, a direction) separates findings at the same location.

        With `restated` the new finding replaces the first one, as it repeats all that was said before.
        """
        # a fault is never folded into a formal finding, which does not count
        key = (finding.kind, finding.where, finding.severity, subject)
        first = self._folded.get(key)
        if first is not None:
            ranks = tuple(sorted({*first.ranks, *finding.ranks}))
            finding = replace(finding if restated else first, count=first.count + finding.count, ranks=ranks)
        self._folded[key] = finding
        if self.on_finding is not None:
            self.on_finding(finding)

    def findings(self) -> list[Finding]:
        """All findings in the order of first occurrence."""
        return list(self._folded.values())

    def __len__(self) -> int:
        return len(self._folded)
