"""Races of asynchronous operations: their byte ranges are entered in the shadow cells of memory, as accesses of actors.

An operation knows what the warp that began it knows. Of ordinary writes it knows only what a proxy fence has let
through; ordinary reads need no fence. What it does itself is known to whoever learns of its actor's clock: by a wait on
the mbarrier it completes on, or for the group it belongs to.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from kernbench.common.dtypes import Array
from kernbench.ptx.emulator.compiled import kernel
from kernbench.ptx.emulator.lanes import WARP
from kernbench.ptx.emulator.memory.arena import TRACKED
from kernbench.ptx.emulator.memory.cells import CLOCK_LIMIT, SITE_LIMIT, STRONG, knows_lane, stamp
from kernbench.ptx.emulator.program import Site

_CLOCK, _NUMBER, _SITE = 12, 32, 52
_RACE, _FENCE = 0, 1
_STAMP = ((1 << 40) - 1) << _CLOCK


@dataclass(frozen=True, slots=True, eq=False)
class Ranges:
    """Bytes that operations touch: first place and length of each range, and the operation it belongs to.

    Places count from the start of the space's array: for shared memory CTA after CTA of the batch, for global memory
    from the arena's start.
    """

    starts: Array
    lengths: Array
    owners: Array

    @staticmethod
    def each(starts: Array, length: int) -> "Ranges":
        """One range of the same length for each operation."""
        count = len(starts)
        return Ranges(starts.astype(np.int64), np.full(count, length, np.int64), np.arange(count))


@dataclass(frozen=True, slots=True, eq=False)
class Trouble:
    """What was found: "race" or "missing-fence", how often, the operation and place of the first, the other's cell."""

    kind: str
    count: int
    operation: int
    place: int
    cell: int


class Shadow:
    """The hook for accesses of agents of one batch."""

    def __init__(self, batch: Any, checks: Any):
        self._batch = batch
        self._checks = checks
        self._clocks = checks.clocks
        self._report = np.zeros((2, 4), np.int64)

    def enter(
        self,
        space: str,
        writes: bool,
        ranges: Ranges,
        lanes: Array,
        columns: Array,
        clocks: Array,
        site: Site,
        ahead: Array | None = None,
        homes: Array | None = None,
        atomic: bool = False,
    ) -> None:
        """Operations begun by `lanes` access ranges, as the actors of `columns` at `clocks`.

        Actors belong to the CTAs `homes` of the batch, without them to those of the lanes. `ahead` are columns of which
        an operation knows everything so far, for units that work in order. `atomic` accesses do not race with each
        other.
        """
        batch = self._batch
        warps = lanes // WARP
        ctas, inside = warps % batch.ctas, warps // batch.ctas
        knowledge = self._clocks.clocks[ctas, inside]
        if ahead is not None:
            knowledge[np.arange(len(lanes)), ahead] = CLOCK_LIMIT
        firsts = self._clocks.first_numbers[ctas]
        owners = firsts if homes is None else self._clocks.first_numbers[homes]
        stamps = stamp(clocks, owners + columns) | (np.int64(min(site.number, SITE_LIMIT)) << _SITE)
        stamps |= np.int64(STRONG if atomic else 0)
        cells, first_byte, state = self._checks.agent_memory(space)
        report = self._report
        first_lane = self._own_lane(knowledge, lanes, inside)
        if self._checks.log is not None:
            self._checks.log.operations(space, writes, site, lanes, columns, clocks, homes, knowledge, ranges)
        note_ranges(
            writes, ranges.starts, ranges.lengths, ranges.owners, knowledge, firsts, stamps, ctas, batch.warps_per_cta,
            cells, first_byte, state, self._clocks.known, self._clocks.known_rows, first_lane,
            batch.launch.actors.proxied(0, space), report,
        )  # fmt: skip
        if report.any():
            self._tell(space, writes, lanes, site)
            report[...] = 0

    def _own_lane(self, knowledge: Array, lanes: Array, inside: Array) -> int:
        """Of its own warp an operation knows what its lane did, and of the others what they did before they met."""
        first_lane: int = self._batch.launch.actors.lane(0)
        rows, met = np.arange(len(lanes)), first_lane + inside
        own = knowledge[rows, inside]
        knowledge[rows, inside] = knowledge[rows, met]
        knowledge[rows, met] = own * WARP + lanes % WARP
        return first_lane

    def _tell(self, space: str, writes: bool, lanes: Array, site: Site) -> None:
        for kind, (count, operation, place, cell) in zip(("race", "missing-fence"), self._report.tolist(), strict=True):
            if count:
                trouble = Trouble(kind, count, operation, place, cell)
                self._checks.agent_trouble(space, writes, int(lanes[operation]), site, trouble)


@kernel
def _touched(start: Any, length: Any, word: Any) -> Any:
    low = max(start - 4 * word, 0)
    high = min(start + length - 4 * word, 4)
    return ((1 << (high - low)) - 1) << low


@kernel
def _order(
    cell: Any,
    plain: Any,
    row: Any,
    first: Any,
    warps: Any,
    known: Any,
    known_row: Any,
    first_lane: Any,
    proxied: Any,
) -> Any:
    """-1 if the access of `cell` comes before; else what is missing: _FENCE or _RACE. `plain` needs no fence."""
    number = ((cell >> _NUMBER) & 0xFFFFF) - 1
    clock = (cell >> _CLOCK) & CLOCK_LIMIT
    column = number - first
    if column < 0 or column >= row.size:
        if known_row < 0:
            return _RACE
        thread = number % row.size < warps and knows_lane(cell, known[known_row, number + first_lane])
        return -1 if clock <= known[known_row, number] or thread else _RACE
    if clock > row[column] and not (column < warps and knows_lane(cell, row[first_lane + column])):
        return _RACE
    if column < warps and not plain and clock > row[column + proxied]:
        return _FENCE
    return -1


@kernel
def _count(report: Any, code: Any, operation: Any, place: Any, cell: Any) -> None:
    if code < 0:
        return
    if report[code, 0] == 0:
        report[code, 1] = operation
        report[code, 2] = place
        report[code, 3] = cell
    report[code, 0] += 1


@kernel
def note_ranges(
    writes: Any,
    starts: Any,
    lengths: Any,
    owners: Any,
    knowledge: Any,
    firsts: Any,
    stamps: Any,
    ctas: Any,
    warps: Any,
    cells: Any,
    first_byte: Any,
    state: Any,
    known: Any,
    known_rows: Any,
    first_lane: Any,
    proxied: Any,
    report: Any,
) -> None:
    """Enter ranges of operations, and count what is not ordered before them."""
    for i in range(starts.size):
        operation = owners[i]
        row = knowledge[operation]
        first, known_row = firsts[operation], known_rows[ctas[operation]]
        mine = stamps[operation]
        place, length = starts[i] - first_byte, lengths[i]
        for word in range(place >> 2, (place + length + 3) >> 2):
            byte = max(4 * word, place)
            if not state[byte + first_byte] & TRACKED:
                continue
            touched = _touched(place, length, word)
            write = np.int64(cells[word, 0])
            if write & touched and not mine & write & STRONG:
                code = _order(write, False, row, first, warps, known, known_row, first_lane, proxied)
                _count(report, code, operation, byte + first_byte, write)
            last = np.int64(cells[word, 1])
            if writes:
                if last & touched and not mine & last & STRONG:
                    code = _order(last, True, row, first, warps, known, known_row, first_lane, proxied)
                    _count(report, code, operation, byte + first_byte, last)
                earlier = np.int64(cells[word, 2])
                if earlier & touched and not mine & earlier & STRONG:
                    code = _order(earlier, True, row, first, warps, known, known_row, first_lane, proxied)
                    _count(report, code, operation, byte + first_byte, earlier)
                cells[word, 0] = np.uint64(mine | touched)
            else:
                if last and (last ^ mine) & _STAMP == 0:
                    touched |= last & 15
                elif last and _order(last, True, row, first, warps, known, known_row, first_lane, proxied) >= 0:
                    cells[word, 2] = np.uint64(last)
                cells[word, 1] = np.uint64(mine | touched)
