"""Deadlock reports: which program waits for what, on whom, and the wait-for cycle."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from kernbench.result.finding import Finding, Other, SourceLocation, rank_ranges


@dataclass(frozen=True)
class Waiter:
    """A blocked program: what it does (`action`, equal texts for equal waits), and the only program that could wake it.

    A program's number is its rank; programs inside a rank have other numbers.
    """

    rank: int
    action: str
    where: SourceLocation | None
    waits_for: int
    needs: str


# programs inside a rank: number -> (their rank, their name)
Inner = Mapping[int, tuple[int, str]]


def deadlock(waiters: Sequence[Waiter], ended: Mapping[int, str], hint: str, inner: Inner | None = None) -> Finding:
    """One finding for the whole deadlock, at the wait that the others depend on.

    `ended` says how programs that no longer run have ended.
    """
    inner = inner or {}
    lines = ["no program can go on:"]
    groups: dict[tuple[str, SourceLocation | None], list[Waiter]] = {}
    for waiter in waiters:
        groups.setdefault((waiter.action, waiter.where), []).append(waiter)
    for (action, where), members in groups.items():
        lines.append(f"  {_called(members, inner)}: {action}" + (f" at {where}" if where else ""))
    lines.append(_chain(waiters, ended, inner))
    root = _root(waiters)
    others = tuple(
        Other(f"{_called(members, inner)} {action}", where)
        for (action, where), members in groups.items()
        if root not in members
    )
    blocked = tuple(dict.fromkeys(inner[w.rank][0] if w.rank in inner else w.rank for w in waiters))
    return Finding("deadlock", "\n".join(lines), root.where, others, hint, 1, blocked)


def _called(members: Sequence[Waiter], inner: Inner) -> str:
    """Waiters in words: ranks as ranges, others by name."""
    ranks = [w.rank for w in members if w.rank not in inner]
    return ", ".join([rank_ranges(ranks)] * bool(ranks) + [inner[w.rank][1] for w in members if w.rank in inner])


def _root(waiters: Sequence[Waiter]) -> Waiter:
    """The end of the first waiter's chain: the wait for a program that no longer runs, or the first wait of a cycle."""
    by_rank = {w.rank: w for w in waiters}
    path = _follow(waiters[0], by_rank)
    return by_rank[path[-1] if path[-1] in by_rank else path[-2]]


def _chain(waiters: Sequence[Waiter], ended: Mapping[int, str], inner: Inner) -> str:
    """The wait-for cycle, or the program at the end of the chain that can never signal."""

    def name(number: int) -> str:
        return inner[number][1] if number in inner else f"rank {number}"

    by_rank = {w.rank: w for w in waiters}
    lines: list[str] = []
    seen: set[int] = set()
    for waiter in waiters:
        path = _follow(waiter, by_rank)
        if seen.intersection(path):
            continue
        seen.update(path)
        last = path[-1]
        if last in path[:-1]:
            cycle = path[path.index(last) :]
            lines.append("  wait-for cycle: " + " -> ".join(map(name, cycle)))
            lines.extend(
                f"    {name(r)} could go on if {name(by_rank[r].waits_for)} {by_rank[r].needs}" for r in cycle[:-1]
            )
        else:
            blocked = by_rank[path[-2]]
            fate = ended.get(last, "is not part of the launch")
            who, needed = name(blocked.rank), name(last)
            lines.append(f"  {who} could go on if {needed} {blocked.needs}, but {needed} {fate}")
    return "\n".join(lines)


def _follow(waiter: Waiter, by_rank: Mapping[int, Waiter]) -> list[int]:
    path = [waiter.rank]
    while path[-1] in by_rank:
        following = by_rank[path[-1]].waits_for
        closed = following in path
        path.append(following)
        if closed:
            break
    return path
