"""Blocks behind another block: a lane that exited in one of them has passed that block, or bypassed it.

All paths from a block lead through its post-dominators. A post-dominator from which no path leads back to the block is
reached only after it; a lane that got there without having been at the block has bypassed it. Blocks that only jump or
end do not count, since every path out leads through them.
"""

from collections.abc import Mapping, Sequence

Edges = Mapping[int, Sequence[int]]


def blocks_behind(edges: Edges, idle: frozenset[int], entry: int, block: int) -> set[int]:
    """The blocks that a lane can be in only after it has passed or bypassed `block`."""
    reachable = _reachable(edges, entry)
    dominators = _dominators(edges, reachable, [entry])
    after = _dominators(_turned(edges), reachable, [b for b in reachable if not edges.get(b)])
    found: set[int] = set()
    for gate in _members(after.get(block, 0)):
        if gate in idle or gate == block or block in _reachable(edges, gate):
            continue
        found |= {b for b in reachable if dominators[b] >> gate & 1}
    return found


def branch_region(edges: Edges, block: int) -> tuple[int | None, set[int]] | None:
    """The block where all paths from a block join (None: only at the end), and the blocks before that.

    None if a path leads back to the block, or none leads to an end.
    """
    reachable = _reachable(edges, block)
    ends = [b for b in reachable if not edges.get(b)]
    if not ends:
        return None
    after = _dominators(_turned(edges), reachable, ends)
    gates = [b for b in _members(after[block]) if b != block and b in reachable]
    meeting = max(gates, key=lambda gate: after[gate].bit_count(), default=None)
    inside, pending = set[int](), list(edges.get(block, ()))
    while pending:
        one = pending.pop()
        if one == block:
            return None
        if one != meeting and one not in inside:
            inside.add(one)
            pending += edges.get(one, ())
    return meeting, inside


def _turned(edges: Edges) -> dict[int, list[int]]:
    turned: dict[int, list[int]] = {}
    for block, following in edges.items():
        for one in following:
            turned.setdefault(one, []).append(block)
    return turned


def _reachable(edges: Edges, start: int) -> set[int]:
    found, pending = {start}, [start]
    while pending:
        for following in edges.get(pending.pop(), ()):
            if following not in found:
                found.add(following)
                pending.append(following)
    return found


def _dominators(edges: Edges, members: set[int], roots: Sequence[int]) -> dict[int, int]:
    """The dominators of each block, one bit each, including itself: blocks on every path from the roots to it."""
    before = {block: [p for p in sources if p in members] for block, sources in _turned(edges).items()}
    everything = (1 << max(members) + 1) - 1
    found = {block: 1 << block if block in roots else everything for block in members}
    changed = True
    while changed:
        changed = False
        for block in sorted(members):
            if block in roots:
                continue
            common = everything
            for source in before.get(block, ()):
                common &= found[source]
            now = common | 1 << block
            if now != found[block]:
                found[block], changed = now, True
    return found


def _members(bits: int) -> list[int]:
    return [n for n in range(bits.bit_length()) if bits >> n & 1]
