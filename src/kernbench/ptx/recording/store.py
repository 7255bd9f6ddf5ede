"""The store of a launch: distinct traces with their reuse data, and the traces of each CTA.

Batches are added as they end. Only one of each group of equal warps is written out, so memory grows with the number of
distinct warps and not with the grid.
"""

import hashlib
from dataclasses import dataclass

import numpy as np

from kernbench.common.dtypes import Array
from kernbench.common.errors import MisuseError
from kernbench.ptx.emulator.lanes.arrays import Bools, Int64s, UInt64s
from kernbench.ptx.emulator.program.program import Program
from kernbench.ptx.names.demangling import title
from kernbench.ptx.recording import folding
from kernbench.ptx.recording.handovers import Handovers
from kernbench.ptx.recording.log import LogParts
from kernbench.ptx.recording.naming import only_waits
from kernbench.ptx.recording.recording import Int32s
from kernbench.ptx.recording.reuse import GlobalReuse
from kernbench.ptx.recording.survey import COLUMNS, REUSE

# memory limit in bytes while recording
MOST_BYTES = 1 << 30
# number of rows that are written out together
_TOGETHER = 1 << 21


@dataclass(slots=True, eq=False)
class Trace:
    """What some warps did: steps (block, lanes) and events (step, instruction, kind, lanes, data).

    `spun` is the number of iterations dropped before each step, the maximum over the warps; `totals` of reuse are sums
    over all `warps`.
    """

    steps: Int32s
    events: Int32s
    spun: Int32s
    totals: Int64s
    warps: int = 0

    @property
    def nbytes(self) -> int:
        """Bytes allocated."""
        return sum(int(a.nbytes) for a in (self.steps, self.events, self.spun, self.totals))


@dataclass(frozen=True, slots=True, eq=False)
class _Written:
    """Written-out warps.

    The trace of each, where its events begin in `kept`, and the index of each event in the trace.
    """

    traces: list[int]
    starts: Int64s
    kept: Int32s


class Store:
    """The data recorded for one launch."""

    def __init__(self, program: Program, most_bytes: int = MOST_BYTES):
        self.program = program
        self.reuse = GlobalReuse()
        self.handovers = Handovers(program)
        self.traces: list[Trace] = []
        # the CTA numbers and the traces of their warps, by batch
        self.ctas: list[tuple[Array, Int32s]] = []
        self._known: dict[bytes, int] = {}
        self._nbytes = 0
        # bytes of the logs of running batches
        self._logs: dict[int, int] = {}
        self._most = most_bytes
        watched = self.handovers.watched | self.handovers.meetings
        harmless: Bools = np.array(
            [only_waits(site.effects.event, site.name) or site.number in watched for site in program.sites], bool
        )
        self.loops, loops_of, head_of = _loops(program)
        ends: Bools = np.array([block.ends for block in program.blocks], bool)
        self._folded: folding.GivenProgram = _block_of(program), loops_of, head_of, harmless, ends
        self._groups = folding.group_table()

    def require(self, more: int) -> None:
        """Raise an error if the recording exceeds its memory limit."""
        if self._nbytes + sum(self._logs.values()) + more > self._most:
            kernel, done = title(self.program.kernel.name), sum(len(numbers) for numbers, _ in self.ctas)
            raise MisuseError(
                f"the recording of '{kernel}' takes more than {self._most >> 20:,} MB after {done:,} blocks, with "
                f"{len(self.traces):,} warps that differ: record a launch of fewer blocks, or of less work each"
            )

    def log_takes(self, batch: int, nbytes: int) -> None:
        """Update the size of a running batch's log."""
        self._logs[batch] = nbytes
        self.require(0)

    def add(self, log: LogParts, warps: int, ctas: int, numbers: Array) -> None:
        """Add the log of a batch that has ended."""
        hashes: UInt64s = np.zeros((warps, 2), np.uint64)
        counts: Int64s = np.zeros((warps, 2), np.int64)
        folding.hash_warps(log.given(), hashes, counts)
        _, first, which = np.unique(hashes, axis=0, return_index=True, return_inverse=True)
        which = which.reshape(-1)
        written = self._write_all(log, warps, first, counts[first])
        traces = np.array(written.traces, np.int32)
        for trace, many in zip(*np.unique(traces[which], return_counts=True), strict=True):
            self.traces[trace].warps += int(many)
        if len(log.reuse):
            self._add_reuse(log, warps, which, written)
        self.ctas.append((numbers, np.ascontiguousarray(traces[which].reshape(-1, ctas).T)))
        self._logs.pop(int(numbers[0]), None)

    def _add_reuse(self, log: LogParts, warps: int, which: Int64s, written: _Written) -> None:
        used = sorted(set(written.traces))
        lengths = np.array([len(self.traces[trace].events) for trace in used], np.int64)
        begins = dict(zip(used, (np.cumsum(lengths) - lengths).tolist(), strict=True))
        totals = np.zeros((int(lengths.sum()), REUSE), np.int64)
        totals_at = np.array([begins[trace] for trace in written.traces], np.int64)
        seen = np.zeros(warps, np.int64)
        folding.add_reuse(log.given(), which, written.starts, written.kept, totals_at, totals, seen)
        for trace in used:
            found = self.traces[trace]
            found.totals += totals[begins[trace] : begins[trace] + len(found.events)]

    def _write_all(self, log: LogParts, warps: int, first: Int64s, counts: Int64s) -> _Written:
        """Write out the warps `first`, which have `counts` rows and events each, a few at a time."""
        traces: list[int] = []
        starts = np.cumsum(counts[:, 1]) - counts[:, 1]
        kept: Int32s = np.full(int(counts[:, 1].sum()), -1, np.int32)
        begin = 0
        while begin < len(first):
            ends = np.cumsum(counts[begin:, 0])
            end = begin + max(1, int(np.searchsorted(ends, _TOGETHER)))
            part = slice(begin, end)
            traces += self._write(log, warps, first[part], counts[part], kept, starts[part])
            begin = end
        return _Written(traces, starts, kept)

    def _write(
        self, log: LogParts, warps: int, first: Int64s, counts: Int64s, kept: Int32s, starts: Int64s
    ) -> list[int]:
        total = int(counts[:, 0].sum())
        self.require(64 * total)
        chosen = np.full(warps, -1, np.int64)
        chosen[first] = np.arange(len(first))
        ends = np.cumsum(counts[:, 0])
        begins = ends - counts[:, 0]
        heads, columns = np.empty((total, 4), np.int32), np.empty((total, COLUMNS), np.int32)
        folding.write_out(log.given(), chosen, begins.copy(), heads, columns)
        return [
            self._fold(heads[begin:end], columns[begin:end], kept[at : at + many])
            for begin, end, at, many in zip(begins, ends, starts, counts[:, 1], strict=True)
        ]

    def _fold(self, heads: Int32s, columns: Int32s, kept: Int32s) -> int:
        """The trace of a warp's rows."""
        steps, events = np.empty((len(heads), 3), np.int32), np.empty((len(kept), 4 + COLUMNS), np.int32)
        scratch = np.zeros((3, max(len(kept), folding.MOST_LOOPS)), np.int64)
        step_count, event_count = folding.fold(heads, columns, self._folded, steps, events, kept, scratch)
        events = events[:event_count].copy()
        folding.number_groups(events, self._groups, np.zeros((3, 2), np.int64))
        return self._trace(steps[:step_count], events)

    def _trace(self, steps: Int32s, events: Int32s) -> int:
        plain = np.ascontiguousarray(steps[:, :2])
        digest = hashlib.blake2b(plain.tobytes(), digest_size=16)
        digest.update(events.tobytes())
        number = self._known.get(digest.digest())
        if number is None:
            number = self._known[digest.digest()] = len(self.traces)
            trace = Trace(plain, events, steps[:, 2].copy(), np.zeros((len(events), REUSE), np.int64))
            self.traces.append(trace)
            self._nbytes += trace.nbytes
            self.require(0)
        else:
            np.maximum(self.traces[number].spun, steps[:, 2], out=self.traces[number].spun)
        return number


def _block_of(program: Program) -> Int32s:
    """The block of each instruction."""
    found: Int32s = np.zeros(len(program.sites), np.int32)
    for block in program.blocks:
        for site in block.sites:
            found[site.number] = block.number
    return found


def _loops(program: Program) -> tuple[dict[int, int], UInt64s, Int64s]:
    """Loops that may only wait, by head; for each block, the loops it is in (as bits) and the loop it is the head of.

    Functions that may be called from a loop count as inside it.
    """
    loops = [block.wait_loop for block in program.blocks if block.wait_loop is not None and block.wait_loop.waits]
    inside: UInt64s = np.zeros(len(program.blocks), np.uint64)
    heads: Int64s = np.full(len(program.blocks), -1, np.int64)
    for number, loop in enumerate(loops[: folding.MOST_LOOPS]):
        function = program.blocks[loop.head].function
        for block in program.blocks:
            if block.number in loop.blocks or block.function != function:
                inside[block.number] |= np.uint64(1 << number)
        heads[loop.head] = number
    return {loop.head: number for number, loop in enumerate(loops[: folding.MOST_LOOPS])}, inside, heads
