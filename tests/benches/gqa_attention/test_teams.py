"""Every PE of a cube at work: right for any team, heads and queues; close to the limits; the limits themselves hold."""

import itertools
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests import sampled

from kernbench import machine
from kernbench.bench import find, run_bench
from kernbench.benches._algorithms import ALGORITHMS
from kernbench.benches.gqa_attention.limits import Problem, array_cycles, limits
from kernbench.benches.gqa_attention.parts.teams import Team, arms_of
from kernbench.machine.grid import Grid
from kernbench.mesh.time.costs import gemm_ps
from kernbench.mesh.wiring import inside

BENCH = find("milestone_gqa_llama70b")
TEAMS = {"team_kv": "multi_user_prefill", "team_mlo": "multi_user_decode"}
SMALL = {"context": 40, "lengths": (), "users": 2, "h_q": 8, "h_kv": 2, "d_head": 16, "n_ranks": 2}


def run(algorithm, schedule=None, **changes):
    chosen = {**SMALL, "algorithm": algorithm, **changes}
    result = run_bench(BENCH, TEAMS[algorithm], chosen, schedule=schedule)
    assert result.findings == [], "\n".join(map(str, result.findings))
    assert result.right, result.comparison[0].reason
    return result


@pytest.mark.sampled(4)
@pytest.mark.parametrize("algorithm", TEAMS)
@pytest.mark.parametrize("pes", [(1, 1), (3, 1), (2, 2), (2, 4)])
def test_any_team_and_any_heads(algorithm, pes):
    for h_kv, n_ranks in ((1, 3), (3, 2), (12, 1)):
        cube = {"machine.cube.pes": pes, "h_q": 2 * h_kv, "h_kv": h_kv, "n_ranks": n_ranks}
        run(algorithm, **cube, tokens=9, causal=h_kv != 3)


@pytest.mark.parametrize("algorithm", TEAMS)
def test_the_same_digits_under_every_schedule_and_depth(algorithm):
    turns = [(1, "canonical"), (1, "reversed"), (1, 1), (2, 2), (3, "reversed"), (4, 3)]
    outputs = [
        run(algorithm, schedule, n_ranks=3, context=24, **{"machine.ipcq.depth": depth}).outputs["o"].tobytes()
        for depth, schedule in turns
    ]
    assert len(set(outputs)) == 1


@pytest.mark.parametrize("algorithm", TEAMS)
def test_messages_of_many_pieces_and_little_scratch(algorithm):
    run(algorithm, context=200, tokens=8, **{"machine.ipcq.slot": 128, "machine.pe.scratch": "48 KiB"})


def test_every_pe_works_and_only_pe_0_stores():
    for algorithm in TEAMS:
        streams = run(algorithm, h_kv=8, n_ranks=2, tokens=16).recording.streams
        assert {(s.cube, s.pe) for s in streams} == set(itertools.product(range(2), range(8)))
        for stream in streams:
            assert sum(c.op == "dot" for c in stream) > 0


# How close to the limits


@pytest.mark.parametrize(
    ("algorithm", "panel", "sizes", "most"),
    [
        ("team_kv", "single_user_prefill", {"context": 8192, "h_q": 8, "h_kv": 1}, 1.3),
        ("team_kv", "multi_user_prefill", {"context": 16384, "tokens": 256, "users": 1, "n_ranks": 2}, 1.5),
        ("team_mlo", "multi_user_decode", {"context": 16384, "users": 8, "lengths": (), "n_ranks": 4}, 1.2),
        ("grid_mlo", "single_user_decode", {"context": 16384, "h_q": 16, "h_kv": 2}, 1.2),
    ],
)
def test_close_to_the_limit(algorithm, panel, sizes, most):
    result = run_bench(BENCH, panel, {**sizes, "algorithm": algorithm}, timed=True, shapes_only=True)
    assert result.findings == [], "\n".join(map(str, result.findings))
    assert 1 <= result.metrics["limit_ratio"] < most


@pytest.mark.parametrize("algorithm", TEAMS)
def test_never_faster_than_the_limits(algorithm):
    base = {"algorithm": algorithm, "users": 2, "lengths": (), "n_ranks": 2}
    slow = {"machine.link.bandwidth": "1 GB/s", "machine.link.latency": "10 us"}
    for changes in ({"context": 300}, {"context": 64, **slow}, {"context": 9, "tokens": 1, "h_q": 8, "h_kv": 8}):
        metrics = run_bench(BENCH, TEAMS[algorithm], {**base, **changes}, timed=True, shapes_only=True).metrics
        assert metrics["time_ps"] >= max(metrics["limits_ps"].values())


@given(
    heads=st.integers(1, 8),
    tokens=st.integers(1, 200),
    keys=st.integers(1, 300),
    d_head=st.sampled_from([1, 16, 64, 128, 200]),
    cut=st.tuples(st.integers(10, 300), st.integers(10, 300), st.integers(10, 200)),
    dtype=st.sampled_from(["f16", "f32"]),
)
@settings(max_examples=sampled.examples(30, 60), derandomize=True, deadline=None)
def test_no_cut_into_dots_beats_the_array(heads, tokens, keys, d_head, cut, dtype):
    """Scores and weighted values in blocks of any size, d_head whole or in parts, take at least what the limit says."""
    m, n, k = cut
    reference = machine.load("reference")

    def cycles(rows, inner, columns):
        total = 0
        for a, b, c in itertools.product(parts(rows, m), parts(inner, k), parts(columns, n)):
            total += gemm_ps(reference, ((a, b), dtype, "scratch"), ((b, c), dtype, "scratch"))
        return Fraction(total) / reference.pe.cycle_ps

    p = Problem(tokens, (keys,), heads, 1, d_head, dtype, False, 1, 0)
    assert cycles(heads * tokens, d_head, keys) + cycles(heads * tokens, keys, d_head) >= array_cycles(p, reference)


def parts(size, most):
    return [min(most, size - first) for first in range(0, size, most)]


@pytest.mark.parametrize("causal", [True, False])
def test_pairs_are_counted_without_looking_at_each_query(causal):
    for tokens, keys in itertools.product((0, 1, 2, 7, 12), (0, 1, 3, 7, 11, 20)):
        p = Problem(tokens, (keys, 5), 2, 1, 16, "f16", causal, 1, 0)
        sees = [[k <= n - tokens + q or not causal for q in range(tokens) for k in range(n)] for n in p.lengths]
        assert p.pairs == sum(map(sum, sees))
    # a length at which looking would take hours
    assert Problem(1 << 40, (1 << 41,), 2, 1, 16, "f16", causal, 1, 0).pairs > 1 << 80


def test_more_pes_lower_the_limit_of_arithmetic_and_not_that_of_memory():
    p = Problem(64, (4096,), 64, 8, 128, "f16", False, 4, 1)
    reference = machine.load("reference")
    traffic = ALGORITHMS["team_kv"].traffic
    alone, together = (limits(q, reference, traffic(q, "cycle", 4)) for q in (p, replace(p, team=8)))
    for name in ("compute", "array", "exp"):
        assert together[name] == pytest.approx(alone[name] / 8, rel=1e-6)
    assert together["hbm"] == alone["hbm"]


# Teams


@sampled.each_row(itertools.product([1, 2, 3, 4, 8, 9, 64], [1, 2, 3, 8, 12], [False, True]))
def test_a_team_has_every_head_and_every_pe(size, h_kv, closed):
    order = list(np.random.default_rng(size).permutation(np.arange(1, size)))
    arms = arms_of([0, *order], closed)
    members = [Team(arms, pe, h_kv) for pe in range(size)]
    assert sorted(member.position for member in members) == list(range(size))
    leader = members[0]
    assert leader.leads
    assert {h for place in range(size) for h in leader.heads(place)} == set(range(h_kv))
    for head in range(h_kv):
        assert leader.sharing(head)
    assert sorted(place for _, places in leader.arms for place in places) == list(range(1, size))
    for direction, places in leader.arms:
        needed = {h for place in places for h in leader.heads(place)}
        assert set(leader.span(places)) == needed
        assert [members_at(members, place).outward for place in places] == [direction] * len(places)


def members_at(members, place):
    return next(member for member in members if member.position == place)


def test_arms_follow_the_wires():
    for kind, grid in (("cycle", Grid(2, 4)), ("cycle", Grid(4, 4)), ("line", Grid(3, 1))):
        wiring, order = inside(kind, grid, {})
        for direction, pes in arms_of(order, kind == "cycle").items():
            for here, onward in itertools.pairwise([0, *pes]):
                assert wiring[here][direction] == onward


# 8,192 keys take four seconds
@pytest.mark.named
def test_blocks_of_a_short_sequence_leave_room_for_gaps():
    # one user is enough for the gaps, and takes half the time
    alone = {"users": 1, "lengths": (8192,)}
    result = run_bench(BENCH, "multi_user_prefill", {"algorithm": "team_kv", **alone}, size="8k")
    assert result.findings == [], "\n".join(map(str, result.findings))
