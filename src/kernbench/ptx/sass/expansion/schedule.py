"""Order and control fields of expanded instructions, as an assembler would set them.

Within a PTX block, instructions are ordered so that what others wait for longest comes first, as far as their registers
and the order of memory allow; then stalls keep the distance that results of fixed latency need, and counters are set
and awaited for the others. The latencies are those that the compiler counts on; what a machine takes is in its file.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from kernbench.ptx.sass.control import Control
from kernbench.ptx.sass.expansion.pieces import Piece
from kernbench.ptx.sass.pipes import family
from kernbench.ptx.sass.streams import NO_BARRIER, Act, Pipe

# cycles after which a dependent instruction may issue; a predicate takes longer
_FIXED = 4
_PREDICATE = 13
_SETS_PREDICATE = ("ISETP", "FSETP", "DSETP", "HSETP2", "PLOP3")
# products of a warp have a fixed latency too
_MMA = 18
_MOST_STALL = 15
_COUNTERS = 6
# units whose results are awaited by a counter, and what the order of instructions assumes of them
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
    """A piece with its control field."""

    piece: Piece
    control: Control


def latency_of(piece: Piece) -> tuple[int, bool]:
    """Cycles until the result, and whether a counter is needed to wait for it."""
    opcode = piece.name.partition(".")[0]
    pipe = family(opcode).pipe
    if pipe in _VARIABLE:
        return _VARIABLE[pipe], True
    if pipe == Pipe.MMA:
        return _MMA, False
    return (_PREDICATE if opcode in _SETS_PREDICATE else _FIXED), False


def schedule(blocks: Sequence[Sequence[Piece]]) -> list[list[Scheduled]]:
    """The pieces of each block in order, with control fields; counters of one block may be awaited in another."""
    ordered = [_ordered(block) for block in blocks]
    counters = _counters(ordered)
    elsewhere: dict[str, int] = defaultdict(int)
    for block, given in zip(ordered, counters, strict=True):
        for piece, counter in zip(block, given, strict=True):
            if counter != NO_BARRIER:
                for register in piece.writes:
                    elsewhere[register] |= 1 << counter
    return [_controlled(block, given, elsewhere) for block, given in zip(ordered, counters, strict=True)]


def _ordered(block: Sequence[Piece]) -> list[Piece]:
    """The block's pieces, those on the longest way to its end first; of equal ones the first of the text."""
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
    ready = {number for number, count in enumerate(waiting) if not count}
    found: list[Piece] = []
    while ready:
        number = min(ready, key=lambda one: (-height[one], one))
        ready.remove(number)
        found.append(block[number])
        for one in after[number]:
            waiting[one] -= 1
            if not waiting[one]:
                ready.add(one)
    return found


def _needs(block: Sequence[Piece]) -> list[set[int]]:
    """For each piece those that must come before it: by registers, by the order of memory, and all before the last
    branch.
    """
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
    """Whether accesses stay on their side of an instruction."""
    computes = pipe <= Pipe.SHUFFLE or pipe in (Pipe.CONSTANT, Pipe.UNIFORM, Pipe.SPECIAL, Pipe.MMA, Pipe.VOTE)
    return not computes and not (pipe in _MEMORY and act in _LOADS)


def _counters(blocks: Sequence[Sequence[Piece]]) -> list[list[int]]:
    """The counter of each piece that needs one, in turn; results of loads that follow each other share one."""
    found: list[list[int]] = []
    turn, unit = 0, Pipe.CONTROL
    for block in blocks:
        given = []
        for piece in block:
            needed = latency_of(piece)[1] and family(piece.name.partition(".")[0]).act != Act.STORE
            pipe = family(piece.name.partition(".")[0]).pipe
            if needed and pipe != unit:
                turn = (turn + 1) % _COUNTERS
            unit = pipe
            given.append(turn if needed else NO_BARRIER)
        found.append(given)
    return found


def _controlled(block: Sequence[Piece], counters: Sequence[int], elsewhere: dict[str, int]) -> list[Scheduled]:
    ready: dict[str, int] = {}
    awaited: dict[str, int] = {}
    cycle, starts, masks = 0, [], []
    for piece, counter in zip(block, counters, strict=True):
        names = piece.reads | piece.writes
        cycle = max([cycle, *(ready[name] for name in names if name in ready)])
        mask = 0
        for name in names:
            mask |= awaited.pop(name) if name in awaited else 0 if name in ready else elsewhere.get(name, 0)
        starts.append(cycle)
        masks.append(mask)
        for name in piece.writes:
            ready[name] = cycle if counter != NO_BARRIER else cycle + latency_of(piece)[0]
            awaited.pop(name, None)
            if counter != NO_BARRIER:
                awaited[name] = 1 << counter
        for name in piece.reads:
            ready.setdefault(name, 0)
        cycle += 1
    ends = [*starts[1:], cycle][: len(starts)]
    return [
        Scheduled(piece, Control(min(end - start, _MOST_STALL), False, counter, NO_BARRIER, mask))
        for piece, counter, start, end, mask in zip(block, counters, starts, ends, masks, strict=True)
    ]
