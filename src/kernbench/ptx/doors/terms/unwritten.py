"""What nobody wrote of an array that is used: how much, who made it, and which launches had it as an argument."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol
from weakref import WeakKeyDictionary

from kernbench.ptx.emulator.memory.arena import Allocation
from kernbench.result.finding import Finding, Other, SourceLocation

KIND = "uninitialised-read"
# launches that are kept of an array, and that a finding shows
_KEPT, _SHOWN = 16, 4
# memory whose variables may have names that arrays have, too
_ELSEWHERE = re.compile(r"\b(shared|local|tensor) memory\b")
# where the advice begins for what one launch writes and reads
_WITHIN = "within a launch "
_NAMES = re.compile(r"'([^'\n]*)'")


@dataclass(frozen=True)
class LaunchName:
    """Which launch it is."""

    number: int
    title: str
    site: SourceLocation | None
    grid: tuple[int, ...]

    def __str__(self) -> str:
        size = " x ".join(str(one) for one in _trimmed(self.grid))
        return f"'{self.title}' ({f'{self.site}, ' if self.site else ''}grid {size})"


@dataclass(frozen=True)
class Use:
    """A launch that had an array with unwritten bytes as an argument: how many of them it wrote and left."""

    launch: LaunchName
    wrote: int
    left: int
    nbytes: int


@dataclass(frozen=True)
class Gap:
    """What nobody wrote of an array: `count` of `total` elements (`nbytes` bytes), the first of which is `first`.

    `derived` says that something computed from it is meant; `held` is its memory.
    """

    name: str
    count: int
    total: int
    nbytes: int
    first: str
    made: SourceLocation | None = None
    uses: tuple[Use, ...] = ()
    derived: bool = False
    held: Allocation | None = None

    def finding(self, what: str, where: SourceLocation | None, initialised: str, unit: str = "elements") -> Finding:
        """The finding that it is used; `what` is done with it, `initialised` says how it gets a first value."""
        size = f"{self.nbytes:,} bytes, " if unit != "bytes" else ""
        name = f"a value computed from {self.name}" if self.derived else self.name
        message = (
            f"{name} {what}, and nobody wrote {self.count:,} of the {self.total:,} {unit} "
            f"({size}the first is {self.first})"
        )
        others = [Other("made", self.made)] if self.made is not None else []
        launches = [use.launch for use in self.uses if use.launch.site is not None]
        others += [Other(f"'{one.title}' had it as an argument", one.site) for one in launches]
        hint = advice(self.uses, initialised) or (
            f"no launch had it as an argument (one with an empty grid is none): write it first ({initialised})"
        )
        return Finding(KIND, message, where, tuple(list(dict.fromkeys(others))[: _SHOWN + 1]), hint)


def advice(uses: Sequence[Use], initialised: str) -> str:
    """What to do about an array that launches left unwritten in part; empty without launches."""
    if not uses:
        return ""
    writers = [use for use in uses if use.wrote]
    use = (writers or uses)[-1]
    if not use.left:
        return f"after {use.launch} all of it was written: what nobody wrote came later, with a copy of other memory"
    if not writers:
        done = f"the last launch that had it as an argument, {use.launch}, wrote nothing of it"
        return f"{done}: look at its grid, its masks and its pointers; or set it where it is made ({initialised})"
    return (
        f"{use.launch} wrote {use.wrote:,} of its {use.nbytes:,} bytes: see whether the grid covers all of it (a "
        f"ceiling where // stands?) and what its masks leave out; what no launch writes is set where it is made "
        f"({initialised})"
    )


class Memory(Protocol):
    """The memory whose arrays these are."""

    def arguments(self, parameters: Iterable[bytes]) -> list[Allocation]:
        """The arrays that parameters of a launch point into."""

    def unwritten_bytes(self, found: Allocation) -> int:
        """How many bytes of an array are unwritten."""

    def reached(self, address: int) -> Allocation | None:
        """The array at an address as a kernel uses it."""


class History:
    """The launches of a session that had arrays with unwritten bytes as arguments."""

    def __init__(self, memory: Memory):
        self._memory = memory
        self._uses: WeakKeyDictionary[Allocation, list[Use]] = WeakKeyDictionary()

    def before(self, parameters: Iterable[bytes]) -> list[tuple[Allocation, int]]:
        """Before a launch: the arrays among its arguments with unwritten bytes, and how many those are."""
        counted = [(one, self._memory.unwritten_bytes(one)) for one in self._memory.arguments(parameters)]
        return [(one, count) for one, count in counted if count]

    def after(self, before: Iterable[tuple[Allocation, int]], launch: LaunchName) -> None:
        """After a launch: what it wrote of these."""
        for one, count in before:
            if one.live:
                uses, left = self._uses.setdefault(one, []), self._memory.unwritten_bytes(one)
                uses.append(Use(launch, max(0, count - left), left, one.nbytes))
                del uses[:-_KEPT]

    def uses(self, allocation: Allocation) -> tuple[Use, ...]:
        """The launches that had an array as an argument while part of it was unwritten, in order."""
        return tuple(self._uses.get(allocation, ()))

    def explained(
        self, findings: list[Finding], parameters: Iterable[bytes], names: Mapping[int, str], initialised: str
    ) -> list[Finding]:
        """Findings of reads of unwritten memory, with the launch before that should have written it.

        `names` are those of arrays of the launch that reads, by address.
        """
        if not any(one.kind == KIND for one in findings):
            return findings
        arrays = self._by_name(parameters, names)
        return [self._explained(one, arrays, initialised) if one.kind == KIND else one for one in findings]

    def _explained(self, finding: Finding, arrays: Mapping[str, Allocation], initialised: str) -> Finding:
        if _ELSEWHERE.search(finding.message):
            return finding
        named = [arrays[name] for name in _NAMES.findall(finding.message) if name in arrays]
        uses = self.uses(named[0]) if named else ()
        writers = [use for use in uses if use.wrote]
        if not writers:
            # it may be meant to read it only
            more = f"; {uses[-1].launch} had it as an argument and wrote nothing of it" if uses else ""
            return replace(finding, hint=finding.hint + more)
        at = Other("wrote part of it", writers[-1].launch.site)
        others = finding.others if at.where is None else (*finding.others, at)
        # what orders the blocks of the launch itself stays true
        *_, rest = finding.hint.partition(_WITHIN)
        hint = advice(writers, initialised) + (f"; {_WITHIN}{rest}" if rest else "")
        return replace(finding, hint=hint, others=others)

    def _by_name(self, parameters: Iterable[bytes], names: Mapping[int, str]) -> dict[str, Allocation]:
        """The arrays among the arguments of a launch, by their names in findings."""
        found = {one.name: one for one in self._memory.arguments(parameters)}
        for address, name in names.items():
            held = self._memory.reached(address) if address else None
            if held is not None:
                found[name] = held
        return found


def _trimmed(grid: Sequence[int]) -> Sequence[int]:
    """A grid without its last dimensions of 1, but for the first."""
    last = max((number for number, size in enumerate(grid) if size != 1), default=0)
    return grid[: last + 1]
