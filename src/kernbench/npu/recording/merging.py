"""Merges recordings of one launch, each of which has the rows of some blocks and the same orchestration.

Numbers of lines, tiles and patterns are assigned in order of first use, which differs between processes. Each process
records when it assigned them (`Notes`), so that they can be renumbered as if one process had run all blocks.
"""

from dataclasses import dataclass, field, replace
from functools import partial
from itertools import pairwise

import numpy as np

from kernbench.common.dtypes import Array
from kernbench.npu.isa.operations import AWAIT, BARRIER, CLASSES, LOAD, PLAIN, POST, SCALAR, SET, STORE, WAIT
from kernbench.npu.recording.record import NONE, ROW_TYPE, Ints, NpuRecording, Pattern, Tables, TileShape
from kernbench.result.finding import SourceLocation
from kernbench.safety.processes.threads import together

Sizes = tuple[int, int, int]


def sizes_of(tables: Tables) -> Sizes:
    """The numbers of lines, tiles and patterns."""
    return len(tables.sites), len(tables.tiles), len(tables.patterns)


@dataclass
class Notes:
    """When numbers were assigned: (blocks begun so far, 0 by a block or 1 by the orchestrator, sizes of the tables)."""

    tables: Tables
    found: list[tuple[int, int, Sizes]] = field(default_factory=list)

    def note(self, blocks: int, by_orchestrator: bool) -> None:
        """Record what was added since the last note."""
        sizes = sizes_of(self.tables)
        if not self.found or sizes != self.found[-1][2]:
            self.found.append((blocks, int(by_orchestrator), sizes))


@dataclass(frozen=True)
class Part:
    """What one process recorded after the division: rows, their number for each block, and additions to the tables."""

    rows: Array
    counts: Array
    sites: list[SourceLocation]
    tiles: list[TileShape]
    names: list[str]
    patterns: list[Pattern]
    nesting: set[int]
    observers: set[str]
    notes: list[tuple[int, int, Sizes]]


def part_of(recording: NpuRecording, first_block: int, notes: Notes) -> Part:
    """What a process recorded since its first note; `first_block` blocks had begun by then."""
    tables, (sites, tiles, patterns) = recording.tables, notes.found[0][2]
    firsts = recording.firsts()[first_block:]
    return Part(
        recording.array()[int(firsts[0]) :],
        np.diff(firsts),
        tables.sites[sites:],
        tables.tiles[tiles:],
        tables.tile_names[tiles:],
        tables.patterns[patterns:],
        set(tables.nesting),
        set(recording.observers),
        notes.found,
    )


def merge(recording: NpuRecording, first_block: int, own: Part, parts: list[Part]) -> None:
    """Add the rows of the other blocks to `recording`, which has the rows of the first blocks and all commands of its
    orchestrator. `own` are the additions to its tables since then.
    """
    begin = own.notes[0][2]
    maps = _numbered_again(recording.tables, begin, [own, *parts])
    sites = maps[0][0]
    recording.commands[:] = [replace(c, site=int(sites[c.site])) for c in recording.commands]
    for task in recording.tasks:
        task.site = int(sites[task.site])
    kept = recording.block_first[first_block]
    counts = np.sum([part.counts for part in parts], axis=0, dtype=np.int64)
    starts = kept + np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    merged = np.empty(int(starts[-1]), ROW_TYPE)
    merged[:kept] = recording.array()

    def put(part: Part, numbers: list[Ints]) -> None:
        _put(merged, starts[:-1], part.counts, _renumbered(part.rows, numbers))

    # parts have no row in common; first touches of large memory are slow, so both sides run in threads
    together(partial(put, part, numbers) for part, numbers in zip(parts, maps[1:], strict=True))
    recording.block_first[first_block:] = starts[:-1].tolist()
    recording.observers.update(*(part.observers for part in parts))
    recording.take(merged)


def _put(merged: Array, starts: Ints, counts: Ints, rows: Array) -> None:
    """Copy rows of some blocks to the starts of these blocks, of each as many as it has: adjacent blocks in one
    copy.
    """
    blocks = np.flatnonzero(counts)
    before = (np.cumsum(counts) - counts)[blocks]
    moves = starts[blocks] - before
    firsts = np.flatnonzero(np.diff(moves, prepend=-1))
    edges = [*before[firsts].tolist(), len(rows)]
    for (begin, end), move in zip(pairwise(edges), moves[firsts].tolist(), strict=True):
        merged[begin + move : end + move] = rows[begin:end]


# by operation code: whether its operands are tiles, whether the third one is, whether it may have a pattern
_HAS_TILES = ~np.isin(CLASSES, (SET, WAIT, BARRIER, POST, AWAIT))
_IS_PLAIN = CLASSES == PLAIN
_MOVES = np.isin(CLASSES, (LOAD, STORE, SCALAR))


def _renumbered(rows: Array, numbers: list[Ints]) -> Array:
    """Rows with new numbers of lines, tiles and patterns; the last entry of each list is that of NONE.

    Columns whose numbers do not change, as in most of the first part, are skipped.
    """
    sites, tiles, patterns = numbers
    if all(map(_is_same, numbers)):
        return rows
    rows = rows if rows.flags.writeable else rows.copy()
    if not _is_same(sites):
        rows["site"] = sites[rows["site"]]
    if not _is_same(tiles):
        has_tiles, is_plain = _HAS_TILES[rows["op"]], _IS_PLAIN[rows["op"]]
        for column, holds in (("w", has_tiles), ("a", has_tiles), ("b", has_tiles), ("c", is_plain)):
            values = rows[column]
            rows[column] = np.where(holds, tiles[np.where(holds, values, NONE)], values)
    if not _is_same(patterns):
        # rows that name a buffer have a pattern
        patterned = np.flatnonzero(_MOVES[rows["op"]] & (rows["c"] >= 0))
        rows["y"][patterned] = patterns[rows["y"][patterned]]
    return rows


def _is_same(numbers: Ints) -> bool:
    """Whether all numbers but the last, that of NONE, are unchanged."""
    return bool((numbers[:-1] == np.arange(len(numbers) - 1)).all())


def _numbered_again(tables: Tables, begin: Sizes, parts: list[Part]) -> list[list[Ints]]:
    """Renumber lines, tiles and patterns in order of first use; returns the new numbers for each part."""
    del tables.sites[begin[0] :], tables.tiles[begin[1] :], tables.tile_names[begin[1] :], tables.patterns[begin[2] :]
    tables.tile_numbers = {key: n for key, n in tables.tile_numbers.items() if n < begin[1]}
    tables.pattern_numbers = {key: n for key, n in tables.pattern_numbers.items() if n < begin[2]}
    lines = {line: number for number, line in enumerate(tables.sites)}
    maps = [[list(range(n)) for n in begin] for _ in parts]
    for part, kind, index in _as_met(parts, begin):
        one, numbers = parts[part], maps[part]
        if kind == 0:
            line = one.sites[index]
            if line not in lines:
                lines[line] = len(tables.sites)
                tables.sites.append(line)
            numbers[0].append(lines[line])
        elif kind == 1:
            tile = one.tiles[index]
            root = NONE if tile.root == begin[1] + index else numbers[1][tile.root]
            key = (tile.space, tile.offset, tile.shape, tile.dtype, tile.layout, tile.valid)
            numbers[1].append(tables.tile(key, root, one.names[index]))
        else:
            pattern = one.patterns[index]
            numbers[2].append(tables.pattern(pattern.shape, pattern.strides, pattern.itemsize))
    tables.nesting.clear()
    for one, numbers in zip(parts, maps, strict=True):
        tables.nesting |= {numbers[1][tile] for tile in one.nesting}
    return [[np.array([*column, NONE], np.int64) for column in numbers] for numbers in maps]


def _as_met(parts: list[Part], begin: Sizes) -> list[tuple[int, int, int]]:
    """(part, kind, index) of all that the parts added, in the order in which one process would have met them."""
    found = []
    for number, part in enumerate(parts):
        for (_, _, before), (blocks, by_orchestrator, after) in pairwise(part.notes):
            added = [
                (number, kind, index - begin[kind]) for kind in range(3) for index in range(before[kind], after[kind])
            ]
            if added:
                found.append((blocks, by_orchestrator, number, added))
    return [one for *_, added in sorted(found, key=lambda entry: entry[:3]) for one in added]
