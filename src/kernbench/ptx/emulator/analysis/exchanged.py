"""Loads whose values a warp exchanges before one of its lanes stores a result of the exchange.

Lanes of a warp load, exchange the values (`shfl.sync`, `redux.sync`, votes) and store: the sums of a scan go back to
where their parts came from. PTX orders no memory there. But no lane has the result of the exchange before every lane
has supplied its value, and no lane can supply what it has not loaded. So if the stored value depends on that result,
the load of every lane of the warp is complete. A lane that is an iteration ahead has loaded after the exchange: such
loads count only if the warp reconverges before each iteration. An exchange of some lanes (a constant mask) covers those
lanes.
"""

from collections.abc import Iterator, Mapping

from kernbench.ptx.emulator.analysis.flow.definitions import sources_of
from kernbench.ptx.emulator.instructions.decode import Body
from kernbench.ptx.emulator.program.operands import Decoding
from kernbench.ptx.text.module import Integer, Name

_FULL = 0xFFFF_FFFF


def exchanged_loads(body: Body) -> Iterator[tuple[int, Mapping[int, int]]]:
    """Sites of stores, each with the sites of loads that are complete when it runs, and in which lanes, as a mask."""
    every = [(block, d) for block, decodings in enumerate(body.decodings) for d in decodings]
    if not any(d.effects.exchanges for _, d in every):
        return
    constants = _constants([d for _, d in every])
    meetings = [(block, d) for block, d in every if d.effects.exchanges and _members(d, constants)]
    loads = [(block, d) for block, d in every if d.effects.access == "load" and d.writes]
    stores = [(block, d) for block, d in every if d.effects.access == "store"]
    if not meetings or not loads or not stores:
        return
    made_of = _made_of(body, [d for _, d in (*loads, *meetings)])
    barriers = frozenset(block for block, d in every if _gathers(d, constants))
    members = [_members(d, constants) for _, d in meetings]
    passing = _Passing(body, barriers, loads, meetings, members, made_of)
    for block, d in stores:
        found = passing.loads_before(block, made_of.get(d.site.number, 0) >> len(loads))
        if found:
            yield d.site.number, {loads[number][1].site.number: lanes for number, lanes in found.items()}


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


def _members(d: Decoding, constants: Mapping[int, int]) -> int:
    """The lanes of a warp that gather at an instruction, as a mask; 0 if unknown."""
    index = d.position("mask")
    if index is None or d.instruction.guard is not None:
        return 0
    operand = d.operands[index]
    register = d.scope.register(operand.text) if isinstance(operand, Name) else None
    members = d.constant_of(index) if register is None else constants.get(register.number)
    return (members or 0) & _FULL


def _gathers(d: Decoding, constants: Mapping[int, int]) -> bool:
    """Whether all lanes of a warp reconverge there."""
    if not d.effects.barrier or d.mod("mode") == "arrive":
        return False
    return d.position("mask") is None or _members(d, constants) == _FULL


def _made_of(body: Body, origins: list[Decoding]) -> dict[int, int]:
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


def _bits(mask: int) -> Iterator[int]:
    """The numbers of the set bits."""
    return (number for number in range(mask.bit_length()) if mask >> number & 1)


class _Passing:
    """Which loads are followed by an exchange of their values on every path to a block."""

    def __init__(
        self,
        body: Body,
        barriers: frozenset[int],
        loads: list[tuple[int, Decoding]],
        meetings: list[tuple[int, Decoding]],
        members: list[int],
        made_of: Mapping[int, int],
    ):
        self._edges, self._barriers = body.edges, barriers
        every = (1 << len(loads)) - 1
        # for each exchange: the block that it ends, the loads it depends on, and its lanes
        given = [made_of.get(d.site.number, 0) & every for _, d in meetings]
        blocks = [block for block, _ in meetings]
        self._meetings = list(zip(blocks, given, members, strict=True))
        self._in_block: dict[int, int] = {}
        for number, (block, _) in enumerate(loads):
            self._in_block[block] = self._in_block.get(block, 0) | 1 << number
        self._known: dict[tuple[int, frozenset[int]], frozenset[int]] = {}

    def loads_before(self, block: int, meetings: int) -> dict[int, int]:
        """The loads whose values some exchanges have passed on every path to a block, each with the lanes of these."""
        found: dict[int, int] = {}
        for number, (meeting, given, lanes) in enumerate(self._meetings):
            if meetings >> number & 1:
                for start, here in self._in_block.items():
                    if here & given and self._between(start, meeting, block):
                        found |= {load: found.get(load, 0) | lanes for load in _bits(here & given)}
        return found

    def _between(self, load: int, meeting: int, store: int) -> bool:
        """Whether every path from a load to a store has an exchange, and every path back to the load a barrier."""
        passed = load == meeting or store not in self._reached(load, frozenset((meeting,)))
        return load != store and passed and load not in self._reached(meeting, self._barriers)

    def _reached(self, start: int, ends: frozenset[int]) -> frozenset[int]:
        """Blocks reachable from the end of one without passing the ends of some others."""
        if (start, ends) not in self._known:
            reached: set[int] = set()
            waiting = list(self._edges[start])
            while waiting:
                block = waiting.pop()
                if block not in reached:
                    reached.add(block)
                    waiting += [] if block in ends else self._edges[block]
            self._known[start, ends] = frozenset(reached)
        return self._known[start, ends]
