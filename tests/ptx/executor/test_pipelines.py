"""Pipelines over mbarriers and bulk copies by the executor: the results, findings and counts of the emulator."""

import pytest
from tests import sampled
from tests.ptx.executor.pipeline_programs import Kernel
from tests.ptx.executor.test_warpgroups import attempts, outcome

from kernbench import ptx
from kernbench.safety.budget import Budget

__all__ = ["attempts"]
pytestmark = pytest.mark.fast_paths
SEEDS = range(2000 if sampled.full() else 60)


# what shows the order of threads: how often lanes of a warp ran apart, and how often a look at an mbarrier was early
APART = {"warp_instructions": 0}
EARLY = {"thread_instructions": 0, "instructions_by_kind": {}}


def launched(made, seed, way):
    device = ptx.EmulatedDevice("sm_90a", fast_paths=way)
    arguments, out = made.arguments(device, seed)
    code = ptx.parse(made.text).kernels["kernel"]
    run = device.launch(code, made.grid, made.threads, arguments, budget=Budget(steps=20_000))
    status, findings, metrics, arrays = outcome(run, out)
    looks = "mbarrier.test_wait" in made.text
    return status, findings, {**metrics, **APART, **(EARLY if looks and not findings else {})}, arrays


@pytest.mark.parametrize("seed", SEEDS)
def test_random_kernels(seed, attempts):
    made = Kernel(seed)
    one, two = (launched(made, seed, way) for way in ("all", "-executor"))
    assert one == two, made.fault
    assert not (attempts == [True] and two[1]), made.fault


def test_many_kernels_are_clean_and_most_faults_are_found():
    """By the emulator's verdict; a step that is left out now and then does no harm."""
    kernels = {seed: Kernel(seed) for seed in range(60)}
    clean = {seed: not launched(made, seed, "-executor")[1] for seed, made in kernels.items()}
    assert sum(clean.values()) >= 24
    right = [clean[seed] for seed, made in kernels.items() if not made.fault]
    wrong = [clean[seed] for seed, made in kernels.items() if made.fault]
    assert sum(right) > 0.8 * len(right)
    assert sum(wrong) < 0.4 * len(wrong)
