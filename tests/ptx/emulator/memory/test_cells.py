"""Where the lines of words lie, and that four words that are one are entered as four that are not."""

from itertools import pairwise

import numpy as np
import pytest

from kernbench.ptx.emulator.memory import cells as layout
from kernbench.ptx.emulator.memory.arena import TRACKED
from kernbench.ptx.emulator.memory.cells import APART, CLOCK_SHIFT, NUMBER_SHIFT, SITE_SHIFT, STRONG
from kernbench.ptx.emulator.memory.shadow_kernels import note_ranges

# a block has two warps and two units beside them; columns: these four, single lanes, what the async proxy may see
WARPS, COLUMNS, FIRST_LANE, PROXIED = 2, 8, 4, 6
WORDS = 96
# words whose lines lie in small blocks, in large pages, and beyond what is handed out in large pages
SIZES = (1, 130, 200_000, 1 << 24)


@pytest.mark.parametrize("words", SIZES)
def test_every_word_has_a_line_and_heads_lie_together(words):
    cells, lanes = layout.new_cells(words, 16)
    some = np.unique(np.r_[np.arange(min(words, 600)), np.random.default_rng(words).integers(0, words, 400), words - 1])
    heads = np.array([layout.head_line(int(word), lanes) for word in some])
    lines = np.array([layout.line_of(int(word), int(head), lanes) for word, head in zip(some, heads, strict=True)])
    assert cells[-1, 0] == 16
    assert lines.min() >= 0
    assert lines.max() < len(cells) - 1
    assert len(np.unique(lines)) == len(some)
    assert ((some % 4 == 0) == (lines == heads)).all()
    assert (np.diff(lines[some < 128][::4]) == 1).all()
    # nobody has accessed them: their heads speak for all
    assert (layout.lines_of(lanes, some) == heads).all()
    lanes[heads, APART] = 1
    assert (layout.lines_of(lanes, some) == lines).all()


@pytest.mark.parametrize("words", SIZES[:3])
def test_a_range_of_words_is_cleared_and_no_other(words):
    cells, lanes = layout.new_cells(words)
    random = np.random.default_rng(words)
    every = np.arange(words)
    heads = np.array([layout.head_line(int(word), lanes) for word in range(0, words, 4)])
    lanes[heads, APART] = 1
    lines = layout.lines_of(lanes, every)
    for _ in range(5):
        cells[lines, 0] = every + 1
        first, last = sorted(random.integers(0, words + 1, 2).tolist())
        layout.clear(cells, lanes, first, last)
        kept = (every < first) | (every >= last)
        assert (cells[lines, 0] == np.where(kept, every + 1, 0)).all()
        chosen = layout.block_lines(lanes, first, last)
        assert np.isin(lines[first:last], np.arange(chosen.start, chosen.stop)).all()


def operations(random, count):
    """Ranges of operations with what is known of each: whole tiles, pieces of them, and single bytes."""
    many = int(random.integers(1, 9))
    units = np.sort(random.choice([4, 4, 4, 1], many))
    starts = np.where(units == 4, random.integers(0, WORDS // 4, many) * 16, random.integers(0, 380, many))
    lengths = np.where(units == 4, random.integers(1, 9, many) * 16, random.integers(1, 40, many))
    lengths = np.minimum(lengths, 4 * WORDS - starts)
    # half of them know everything, so that nothing is wrong
    knowledge = (random.integers(0, 6, (count, COLUMNS)) + 6 * random.integers(0, 2)).astype(np.int32)
    knowledge[:, FIRST_LANE:PROXIED] *= 32
    columns, clocks = random.integers(0, 4, count), random.integers(1, 6, count)
    sites = random.integers(1, 4, count) << SITE_SHIFT
    stamps = sites | (columns + 1) << NUMBER_SHIFT | clocks << CLOCK_SHIFT
    stamps |= np.where(random.random(count) < 0.1, STRONG, 0)
    zeros = np.zeros(count, np.int64)
    owners = np.sort(random.integers(0, count, many))
    return starts, lengths, owners, (knowledge, zeros, stamps, zeros, zeros)


def entered(memory, writes, starts, lengths, owners, what):
    """What is wrong with the operations."""
    order = (np.zeros((1, 1), np.int32), np.full(WARPS + 1, -1), np.zeros((WARPS + 1, 33, 32), np.int32))
    suspects = np.zeros((1 << 12, 5), np.int64)
    given = (writes, (starts, lengths, owners, *what), memory, (*order, WARPS, FIRST_LANE, PROXIED))
    count = note_ranges(*given, suspects, np.zeros(8, np.uint64))
    assert count <= len(suspects)
    return suspects[:count]


def in_words(starts, lengths, owners):
    """The same ranges, of a word at most each."""
    found = []
    for start, length, owner in zip(starts.tolist(), lengths.tolist(), owners.tolist(), strict=True):
        edges = [start, *range(start // 4 * 4 + 4, start + length, 4), start + length]
        found += [(low, high - low, owner) for low, high in pairwise(edges)]
    return (np.array(column, np.int64) for column in zip(*found, strict=True))


@pytest.mark.parametrize("seed", range(6))
def test_lines_that_hold_the_same_become_the_same_as_one_by_one(seed):
    random = np.random.default_rng(seed)
    state = np.full(4 * WORDS, TRACKED, np.uint8)
    state[300:308] = 0 if seed % 2 else TRACKED
    together, apart = ((*layout.new_cells(WORDS), 0, state) for _ in range(2))
    wrong = folded = 0
    for _ in range(120):
        writes = bool(random.integers(0, 2))
        starts, lengths, owners, what = operations(random, 2)
        # ranges follow each other as they would without the operations between them
        found = entered(together, writes, starts, lengths, owners, what)
        expected = entered(apart, writes, *in_words(starts, lengths, owners), what)
        assert (found == expected).all()
        words = np.arange(WORDS)
        lines, alone = (memory[0][layout.lines_of(memory[1], words)] for memory in (together, apart))
        # all but the mark of heads whose words have lines of their own
        assert (lines[:, :7] == alone[:, :7]).all()
        assert (lines.view(np.uint32)[:, 14] == alone.view(np.uint32)[:, 14]).all()
        wrong += len(found)
        folded += int((together[1][layout.lines_of(together[1], words[::4]), APART] == 0).sum())
        if random.random() < 0.2:
            layout.clear(*together[:2], 0, WORDS)
            layout.clear(*apart[:2], 0, WORDS)
    assert wrong
    assert folded
