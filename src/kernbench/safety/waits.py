"""Deadlock reports: who waits for what, on whom, and the cycle that keeps them there."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from kernbench.result.finding import Finding, Other, Place, rank_ranges


@dataclass(frozen=True)
class Waiter:
    """A blocked program: what it does (`action`, the same words for the same wait), and who alone could wake it."""

    rank: int
    action: str
    where: Place | None
    waits_for: int
    needs: str


def deadlock(waiters: Sequence[Waiter], ended: Mapping[int, str], hint: str) -> Finding:
    """One finding that tells the whole deadlock, at the wait that the others hang on. `ended` says of programs that run
    no more how they ended.
    """
    lines = ["no program can go on:"]
    groups: dict[tuple[str, Place | None], list[Waiter]] = {}
    for waiter in waiters:
        groups.setdefault((waiter.action, waiter.where), []).append(waiter)
    for (action, where), members in groups.items():
        ranks = rank_ranges(w.rank for w in members)
        lines.append(f"  {ranks}: {action}" + (f" at {where}" if where else ""))
    lines.append(_chain(waiters, ended))
    root = _root(waiters)
    others = tuple(
        Other(f"{rank_ranges(w.rank for w in members)} {action}", where)
        for (action, where), members in groups.items()
        if root not in members
    )
    blocked = tuple(w.rank for w in waiters)
    return Finding("deadlock", "\n".join(lines), root.where, others, hint, 1, blocked)


def _root(waiters: Sequence[Waiter]) -> Waiter:
    """Where the first waiter's chain ends: the wait for a program that runs no more, or the first of a cycle."""
    by_rank = {w.rank: w for w in waiters}
    path = _follow(waiters[0], by_rank)
    return by_rank[path[-1] if path[-1] in by_rank else path[-2]]


def _chain(waiters: Sequence[Waiter], ended: Mapping[int, str]) -> str:
    """The wait-for cycle, or the program at the end of the chain that can no longer signal anybody."""
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
            lines.append("  wait-for cycle: " + " -> ".join(f"rank {r}" for r in cycle))
            lines.extend(
                f"    rank {r} could go on if rank {by_rank[r].waits_for} {by_rank[r].needs}" for r in cycle[:-1]
            )
        else:
            blocked = by_rank[path[-2]]
            fate = ended.get(last, "is not part of the launch")
            lines.append(f"  rank {blocked.rank} could go on if rank {last} {blocked.needs}, but rank {last} {fate}")
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
