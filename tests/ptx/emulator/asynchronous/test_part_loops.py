"""Compiled loops that stand for several steps of NumPy, against these steps."""

import numpy as np
import pytest

from kernbench.ptx.emulator.asynchronous.copies.copies import Copy
from kernbench.ptx.emulator.asynchronous.matrix.fragment_kernels import put_accumulators, take_accumulators, take_left
from kernbench.ptx.emulator.lanes.lanes import WARP
from kernbench.ptx.emulator.lanes.warp_kernels import are_parted
from kernbench.ptx.numerics.matrix.warpgroup import accumulators, operand_a, registers_of
from kernbench.ptx.numerics.matrix.wide import float32_of, float32_table

ROWS, WARPS = 40, 12


@pytest.fixture
def random():
    return np.random.default_rng(7)


@pytest.mark.parametrize("count", [4, 12, 32])
def test_accumulators_are_those_of_the_layout(random, count):
    bank = random.integers(0, 1 << 32, (ROWS, WARPS * WARP), np.uint32)
    rows, warps = random.permutation(ROWS)[:count], random.permutation(WARPS)[:5]
    registers = bank.reshape(ROWS, WARPS, WARP)
    found = np.empty((5, 16, 2 * count), np.uint32)
    take_accumulators(bank, rows, warps, found)
    assert np.array_equal(found, accumulators(registers[rows[:, None], warps[None, :]], "f32"))
    matrix = random.integers(0, 1 << 32, found.shape, np.uint32)
    wanted = bank.copy()
    wanted.reshape(ROWS, WARPS, WARP)[rows[:, None], warps[None, :]] = registers_of(matrix, "f32")
    put_accumulators(bank, rows, warps, matrix)
    assert np.array_equal(bank, wanted)


@pytest.mark.parametrize("kind", ["f16", "bf16"])
@pytest.mark.filterwarnings("ignore:invalid value")
def test_a_in_registers_is_that_of_the_layout(random, kind):
    bank = random.integers(0, 1 << 32, (ROWS, WARPS * WARP), np.uint32)
    rows, warps = random.permutation(ROWS)[:12].reshape(3, 4), random.permutation(WARPS)[:5]
    found = np.empty((3, 5, 16, 16), np.float32)
    take_left(bank, rows, warps, float32_table(kind), found)
    for operation, those in enumerate(rows):
        held = bank.reshape(ROWS, WARPS, WARP)[those[:, None], warps[None, :]]
        wanted = float32_of(operand_a(held, kind), kind)
        assert np.array_equal(found[operation].view(np.uint32), wanted.view(np.uint32))


@pytest.mark.parametrize("followed", [False, True], ids=["defined", "partly-undefined"])
def test_copies_of_lanes_are_parted_in_their_order(random, followed):
    lanes = random.permutation(64)
    words = random.integers(0, 1 << 32, (4, 64), np.uint32)
    undefined = (random.random((64, 16)) < 0.2, "somewhere") if followed else None
    copy = Copy(lanes, 16 * lanes.astype(np.uint64), 4 * lanes, words, lanes % 3, np.arange(4), None, 5, undefined)
    chosen = random.random(64) < 0.3
    for part, which in zip(copy.parted(chosen, int(chosen.sum())), (chosen, ~chosen), strict=True):
        wanted = copy.part(which)
        for name in ("lanes", "addresses", "targets", "words", "groups"):
            mine, theirs = getattr(part, name), getattr(wanted, name)
            assert mine.dtype == theirs.dtype
            assert np.array_equal(mine, theirs)
        assert part.number == 5
        assert undefined is None or np.array_equal(part.undefined[0], undefined[0][which])


@pytest.mark.parametrize("parted", [False, True])
def test_warps_are_parted_where_lanes_are_missed(parted):
    """A lane that was stopped (below zero) is not missed; one that ended by itself is."""
    alive, ended_in = np.ones(3 * WARP, bool), np.full(3 * WARP, -1)
    mask = np.ones(2 * WARP, bool)
    # the whole second warp is idle, and of the first a lane is gone
    mask[WARP:] = mask[3] = False
    alive[2 * WARP + 3] = False
    ended_in[2 * WARP + 3] = 7 if parted else -2
    assert are_parted(mask, alive, ended_in, np.array([2, 0])) == parted
