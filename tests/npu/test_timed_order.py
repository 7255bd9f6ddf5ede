"""Time agrees with the result: whatever is called safe keeps the order of all accesses to common bytes."""

import numpy as np
import pytest
from tests.npu import random_kernels as kernels

from kernbench.npu import clock, edges


@pytest.mark.parametrize("seed", range(15))
def test_no_access_is_timed_against_the_order_of_the_result(seed):
    program = kernels.make(seed)
    results = []
    for schedule in (*kernels.SCHEDULES, seed):
        run = kernels.launch(program, schedule)
        assert run.safe is True, run.findings
        found, total = kernels.contradictions(run, program)
        assert not found, str(found[0])
        results.append((kernels.outputs(run), total))
    assert results[0] == results[1] == results[2]


@pytest.mark.parametrize("bug", sorted(kernels.PLANTED))
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_what_is_planted_is_found(bug, seed):
    run = kernels.launch(kernels.make(seed, bug))
    assert {finding.kind for finding in run.findings} & kernels.PLANTED[bug]


@pytest.mark.parametrize("seed", range(20))
def test_what_nothing_orders_is_found_and_the_rest_is_timed_in_order(seed):
    program = kernels.make(seed, *kernels.DOUBTFUL)
    run = kernels.launch(program)
    assert run.safe is not True or not kernels.contradictions(run, program)[0]


KINDS = (edges.FLAG, edges.SLOT, edges.MESSAGE, edges.DEPENDENCE, edges.CORE, edges.ISSUE)


@pytest.mark.parametrize("kind", KINDS, ids=edges.KIND_NAMES.__getitem__)
def test_each_kind_of_edge_is_missed_when_it_is_left_out(kind, monkeypatch):
    """The check is not blind: without one kind of edges, times contradict results."""
    join = clock.join

    def without(lowered, *parts):
        kept = [tuple(column[np.asarray(part[2]) != kind] for column in part) for part in parts]
        return join(lowered, *kept)

    monkeypatch.setattr(clock, "join", without)
    programs = [kernels.make(seed) for seed in range(25)]
    assert any(kernels.contradictions(kernels.launch(program), program)[0] for program in programs)
