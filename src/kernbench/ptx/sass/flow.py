"""The control flow of machine code: basic blocks, with calls inlined, and the paths of diverged warps.

A node is a basic block in one context of calls: a function has its own nodes for each call, so that it returns to the
right caller. An edge is a possible successor. Where lanes diverge, a warp runs one side up to the point of
reconvergence and then the other: for that there are marked edges from the ends of a side to the start of the other.
"""

from bisect import bisect_right
from collections import defaultdict
from dataclasses import dataclass

from kernbench.ptx.sass.reading import Instruction, Listing

# execution continues after these only if their guard, or an operand, is false
_LEAVES = {"EXIT", "KILL", "RET", "BPT", "JMX", "BRX", "BRXU", "JMXU"}
_JUMPS = {"BRA", "JMP", "UBRA"}
_CALLS = {"CALL", "UCALL", "JCAL"}
# end basic blocks: jumps, exits, and points where lanes diverge or reconverge
_ENDS = _LEAVES | _JUMPS | _CALLS | {"BSYNC", "BREAK"}
# with more nodes than this, further calls are not inlined
MOST_NODES = 20_000
EXIT = -1


@dataclass(frozen=True, slots=True)
class Node:
    """Instructions `first` to `last` (exclusive) of the listing, and its successors; EXIT for the end of the warp."""

    first: int
    last: int
    following: tuple[int, ...]
    # the other side of a branch, for lanes that diverged there
    parted: tuple[int, ...] = ()


@dataclass(frozen=True)
class Flow:
    """The nodes of a kernel; node 0 is its entry. `reasons` name calls that could not be inlined."""

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
    """Basic blocks of a listing, over all functions."""

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
        """The block of an instruction: its first instruction, and the one after its last."""
        which = bisect_right(self._begins, instruction) - 1
        return self._begins[which], self._ends[which]


# stack of return addresses, the innermost last
Calls = tuple[int, ...]


class _Contexts:
    """Nodes (blocks by context of calls) that are reachable from the entry."""

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
        """All nodes, in order of their numbers."""
        return [
            Node(begin, self._blocks.of(begin)[1], self._following[number])
            for (begin, _), number in self._numbers.items()
        ]

    def _number(self, begin: int, calls: Calls) -> None:
        self._numbers.setdefault((begin, calls), len(self._numbers))

    def _targets(self, begin: int, calls: Calls) -> list[tuple[int, Calls] | None]:
        """The successors of a block: a block and its call stack, or None for the end of the warp."""
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
    """Whether a jump is conditional: it has a guard, or an operand before its target."""
    return jump.predicated or not jump.operands.startswith("`")


def _with_parted(nodes: list[Node]) -> list[Node]:
    """The nodes with the paths of diverged lanes: from the ends of one side of a branch to the other side.

    Lanes that exit do not move the point of reconvergence: an exit counts only if a node has no other successor.
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
    """The last nodes of one side of a branch: those that lead to the point of reconvergence, or exit."""
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
    """The immediate post-dominator of each node; EXIT if there is none."""
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
    """Nodes in reverse post-order of the reversed graph, from the exits."""
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
