"""Findings of many launches by cause, with the launches that have it, and what is wrong with launches in words.

What a compiler makes of one line for other types, constants and sizes differs in its instructions, not in its cause.
"""

import re
from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from kernbench.ptx.doors.records import HOST, Record
from kernbench.result.finding import Finding, Other, SourceLocation, read_finding, read_location
from kernbench.result.reading import Reader

# kinds of findings whose cause is an access: the same if it is of the same arrays in the same direction
_ACCESSES = frozenset({"out-of-bounds", "misaligned", "uninitialised-read", "race", "use-after-free"})
_NAMES = re.compile(r"'([^'\n]*)'")
_DIRECTIONS = re.compile(r"\b(?:read|write|load|store|add)s?\b")
# what differs in messages about one cause: instructions, numbers, and coordinates
_PARTICULARS = re.compile(r"`[^`]*`|\(PTX lines?[^)]*\)|\b0x[0-9a-f]+\b|\d[\d,.]*")
# lines of PTX begin with this in place of a file
_PTX = "<ptx "


@dataclass
class Cause:
    """A finding, as the first launch has it, counted over all `launches` that have it."""

    finding: Finding
    launches: list[Record]

    @property
    def tests(self) -> list[str]:
        """The tests of the program in which it was found."""
        return list(dict.fromkeys(one["test"] for one in self.launches if one.get("test")))

    @property
    def at_launch(self) -> Finding:
        """The finding with the line that launched first, and the tests."""
        if not self.launches:
            return self.finding
        first = self.launches[0]
        site = Reader(first["site"], "site").maybe(read_location) if first.get("site") else None
        tests = self.tests
        if site is None and not tests:
            return self.finding
        more = f" and {len(self.launches) - 1} more" if len(self.launches) > 1 else ""
        others = f" and {len(tests) - 1} more" if len(tests) > 1 else ""
        called = f"called (call {first['number']}{more})" if first.get("title") == HOST else ""
        role = called or f"launched (launch {first['number']}{more})"
        role += f" in {tests[0]}{others}" if tests else ""
        return replace(self.finding, others=(*self.finding.others, Other(role, site)))

    def to_dict(self) -> dict[str, object]:
        """Plain data for JSON."""
        launched = [
            {"process": one["process"], "number": one["number"], "site": one.get("site"), "test": one.get("test", "")}
            for one in self.launches
        ]
        return {**self.finding.to_dict(), "launches": launched, "tests": self.tests}


def causes_of(launches: Iterable[Record], name: str) -> list[Cause]:
    """The findings of launches under the key `name`, folded by cause, in the order of their first occurrence."""
    known: dict[Hashable, Cause] = {}
    for launch in launches:
        for data in launch[name]:
            found = read_finding(Reader(data, name))
            cause = known.setdefault(key_of(found), Cause(replace(found, count=0), []))
            ranks = tuple(sorted({*cause.finding.ranks, *found.ranks}))
            cause.finding = replace(cause.finding, count=cause.finding.count + found.count, ranks=ranks)
            if not cause.launches or cause.launches[-1] is not launch:
                cause.launches.append(launch)
    return list(known.values())


def key_of(finding: Finding) -> Hashable:
    """What findings of one cause have in common."""
    others = tuple((_general(one.role), one.where) for one in finding.others if not _in_ptx(one.where))
    return finding.kind, finding.severity, finding.where, others, _subject(finding)


def is_of_one_kernel(finding: Finding) -> bool:
    """Whether its location is no line of a source, which other kernels may have as well."""
    return finding.where is None or _in_ptx(finding.where)


def _subject(finding: Finding) -> Hashable:
    if is_of_one_kernel(finding):
        return finding.message.partition(":")[0]
    if finding.kind in _ACCESSES:
        return frozenset(_NAMES.findall(finding.message)), frozenset(_DIRECTIONS.findall(finding.message))
    return _general(finding.message)


def _general(text: str) -> str:
    return _PARTICULARS.sub("", text)


def _in_ptx(where: SourceLocation | None) -> bool:
    return where is not None and where.file.startswith(_PTX)


class Judged(Protocol):
    """A launch, or a call of the host."""

    @property
    def findings(self) -> list[Finding]:
        """Its faults."""

    @property
    def title(self) -> str:
        """Its kernel."""

    @property
    def status(self) -> str:
        """How it ended."""

    @property
    def error(self) -> str:
        """Why it did not run to its end."""

    @property
    def ok(self) -> bool:
        """Whether it ran to its end without findings."""

    @property
    def heading(self) -> str:
        """Which one it is, with its kernel and line."""

    @property
    def short(self) -> str:
        """Which one it is, in short."""


@dataclass(frozen=True)
class HostCall:
    """A call of the host with a finding; `number` counts those of the session, from 1."""

    number: int
    finding: Finding
    title: str = HOST
    status: str = "finished"
    error: str = ""
    ok: bool = False

    @property
    def findings(self) -> list[Finding]:
        """Its faults."""
        return [self.finding]

    @property
    def heading(self) -> str:
        """Which one it is."""
        return self.short

    @property
    def short(self) -> str:
        """Which one it is."""
        return f"call {self.number} of the host"


def summary_of(launches: Sequence[Judged]) -> str:
    """What is wrong with launches in a few words, the kind first, since such lines are truncated at their end."""
    found = {key_of(finding): finding for launch in reversed(launches) for finding in reversed(launch.findings)}
    if not found:
        return f"{launches[0].status}: {launches[0].title}"
    *_, first = found.values()
    at = f" at {Path(first.where.file).name}:{first.where.line}" if first.where is not None else ""
    more = f" and {len(found) - 1} more" if len(found) > 1 else ""
    return f"{first.kind}{at}{more}"


def describe(launches: Sequence[Judged]) -> str:
    """What is wrong with launches, in words: each with its findings, their source lines and hints.

    A finding of which an earlier launch has shown the cause is only counted.
    """
    lines: list[str] = []
    shown: dict[Hashable, str] = {}
    for launch in launches:
        lines.append(f"{launch.heading}: {launch.status}")
        if launch.error:
            lines.append(f"  {launch.error}")
        earlier = Counter(shown[key_of(one)] for one in launch.findings if key_of(one) in shown)
        lines += [f"  {count} as in {which}" for which, count in earlier.items()]
        for finding in launch.findings:
            if key_of(finding) not in shown:
                lines += _finding_lines(finding)
        for finding in launch.findings:
            shown.setdefault(key_of(finding), launch.short)
    return "\n".join(lines)


def _finding_lines(finding: Finding) -> list[str]:
    lines = [f"  {finding}"]
    if finding.where is not None and finding.where.text:
        lines.append(f"    {finding.where.text}")
    lines += [f"    {other.role}: {other.where}" for other in finding.others if other.where is not None]
    lines += [f"    {finding.blame}"] if finding.blame is not None else []
    return [*lines, f"    try: {finding.hint}"] if finding.hint and not finding.is_compilers else lines
