"""Findings of many launches by cause, with the launches that have it.

What a compiler makes of one line for other types, constants and sizes differs in its instructions, not in its cause.
"""

import re
from collections.abc import Hashable, Iterable
from dataclasses import dataclass, replace

from kernbench.ptx.doors.records import Record
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
        role = f"launched (launch {first['number']}{more})" + (f" in {tests[0]}{others}" if tests else "")
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
