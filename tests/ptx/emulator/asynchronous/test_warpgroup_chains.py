"""The order in which products of warpgroups are made: accumulators hold what they would in the order of issue."""

from types import SimpleNamespace

import numpy as np
import pytest

from kernbench.ptx.emulator.asynchronous.matrix.warpgroups import Form, Issued, chains_of

SETS = ([0, 1], [2, 3], [4, 5], [1, 2])
WARPS = (np.array([0, 1]), np.array([2, 3]), np.array([1, 2]))


def crew(warps):
    return SimpleNamespace(bits=sum(1 << int(warp) for warp in warps))


def operation(random, registers):
    """One of random warps on random accumulators; of those that read A from registers, some read what others write."""
    d_rows = np.array(SETS[random.integers(len(SETS))])
    a_rows = np.array(random.permutation(60)[:2]) if registers and random.random() < 0.5 else None
    form = Form(8, 16, ("f32", "f16", "f16"), d_rows, a_rows, (False, False), False, False, None)
    warps = WARPS[random.integers(len(WARPS))].copy()
    nothing = np.zeros(len(warps), np.int64)
    return Issued(form, warps, None, nothing, nothing, nothing, nothing)


def adjacent(events):
    """Chains of operations that follow each other on the same accumulators."""
    found = []
    for event in events:
        first = found[-1][0] if found else None
        if first and first.form.accumulators == event.form.accumulators and np.array_equal(first.warps, event.warps):
            found[-1].append(event)
        else:
            found.append([event])
    return found


def performed(chains, names):
    """What registers hold: every product has its name and what was read of A, all of a chain before it writes."""
    held = {}
    for chain in chains:
        products = []
        for event in chain:
            rows = [] if event.form.a_rows is None else event.form.a_rows.tolist()
            products.append(
                {w: (names[id(event)], *(held.get((w, row)) for row in rows)) for w in event.warps.tolist()}
            )
        for event, product in zip(chain, products, strict=True):
            for warp in event.warps.tolist():
                for row in event.form.d_rows.tolist():
                    held[warp, row] = (held.get((warp, row)), product[warp])
    return held


@pytest.mark.parametrize("registers", [False, True], ids=["from-memory", "from-registers"])
def test_operations_that_overtake_others_change_nothing(registers):
    random, longer = np.random.default_rng(3), 0
    for _ in range(300):
        events = [operation(random, registers) for _ in range(8)]
        names = {id(event): number for number, event in enumerate(events)}
        chains = chains_of(events, crew)
        assert sorted(names[id(event)] for chain in chains for event in chain) == list(range(8))
        assert performed(chains, names) == performed(adjacent(events), names)
        longer += len(chains) < len(adjacent(events))
    assert longer > 30


def test_two_accumulators_in_turn_are_two_chains():
    forms = [
        Form(8, 16, ("f32", "f16", "f16"), np.array(rows), None, (False, False), False, False, None)
        for rows in ([0, 1], [2, 3])
    ]
    nothing = np.zeros(2, np.int64)
    events = [Issued(forms[i % 2], WARPS[0], None, nothing, nothing, nothing, nothing) for i in range(6)]
    assert chains_of(events, crew) == [events[::2], events[1::2]]
