"""Which bytes of registers are undefined: rows that are made when they are needed, against rows for all."""

import numpy as np
import pytest

from kernbench.ptx.emulator.lanes.flags import COMPUTED, Flags, Registers
from kernbench.ptx.emulator.lanes.lanes import WARP, Lanes
from kernbench.ptx.emulator.lanes.slots import BANKS, SlotTable, numbers_of
from kernbench.ptx.emulator.lanes.window import window_of

KEYS = [("uint32", 0), ("uint32", 7), ("uint64", 7), ("bool", 1), ("uint16", 900)]
WHOLE = {"bool": 1, "uint8": 1, "uint16": 3, "uint32": 15, "uint64": 255}


class Store:
    """As much of a batch as windows need here."""

    table = SlotTable()
    banks = {bank: np.zeros((1, 1), bank) for bank in BANKS}  # noqa: RUF012


def run(first, last):
    """The window of a run of warps."""
    return window_of(Store(), Lanes(first, last, None, None, WARP * (last - first), last - first))


def listed(warps):
    """The window of a list of warps."""
    return window_of(Store(), Lanes(0, 0, warps, None, WARP * len(warps), len(warps)))


def windows(warps, random):
    """Windows of runs and of lists of warps."""
    first = int(random.integers(warps))
    last = int(random.integers(first, warps)) + 1
    some = np.flatnonzero(random.random(warps) < 0.4)
    return [run(first, last), *([listed(some)] if len(some) else [])]


def bits_of(window, key, random):
    """None, nothing, or some undefined bytes."""
    kind = random.integers(4)
    if kind == 0:
        return None
    undefined = random.random(window.size) < (0, 0.02, 1)[kind - 1]
    return np.where(undefined, np.uint32(WHOLE[key[0]]) | COMPUTED, np.uint32(0))


@pytest.mark.parametrize("warps", [1, 5, 64, 150])
@pytest.mark.parametrize("seed", range(6))
def test_rows_that_are_made_when_needed(warps, seed):
    random = np.random.default_rng([warps, seed])
    begun = [(key, WHOLE[key[0]]) for key in KEYS[:3]]
    flags, kept, plain_kept = Flags(WARP * warps), {}, {}
    plain = {key: np.zeros(WARP * warps, np.uint32) for key in KEYS}
    for key, bits in begun:
        plain[key][:] = np.uint32(bits) | COMPUTED
    flags.begin(begun, numbers_of([key for key, _ in begun]))
    for _ in range(60):
        for window in windows(warps, random):
            mask = random.random(window.size) < 0.5 if random.random() < 0.4 else None
            here = window.lane_numbers if mask is None else window.lane_numbers[mask]
            some = Registers(KEYS[i] for i in np.flatnonzero(random.random(len(KEYS)) < 0.5))
            act = random.integers(4)
            if act == 0:
                flags.define(window, some, mask)
                for key in some:
                    plain[key][here] = 0
            elif act == 1:
                for key in some:
                    bits = bits_of(window, key, random)
                    flags.put(window, key, bits, mask)
                    plain[key][here] = 0 if bits is None else bits if mask is None else bits[mask]
            elif act == 2:
                rows = {"uint32": [0, 7], "uint16": [900]}
                flags.keep(rows, here, kept)
                for key in (("uint32", 0), ("uint32", 7), ("uint16", 900)):
                    plain_kept.setdefault(key, np.zeros(WARP * warps, np.uint32))[here] = plain[key][here]
            elif plain_kept:
                flags.restore({"uint32": [0, 7], "uint16": [900]}, here, kept)
                for key in plain_kept:
                    plain[key][here] = plain_kept[key][here]
            undefined = any(plain[key][window.lane_numbers].any() for key in some)
            # it may be asked for more than there is, never for less
            assert flags.known(window, some) or not undefined
            for key in KEYS[:: int(random.integers(1, 4))]:
                bits, expected = flags.get(window, key), plain[key][window.lane_numbers]
                assert np.array_equal(np.zeros_like(expected) if bits is None else bits, expected)


def test_what_roles_set_is_defined_for_them_without_rows():
    """Registers that a launch begins with become defined warp by warp, without bits for lanes."""
    flags = Flags(4 * WARP)
    begun = [(key, WHOLE[key[0]]) for key in KEYS]
    flags.begin(begun, numbers_of(KEYS))
    ours, others = run(0, 2), run(2, 4)
    assert flags.known(ours, Registers(KEYS[:1]))
    flags.define(ours, Registers(KEYS), None)
    flags.put(others, KEYS[0], None, None)
    assert not flags.known(ours, Registers(KEYS))
    assert not flags.known(others, Registers(KEYS[:1]))
    assert flags.known(others, Registers(KEYS[1:]))
    assert flags._rows == {}
    assert flags.get(others, KEYS[1]).tolist() == [15 | 1 << 31] * (2 * WARP)
    assert flags.get(run(1, 3), KEYS[1]).tolist() == [0] * WARP + [15 | 1 << 31] * WARP


def test_nothing_is_undefined_from_the_beginning():
    flags = Flags(WARP)
    flags.begin((), numbers_of(()))
    window = run(0, 1)
    assert not flags.known(window, Registers(KEYS))
    assert flags.get(window, KEYS[0]) is None
    flags.put(window, KEYS[0], np.full(WARP, 3, np.uint32), None)
    assert flags.known(window, Registers(KEYS))
    assert not flags.known(window, Registers(KEYS[1:]))
