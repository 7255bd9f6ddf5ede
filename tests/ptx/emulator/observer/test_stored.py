"""What is known of undefined words in memory, against a dictionary of words."""

import numpy as np
import pytest

from kernbench.ptx.emulator.lanes.forms import Forms
from kernbench.ptx.emulator.observer.origins import Origin
from kernbench.ptx.emulator.observer.stored import Stored

# two pages' worth of words, far apart
BASES = np.array([0, 1 << 20])
WHOLE = np.ones((1, 4), bool)


class Model:
    """Forms and origins of words, one by one."""

    def __init__(self):
        self.forms, self.origins = {}, {}

    def move(self, source, target, nbytes):
        for first in range(0, nbytes, 4):
            read, written = (source + first) // 4, (target + first) // 4
            if read in self.origins:
                self.origins[written] = self.origins[read]
        whole = (source | target | nbytes) % 4 == 0
        found = [self.forms.get((source + first) // 4) for first in range(0, nbytes, 4)]
        for number, form in enumerate(found):
            self.forms.pop((target + 4 * number) // 4, None)
            if whole and form is not None:
                self.forms[(target + 4 * number) // 4] = form


def offsets(random, count=1):
    return random.choice(BASES, count) + random.integers(0, 24, count) * random.choice([1, 4, 4, 4])


@pytest.mark.parametrize("seed", range(20))
def test_random_stores_and_copies(seed):
    random = np.random.default_rng(seed)
    stored, model = Stored(Forms(32)), Model()
    issued = {0, 1, 2, 3}
    origins = [Origin(None, kind) for kind in ("local", "shared", "global")]
    for _ in range(120):
        act, spots = random.integers(4), offsets(random, 3)
        if act == 0:
            origin = origins[random.integers(3)]
            stored.put(spots, origin)
            for word in (spots // 4).tolist():
                model.origins[word] = origin
                model.forms.pop(word, None)
        elif act == 1:
            forms = random.integers(1, 4, 3).astype(np.uint64)
            stored.put_forms(spots, forms)
            given = {}
            for spot, form in zip(spots.tolist(), forms.tolist(), strict=True):
                if spot % 4 == 0:
                    given.setdefault(spot // 4, []).append(form)
            for word, found in given.items():
                # lanes that store to one word may store different values
                model.forms.pop(word, None)
                if len(set(found)) == 1:
                    model.forms[word] = found[0]
        elif act == 2:
            source, target, nbytes = int(spots[0]), int(spots[1]) + 512, int(random.choice([1, 2, 4, 8]))
            stored.move(np.array([source]), np.array([target]), nbytes)
            model.move(source, target, nbytes)
        else:
            first, nbytes = 4 * int(spots[0] // 4), 8
            stored.forget(np.array([first]), nbytes)
            for word in (first // 4, first // 4 + 1):
                model.forms.pop(word, None)
                model.origins.pop(word, None)
        for spot in (offsets(random, 4) + random.choice([0, 512])).tolist():
            assert stored.origin(spot) is model.origins.get(spot // 4)
            (found,) = stored.forms(np.array([spot]), WHOLE).reshape(-1).tolist()
            if spot % 4:
                assert found == 0
            elif spot // 4 in model.forms:
                assert found == model.forms[spot // 4]
            else:
                # a word of which nothing is known gets a form of its own, which stays
                assert found not in issued
                issued.add(found)
                model.forms[spot // 4] = found
    assert not stored.forms(np.array([0]), np.array([[True, False, True, True]])).any()


def test_without_forms_nothing_is_known():
    stored = Stored(None)
    stored.put(np.array([0]), Origin(None, "global"))
    stored.put_forms(np.array([0]), np.array([7], np.uint64))
    assert stored.forms(np.array([0]), WHOLE) is None
