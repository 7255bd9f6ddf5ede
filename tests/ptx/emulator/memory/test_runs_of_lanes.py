"""Loads of a run of lanes, which take a short loop: the same as with a mask that leaves nobody out, which do not."""

from itertools import product

import numpy as np
from tests import sampled

from kernbench.ptx.emulator.memory import access
from kernbench.ptx.emulator.memory.arena import GLOBAL_BASE, TRACKED, UNWRITTEN, WRITTEN

LANES, WORDS = 96, 4096
# what may be the matter with a lane's address, or with what lies there
FLAWS = ("nothing", "outside", "before", "misaligned", "unwritten", "tracked", "freed")


def state_of(words, flaw, at):
    """The states of memory, all of it written but for what a flaw says of one place."""
    states = np.full(4 * words, WRITTEN, np.uint8)
    states[at : at + 4] = {"unwritten": UNWRITTEN, "tracked": WRITTEN | TRACKED, "freed": 4}.get(flaw, WRITTEN)
    return states


def loaded(addresses, states, rows, masked, checked, first_lane):
    """The registers, the report and what is noted after a load."""
    memory = np.arange(1, WORDS + 1, dtype=np.uint32)
    bank, report = np.zeros((6, first_lane + LANES + 16), np.uint32), access.new_report(8)
    where = (addresses, np.uint64(8), np.uint64(GLOBAL_BASE), np.uint64(4 * WORDS), np.zeros(0, np.uint64))
    mask = np.ones(LANES, bool) if masked else np.zeros(0, bool)
    lanes = np.arange(first_lane, first_lane + LANES)
    moved = (bank, np.array(rows, np.int64), lanes, mask)
    noted, starts = np.zeros(LANES + 1, np.int64), np.zeros(LANES, np.uint64)
    if checked:
        trouble = access.checked_load(memory, states.view(np.uint32), where, moved, report, noted, starts)
    else:
        trouble = access.load(memory, where, moved, report)
    many = noted[-1]
    return trouble, bank, report, many, noted[:many], starts[:many]


@sampled.each_row(product(FLAWS, [0, 41, LANES - 1], [[2], [4, 0, 3, 1], [1, 5]], [False, True]))
def test_a_run_is_loaded_as_its_lanes_are(flaw, lane, rows, checked):
    rng = np.random.default_rng(lane)
    span = 4 * len(rows)
    places = rng.permutation(4 * WORDS // span)[:LANES] * span
    addresses = (GLOBAL_BASE - 8 + places).astype(np.uint64)
    states = state_of(WORDS, flaw, int(places[lane]) + span - 4)
    addresses[lane] += np.uint64({"outside": 8 * WORDS, "misaligned": 2}.get(flaw, 0))
    addresses[lane] -= np.uint64(1 << 40 if flaw == "before" else 0)
    short, whole = (loaded(addresses, states, rows, masked, checked, 7) for masked in (False, True))
    for one, two in zip(short, whole, strict=True):
        assert np.array_equal(one, two)
    bad = flaw in ("outside", "before", "misaligned") or (checked and flaw in ("unwritten", "freed"))
    assert bool(short[0]) is bad
    assert short[3] == (checked and flaw == "tracked")


def test_lanes_that_are_no_run_are_not_taken_for_one():
    lanes = np.array([3, 4, 5, 40], np.int64)
    bank, memory = np.zeros((1, 64), np.uint32), np.arange(64, dtype=np.uint32)
    addresses = (GLOBAL_BASE + 4 * np.arange(4)).astype(np.uint64)
    where = (addresses, np.uint64(0), np.uint64(GLOBAL_BASE), np.uint64(256), np.zeros(0, np.uint64))
    moved = (bank, np.zeros(1, np.int64), lanes, np.zeros(0, bool))
    assert access.load(memory, where, moved, access.new_report()) == 0
    assert bank[0, [3, 4, 5, 40]].tolist() == [0, 1, 2, 3]
    assert np.count_nonzero(bank) == 3


def test_an_address_is_read_before_its_register_is_written():
    """ld.u64 %rd0, [%rd0]."""
    memory = np.arange(100, 164, dtype=np.uint64)
    bank = (GLOBAL_BASE + 8 * np.arange(32)).astype(np.uint64).reshape(1, 32)
    where = (bank[0], np.uint64(0), np.uint64(GLOBAL_BASE), np.uint64(512), np.zeros(0, np.uint64))
    moved = (bank, np.zeros(1, np.int64), np.arange(32), np.zeros(0, bool))
    assert access.load(memory, where, moved, access.new_report()) == 0
    assert bank[0].tolist() == list(range(100, 132))
