"""The operations of the programs of a launch, as rows that can be compared with those of another order.

Totals of each order would not help a reader: the result is the first row of the first program at which the orders
diverge, and its line in the kernel.
"""

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kernbench.result.finding import SourceLocation

Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Work:
    """One row for each operation of a program; programs are contiguous, in ascending order.

    `programs` has the number of each row's program, `rows` the operations, without what may legally differ between
    orders: numbers assigned in order of arrival, and addresses of scratch memory, which depend on when
    Python's collector runs. `sites` are rows of `lines`. `observers` are operations of the launch that may legally make
    its programs behave differently in another order.
    """

    programs: Ints
    rows: Ints
    sites: Ints
    lines: Sequence[SourceLocation]
    name: Callable[[int], str]
    describe: Callable[[int], str]
    observers: Sequence[str] = ()

    def of(self, program: int) -> slice:
        """The rows of a program."""
        first, last = np.searchsorted(self.programs, [program, program + 1])
        return slice(int(first), int(last))


@dataclass(frozen=True)
class Parting:
    """Where two orders diverge: in which program, after how many of its rows, what each did there, and the
    line.
    """

    program: str
    number: int
    did: tuple[str, str]
    counts: tuple[int, int]
    where: SourceLocation | None

    def text(self, first: str | int, second: str | int) -> str:
        """The difference in a sentence."""
        one, other = self.did
        counts = f"{self.counts[0]:,} and {self.counts[1]:,} commands"
        return (
            f"command {self.number + 1} of {self.program} is {one} with schedule {first} and {other} with schedule "
            f"{second} ({counts} in all)"
        )


def first_parting(first: Work, second: Work) -> Parting | None:
    """The first program, and its first row, that differs between two orders; None if there is none."""
    ours, theirs = (np.column_stack([work.programs, work.rows]) for work in (first, second))
    least = min(len(ours), len(theirs))
    differs = (ours[:least] != theirs[:least]).any(axis=1)
    if not differs.any() and len(ours) == len(theirs):
        return None
    at = int(np.argmax(differs)) if differs.any() else least
    # if a program has ended in one order, the row of the other order still belongs to it
    program = min(int(work.programs[at]) for work in (first, second) if at < len(work.programs))
    spans = first.of(program), second.of(program)
    number = at - next(span.start for span in spans if span.start <= at < span.stop)
    did = tuple(
        work.describe(span.start + number) if span.start + number < span.stop else "not there"
        for work, span in zip((first, second), spans, strict=True)
    )
    counts = (spans[0].stop - spans[0].start, spans[1].stop - spans[1].start)
    return Parting(first.name(program), number, (did[0], did[1]), counts, _line((first, second), spans, number))


def _line(works: tuple[Work, Work], spans: tuple[slice, slice], number: int) -> SourceLocation | None:
    """The first line that one order runs more often than the other; if there is none, that of the row itself.

    The rows of such a line may equal those that follow, so that the rows diverge only later.
    """
    lines: list[list[SourceLocation]] = [
        [work.lines[site] for site in work.sites[span].tolist()] for work, span in zip(works, spans, strict=True)
    ]
    often = [Counter(one) for one in lines]
    more = [
        next(((at, line) for at, line in enumerate(lines[k]) if often[k][line] > often[1 - k][line]), None)
        for k in (0, 1)
    ]
    found = min((one for one in more if one is not None), key=lambda one: one[0], default=None)
    if found is not None:
        return found[1]
    return next((one[number] for one in lines if number < len(one)), None)


def joint_numbers(first: Iterable[Hashable], second: Iterable[Hashable]) -> tuple[Ints, Ints]:
    """Numbers for the rows of two tables, equal for equal rows. The last, for index -1, stands for no row."""
    numbers: dict[Hashable, int] = {}
    ours, theirs = ([numbers.setdefault(row, len(numbers)) for row in rows] for rows in (first, second))
    return np.array([*ours, -1], np.int64), np.array([*theirs, -1], np.int64)
