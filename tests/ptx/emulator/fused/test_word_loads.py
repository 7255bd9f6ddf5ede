"""Loads of words by machine code: the same registers as by the loop over lanes, and as many lanes as are plain."""

import numpy as np
import pytest

from kernbench.ptx.emulator.fused.word_loads import load_words
from kernbench.ptx.emulator.memory import access

LANES, WORDS = 96, 4096
WRITTEN = np.uint32(int.from_bytes(bytes([access.WRITTEN] * 4), "little"))
NO_STATE, NO_MASK, NO_ORIGINS = np.zeros(0, np.uint32), np.zeros(0, bool), np.zeros(0, np.uint64)


@pytest.fixture
def words():
    found = load_words(access.WRITTEN)
    if found is None:
        pytest.skip("no machine code can be called here")
    return found


def patterns():
    lane = np.arange(LANES)
    rng = np.random.default_rng(0)
    return {
        "consecutive": 4 * lane,
        "warps apart": 4 * (lane % 32) + 1000 * (lane // 32),
        "all the same": 0 * lane + 64,
        "backwards": 4 * (LANES - lane),
        "random": 4 * rng.integers(0, WORDS, LANES),
        "up to the end": 4 * (WORDS - LANES + lane),
    }


@pytest.mark.parametrize("pattern", patterns())
@pytest.mark.parametrize("checked", [False, True])
def test_the_same_as_the_loop(words, pattern, checked):
    addresses = patterns()[pattern].astype(np.uint64) + np.uint64(900)
    memory = np.random.default_rng(1).integers(0, 1 << 32, WORDS, np.uint64).astype(np.uint32)
    state = np.full(WORDS, WRITTEN)
    banks = np.zeros((2, 5, 2 * LANES), np.uint32)
    lanes = np.arange(LANES) + 32
    done = words(
        addresses,
        memory,
        state if checked else NO_STATE,
        banks[0],
        lanes,
        3,
        np.uint64((1 << 64) - 900),
        np.uint64(memory.nbytes - 4),
    )
    where = (addresses, np.uint64(0), np.uint64(900), np.uint64(memory.nbytes), NO_ORIGINS)
    assert access.load(memory, where, (banks[1], np.array([3]), lanes, NO_MASK), access.new_report()) == 0
    assert done == LANES
    assert np.array_equal(*banks)


@pytest.mark.parametrize("lane", [0, 5, 8, 31, 95])
@pytest.mark.parametrize("kind", ["outside", "misaligned", "negative", "unwritten", "tracked"])
def test_it_stops_where_something_is_the_matter(words, lane, kind):
    addresses = 4 * np.arange(LANES, dtype=np.int64)
    memory, state, bank = np.ones(LANES, np.uint32), np.full(LANES, WRITTEN), np.zeros((1, LANES), np.uint32)
    if kind in ("unwritten", "tracked"):
        state[lane] = 0 if kind == "unwritten" else WRITTEN | np.uint32(access.TRACKED)
    else:
        addresses[lane] = {"outside": 4 * LANES, "misaligned": 4 * lane + 2, "negative": -4}[kind]
    last = np.uint64(memory.nbytes - 4)
    done = words(addresses.view(np.uint64), memory, state, bank, np.arange(LANES), 0, np.uint64(0), last)
    assert done == lane
    assert bank[0].tolist() == [1] * lane + [0] * (LANES - lane)


def test_lanes_that_are_no_run_are_left(words):
    addresses, lanes = 4 * np.arange(32, dtype=np.uint64), 2 * np.arange(32)
    bank = np.zeros((1, 64), np.uint32)
    last = np.uint64(124)
    assert words(addresses, np.ones(32, np.uint32), NO_STATE, bank, lanes, 0, np.uint64(0), last) == 0
    assert not bank.any()


def test_memory_that_is_smaller_than_a_group(words):
    addresses = np.zeros(32, np.uint64)
    bank = np.zeros((1, 32), np.uint32)
    assert (
        words(addresses, np.full(1, 7, np.uint32), NO_STATE, bank, np.arange(32), 0, np.uint64(0), np.uint64(0)) == 32
    )
    assert bank.tolist() == [[7] * 32]
