"""The two passes against a slow, obvious simulation in exact fractions, and against each other."""

from contextlib import nullcontext
from fractions import Fraction
from math import ceil

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests import sampled

from kernbench.common.deferred import compiled_at_once
from kernbench.timing import engine, graph
from kernbench.timing.engine import CycleError, never_done, run_events, run_longest_path
from kernbench.timing.graph import make_graph, one_by_one
from kernbench.timing.servers import Rates


def build(nodes, edges):
    columns = np.array(edges, np.int32).reshape(-1, 3)
    return make_graph(nodes, columns[:, 0], columns[:, 1], columns[:, 2], np.zeros(len(columns), np.int8))


def obvious(nodes, edges, duration, server, nbytes, bandwidth):
    """Time by small exact steps: at each moment every server splits its bandwidth equally."""
    before = {v: [(u, lag) for u, w, lag in edges if w == v] for v in range(nodes)}
    finish, start, left = {}, {}, {}
    now = Fraction(0)
    while len(finish) < nodes:
        for v in range(nodes):
            if v not in start and all(u in finish for u, _ in before[v]):
                start[v] = max((finish[u] + lag for u, lag in before[v]), default=0)
                if server[v] < 0:
                    finish[v] = start[v] + duration[v]
        if any(v not in start and all(u in finish for u, _ in before[v]) for v in range(nodes)):
            continue
        begins = {v: start[v] + duration[v] for v in start if v not in finish and v not in left}
        active = {s: [v for v in left if server[v] == s] for s in range(len(bandwidth))}
        ends = {
            v: ceil(now + left[v] * len(active[s]) / bandwidth[s]) for s, members in active.items() for v in members
        }
        moments = [*begins.values(), *ends.values()]
        if not moments:
            continue
        then = min(moments)
        for s, members in active.items():
            for v in members:
                left[v] -= (then - now) * bandwidth[s] / len(members)
        for v in [v for v in left if left[v] <= 0]:
            finish[v] = then
            del left[v]
        # what ends at a moment is gone before what begins at it
        for v in [v for v, t in begins.items() if t == then and then not in ends.values()]:
            left[v] = Fraction(nbytes[v])
        now = then
    return [int(start[v]) for v in range(nodes)], [int(finish[v]) for v in range(nodes)]


@st.composite
def problems(draw, shared=True):
    nodes = draw(st.integers(1, 12))
    pairs = [(u, v) for v in range(nodes) for u in range(v)]
    edges = (
        [(u, v, draw(st.integers(0, 5))) for u, v in draw(st.lists(st.sampled_from(pairs), unique=True))]
        if pairs
        else []
    )
    duration = draw(st.lists(st.integers(0, 50), min_size=nodes, max_size=nodes))
    server = draw(st.lists(st.integers(-1, 1), min_size=nodes, max_size=nodes)) if shared else [-1] * nodes
    nbytes = draw(st.lists(st.integers(1, 64), min_size=nodes, max_size=nodes))
    return nodes, edges, duration, server, nbytes


def rates(duration, server, nbytes):
    return Rates(
        np.array(duration, np.int64),
        np.array(server, np.int32),
        np.array(nbytes, np.int64),
        np.array([0.5, 2.0]),
        1,
        np.zeros(1, np.int64),
    )


@settings(max_examples=sampled.examples(60, 150))
@given(problems())
def test_events_match_the_obvious_simulation(problem):
    nodes, edges, duration, server, nbytes = problem
    start, finish = obvious(nodes, edges, duration, server, nbytes, [Fraction(1, 2), Fraction(2)])
    times = run_events(build(nodes, edges), rates(duration, server, nbytes))
    assert times.start.tolist() == start
    assert times.finish.tolist() == finish


@pytest.mark.parametrize("many", [0, 10**9])
@pytest.mark.parametrize("compiled", [True, False])
def test_what_is_fetched_ahead_and_done_at_once_changes_nothing(monkeypatch, many, compiled):
    """Whether lines are fetched ahead depends on the number of nodes; works may be done in any order."""
    rng = np.random.default_rng(0)
    nodes = 300
    edges = [(int(rng.integers(0, n)), n, 0) for n in range(1, nodes) for _ in range(2)]
    duration, server = rng.integers(0, 9, nodes).tolist(), rng.integers(-1, 2, nodes).tolist()
    nbytes = rng.integers(0, 50, nodes).tolist()
    start, finish = obvious(nodes, edges, duration, server, nbytes, [Fraction(1, 2), Fraction(2)])
    monkeypatch.setattr(engine, "_MANY", many)
    monkeypatch.setattr(graph, "_AT_ONCE", 7)
    with compiled_at_once() if compiled else nullcontext():
        given_rates = rates(duration, server, nbytes)
        times = run_events(build(nodes, edges), given_rates, lambda works: one_by_one(reversed(list(works))))
    assert times.start.tolist() == start
    assert times.finish.tolist() == finish


@settings(max_examples=sampled.examples(50, 100))
@given(problems(shared=False))
def test_both_passes_agree_without_servers(problem):
    nodes, edges, duration, server, nbytes = problem
    graph, given_rates = build(nodes, edges), rates(duration, server, nbytes)
    events, path = run_events(graph, given_rates), run_longest_path(graph, given_rates)
    assert events.start.tolist() == path.start.tolist()
    assert events.finish.tolist() == path.finish.tolist()


@settings(max_examples=sampled.examples(25, 50))
@given(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 10**6)), min_size=1, max_size=20))
def test_both_passes_agree_on_a_chain_through_a_server(chain):
    nodes = len(chain)
    edges = [(i, i + 1, 0) for i in range(nodes - 1)]
    given_rates = rates([d for d, _ in chain], [0] * nodes, [n for _, n in chain])
    graph = build(nodes, edges)
    events, path = run_events(graph, given_rates), run_longest_path(graph, given_rates)
    assert events.finish.tolist() == path.finish.tolist()


def test_equal_transfers_share_equally_and_conserve_work():
    times = run_events(build(4, []), rates([0] * 4, [0] * 4, [100] * 4))
    assert times.finish.tolist() == [800] * 4
    staggered = run_events(build(2, []), rates([0, 100], [0, 0], [100, 100]))
    # alone for 100 ps: 50 bytes; then both at half speed until 300; then the other alone
    assert staggered.finish.tolist() == [300, 400]


def test_ties_are_broken_the_same_way_every_time():
    runs = [run_events(build(50, []), rates([3] * 50, [0, 1] * 25, [7] * 50)) for _ in range(3)]
    assert len({r.finish.tobytes() for r in runs}) == 1


@pytest.mark.parametrize("run", [run_events, run_longest_path])
def test_a_cycle_is_an_error_that_counts_what_is_left(run):
    """Node 0 is before the cycle, node 3 behind it."""
    graph, given = build(4, [(0, 1, 0), (1, 2, 0), (2, 1, 0), (2, 3, 0)]), rates([1] * 4, [-1] * 4, [0] * 4)
    with pytest.raises(CycleError, match="a cycle: 3 of 4 steps"):
        run(graph, given)
    assert never_done(graph, given).tolist() == [False, True, True, True]


def test_a_graph_without_a_cycle_is_done():
    assert not never_done(build(2, [(0, 1, 0)]), rates([1, 1], [-1, -1], [0, 0])).any()
