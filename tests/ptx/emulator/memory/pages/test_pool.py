"""Memory that launches take one after the other: zeros each time, and never one that somebody still holds."""

from threading import Thread

import numpy as np
import pytest

from kernbench.ptx.emulator.memory.pages.allocation import ArrayPool

MEGABYTE = 1 << 20


def address(array):
    """Where an array lies."""
    return array.__array_interface__["data"][0]


@pytest.fixture
def pool():
    return ArrayPool(16 * MEGABYTE, 4 * MEGABYTE)


def test_what_nobody_holds_is_taken_again_and_is_zero(pool):
    first = pool.zeros((3, MEGABYTE // 4), "uint32")
    first[...] = 7
    where = address(first)
    del first
    again = pool.zeros((MEGABYTE * 3 // 8, 1), "uint64")
    assert again.shape == (MEGABYTE * 3 // 8, 1)
    assert not again.any()
    if pool._blocks:
        assert address(again) == where


@pytest.mark.parametrize("size", [1000, MEGABYTE // 4, MEGABYTE - 8, 3 * MEGABYTE, 8 * MEGABYTE])
def test_what_is_taken_is_full_of_what_was_asked_for(pool, size):
    for kind, value in (("uint8", 0xAA), ("int64", -1), ("uint32", 0xFFFFFFFF), ("uint64", 0)):
        found = pool.full((2, size // 16), value, kind)
        assert found.shape == (2, size // 16)
        assert (found == np.dtype(kind).type(value)).all()
        found[...] = 5
        del found


def test_those_of_less_than_a_megabyte_are_kept_as_well(pool):
    first = pool.full(MEGABYTE // 4, 7, "uint8")
    where = address(first)
    del first
    assert address(pool.zeros(MEGABYTE // 4 - 100, "uint8")) == where


@pytest.mark.parametrize("kept", [lambda a: a[1:3], lambda a: a.view("uint8")[5:], lambda a: a.reshape(2, -1)[:, 0]])
def test_a_part_holds_the_whole(pool, kept):
    first = pool.zeros(MEGABYTE // 2, "uint32")
    first[...] = 7
    part = kept(first)
    before = part.copy()
    del first
    other = pool.zeros(MEGABYTE // 2, "uint32")
    other[...] = 9
    np.testing.assert_array_equal(part, before)


def test_arrays_at_the_same_time_lie_apart(pool):
    held = [pool.zeros(2 * MEGABYTE, "uint8") for _ in range(12)]
    for number, array in enumerate(held):
        array[...] = number
    assert [set(array.tolist()) for array in held] == [{number} for number in range(12)]
    assert sum(block.size for block in pool._blocks) <= 16 * MEGABYTE


def test_small_and_large_ones_are_not_kept(pool):
    for size in (1000, 8 * MEGABYTE):
        assert not pool.zeros(size, "uint8").any()
    assert not pool._blocks


def test_threads_do_not_share_a_block(pool):
    wrong = []

    def work(number):
        for _ in range(30):
            mine = pool.zeros(MEGABYTE, "uint8")
            if mine.any():
                wrong.append("not zero")
            mine[...] = number
            if (mine != number).any():
                wrong.append("shared")

    threads = [Thread(target=work, args=(number,)) for number in range(1, 5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_what_need_not_be_cleared_is_taken_again_as_it_is(pool):
    first = pool.empty((2, MEGABYTE // 8), "float32")
    first[...] = 7
    where = address(first)
    del first
    again = pool.empty((4, MEGABYTE // 16), "uint32")
    assert again.shape == (4, MEGABYTE // 16)
    assert address(again) == where or not pool._blocks
    assert address(pool.empty((4, MEGABYTE // 16), "uint32")) != where
    assert pool.empty((3, 5), "int64").shape == (3, 5)
