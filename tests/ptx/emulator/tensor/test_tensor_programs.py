"""Random programs of tcgen05 against a slow tensor memory; the same with one fault, which must be found at its line."""

import numpy as np
import pytest
from tests import sampled
from tests.ptx.emulator.tensor.drawing import Drawn, program
from tests.ptx.emulator.tensor.running import differences, found, run

SCHEDULES = ["canonical", "eager", "reversed", 3]


@pytest.mark.parametrize("part", range(2))
def test_values_are_those_of_the_slow_memory_and_nothing_is_found(part):
    for seed in sampled.some(range(150 * part, 150 * (part + 1)), 3):
        made = program(seed)
        done, words = run(made, schedule=SCHEDULES[seed % 4])
        assert (done.findings, done.formal) == ([], []), seed
        assert differences(made, words) == [], seed


@pytest.mark.parametrize("part", range(2))
def test_a_fault_is_found_at_its_line(part):
    for seed in sampled.some(range(150 * part, 150 * (part + 1)), 3):
        drawn = Drawn(seed)
        made = drawn.whole()
        fault = made.faults[np.random.default_rng(seed).integers(len(made.faults))]
        made.text = drawn.text.changed(fault.edits)
        assert found(run(made)[0], fault), (seed, fault)


def test_programs_follow_from_their_seed_alone():
    assert program(3).text == program(3).text
    assert program(3).text != program(4).text


def test_programs_have_all_there_is():
    """Kinds of products with one and two CTAs, all shapes of loads, stores and copies, and faults of every sort."""
    kinds, faults = set(), set()
    for seed in range(sampled.examples(16, 150)):
        made = program(seed)
        kinds |= {kind.split()[0] for kind in made.kinds}
        faults |= {fault.name.partition(":")[0] for fault in made.faults}
    assert {"mma", "cp", "shift", "st", "ld", "exchange", "m", "A"} <= kinds
    assert {"no wait", "no fence before", "no barrier", "no fence after", "no commit", "wrong parity"} <= faults
    assert {
        "no wait for the mbarrier",
        "not freed",
        "freed twice",
        "adds to nothing",
        "lanes of another warp",
    } <= faults
    assert {"no such column", "no proxy fence", "never written"} <= faults
