"""Pipelines over mbarriers and bulk copies by the executor: the results, findings and counts of the emulator."""

import pytest
from tests import sampled
from tests.ptx.executor.pipeline_programs import Kernel
from tests.ptx.executor.test_warpgroups import attempts, outcome

from kernbench import ptx
from kernbench.result import Status
from kernbench.safety.budget import Budget

__all__ = ["attempts"]
pytestmark = pytest.mark.fast_paths
SEEDS = range(2000 if sampled.full() else 60)


def launched(made, seed, way, schedule="canonical"):
    device = ptx.EmulatedDevice("sm_90a", fast_paths=way)
    arguments, out = made.arguments(device, seed)
    code = ptx.parse(made.text).kernels["kernel"]
    options = {"shared_bytes": made.shared_bytes, "budget": Budget(steps=20_000), "schedule": schedule}
    run = device.launch(code, made.grid, made.threads, arguments, **options)
    return outcome(run, out)


def uncounted(outcome):
    """The outcome without how many instructions ran."""
    status, findings, metrics, arrays = outcome
    return status, findings, {name: metrics.get(name) for name in ("bytes", "flops")}, arrays


@pytest.mark.parametrize("schedule", ["eager", "reversed", 1])
@pytest.mark.parametrize("seed", sampled.some(range(200), 8))
def test_the_verdict_and_what_clean_kernels_compute_are_those_of_every_order(seed, schedule):
    """So that another order than the emulator's cannot clear what the emulator finds, nor compute anything else."""
    made = Kernel(seed)
    one, two = (launched(made, seed, "-executor", order) for order in ("canonical", schedule))
    assert bool(one[1]) == bool(two[1])
    if not one[1]:
        assert uncounted(one) == uncounted(two)
        assert made.looks or one == two


@pytest.mark.parametrize("seed", SEEDS)
def test_random_kernels(seed, attempts):
    made = Kernel(seed)
    one, two = (launched(made, seed, way) for way in ("all", "-executor"))
    # a launch may be tried more than once
    cleared = True in attempts
    if cleared and two[0] is Status.DEADLOCKED and made.fault in ("parity", "producer parity"):
        # a wait for the other parity passes or blocks by when it comes: the executor's order may be one that ends
        return
    assert not (cleared and two[1]), made.fault
    if cleared and made.looks:
        # another order of threads is as good
        one, two = uncounted(one), uncounted(two)
    if cleared:
        # and lanes of a warp that wait apart may run together more often
        one[2]["warp_instructions"] = two[2]["warp_instructions"] = 0
    assert one == two, made.fault


def test_many_kernels_are_clean_and_most_faults_are_found():
    """By the emulator's verdict; a step that is left out now and then does no harm."""
    kernels = {seed: Kernel(seed) for seed in range(60)}
    clean = {seed: not launched(made, seed, "-executor")[1] for seed, made in kernels.items()}
    assert sum(clean.values()) >= 24
    right = [clean[seed] for seed, made in kernels.items() if not made.fault]
    wrong = [clean[seed] for seed, made in kernels.items() if made.fault]
    assert sum(right) > 0.8 * len(right)
    assert sum(wrong) < 0.4 * len(wrong)
