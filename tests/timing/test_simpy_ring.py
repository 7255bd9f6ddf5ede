"""The engine takes exactly the times SimPy takes, on the ring with shared memory that the benchmark measures."""

import importlib.util
import sys
from pathlib import Path

import pytest

FILE = Path(__file__).parents[2] / "benchmarks" / "simpy_ring.py"


@pytest.fixture(scope="module")
def model():
    spec = importlib.util.spec_from_file_location("simpy_ring", FILE)
    module = importlib.util.module_from_spec(spec)
    sys.modules["simpy_ring"] = module
    yield spec.loader.exec_module(module) or module
    del sys.modules["simpy_ring"]


@pytest.mark.parametrize(("ranks", "turns", "per_server"), [(1, 3, 1), (4, 3, 2), (8, 5, 8), (7, 9, 3), (64, 20, 8)])
def test_a_ring_that_shares_memory_takes_exactly_what_simpy_says(model, ranks, turns, per_server):
    ring = model.Ring(ranks, turns, per_server)
    assert model.run_engine(ring) == model.run_simpy(ring)


def test_sharing_is_what_makes_the_ring_slow(model):
    shared, alone = model.Ring(8, 5, 8), model.Ring(8, 5, 1)
    assert max(model.run_engine(shared)[-1]) > max(model.run_engine(alone)[-1])
