"""The recordings and memory of programs in one process, and their conversion to the recording of a single process."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from kernbench.common.dtypes import Array
from kernbench.common.pe_commands import OPERATIONS
from kernbench.mesh.programs.calls import Calls, Met, Noted
from kernbench.mesh.programs.tensors import Tensor
from kernbench.result.finding import SourceLocation
from kernbench.result.recording import Stream, Tables
from kernbench.safety.memory import Region
from kernbench.triton_emu.tl_context import TLContext

_PATTERNED = [OPERATIONS["load"].code, OPERATIONS["store"].code]


class Begun(NamedTuple):
    """The state of a program's recording when the launch was divided: commands and views."""

    commands: int
    views: int


@dataclass(frozen=True)
class Memory:
    """One tensor's memory of a program: which elements were accessed, and the values of those stored."""

    tensor: int
    loaded: bool
    stored: bool
    array: Array | None = None
    written: Array | None = None
    fresh: Array | None = None


@dataclass(frozen=True)
class Part:
    """The results of one program: rows with numbers of its own tables, its calls, and its table entries between
    them.
    """

    number: int
    rows: Array
    views: Array
    calls: Noted
    met: list[Met]
    peak: int
    memory: list[Memory]


def part_of(number: int, context: TLContext, calls: Calls, begun: Begun, tensors: Sequence[Tensor]) -> Part:
    """The results of a program that has returned, since `begun`."""
    stream = context.commands
    calls.settle()
    rows = stream.rows.tail(len(stream.rows) - begun.commands)
    views = stream.views.tail(len(stream.views) - begun.views)
    regions = [(i, tensor.regions[number]) for i, tensor in enumerate(tensors) if number in tensor.regions]
    memory = [_memory(i, region) for i, region in regions]
    return Part(number, rows, views, calls.noted(), calls.met, context.scratch_peak, memory)


def _memory(tensor: int, region: Region) -> Memory:
    if not region.stored:
        return Memory(tensor, region.loaded, False)
    return Memory(tensor, region.loaded, True, region.array, region.written, region.fresh)


def adopt(memory: Memory, region: Region) -> None:
    """Update a region with what another process stored in it."""
    region.loaded, region.stored = memory.loaded, memory.stored
    if memory.stored:
        region.array, region.written, region.fresh, region.shared = memory.array, memory.written, memory.fresh, False


class Numbering:
    """Table numbers as one process assigns them: `meet` for programs in the order of their table entries."""

    def __init__(self, tables: Tables, parts: Mapping[int, Part]):
        self.tables = tables.copied()
        self._sites = {line: number for number, line in enumerate(self.tables.sites)}
        self._left = {number: part.met[::-1] for number, part in parts.items()}
        known = (len(tables.sites), len(tables.types), len(tables.patterns))
        # from the numbers of a program to the common ones, for lines, types and patterns
        self._numbers = {number: tuple(list(range(count)) for count in known) for number in parts}

    def meet(self, program: int) -> None:
        """Add a program's next table entries."""
        met = self._left[program].pop()
        sites, types, patterns = self._numbers[program]
        sites.extend(self._site(line) for line in met.sites)
        types.extend(self.tables.type_number(*kind) for kind in met.types)
        patterns.extend(self.tables.pattern(*key) for key in met.patterns)

    def _site(self, line: SourceLocation) -> int:
        number = self._sites.get(line)
        if number is None:
            number = self._sites[line] = len(self.tables.sites)
            self.tables.sites.append(line)
        return number

    def stream(self, before: Stream, part: Part) -> Stream:
        """The whole recording of a program: `before` the division, and since then."""
        assert not self._left[part.number]
        sites, types, patterns = (np.array(one, np.int64) for one in self._numbers[part.number])
        rows, views = part.rows.copy(), part.views.copy()
        rows["site"] = sites[rows["site"]]
        typed = np.flatnonzero(rows["type"] >= 0)
        rows["type"][typed] = types[rows["type"][typed]]
        moved = np.flatnonzero(np.isin(rows["op"], _PATTERNED))
        rows["y"][moved] = patterns[rows["y"][moved]]
        views["type"] = types[views["type"]]
        whole = Stream(before.pe, before.cube, before.rank, self.tables)
        for target, earlier, later in ((whole.rows, before.rows, rows), (whole.views, before.views, views)):
            target.extend(np.concatenate([*earlier.parts(), later]))
        return whole
