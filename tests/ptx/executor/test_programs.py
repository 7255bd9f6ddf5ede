"""Random kernels have the same outcome by the executor, where it runs them, and by the emulator."""

import numpy as np
import pytest
from tests import sampled
from tests.ptx.executor.programs import THREADS, Kernel

from kernbench import ptx
from kernbench.ptx.executor import running

pytestmark = pytest.mark.fast_paths
SEEDS = range(2000 if sampled.full() else 60)


def launched(kernel, way):
    """A run, and the arrays after it."""
    device, random = ptx.EmulatedDevice("sm_80", fast_paths=way), np.random.default_rng(5)
    given = device.array(random.integers(0, 1 << 32, 12 * THREADS, dtype=np.uint32), "given")
    out = device.array(np.full(12 * THREADS, 3, np.uint32), "out")
    run = device.launch(kernel, 3, THREADS, [given, out])
    return run, given.numpy(), out.numpy()


def outcome(launch):
    run, *arrays = launch
    findings = [(finding.kind, finding.message, finding.count) for finding in run.findings]
    # steps are of the way in which it ran
    return run.status, findings, {**run.metrics, "steps": 0}, [array.tolist() for array in arrays]


@pytest.mark.parametrize("seed", SEEDS)
def test_random_kernels(seed, monkeypatch):
    found = []
    go = running._Run.go
    monkeypatch.setattr(running._Run, "go", lambda run: found.append(go(run)) or found[-1])
    kernel = ptx.parse(Kernel(seed).text).kernels["kernel"]
    one, two = launched(kernel, "all"), launched(kernel, "-executor")
    assert outcome(one) == outcome(two)
    assert not (found == [True] and two[0].findings)


def test_some_random_kernels_are_run_and_some_are_not(monkeypatch):
    found = []
    go = running._Run.go
    monkeypatch.setattr(running._Run, "go", lambda run: found.append(go(run)) or found[-1])
    for seed in range(24):
        launched(ptx.parse(Kernel(seed).text).kernels["kernel"], "all")
    assert {True, False} == set(found)
