"""Loads that a warp completes by an exchange of values, before one of its lanes stores what depends on the exchange.

Lanes of a warp load, exchange values (`shfl.sync`, `redux.sync`, votes) and store: the sums of a scan go back to where
their parts came from. PTX orders no memory there. But no lane has the result of the exchange before every lane has come
to it, and no lane comes to it before it has what its operands, or the branches on its way, are made of. So if the store
depends on that result, the loads of all lanes are complete. A lane may supply a value made of what it loaded, or branch
by it to other barriers and exchanges; what was exchanged may be stored, or decide whether a lane stores.

A lane that is an iteration ahead has loaded after the exchange: such loads count only if it cannot get there before the
lane that stores has stored. An exchange covers the lanes that its mask names: a constant, or a register that still
holds the mask when the store runs.
"""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

from kernbench.ptx.emulator.analysis.flow.definitions import sources_of
from kernbench.ptx.emulator.instructions.decode import Body
from kernbench.ptx.emulator.program.operands import Decoding
from kernbench.ptx.emulator.program.program import Completed
from kernbench.ptx.emulator.program.scopes import Register
from kernbench.ptx.text.module import Integer, Name

_FULL = 0xFFFF_FFFF
# successor of the last block of a function
_END = -1
# how far a lane that has left an exchange is held up by the one that stores: not at all, it is known to be behind an
# exchange that both come to, or behind a barrier, beyond which no compiler moves a load
_FREE, _MET, _HELD = range(3)


def exchanged_loads(body: Body) -> Iterator[tuple[int, Mapping[int, Completed]]]:
    """Sites of stores, each with the sites of loads that are complete when it runs, and in which lanes."""
    every = [(block, d) for block, decodings in enumerate(body.decodings) for d in decodings]
    if not any(d.effects.exchanges for _, d in every):
        return
    constants = _constants([d for _, d in every])
    gatherings = {block: one for block, d in every if (one := _gathering(block, d, constants)) is not None}
    meetings = [one for one in gatherings.values() if one.decoding.effects.exchanges]
    loads = [(block, d) for block, d in every if d.effects.access in ("load", "atomic") and d.writes]
    stores = [(block, d) for block, d in every if d.effects.publishes and not d.effects.asynchronous]
    if not meetings or not loads or not stores:
        return
    way = _Way(body, gatherings, made_of(body, [d for _, d in loads] + [m.decoding for m in meetings]))
    found: dict[int, dict[int, Completed]] = {}
    for number, meeting in enumerate(meetings):
        _add_completed(found, way, meeting, 1 << len(loads) + number, loads, stores)
    yield from found.items()


def _add_completed(
    found: dict[int, dict[int, Completed]],
    way: "_Way",
    meeting: "_Gathering",
    bit: int,
    loads: list[tuple[int, Decoding]],
    stores: list[tuple[int, Decoding]],
) -> None:
    """Add the stores that depend on a meeting, with the loads that it depends on."""
    behind = [(block, d) for block, d in stores if way.follows(block, d, meeting, bit)]
    if not behind:
        return
    ahead = way.passed(meeting)
    given = way.made_of.get(meeting.decoding.site.number, 0)
    behind = [(block, d) for block, d in behind if block not in ahead.stores and block not in way.without(meeting)]
    before = [
        d.site.number
        for number, (block, d) in enumerate(loads if behind else ())
        if block not in ahead.loads and (given >> number & 1 or way.decides(block, 1 << number, meeting))
    ]
    for _, store in behind:
        for load in before:
            completed = found.setdefault(store.site.number, {})
            completed[load] = completed.get(load, Completed()).joined(meeting.lanes, meeting.register)


@dataclass(frozen=True, slots=True)
class _Gathering:
    """A barrier of a warp, or an exchange of values: its lanes, as a constant or a register."""

    block: int
    decoding: Decoding
    lanes: int
    register: Register | None

    @property
    def orders(self) -> bool:
        """Whether compilers move no access beyond it."""
        return self.decoding.effects.barrier


@dataclass(frozen=True, slots=True)
class _Ahead:
    """Where a lane may get to behind an exchange.

    `loads`: blocks that it may get to before another lane of the exchange has stored. `stores`: blocks where this
    exchange may not be the last thing for which lanes have met, or where the register of its mask may be another's.
    """

    loads: frozenset[int]
    stores: frozenset[int]


def _constants(every: list[Decoding]) -> dict[int, int]:
    """Registers that are set once, to a constant."""
    writers: dict[int, list[Decoding]] = {}
    for d in every:
        for register in d.writes:
            writers.setdefault(register.number, []).append(d)
    found = {}
    for number, (first, *others) in writers.items():
        value = first.operands[1] if first.effects.law == "copy" else None
        if not others and first.instruction.guard is None and isinstance(value, Integer):
            found[number] = value.value
    return found


def _gathering(block: int, d: Decoding, constants: Mapping[int, int]) -> _Gathering | None:
    """An instruction at which lanes of a warp meet; None if it is another, or its lanes are unknown."""
    if not (d.effects.exchanges or d.effects.barrier) or d.instruction.guard is not None or d.mod("mode") == "arrive":
        return None
    index = d.position("mask")
    if index is None:
        return _Gathering(block, d, _FULL, None) if d.effects.barrier else None
    operand = d.operands[index]
    register = d.scope.register(operand.text) if isinstance(operand, Name) else None
    lanes = d.constant_of(index) if register is None else constants.get(register.number)
    if lanes is not None:
        return _Gathering(block, d, lanes & _FULL, None)
    return None if register is None else _Gathering(block, d, 0, register)


def made_of(body: Body, origins: list[Decoding]) -> dict[int, int]:
    """For the site of each instruction, the bit set of `origins` that its operands may depend on."""
    bit = {d.site.number: 1 << number for number, d in enumerate(origins)}
    given = [(d.site.number, sources) for d, sources in sources_of(body) if sources]
    found: dict[int, int] = {}
    changed = True
    while changed:
        changed = False
        for site, sources in given:
            state = 0
            for source in sources:
                state |= found.get(source, 0) | bit.get(source, 0)
            if state != found.get(site, 0):
                found[site] = state
                changed = True
    return found


class _Way:
    """The blocks of a function, what its branches are made of, and where lanes of a warp meet."""

    def __init__(self, body: Body, gatherings: Mapping[int, _Gathering], made_of: Mapping[int, int]):
        self.made_of = made_of
        self._body, self._edges, self._gatherings = body, body.edges, gatherings
        self._branches = _branches(body, made_of)
        self._next: dict[int, frozenset[int]] = {}
        self._without: dict[int, frozenset[int]] = {}

    def follows(self, block: int, store: Decoding, meeting: _Gathering, bit: int) -> bool:
        """Whether a store depends on the result of an exchange, or whether it runs does."""
        if self.made_of.get(store.site.number, 0) & bit:
            return True
        return _is_decided(self._body.edges, self._branches, block, self._edges[meeting.block], meeting.block, bit)

    def decides(self, block: int, bit: int, meeting: _Gathering) -> bool:
        """Whether each lane that has loaded in a block branches by that to other meetings before it comes to one."""
        deciding = frozenset(b for b, made in self._branches.items() if made & bit and self._parts(b))
        if block in deciding:
            return True
        return (
            bool(deciding)
            and block != meeting.block
            and meeting.block not in self._reached(self._edges[block], deciding)
        )

    def without(self, meeting: _Gathering) -> frozenset[int]:
        """The blocks that a lane may get to without an exchange."""
        if meeting.block not in self._without:
            self._without[meeting.block] = self._reached([0], frozenset((meeting.block,)))
        return self._without[meeting.block]

    def passed(self, meeting: _Gathering) -> _Ahead:
        """Where a lane may get to behind an exchange, and in which state."""
        loads, stores = set[int](), set[int]()
        seen = set[tuple[int, bool, bool, int]]()
        waiting = [(block, False, False, _FREE) for block in self._edges[meeting.block]]
        while waiting:
            state = waiting.pop()
            if state in seen:
                continue
            seen.add(state)
            block, again, changed, held = state
            if held != _HELD:
                loads.add(block)
            changed = changed or self._sets(block, meeting.register)
            if not again and (changed or held != _FREE):
                stores.add(block)
            if block == meeting.block:
                # with another mask it may be an exchange of other lanes
                if not changed:
                    continue
                again = True
            held = max(held, self._hold(self._gatherings.get(block), meeting, changed, held))
            waiting += [(following, again, changed, held) for following in self._edges[block]]
        return _Ahead(frozenset(loads), frozenset(stores))

    def _hold(self, gathering: _Gathering | None, meeting: _Gathering, changed: bool, held: int) -> int:
        """How a gathering on the way holds up a lane until the one that stores has come there as well."""
        if gathering is None:
            return _FREE
        if gathering.register is not None:
            same = gathering.register is meeting.register and not changed
        else:
            lanes = meeting.lanes if meeting.register is None else _FULL
            same = not lanes & ~gathering.lanes
        if gathering.orders:
            return _HELD if same or held == _MET else _FREE
        return _MET if same else _FREE

    def _sets(self, block: int, register: Register | None) -> bool:
        """Whether a block sets a register."""
        return register is not None and any(register in d.writes for d in self._body.decodings[block])

    def _parts(self, branch: int) -> bool:
        """Whether a branch decides where lanes meet next."""
        first, *others = (self._meets(block) for block in self._edges[branch])
        return any(first != other for other in others)

    def _meets(self, start: int) -> frozenset[int]:
        """The blocks, from the beginning of one, at whose end lanes may meet next."""
        if start not in self._next:
            found, seen, waiting = set[int](), set[int](), [start]
            while waiting:
                block = waiting.pop()
                if block in seen:
                    continue
                seen.add(block)
                if not self._edges[block]:
                    found.add(_END)
                elif any(d.effects.exchanges or d.effects.barrier for d in self._body.decodings[block][-1:]):
                    found.add(block)
                else:
                    waiting += self._edges[block]
            self._next[start] = frozenset(found)
        return self._next[start]

    def _reached(self, begins: list[int], ends: frozenset[int]) -> frozenset[int]:
        return _reached(self._edges, begins, ends)


def decided_blocks(
    body: Body, made_of: Mapping[int, int], blocks: Collection[int], before: int, bit: int
) -> frozenset[int]:
    """Of some blocks those of which branches on a value, which is got in a block `before`, decide whether they run."""
    edges, again = body.edges, frozenset((before,))
    ways = {
        branch: [_reached(edges, [one], again) for one in edges[branch]]
        for branch, made in _branches(body, made_of).items()
        if made & bit
    }
    found, free = set[int](), dict[frozenset[int], frozenset[int]]()
    for block in blocks if ways else ():
        deciding = frozenset(branch for branch, reached in ways.items() if any(block not in one for one in reached))
        if deciding not in free:
            free[deciding] = _reached(edges, [before], deciding)
        if block != before and block not in free[deciding]:
            found.add(block)
    return frozenset(found)


def _branches(body: Body, made_of: Mapping[int, int]) -> dict[int, int]:
    """Blocks that end with a branch, and what that is made of."""
    return {
        block: made_of.get(decodings[-1].site.number, 0)
        for block, decodings in enumerate(body.decodings)
        if decodings and decodings[-1].effects.steers and len(body.edges[block]) > 1
    }


def _is_decided(
    edges: list[list[int]], branches: Mapping[int, int], block: int, begins: list[int], again: int, bit: int
) -> bool:
    """Whether branches on a value decide, on every path from some blocks, if a block runs before it comes `again`."""
    ends = frozenset((again,))
    deciding = frozenset(
        branch
        for branch, made in branches.items()
        if made & bit and any(block not in _reached(edges, [one], ends) for one in edges[branch])
    )
    return bool(deciding) and block not in _reached(edges, begins, deciding)


def _reached(edges: list[list[int]], begins: list[int], ends: frozenset[int]) -> frozenset[int]:
    """Blocks reachable from the beginning of some without passing the ends of others."""
    reached: set[int] = set()
    waiting = list(begins)
    while waiting:
        block = waiting.pop()
        if block not in reached:
            reached.add(block)
            waiting += [] if block in ends else edges[block]
    return frozenset(reached)
