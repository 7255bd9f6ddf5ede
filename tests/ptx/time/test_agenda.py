"""The agenda of sub-cores gives what a list of times gives, the lowest number of several at one time."""

import random

import pytest

from kernbench.ptx.time.engine import codes
from kernbench.ptx.time.engine.agenda import first_due, look_by, look_next, new_agenda


@pytest.mark.parametrize("subs", [1, 2, 3, 4, 5, 31, 128, 528, 592])
def test_as_a_list_of_times(subs):
    rng = random.Random(subs)
    agenda, times = new_agenda(subs), [codes.NEVER] * subs
    assert first_due(agenda) == (-1, codes.NEVER)
    for _ in range(400):
        sub, when = rng.randrange(subs), rng.choice([rng.randrange(8), rng.randrange(1 << 40), codes.NEVER])
        if rng.random() < 0.5:
            look_next(sub, when, agenda)
            times[sub] = when
        else:
            look_by(sub, when, agenda)
            times[sub] = min(times[sub], when)
        first = min(times)
        assert first_due(agenda) == (-1 if first == codes.NEVER else times.index(first), first)
