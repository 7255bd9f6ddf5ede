"""Launches of the mesh give the same on any number of processes, and whether or not alike iterations are repeated."""

import pytest
from tests import sampled
from tests.mesh import random_kernels as kernels

from benchmarks import mesh_jobs
from kernbench.bench import find, run_bench
from kernbench.benches._algorithms import ALGORITHMS
from kernbench.mesh.dividing import division
from kernbench.triton_emu.repeating import loops

PANELS = find(mesh_jobs.BENCH).panels
# blocks of keys in a stream, and a merge of parts
FEW = [("single_user_prefill", "stream_kv"), ("single_user_decode", "mesh_mlo")]


@pytest.fixture(autouse=True)
def restored(monkeypatch):
    """Short loops fold, short launches are divided, and the variable that says how many processes there are is as
    before after a test.
    """
    monkeypatch.setattr(loops, "FEWEST", 5)
    monkeypatch.setattr(loops, "WORTH_COMPUTING", 0)
    monkeypatch.setenv("KERNBENCH_JOBS", "1")
    monkeypatch.setenv("KERNBENCH_START_METHOD", "fork")
    monkeypatch.setattr(division, "AFTER", -1.0)


@pytest.mark.parametrize("first", range(0, sampled.examples(10, 500), 10))
def test_random_kernels(first):
    for seed in range(first, first + 10):
        program = kernels.make(seed, kernels.planted_bug(seed) if seed % 2 else "")
        schedule = ("canonical", "reversed", seed)[seed % 3]
        assert mesh_jobs.differ(lambda: kernels.launch(program, schedule)) == []  # noqa: B023


@pytest.mark.parametrize(
    ("panel", "algorithm"), [(p, a) for p in PANELS for a in ALGORITHMS] if sampled.full() else FEW
)
def test_panels(panel, algorithm):
    settings = mesh_jobs.settings_of(panel, algorithm)
    if not sampled.full():
        # one set of heads after the other does the same
        settings |= {"h_q": 16, "h_kv": 2}
    assert mesh_jobs.differ(lambda: run_bench(find(mesh_jobs.BENCH), panel, settings, timed=True)) == []


def test_a_difference_is_seen(monkeypatch):
    """A planted fault: repeated iterations compute something else."""
    from kernbench.triton_emu.repeating.values import Values

    def looped(x, y, *, tl):
        total = tl.zeros((4, 4))
        for j in tl.range(20):
            total = total + tl.load(x + 64 * j, shape=(4, 4))
        tl.store(y, total)

    def launch():
        import numpy as np

        from kernbench import mesh

        host = mesh.Host("small", ranks=1)
        return host.launch(looped, host.shard(np.ones((80, 4), np.float32)), host.empty((4, 4), "f32"))

    assert mesh_jobs.differ(launch) == []
    usual = Values.value
    monkeypatch.setattr(Values, "value", lambda self, number: usual(self, number) + 1)
    assert mesh_jobs.differ(launch) == ["every iteration run: outputs"]
