"""Time agrees with the result: random kernels keep the order of all accesses to common bytes, under every schedule."""

import numpy as np
import pytest
from tests import sampled
from tests.mesh import random_kernels as kernels

from kernbench.mesh.time import lower
from kernbench.mesh.work import compared_works
from kernbench.targets.work import first_parting
from kernbench.timing import graph


@pytest.mark.parametrize("seed", sampled.some(range(20), 7))
def test_no_access_is_timed_against_the_order_of_the_result(seed):
    program = kernels.make(seed)
    results, runs = [], []
    for schedule in (*kernels.SCHEDULES, seed):
        run = kernels.launch(program, schedule)
        assert run.safe is True, run.findings
        found, total = kernels.contradictions(run, program)
        assert not found, str(found[0])
        results.append((kernels.outputs(run), total))
        runs.append(run)
    assert results[0] == results[1] == results[2]
    assert not any(first_parting(*compared_works(runs[0].recording, run.recording)) for run in runs[1:])


@pytest.mark.parametrize("bug", sorted(kernels.PLANTED))
@pytest.mark.parametrize("seed", [1, 2])
def test_what_is_planted_is_found(bug, seed):
    run = kernels.launch(kernels.make(seed, bug))
    assert {finding.kind for finding in run.findings} & kernels.PLANTED[bug]


@pytest.mark.parametrize(
    "kind", [graph.OPERAND, graph.CREDIT, graph.SPACE, graph.MEMORY], ids=graph.KIND_NAMES.__getitem__
)
def test_each_kind_of_edge_is_missed_when_it_is_left_out(kind, monkeypatch):
    """The check is not blind: without one kind of edges, times contradict results."""

    whole_graph = lower._graph

    def without(*given):
        whole = whole_graph(*given)
        sources = np.repeat(np.arange(whole.nodes, dtype=np.int32), np.diff(whole.offsets))
        kept = whole.kinds != kind
        return graph.make_graph(whole.nodes, sources[kept], whole.targets[kept], whole.lags[kept], whole.kinds[kept])

    monkeypatch.setattr(lower, "_graph", without)
    programs = [kernels.make(seed) for seed in range(12)]
    assert any(kernels.contradictions(kernels.launch(program), program)[0] for program in programs)
