"""How long each row takes on a chip, and how many bytes it moves through device memory.

- Vector operations: the largest operand's bytes over the simple or special rate of the vector unit.
- Products, [m, k] @ [k, n]: ceil(m / 16) * ceil(n / 16) * ceil(k / depth) cycles; the depth of a step is the MACs per
  cycle of the operand type over 16 x 16.
- Moves: bytes over the path between the two memories. Transfers to or from device memory also share its bandwidth with
  all others: they take the longer of both.

Transfers, and single values read from device memory, begin after its latency. A core hands instructions to its pipes
one after the other, each in its issue time. Durations are exact fractions of a picosecond, rounded up once. Flags,
barriers and single values of tiles take no time of their own.
"""

from fractions import Fraction
from math import ceil, prod

import numpy as np
from numpy.typing import NDArray

from kernbench.common.deferred import deferred
from kernbench.common.dtypes import ITEMSIZE, Array
from kernbench.npu.isa.model import ChipModel, MacRates
from kernbench.npu.isa.operations import CLASSES, LOAD, MACS, NO_COST, POP, PUSH, SPECIAL, STORE, TABLE
from kernbench.npu.isa.units import GM, MOVES, SENDS, UB, memory_of
from kernbench.npu.recording.record import Command, NpuRecording, TileShape

Ints = NDArray[np.int64]
# cases for which there is room at first
_FEW = 4096


def cases(recording: NpuRecording) -> tuple[Array, Ints, Ints]:
    """Rows that cost the same: one row of each case, each row's case, and how often each occurs.

    They do not depend on rates: a recording that is timed again keeps them.
    """
    rows = recording.array()
    if recording.cases is not None and recording.cases[0] is rows:
        return recording.cases[1]
    columns = tuple(np.ascontiguousarray(rows[name], np.int32) for name in ("op", "w", "a", "b"))
    case, room = np.empty(len(rows), np.int64), _FEW
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
    """Number rows that differ in any column, in the order they are met: the first of each number, how many rows have
    it, and the number of each row. `table` has free slots, -1, where rows are looked up by a hash of their columns.

    Gives how many numbers there are, one more than there is room for where it is too small.
    """
    one, two, three, four = columns
    slots = np.uint64(len(table))
    found = 0
    for i in range(len(one)):
        value = np.uint64(one[i])
        value = (value * np.uint64(0x9E3779B97F4A7C15)) ^ np.uint64(two[i])
        value = (value * np.uint64(0x9E3779B97F4A7C15)) ^ np.uint64(three[i])
        value = (value * np.uint64(0x9E3779B97F4A7C15)) ^ np.uint64(four[i])
        value = value * np.uint64(0x9E3779B97F4A7C15)
        slot = (value ^ (value >> np.uint64(32))) % slots
        number = table[slot]
        while number >= 0:
            other = first[number]
            if one[i] == one[other] and two[i] == two[other] and three[i] == three[other] and four[i] == four[other]:
                break
            slot = (slot + np.uint64(1)) % slots
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
        # the second and further stretches of a scatter are part of the first
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
    """What a command takes the orchestrator, besides waiting: a submit, and filling what it makes."""
    if not command.makes_task:
        return 0
    return chip.tasks.submit_ps + chip.tasks.fill_ps(recording.tasks[command.target].filled_bytes)


def memory_bytes(recording: NpuRecording, rows: Array) -> Ints:
    """Bytes that each row moves through device memory."""
    op, pattern, buffer = rows["op"], rows["y"], rows["c"]
    kinds = CLASSES[op]
    patterns = np.array([prod(p.shape) * p.itemsize for p in recording.tables.patterns] or [0], np.int64)
    elements = np.array([prod(t.valid) for t in recording.tables.tiles] or [0], np.int64)
    moved = np.zeros(len(rows), np.int64)
    # a dcci that writes nothing back has no buffer
    plain = ((kinds == LOAD) | (kinds == STORE)) & (buffer >= 0)
    moved[plain] = patterns[pattern[plain]]
    for kind, column in ((PUSH, "a"), (POP, "w")):
        here = kinds == kind
        tile = rows[column]
        moved[here] = elements[tile[here]] * pattern[here]
    return moved
