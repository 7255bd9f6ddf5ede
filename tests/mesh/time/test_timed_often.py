"""A recording that is timed often is timed by chains: with the same times and causes as one that is timed once."""

import pytest
from tests import sampled
from tests.mesh import random_kernels as kernels

from kernbench import machine
from kernbench.bench import find, run_bench
from kernbench.mesh.time import clock, summary, time_recording

CHANGES = (
    {"hbm.bandwidth": 64},
    {"hbm.bandwidth": 64, "link.latency": 0},
    {"pe.clock": 3, "pe.dispatch_cycles": 0},
    {"hbm.latency": 0, "link.bandwidth": 8},
    {},
)


@pytest.fixture
def often(monkeypatch):
    """The smallest graph is large, and the second time is often."""
    monkeypatch.setattr(clock, "MANY_NODES", 0)
    monkeypatch.setattr(clock, "OFTEN", 1)
    by_chains = []
    run_chains = clock.run_chains
    monkeypatch.setattr(clock, "run_chains", lambda *given: by_chains.append(given) or run_chains(*given))
    return by_chains


def check(recording, described, by_chains):
    """Every timing again, beside a first timing of the same."""
    timing = time_recording(recording, described)
    shared = clock.shares_servers(timing.lowered)
    for changes in CHANGES:
        changed = described.override(changes)
        timing, alone = timing.again(changed), time_recording(recording, changed)
        for name in ("start", "finish", "cause"):
            assert getattr(timing.times, name).tolist() == getattr(alone.times, name).tolist(), (name, changes)
        assert summary(timing) == summary(alone)
    assert len(by_chains) == (len(CHANGES) if shared else 0)
    by_chains.clear()
    return shared


def test_random_kernels(often):
    shared = 0
    for seed in range(sampled.examples(16, 40)):
        program = kernels.make(seed)
        run = kernels.launch(program)
        if run.safe:
            shared += check(run.recording, program.described, often)
    assert shared > sampled.examples(4, 10)


@pytest.mark.parametrize("panel", ["single_user_decode", "multi_user_prefill"])
def test_panels(panel, often):
    small = {"context": 48, "d_head": 32, "h_q": 8, "h_kv": 2, "lengths": ()}
    run = run_bench(find("milestone_gqa_llama70b"), panel, small, timed=False)
    assert check(run.recording, machine.load("reference"), often)
