"""What blocks count for, added up for a launch, against the same block by block."""

from collections import Counter
from dataclasses import dataclass

import numpy as np
from tests import sampled

from kernbench.ptx.emulator.program.measures import Measures


@dataclass
class FakeBlock:
    """A block as far as it is measured."""

    sites: tuple[int, ...]
    kinds: Counter
    traffic: Counter
    flops: int


def made(rng):
    """A block of random kinds, some of which count for nothing."""
    kinds = Counter({kind: int(rng.integers(0, 3)) for kind in "abcde" if rng.random() < 0.5})
    ways = [(space, direction) for space in ("global", "shared") for direction in ("read", "write")]
    traffic = Counter({way: int(rng.integers(0, 64)) for way in ways if rng.random() < 0.4})
    return FakeBlock(tuple(range(int(rng.integers(0, 5)))), kinds, traffic, int(rng.integers(0, 3)))


@sampled.each(range(20))
def test_sums_are_those_of_the_blocks(seed):
    rng = np.random.default_rng(seed)
    blocks = [made(rng) for _ in range(int(rng.integers(0, 12)))]
    ran = {n: int(rng.integers(0, 1 << 40)) for n in rng.permutation(len(blocks)).tolist() if rng.random() < 0.6}
    by_kind, moved = Counter(), Counter()
    for number, lanes in ran.items():
        for kind, count in blocks[number].kinds.items():
            by_kind[kind] += lanes * count
        for (space, direction), nbytes in blocks[number].traffic.items():
            moved[f"{space}.{direction}"] += lanes * nbytes
    threads = sum(lanes * len(blocks[number].sites) for number, lanes in ran.items())
    flops = sum(lanes * blocks[number].flops for number, lanes in ran.items())
    plain = [{name: count for name, count in sorted(given.items()) if count} for given in (by_kind, moved)]
    measures = Measures(blocks)
    found = measures.of(ran)
    assert found == (threads, flops, *plain)
    assert [list(one) for one in found[2:]] == [list(one) for one in plain]
    assert measures.instructions(ran) == threads
