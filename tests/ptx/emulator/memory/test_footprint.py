"""What parts of a launch touch, in bits: as NumPy packs it, and put together as if it had been written here."""

import numpy as np
import pytest
from tests import sampled

from kernbench.ptx.emulator.memory.arena import TRACKED, UNWRITTEN, WRITTEN, Arena
from kernbench.ptx.emulator.memory.footprint import (
    PAGE,
    READS,
    WRITES,
    Admitted,
    Footprint,
    Touched,
    _are_among,
    pack_pages,
)

SEEDS = range(24)


@sampled.each(SEEDS)
def test_marks_are_packed_as_numpy_does(seed):
    rng = np.random.default_rng(seed)
    count = int(rng.integers(1, 40))
    marks = rng.integers(0, 4, (count, PAGE)).astype(np.uint8) * (rng.random((count, 1)) < 0.7).astype(np.uint8)
    if seed % 3 == 0:
        marks &= READS
    kinds = [WRITTEN, WRITTEN | TRACKED] + ([UNWRITTEN, UNWRITTEN | TRACKED, 7] if seed % 2 else [])
    states = rng.choice(kinds, (count, PAGE)).astype(np.uint8)
    pages = np.flatnonzero(rng.random(count) < 0.8)
    reads, writes = (np.empty((len(pages), PAGE // 8), np.uint8) for _ in range(2))
    written = np.empty(len(pages), bool)
    words = (array.reshape(-1).view(np.uint64) for array in (marks, states))
    followed = pack_pages(*words, pages, reads, writes, written)
    chosen = marks[pages]
    assert (reads == np.packbits((chosen & READS) != 0, axis=1)).all()
    assert (writes == np.packbits((chosen & WRITES) != 0, axis=1)).all()
    assert (written == (chosen & WRITES).any(axis=1)).all()
    held = states[pages][(chosen & WRITES) != 0] & ~np.uint8(TRACKED)
    assert bool(followed) == bool((held == WRITTEN).all())


@sampled.each(SEEDS)
def test_numbers_among_others(seed):
    rng = np.random.default_rng(seed)
    some, others = (np.unique(rng.integers(0, 6, int(rng.integers(0, 7)))) for _ in range(2))
    assert _are_among(some, others) == bool(np.isin(some, others).all())


def part_of(marks, first, contents):
    """A part that marked so many bytes from the page `first` on, as NumPy packs them."""
    pages = first + np.flatnonzero(marks.any(axis=1))
    reads, writes = (np.packbits((marks[pages - first] & kind) != 0, axis=1) for kind in (READS, WRITES))
    written = pages[writes.any(axis=1)]
    return Touched(pages, reads, writes, written, contents[written - first], written)


@sampled.each(SEEDS)
def test_parts_are_admitted_and_applied_byte_by_byte(seed):
    rng = np.random.default_rng(seed)
    arena = Arena(1 << 30)
    array = arena.allocate(20 * PAGE, "array")
    arena.watch(array, True)
    first, shape = array.offset // PAGE, (20, PAGE)
    # each byte belongs to one part, which may write it; of some pages all bytes do
    owners = rng.integers(0, 3, shape)
    owners[::2] = owners[::2, :1]
    footprint = Footprint(arena)
    admitted = Admitted(footprint)
    expected, contents = np.full(shape, 0xFF, np.uint8), rng.integers(0, 256, shape).astype(np.uint8)
    parts, everything = [], np.zeros(shape, np.uint8)
    for number in range(3):
        marks = np.where(owners == number, rng.integers(1, 4, shape), 0).astype(np.uint8)
        marks[::4][owners[::4] == number] |= WRITES
        everything |= marks
        expected = np.where(marks & WRITES, contents, expected)
        parts.append(part_of(marks, first, contents))
        assert admitted.admit(parts[-1])
    for part in parts:
        footprint.apply(part)
    where = slice(first * PAGE, (first + 20) * PAGE)
    assert (arena.words[1][where].reshape(shape) == expected).all()
    written = sum(np.unpackbits(part.writes, axis=1).sum() for part in parts)
    assert np.count_nonzero(arena.state[1][where] == WRITTEN | TRACKED) == written
    # every byte was touched: one that was written may not be read, and one that was read may not be written
    other, byte = np.zeros(shape, np.uint8), tuple(rng.integers(0, size) for size in shape)
    other[byte] = READS if everything[byte] & WRITES else WRITES
    assert not admitted.admit(part_of(other, first, contents))


@pytest.mark.parametrize("seed", range(12))
def test_writes_to_bytes_that_nobody_had_written_are_taken_back(seed):
    """Random ranges of three arrays, two of them fresh: memory is as it was, or nothing has changed."""
    rng, arena = np.random.default_rng(seed), Arena(1 << 30)
    arrays = [arena.allocate(int(rng.integers(1, 3000)), data=data) for data in (None, 7, None)]
    for one in arrays:
        arena.watch(one, True)
    fresh = arena.unwritten_extents()
    assert fresh == [arrays[0].extent, arrays[2].extent]
    memory = arena.words[1][: arena.used], arena.state[1][: arena.used], arena.dirty[: arena.used // PAGE]
    before = [part.copy() for part in memory]
    footprint = Footprint(arena)
    allowed = seed % 3 > 0
    for one in (arrays[0], arrays[2], *([] if allowed else [arrays[1]])):
        for _ in range(3):
            first = int(rng.integers(0, one.nbytes))
            length = int(rng.integers(1, one.nbytes - first + 1))
            where = slice(one.offset + first, one.offset + first + length)
            footprint.ranges(np.array([where.start]), np.array([length]), True)
            footprint.ranges(np.array([one.offset]), np.array([one.nbytes]), False)
            # what is in flight is marked, and not written yet
            if rng.integers(3) == 0:
                continue
            arena.words[1][where] = rng.integers(0, 256, length, np.uint8)
            arena.state[1][where] |= np.uint8(WRITTEN)
            arena.dirty[where.start // PAGE : -(-where.stop // PAGE)] = True
    after = [part.copy() for part in memory]
    assert footprint.take_back(fresh) is allowed
    wanted = before if allowed else after
    assert all(np.array_equal(one, two) for one, two in zip(memory, wanted, strict=True))


def test_what_was_written_unseen_is_not_taken_back():
    arena = Arena(1 << 30)
    made = arena.allocate(1000)
    arena.watch(made, True)
    fresh, footprint = arena.unwritten_extents(), Footprint(arena)
    assert footprint.take_back(fresh)
    arena.dirty[made.offset // PAGE] = True
    assert not footprint.take_back(fresh)
    arena.states(made)[3] = WRITTEN | TRACKED
    assert arena.unwritten_extents() == []
