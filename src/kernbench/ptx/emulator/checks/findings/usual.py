"""Which of two unordered accesses nearly always comes first on a GPU: a race that runs of a GPU do not show.

A product of wgmma that is begun right behind a barrier reads its tiles within some hundred cycles. Where another warp
that comes from the same barrier must wait for a product of its own before it writes there, its write is later, as long
as no warp is held up for that time. PTX promises nothing of the kind.
"""

import heapq
import re
from typing import NamedTuple

from kernbench.ptx.emulator.program.program import Block, Program, Site


class _Way(NamedTuple):
    """What lies between a barrier and an instruction, at least: waits for products, waits for mbarriers, and all."""

    products: int
    phases: int
    instructions: int


class UsualOrder:
    """Says of pairs of accesses of one program which order is the usual one."""

    def __init__(self, program: Program):
        self._program = program
        self._found: dict[int, dict[str, _Way]] = {}
        # operands of barriers as they are written, and with the numbers that registers hold
        self._operands: dict[str, str] = {}
        self._before: dict[int, list[int]] = {}
        for number, following in program.edges.items():
            for successor in following:
                self._before.setdefault(successor, []).append(number)

    def read_first(self, read: Site, write: Site) -> str:
        """A sentence if `read`, a product, nearly always reads before `write` writes; else nothing."""
        if read.effects.in_flight != "multiply" or not write.effects.writes or write.effects.asynchronous:
            return ""
        reads, writes = self._ways(read), self._ways(write)
        for barrier in sorted(reads.keys() & writes.keys()):
            near, far = reads[barrier], writes[barrier]
            if near.products == near.phases == 0 and far.products:
                return _SENTENCE.format(barrier=barrier, near=near.instructions, far=far.instructions)
        return ""

    def _ways(self, site: Site) -> dict[str, _Way]:
        """The shortest ways to a site from each barrier of the block that can be the last one before it."""
        if site.number not in self._found:
            self._found[site.number] = self._search(site)
        return self._found[site.number]

    def _search(self, site: Site) -> dict[str, _Way]:
        blocks = self._program.blocks
        start = next((block for block in blocks if site in block.sites), None)
        found: dict[str, _Way] = {}
        if start is None or start.number not in self._program.edges:
            return found
        first = self._passed(start, start.sites.index(site), _Way(0, 0, 0), found)
        waiting = [(first, start.number)] if first else []
        seen: set[int] = set()
        while waiting:
            way, number = heapq.heappop(waiting)
            for before in self._before.get(number, ()):
                if before in seen:
                    continue
                seen.add(before)
                longer = self._passed(blocks[before], len(blocks[before].sites), way, found)
                if longer:
                    heapq.heappush(waiting, (longer, before))
        return found

    def _passed(self, block: Block, end: int, way: _Way, found: dict[str, _Way]) -> _Way | None:
        """Go back from a position of a block: the way from its beginning, None behind a barrier, which is noted."""
        for site in reversed(block.sites[:end]):
            effects = site.effects
            if effects.barrier and effects.follows_from == "block":
                barrier = _REGISTER.sub(self._value, site.text.partition(" ")[2].strip(" ;"))
                found[barrier] = min(way, found.get(barrier, way))
                return None
            way = _Way(way.products + (effects.in_flight == "wait"), way.phases + effects.polls, way.instructions + 1)
        return way

    def _value(self, register: re.Match[str]) -> str:
        """The number in a register that is set once, to a constant; else the register."""
        name = register[0]
        if name not in self._operands:
            sets = rf"^(?:@\S+\s+)?((?!bar)\S+)\s+{re.escape(name)},\s*([^;]*);"
            set_by = re.findall(sets, self._program.text, re.MULTILINE)
            constant = len(set_by) == 1 and set_by[0][0].startswith("mov.") and set_by[0][1].isdigit()
            self._operands[name] = set_by[0][1] if constant else name
        return self._operands[name]


_REGISTER = re.compile(r"%\w+")
_SENTENCE = (
    ". On a GPU the product nearly always reads first, and results are right then: it can begin {near} instructions "
    "after barrier {barrier}, and the write comes at least {far} instructions after it, one of them a wait for a "
    "product of the writer's own; but nothing rules out the other order, where the reader is held up for that time"
)
