"""The PTX instruction of each machine instruction: by its line, or by order if it has none.

nvdisasm shows a line until the next one, so an instruction without a line seems to have that of the one before. ptxas
gives no line to wgmma products, nor to copies of waits that it makes. These are found by order: products follow each
other as in PTX from one fence to the next, and a wait belongs to the next one of the text.
"""

from bisect import bisect_left

import numpy as np
from numpy.typing import NDArray

from kernbench.ptx.recording.kinds import Kind
from kernbench.ptx.recording.recording import Instructions
from kernbench.ptx.sass.facts import facts
from kernbench.ptx.sass.flow import Flow
from kernbench.ptx.sass.pipes import family
from kernbench.ptx.sass.ptx_names import shape_of
from kernbench.ptx.sass.reading import Instruction, Listing
from kernbench.ptx.sass.streams import Pipe

Ints = NDArray[np.int32]

# most PTX instructions between an instruction's apparent line and its true one
_NEAR = 64
# pipes whose instructions are not reordered
_IN_ORDER = {Pipe.MBARRIER, Pipe.BULK, Pipe.TCGEN05, Pipe.BARRIER, Pipe.FENCE}
# operations on mbarriers, by the first modifier of SYNCS
_MBARRIER = {
    "PHASECHK": (Kind.MBARRIER_WAIT,),
    "EXCH": (Kind.MBARRIER_INIT,),
    "ARRIVE": (Kind.MBARRIER_ARRIVE, Kind.MBARRIER_EXPECT, Kind.ASYNC_COPY_ARRIVE),
    "CCTL": (Kind.MBARRIER_INVAL,),
}


def kinds_of(one: Instruction) -> tuple[Kind, ...]:
    """The kinds of events that a machine instruction can be."""
    if one.opcode == "SYNCS" and one.modifiers and one.modifiers[0] in _MBARRIER:
        return _MBARRIER[one.modifiers[0]]
    if one.opcode == "WARPGROUP":
        return (Kind.WGMMA_FENCE,) if "ARRIVE" in one.modifiers else (Kind.WGMMA_WAIT,)
    return family(one.opcode).kinds


def origins(listing: Listing, flow: Flow, instructions: Instructions, lines: dict[int, int]) -> Ints:
    """The row of each machine instruction in the recording, -1 if unknown."""
    code = listing.instructions
    rows = np.array([lines.get(one.line, -1) for one in code], np.int32)
    used = np.zeros(len(code), bool)
    for node in flow.nodes:
        used[node.first : node.last] = True
    finder = _Finder(instructions)
    for op in np.flatnonzero(used).tolist():
        rows[op] = finder.row(code[op], int(rows[op]))
    return rows


class _Finder:
    """Rows of events by kind, and the next wgmma product in order."""

    def __init__(self, instructions: Instructions):
        self._kind = instructions.kind
        self._opcode = instructions.opcode
        self._by_kind = {kind: np.flatnonzero(instructions.kind == kind).tolist() for kind in Kind}
        self._next_product = 0

    def row(self, one: Instruction, row: int) -> int:
        """The row of an instruction whose line indicates `row`."""
        pipe = family(one.opcode).pipe
        if pipe == Pipe.WGMMA:
            return self._product(one)
        kinds = kinds_of(one)
        if one.opcode == "WARPGROUP" and row >= 0 and self._kind[row] == Kind.WGMMA_FENCE:
            self._next_product = bisect_left(self._by_kind[Kind.WGMMA], row)
        if pipe not in _IN_ORDER or not kinds or row < 0 or Kind(int(self._kind[row])) in kinds:
            return row
        following = (
            here[index] for kind in kinds if (index := bisect_left(here := self._by_kind[kind], row)) < len(here)
        )
        found = min(following, default=-1)
        return found if 0 <= found <= row + _NEAR else row

    def _product(self, one: Instruction) -> int:
        """The next product of the text of the same shape, counted from the last fence."""
        products, shape = self._by_kind[Kind.WGMMA], facts(one.name).shape
        for turn in range(len(products)):
            index = (self._next_product + turn) % len(products)
            if shape_of(self._opcode[products[index]]) == shape:
                self._next_product = index + 1
                return int(products[index])
        return -1
