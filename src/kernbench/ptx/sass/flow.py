"""The control flow of machine code: basic blocks, calls entered in place, and the ways of a warp whose lanes part.

A node is a basic block in one context of calls: a function is entered anew for each of its calls, so that it returns to
where it was called. An edge is a way a warp may go. Where lanes part, a warp runs one side up to where they meet again
and then the other: for that there are edges from the ends of a side to the beginning of the other, marked as such.
"""

from bisect import bisect_right
from collections import defaultdict
from dataclasses import dataclass

from kernbench.ptx.sass.reading import Instruction, Listing

# the warp goes on behind these only if their guard, or an operand, says so
_LEAVES = {"EXIT", "KILL", "RET", "BPT", "JMX", "BRX", "BRXU", "JMXU"}
_JUMPS = {"BRA", "JMP", "UBRA"}
_CALLS = {"CALL", "UCALL", "JCAL"}
# a block ends behind them: lanes meet, or part
_ENDS = _LEAVES | _JUMPS | _CALLS | {"BSYNC", "BREAK"}
# contexts of calls beyond this many nodes are not entered
MOST_NODES = 20_000
EXIT = -1


@dataclass(frozen=True, slots=True)
class Node:
    """Instructions `first` to `last` (not included) of the listing; where a warp may go from it, EXIT for its end."""

    first: int
    last: int
    following: tuple[int, ...]
    # ways that lanes take which parted before: the other side of a branch
    parted: tuple[int, ...] = ()


@dataclass(frozen=True)
class Flow:
    """The nodes of a kernel; node 0 is its beginning. `reasons` name calls that could not be entered."""

    nodes: tuple[Node, ...]
    reasons: tuple[str, ...] = ()


def flow(listing: Listing, section: str) -> Flow:
    """The control flow of the kernel whose code is in `section`."""
    blocks = _Blocks(listing)
    contexts = _Contexts(listing, blocks)
    contexts.enter(listing.sections[section][0])
    nodes = contexts.nodes()
    return Flow(tuple(_with_parted(nodes)), tuple(sorted(contexts.reasons)))


class _Blocks:
    """Basic blocks of a listing, whatever functions they belong to."""

    def __init__(self, listing: Listing):
        code, labels = listing.instructions, listing.labels
        begins = {first for first, _ in listing.sections.values()}
        for number, one in enumerate(code):
            begins |= {labels[target] for target in one.targets if target in labels}
            if one.opcode in _ENDS:
                begins.add(number + 1)
        self._begins = sorted(begin for begin in begins if begin < len(code))
        self._ends = [*self._begins[1:], len(code)]

    def of(self, instruction: int) -> tuple[int, int]:
        """The block that an instruction belongs to: its first, and the one behind its last."""
        which = bisect_right(self._begins, instruction) - 1
        return self._begins[which], self._ends[which]


# where calls return to, the innermost last
Calls = tuple[int, ...]


class _Contexts:
    """Blocks by context, found from the beginning on."""

    def __init__(self, listing: Listing, blocks: _Blocks):
        self._listing = listing
        self._blocks = blocks
        self._numbers: dict[tuple[int, Calls], int] = {}
        self._following: dict[int, tuple[int, ...]] = {}
        self.reasons: set[str] = set()

    def enter(self, first: int) -> None:
        self._number(first, ())
        found = [(first, ())] if first < len(self._listing.instructions) else []
        pending: list[tuple[int, Calls]] = list(found)
        while pending:
            begin, calls = pending.pop()
            number = self._numbers[begin, calls]
            targets = self._targets(begin, calls)
            for target in targets:
                if target is not None and target not in self._numbers:
                    self._number(*target)
                    pending.append(target)
            self._following[number] = tuple(
                dict.fromkeys(EXIT if target is None else self._numbers[target] for target in targets)
            )

    def nodes(self) -> list[Node]:
        """All nodes, in the order of their numbers."""
        return [
            Node(begin, self._blocks.of(begin)[1], self._following[number])
            for (begin, _), number in self._numbers.items()
        ]

    def _number(self, begin: int, calls: Calls) -> None:
        self._numbers.setdefault((begin, calls), len(self._numbers))

    def _targets(self, begin: int, calls: Calls) -> list[tuple[int, Calls] | None]:
        """Where a warp may go from a block: a block and its calls, or None for the end of the warp."""
        last = self._blocks.of(begin)[1] - 1
        one = self._listing.instructions[last]
        beyond: tuple[int, Calls] | None = self._behind(last, calls)
        if one.opcode in _CALLS:
            return self._call(one, last, calls)
        if one.opcode in _JUMPS:
            taken = self._labelled(one, calls)
            return [beyond, *taken] if _may_go_on(one) or not taken else taken
        if one.opcode in _LEAVES:
            left = self._leaving(one, calls)
            return [beyond, *left] if one.predicated else left
        return [beyond]

    def _leaving(self, one: Instruction, calls: Calls) -> list[tuple[int, Calls] | None]:
        if one.opcode == "RET" and calls:
            return [(calls[-1], calls[:-1])]
        if one.targets and one.opcode != "RET":
            return self._labelled(one, calls)
        if one.opcode not in ("EXIT", "KILL", "RET", "BPT"):
            self.reasons.add(f"{one.opcode} at {one.address:#x} goes where the disassembly does not say")
        return [None]

    def _call(self, one: Instruction, last: int, calls: Calls) -> list[tuple[int, Calls] | None]:
        beyond = self._behind(last, calls)
        entered = [self._listing.labels[target] for target in one.targets if target in self._listing.labels]
        if not entered:
            self.reasons.add(f"the function called at {one.address:#x} is not known")
            return [beyond]
        if len(self._numbers) > MOST_NODES or beyond is None or last + 1 in calls:
            self.reasons.add(f"the call at {one.address:#x} is one too many, or recursive")
            return [beyond]
        into: list[tuple[int, Calls] | None] = [(target, (*calls, last + 1)) for target in entered]
        return [beyond, *into] if one.predicated else into

    def _behind(self, last: int, calls: Calls) -> tuple[int, Calls] | None:
        return (last + 1, calls) if last + 1 < len(self._listing.instructions) else None

    def _labelled(self, one: Instruction, calls: Calls) -> list[tuple[int, Calls] | None]:
        labels = self._listing.labels
        return [
            (labels[t], calls)
            for t in one.targets
            if labels.get(t, len(self._listing.instructions)) < len(self._listing.instructions)
        ]


def _may_go_on(jump: Instruction) -> bool:
    """Whether a jump has a condition: a guard, or an operand before its target."""
    return jump.predicated or not jump.operands.startswith("`")


def _with_parted(nodes: list[Node]) -> list[Node]:
    """The nodes with the ways of lanes that part: from the ends of one side of a branch to the other side.

    Lanes that leave the kernel keep the others from meeting nowhere: an exit counts only where nothing else follows.
    """
    meeting = _meeting_points([tuple(there for there in n.following if there != EXIT) or (EXIT,) for n in nodes])
    parted: dict[int, set[int]] = defaultdict(set)
    for number, node in enumerate(nodes):
        if len(node.following) < 2:
            continue
        meet = meeting[number]
        sides = [side for side in node.following if side not in (meet, EXIT)]
        for side in sides:
            others = [other for other in sides if other != side]
            for end in _ends_of(side, meet, number, nodes) if others else ():
                parted[end].update(others)
    return [
        Node(node.first, node.last, node.following, tuple(sorted(parted[number] - set(node.following))))
        for number, node in enumerate(nodes)
    ]


def _ends_of(side: int, meet: int, branch: int, nodes: list[Node]) -> list[int]:
    """Nodes from which the way of one side leads to where the sides meet, or out of the kernel for all its lanes."""
    seen, pending, ends = {side, branch}, [side], []
    while pending:
        here = pending.pop()
        if meet in nodes[here].following or EXIT in nodes[here].following:
            ends.append(here)
        for there in nodes[here].following:
            if there not in seen and there not in (meet, EXIT):
                seen.add(there)
                pending.append(there)
    return ends


def _meeting_points(following: list[tuple[int, ...]]) -> list[int]:
    """For each node the nearest one that every way from it passes (its post-dominator); EXIT where there is none."""
    order = _backward_order(following)
    index_of = {node: index for index, node in enumerate(order)}
    point: dict[int, int] = {EXIT: EXIT}

    def common(a: int, b: int) -> int:
        while a != b:
            if index_of.get(a, -1) > index_of.get(b, -1):
                a = point[a]
            else:
                b = point[b]
        return a

    changed = True
    while changed:
        changed = False
        for node in order:
            known = [there for there in following[node] if there in point]
            if not known:
                continue
            meet = known[0]
            for other in known[1:]:
                meet = common(meet, other)
            if point.get(node) != meet:
                point[node] = meet
                changed = True
    return [point.get(node, EXIT) for node in range(len(following))]


def _backward_order(following: list[tuple[int, ...]]) -> list[int]:
    """Nodes in reverse post-order of the graph turned round, from the exits on."""
    before: dict[int, list[int]] = defaultdict(list)
    for node, there in enumerate(following):
        for one in there:
            before[one].append(node)
    seen, done = {EXIT}, []
    stack: list[tuple[int, int]] = [(EXIT, 0)]
    while stack:
        node, index = stack.pop()
        if index < len(before[node]):
            stack.append((node, index + 1))
            one = before[node][index]
            if one not in seen:
                seen.add(one)
                stack.append((one, 0))
        elif node != EXIT:
            done.append(node)
    return done[::-1]
