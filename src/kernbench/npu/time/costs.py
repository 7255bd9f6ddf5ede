"""Costs: the time of each row on a chip, and the bytes it moves through device memory.

- Vector operations: the largest operand's bytes over the simple or special rate of the vector unit.
- Products, [m, k] @ [k, n]: ceil(m / 16) * ceil(n / 16) * ceil(k / depth) cycles; the depth of a step is the MACs per
  cycle of the operand type over 16 x 16.
- Moves: bytes over the path between the two memories. Transfers to or from device memory also share its bandwidth with
  all others: they take the longer of both.

Transfers, and single values read from device memory, begin after its latency. A core issues instructions to its pipes
one after the other, each in its issue time. Durations are exact fractions of a picosecond, rounded up once. Flags,
barriers and single values of tiles take no time of their own.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import ceil, prod

import numpy as np
from numpy.typing import NDArray

from kernbench.common.deferred import deferred
from kernbench.common.dtypes import ITEMSIZE, Array
from kernbench.npu.isa.model import ChipModel, MacRates
from kernbench.npu.isa.operations import CLASSES, LOAD, MACS, NO_COST, POP, PUSH, SPECIAL, STORE, TABLE
from kernbench.npu.isa.units import AIC, GM, MOVES, PER_LANE, SENDS, UB, memory_of
from kernbench.npu.recording.record import Command, NpuRecording, TileShape
from kernbench.safety.processes.threads import in_stretches

Ints = NDArray[np.int64]
Small = NDArray[np.int32]
# initial capacity for cases: a power of two
_FEW = 4096


def cases(recording: NpuRecording) -> tuple[Array, Small, Ints]:
    """Rows that cost the same: one row of each case, each row's case, and how often each occurs.

    They do not depend on rates: a recording that is timed again keeps them.
    """
    rows = recording.array()
    if recording.cases is not None and recording.cases[0] is rows:
        return recording.cases[1]
    columns = recording.columns("op", "w", "a", "b")
    rows = recording.array()
    case, room = np.empty(len(rows), np.int32), _FEW
    while True:
        first, counts = np.zeros((2, room), np.int64)
        count = _distinguish(columns, np.full(4 * room, -1, np.int32), first, counts, case)
        if count <= room:
            break
        room *= 8
    found = (rows[first[:count]], case, counts[:count].copy())
    recording.cases = (rows, found)
    return found


@deferred(lambda columns, *_: 4 * len(columns[0]), wraps=True)
def _distinguish(columns, table, first, counts, case):  # type: ignore[no-untyped-def]
    """Number rows that differ in any column, in order of first occurrence: the first row and the count of each number,
    and the number of each row. `table` is a hash table of rows with free slots, -1; its size is a power of two.

    Returns the count of numbers, one more than the capacity if that is too small.
    """
    one, two, three, four = columns
    last = np.uint64(len(table) - 1)
    found = 0
    for i in range(len(one)):
        value = np.uint64(one[i])
        value = (value * np.uint64(0x9E3779B97F4A7C15)) ^ np.uint64(two[i])
        value = (value * np.uint64(0x9E3779B97F4A7C15)) ^ np.uint64(three[i])
        value = (value * np.uint64(0x9E3779B97F4A7C15)) ^ np.uint64(four[i])
        value = value * np.uint64(0x9E3779B97F4A7C15)
        slot = (value ^ (value >> np.uint64(32))) & last
        number = table[slot]
        while number >= 0:
            other = first[number]
            if one[i] == one[other] and two[i] == two[other] and three[i] == three[other] and four[i] == four[other]:
                break
            slot = (slot + np.uint64(1)) & last
            number = table[slot]
        if number < 0:
            if found == len(first):
                return found + 1
            number = found
            table[slot], first[found] = found, i
            found += 1
        counts[number] += 1
        case[i] = number
    return found


def durations(recording: NpuRecording, chip: ChipModel, examples: Array) -> Ints:
    """Time of each case, alone on the chip."""
    tiles = recording.tables.tiles
    return np.array([_duration(chip, tiles, row) for row in examples], np.int64)


def _tile_bytes(tile: TileShape) -> int:
    return prod(tile.valid) * ITEMSIZE[tile.dtype]


def _duration(chip: ChipModel, tiles: list[TileShape], row: np.void) -> int:
    op, kind = TABLE[row["op"]], CLASSES[row["op"]]
    if kind in (LOAD, POP):
        tile = tiles[row["w"]]
        return chip.paths.transfer_ps(MOVES[GM, tile.space][1], _tile_bytes(tile))
    if op.form == "clean":
        return chip.memory.latency_ps
    if kind in (STORE, PUSH):
        # further pieces of a scatter are part of the first
        if row["a"] < 0:
            return 0
        tile = tiles[row["a"]]
        return chip.paths.transfer_ps(MOVES[tile.space, GM][1], _tile_bytes(tile))
    if op.form == "read":
        return chip.memory.latency_ps
    if kind or row["w"] < 0 or op.cost == NO_COST:
        return 0
    used = [tiles[n] for n in (row["w"], row["a"], row["b"]) if n >= 0]
    if op.cost == MACS:
        return chip.cycles_ps(product_cycles(chip, used[1], used[0].valid[1]))
    if op.form in ("move", "extract") and used[0].space != UB:
        return chip.paths.transfer_ps(MOVES[used[1].space, used[0].space][1], _tile_bytes(used[0]))
    if op.form == "send":
        return chip.paths.transfer_ps(SENDS[used[1].space, memory_of(used[0].space)][1], _tile_bytes(used[0]))
    rate = chip.vector.special if op.cost == SPECIAL else chip.vector.simple
    return chip.cycles_ps(ceil(Fraction(max(map(_tile_bytes, used)), rate)))


def product_cycles(chip: ChipModel, a: TileShape, n: int) -> int:
    """Cycles of one product on the cube, of `n` columns."""
    m, k = a.valid
    side, name = chip.cube.side, a.dtype if a.dtype in MacRates.schema else "i8"
    depth = Fraction(int(getattr(chip.cube.macs, name)), side * side)
    return ceil(m / side) * ceil(n / side) * ceil(k / depth)


def product_macs(tiles: list[TileShape], row: np.void) -> int:
    """MACs of one row; 0 if it is no product."""
    if TABLE[row["op"]].cost != MACS or row["w"] < 0:
        return 0
    return int(prod(tiles[row["a"]].valid) * tiles[row["w"]].valid[1])


def submit_time(recording: NpuRecording, chip: ChipModel, command: Command) -> int:
    """The orchestrator's time for a command, besides waiting: a submit, and filling new tensors."""
    if not command.makes_task:
        return 0
    return chip.tasks.submit_ps + chip.tasks.fill_ps(recording.tasks[command.target].filled_bytes)


@dataclass(frozen=True)
class Transfers:
    """The rows that move bytes through device memory, the bytes of each, and all bytes read; and the number of
    rows of each class of operations.
    """

    rows: Ints
    moved: Ints
    read: int
    counts: Ints


def find_transfers(recording: NpuRecording, parts: Sequence[tuple[int, int]]) -> Transfers:
    """The rows that move bytes through device memory; `parts` of all blocks, (begin, end), are searched in parallel."""
    patterns = np.array([prod(p.shape) * p.itemsize for p in recording.tables.patterns] or [0], np.int64)
    elements = np.array([prod(t.valid) for t in recording.tables.tiles] or [0], np.int64)
    # untouched pages take no memory
    found, moved = np.empty(recording.count, np.int64), np.empty(recording.count, np.int64)
    counts = np.zeros((len(parts), int(CLASSES.max()) + 1), np.int64)
    given = recording.columns("op", "w", "a", "c", "y"), CLASSES, (patterns, elements), (found, moved)
    firsts = recording.firsts().tolist()
    where = [(firsts[begin], firsts[end]) for begin, end in parts]
    sums = dict(zip(where, counts, strict=True))
    seen = in_stretches(lambda first, end: _find_transfers(first, end, *given, sums[first, end]), where)
    # the results of each part begin at the index of its first row
    taken = [slice(first, first + count) for (first, _), (count, _) in zip(where, seen, strict=True)]
    rows, nbytes = (np.concatenate([column[part] for part in taken]) for column in (found, moved))
    return Transfers(rows, nbytes, sum(read for _, read in seen), counts.sum(axis=0))


@deferred(lambda first, end, *_: 2 * (end - first))
def _find_transfers(first, end, columns, classes, sizes, out, counts):  # type: ignore[no-untyped-def]
    """Write the rows from `first` up to `end` that move bytes, with the bytes, from index `first` on, and the number of
    rows of each class; return how many move, and all bytes read. `sizes` are the bytes of each pattern and the
    elements of each tile.
    """
    op, w, a, c, y = columns
    patterns, elements = sizes
    found, moved = out
    count, read = 0, 0
    for i in range(first, end):
        kind = classes[op[i]]
        counts[kind] += 1
        nbytes = 0
        # a dcci that writes nothing back has no buffer
        if (kind == LOAD or kind == STORE) and c[i] >= 0:  # noqa: SIM109
            nbytes = patterns[y[i]]
        elif kind == PUSH:
            nbytes = elements[a[i]] * y[i]
        elif kind == POP:
            nbytes = elements[w[i]] * y[i]
        if nbytes > 0:
            found[first + count], moved[first + count] = i, nbytes
            count += 1
            if kind == LOAD or kind == POP:  # noqa: SIM109
                read += nbytes
    return count, read


@deferred(lambda case, *_: len(case))
def spread(case, cost, duration):  # type: ignore[no-untyped-def]
    """The time of each row, by its case."""
    for i in range(len(case)):
        duration[i] = cost[case[i]]


@deferred(lambda transfers, *_: len(transfers))
def move(transfers, path, duration):  # type: ignore[no-untyped-def]
    """Move the time of each transfer's row to its path; the nodes of paths begin at `path`."""
    for k in range(len(transfers)):
        duration[path + k] = duration[transfers[k]]
        duration[transfers[k]] = 0


@deferred(lambda lane, *_: len(lane))
def sum_of_pipes(lane, pipe, case, cost, sums, counts):  # type: ignore[no-untyped-def]
    """Time and rows of each pipe of cube cores, then of each of vector cores."""
    for i in range(len(lane)):
        key = pipe[i] + (0 if lane[i] == AIC else PER_LANE)
        sums[key] += cost[case[i]]
        counts[key] += 1
