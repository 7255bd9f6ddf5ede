"""Forms of undefined values against sums that are written out: which number is in it how often."""

from collections import Counter

import numpy as np
import pytest

from kernbench.ptx.emulator.lanes.forms import Forms, added, halves, joined, subtracted

COUNT = 40


def combined(one, other, factor):
    """The sum of one, and of the other so many times."""
    found = Counter(one)
    for name, times in other.items():
        found[name] += factor * times
    return {name: times for name, times in found.items() if times}


@pytest.mark.parametrize("seed", range(20))
def test_forms_are_alike_where_sums_are(seed):
    random, forms = np.random.default_rng(seed), Forms(32)
    values = [*forms.new(4), np.uint64(0)]
    sums = [{name: 1} for name in range(4)] + [{}]
    for _ in range(COUNT):
        one, other = random.integers(len(values), size=2)
        minus = bool(random.integers(2))
        made = (subtracted if minus else added)(np.array([values[one]]), np.array([values[other]]))
        values.append(made[0])
        sums.append(combined(sums[one], sums[other], -1 if minus else 1))
    numbers = {}
    for value, found in zip(values, sums, strict=True):
        known = frozenset(found.items())
        assert numbers.setdefault(known, value) == value
    assert len(set(numbers.values())) == len(numbers)
    assert numbers[frozenset()] == 0


def test_halves_make_the_number_that_they_are_of():
    forms = Forms(32)
    whole, numbers = forms.new(8), np.arange(8, dtype=np.uint64) << np.uint64(31)
    low, high = halves(whole, numbers)
    assert (joined(low, high, numbers) == whole).all()
    # what is defined in them differs
    others = halves(whole, numbers + np.uint64(1))
    for one, other in ((low, others[1]), (others[0], high), (high, low), (low, low), (whole, high)):
        assert not joined(one, other, numbers).any()
    # as numbers, they are others
    assert len({*low.tolist(), *high.tolist(), *others[0].tolist(), *whole.tolist()}) == 32
    assert not subtracted(low, low).any()
    assert subtracted(low, others[0]).all()
    assert subtracted(added(low, whole), low).tolist() == whole.tolist()
