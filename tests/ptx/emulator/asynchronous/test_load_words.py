"""Registers from tensor memory and to it in one loop: the same as blocks of words, of which each lane has its own."""

from types import SimpleNamespace

import numpy as np
import pytest

from kernbench.ptx.emulator.asynchronous.matrix.fragment_kernels import load_words, store_words, take_halves
from kernbench.ptx.emulator.asynchronous.matrix.tensor_core import likeness
from kernbench.ptx.emulator.asynchronous.matrix.tensor_memory import TensorMemory
from kernbench.ptx.numerics.matrix.instruction import Part
from kernbench.ptx.numerics.matrix.wide import float32_of, float32_table

POISON = np.uint32(0xFFFFFFFF)


def addresses(corner, warps):
    """The address of a lane in its quarter and a column, for all warps."""
    return np.full(len(warps), corner[1] << 16 | corner[2])


def expected(words, corner, rows, columns, packed, ctas):
    """What lanes take of a block of words, with poison beyond the end of tensor memory: [ctas, 32, registers]."""
    quarter, lane, column = corner
    block = np.full((len(ctas), 64, 64), POISON)
    there = words[ctas, quarter, lane : lane + 64, column : column + 64]
    block[:, : there.shape[1], : there.shape[2]] = there
    found = block[:, rows, columns]
    return found & np.uint32(0xFFFF) | block[:, rows, columns + 1] << np.uint32(16) if packed else found


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("corner", [(0, 0, 0), (3, 16, 96), (1, 0, 500), (2, 31, 511)])
def test_each_lane_takes_its_words(corner, packed):
    random = np.random.default_rng(sum(corner) + packed)
    ctas, registers, warps = 3, np.array([4, 1, 6]), 3 * corner[0] + np.array([0, 1, 14])
    words = random.integers(0, 1 << 32, (ctas, 4, 32, 512), dtype=np.uint32)
    rows, columns = random.integers(0, 32, (32, 3)), random.integers(0, 63, (32, 3))
    bank = np.zeros((8, 24 * 32), np.uint32)
    load_words(words, warps, addresses(corner, warps), rows, columns, packed, bank, registers)
    found = bank.reshape(8, 24, 32)[registers[:, None], warps[None, :]].transpose(1, 2, 0)
    assert (found == expected(words, corner, rows, columns, packed, warps % ctas)).all()
    untouched = bank.reshape(8, 24, 32).copy()
    untouched[registers[:, None], warps[None, :]] = 0
    assert not untouched.any()


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("corner", [(0, 0, 0), (3, 16, 96), (1, 0, 500), (2, 31, 511)])
def test_each_lane_stores_its_words(corner, packed):
    random = np.random.default_rng(sum(corner) + packed)
    ctas, warps, chosen = 3, 3 * corner[0] + np.array([0, 1, 14]), np.array([2, 0, 3])
    quarter, lane, column = corner
    words = random.integers(0, 1 << 32, (ctas, 4, 32, 512), dtype=np.uint32)
    held = random.integers(0, 1 << 32, (3, 5, 32), dtype=np.uint32)
    rows, columns = np.tile(np.arange(32)[:, None], 3), np.tile(2 * np.arange(3), (32, 1))
    wanted = words.copy()
    for warp, position in zip(warps, chosen, strict=True):
        for register, one in np.ndindex(3, 32):
            at, to, value = (lane + one) % 32, column + 2 * register, held[register, position, one]
            parts = ((to, value & 0xFFFF), (to + 1, value >> 16)) if packed else ((to, value),)
            for there, part in parts:
                if there < 512:
                    wanted[warp % ctas, quarter, at, there] = part
    given = np.zeros((2, 5), np.int64)
    given[:, chosen] = warps, addresses(corner, warps)
    store_words(words, *given, rows, columns, packed, held, chosen)
    assert np.array_equal(words, wanted)


PARTS = (Part((0, 4), (0, 32), (0, 24)), Part((0, 4), (16, 32), (0, 24)), Part((2, 4), (0, 32), (0, 24)))


@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("kind", ["f16", "bf16"])
def test_elements_of_sixteen_bits_are_taken(part, kind):
    random, memory = np.random.default_rng(3), TensorMemory(SimpleNamespace(ctas=3))
    memory.words[...] = random.integers(0, 1 << 32, memory.words.shape, dtype=np.uint32)
    for ctas, column in ((np.array([0, 1, 2]), 40), (np.array([2]), 508)):
        found = np.empty((len(ctas), part.rows, 16), np.float32)
        take_halves(memory.words, ctas, (*part.quarters, *part.lanes), column, float32_table(kind), found)
        words = np.ascontiguousarray(memory.read(ctas, part, column, 8))
        assert np.array_equal(found, float32_of(words.view(np.uint16), kind), equal_nan=True)


@pytest.mark.parametrize("part", PARTS)
def test_sums_are_added_as_if_read_and_written(part):
    random, memory = np.random.default_rng(4), TensorMemory(SimpleNamespace(ctas=3))
    memory.words[...] = random.integers(0, 1 << 32, memory.words.shape, dtype=np.uint32)
    before, everybody = memory.words.copy(), np.arange(3)
    sums = random.integers(0, 1 << 32, (3, part.rows, 24), dtype=np.uint32).view(np.float32)
    # beyond the last column, and of some CTAs, nothing is done
    assert not memory.add(everybody, part, 500, sums)
    assert not memory.add(np.array([0, 2]), part, 8, sums[:2])
    assert np.array_equal(memory.words, before)
    with np.errstate(all="ignore"):
        wanted = sums + np.ascontiguousarray(memory.read(everybody, part, 8, 24)).view(np.float32)
        assert memory.add(everybody, part, 8, sums)
    assert np.array_equal(memory.read(everybody, part, 8, 24), wanted.view(np.uint32))
    memory.words[...] = before
    memory.write(everybody, part, 8, wanted.view(np.uint32))
    there = memory.words.copy()
    memory.words[...] = before
    with np.errstate(all="ignore"):
        memory.add(everybody, part, 8, sums)
    assert np.array_equal(memory.words, there)


def test_what_operations_have_in_common():
    given = np.repeat(np.arange(7, dtype=np.uint64)[:, None], 3, axis=1)
    assert [likeness(given, one) for one in (False, True)] == [2, 2]
    for row, alike in enumerate([(0, 0), (1, 0), (1, 1), (0, 0), (0, 0), (0, 0), (0, 0)]):
        other = given.copy()
        other[row, 2] += 100
        assert (likeness(other, False), likeness(other, True)) == alike
