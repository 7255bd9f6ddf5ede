"""List scheduling of expanded instructions, with control fields as an assembler would set them.

Within a block, instructions with the longest latency to the block's end come first, as far as dependences through
registers and memory allow. Stalls then keep the distance that results of fixed latency need; scoreboards are set and
awaited for results of variable latency. Latencies here are those that a compiler assumes; those of a GPU are in its
file.
"""

from collections import defaultdict, deque
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from heapq import heapify, heappop, heappush

from kernbench.ptx.sass.control import Control
from kernbench.ptx.sass.expansion.pieces import Piece
from kernbench.ptx.sass.pipes import family
from kernbench.ptx.sass.streams import NO_BARRIER, Act, Pipe

# cycles after which a dependent instruction may issue; predicates take longer
_FIXED = 4
_PREDICATE = 13
_SETS_PREDICATE = ("ISETP", "FSETP", "DSETP", "HSETP2", "PLOP3")
# warp-wide matrix products have a fixed latency, too
_MMA = 18
_MOST_STALL = 15
_COUNTERS = 6
# pipes of variable latency, whose results need a scoreboard, and the latency assumed for scheduling
_VARIABLE = {
    Pipe.GLOBAL: 300,
    Pipe.LOCAL: 40,
    Pipe.SHARED: 30,
    Pipe.LDMATRIX: 33,
    Pipe.CONSTANT: 30,
    Pipe.MUFU: 20,
    Pipe.DOUBLE: 20,
    Pipe.SHUFFLE: 24,
    Pipe.VOTE: 12,
    Pipe.SPECIAL: 20,
    Pipe.MBARRIER: 40,
    Pipe.TCGEN05: 40,
}
_LOADS = {Act.LOAD, Act.NONE}
_MEMORY = {Pipe.GLOBAL, Pipe.LOCAL, Pipe.SHARED, Pipe.LDMATRIX, Pipe.STMATRIX}


@dataclass(frozen=True)
class Scheduled:
    """A machine instruction with its control field."""

    piece: Piece
    control: Control


def latency_of(piece: Piece) -> tuple[int, bool]:
    """Cycles until the result, and whether a scoreboard is needed to wait for it."""
    opcode = piece.name.partition(".")[0]
    pipe = family(opcode).pipe
    if pipe in _VARIABLE:
        return _VARIABLE[pipe], True
    if pipe == Pipe.MMA:
        return _MMA, False
    return (_PREDICATE if opcode in _SETS_PREDICATE else _FIXED), False


def schedule(blocks: Sequence[Sequence[Piece]], following: Mapping[int, Set[int]]) -> list[list[Scheduled]]:
    """The instructions of each block in order, with control fields; `following` are the successors of each block.

    Scoreboards set in one block are awaited in its successors, unless something before has waited for them.
    """
    ordered = [_ordered(block) for block in blocks]
    counters = _counters(ordered)
    entering: list[dict[str, int]] = [{} for _ in blocks]
    pending = deque(range(len(blocks)))
    while pending:
        number = pending.popleft()
        _, leaving = _awaited(ordered[number], counters[number], entering[number])
        for after in sorted(following.get(number, ())):
            known = entering[after]
            more = {name: mask for name, mask in leaving.items() if mask & ~known.get(name, 0)}
            if more:
                known.update({name: known.get(name, 0) | mask for name, mask in more.items()})
                if after not in pending:
                    pending.append(after)
    return [_controlled(*given) for given in zip(ordered, counters, entering, strict=True)]


def _awaited(
    block: Sequence[Piece], counters: Sequence[int], entering: Mapping[str, int]
) -> tuple[list[int], dict[str, int]]:
    """The scoreboards that each instruction waits for, and those pending at the block's end, by register.

    Waiting for a scoreboard waits for all results that share it so far.
    """
    under_way, masks = dict(entering), []
    for piece, counter in zip(block, counters, strict=True):
        mask = 0
        for name in piece.reads | piece.writes:
            mask |= under_way.get(name, 0)
        if mask:
            under_way = {name: left & ~mask for name, left in under_way.items() if left & ~mask}
        masks.append(mask)
        for name in piece.writes:
            if counter != NO_BARRIER:
                under_way[name] = 1 << counter
    return masks, under_way


def _ordered(block: Sequence[Piece]) -> list[Piece]:
    """The block's instructions, those with the longest path to its end first, ties in the order of the text."""
    needs = _needs(block)
    after: list[list[int]] = [[] for _ in block]
    for number, before in enumerate(needs):
        for one in before:
            after[one].append(number)
    height = [0] * len(block)
    for number in range(len(block) - 1, -1, -1):
        own = latency_of(block[number])[0]
        height[number] = max((own + height[one] for one in after[number]), default=0)
    waiting = [len(before) for before in needs]
    ready = [(-height[number], number) for number, count in enumerate(waiting) if not count]
    heapify(ready)
    found: list[Piece] = []
    while ready:
        _, number = heappop(ready)
        found.append(block[number])
        for one in after[number]:
            waiting[one] -= 1
            if not waiting[one]:
                heappush(ready, (-height[one], one))
    return found


def _needs(block: Sequence[Piece]) -> list[set[int]]:
    """For each instruction those that must precede it: by registers, by order of memory, and all before a branch."""
    written: dict[str, int] = {}
    readers: dict[str, list[int]] = defaultdict(list)
    fence = -1
    loads: list[int] = []
    needs: list[set[int]] = []
    for number, piece in enumerate(block):
        before = {written[name] for name in piece.reads | piece.writes if name in written}
        for name in piece.writes:
            before.update(readers[name])
        kind = family(piece.name.partition(".")[0])
        if _orders(kind.pipe, kind.act):
            before.update(loads)
            before.add(fence)
            fence, loads = number, []
        elif kind.pipe in _MEMORY:
            before.add(fence)
            loads.append(number)
        if kind.pipe == Pipe.BRANCH:
            before.update(range(number))
        needs.append({one for one in before if 0 <= one < number})
        for name in piece.reads:
            readers[name].append(number)
        for name in piece.writes:
            written[name], readers[name] = number, []
    return needs


def _orders(pipe: Pipe, act: Act) -> bool:
    """Whether memory accesses must not be reordered with an instruction."""
    computes = pipe <= Pipe.SHUFFLE or pipe in (Pipe.CONSTANT, Pipe.UNIFORM, Pipe.SPECIAL, Pipe.MMA, Pipe.VOTE)
    return not computes and not (pipe in _MEMORY and act in _LOADS)


def _counters(blocks: Sequence[Sequence[Piece]]) -> list[list[int]]:
    """Scoreboards of instructions that need one, round robin; results of one pipe with the same reader share one."""
    found: list[list[int]] = []
    turn, shared = 0, (Pipe.CONTROL, -1)
    for block in blocks:
        wanted = _first_wanted(block)
        given = []
        for number, piece in enumerate(block):
            kind = family(piece.name.partition(".")[0])
            needed = latency_of(piece)[1] and kind.act != Act.STORE
            if needed and (kind.pipe, wanted[number]) != shared:
                turn, shared = (turn + 1) % _COUNTERS, (kind.pipe, wanted[number])
            given.append(turn if needed else NO_BARRIER)
        found.append(given)
    return found


def _first_wanted(block: Sequence[Piece]) -> list[int]:
    """For each instruction the first later one that reads its result; -1 if none in the block does."""
    reader: dict[str, int] = {}
    found = [-1] * len(block)
    for number in range(len(block) - 1, -1, -1):
        piece = block[number]
        found[number] = min((reader[name] for name in piece.writes if name in reader), default=-1)
        reader.update(dict.fromkeys(piece.reads, number))
    return found


def _controlled(block: Sequence[Piece], counters: Sequence[int], entering: Mapping[str, int]) -> list[Scheduled]:
    ready: dict[str, int] = {}
    cycle, starts = 0, []
    masks, _ = _awaited(block, counters, entering)
    for piece, counter in zip(block, counters, strict=True):
        cycle = max([cycle, *(ready[name] for name in piece.reads | piece.writes if name in ready)])
        starts.append(cycle)
        for name in piece.writes:
            ready[name] = cycle if counter != NO_BARRIER else cycle + latency_of(piece)[0]
        cycle += 1
    ends = [*starts[1:], cycle][: len(starts)]
    return [
        Scheduled(piece, Control(min(end - start, _MOST_STALL), False, counter, NO_BARRIER, mask))
        for piece, counter, start, end, mask in zip(block, counters, starts, ends, masks, strict=True)
    ]
