"""Every algorithm of the milestone does the same job: right and safe wherever it runs, never below its own limits."""

import itertools

import numpy as np
import pytest
from tests import sampled

from kernbench.bench import find, run_bench
from kernbench.benches._algorithms import ALGORITHMS
from kernbench.benches.gqa_attention.parts.key_store import joined
from kernbench.benches.gqa_attention.parts.routes import (
    BOTH,
    KEY,
    VALUE,
    along_chain,
    along_line,
    round_cycle,
    round_ring,
)
from kernbench.benches.gqa_attention.parts.shards import contiguous, zigzag, zigzag_rows
from kernbench.common.errors import KernbenchError
from kernbench.triton_emu.repeating.routines import Routines
from kernbench.triton_emu.repeating.template import Template

BENCH = find("milestone_gqa_llama70b")
PREFILL = [name for name, a in ALGORITHMS.items() if a.splits_q]
DECODE = [name for name, a in ALGORITHMS.items() if not a.splits_q]
NEW = ["cycle_kv", "stream_kv", "zigzag_kv", "tiled_kv", "team_kv", "tree_mlo", "grid_mlo", "team_mlo"]
# what waits for nothing but arrivals works even with queues of one slot
ANY_DEPTH = ("stream_kv", "zigzag_kv", "team_kv", "tree_mlo", "grid_mlo", "team_mlo")


def run(algorithm, panel=None, schedule=None, timed=False, **settings):
    panel = panel or ("single_user_prefill" if algorithm in PREFILL else "single_user_decode")
    base = {"context": 40, "h_q": 8, "h_kv": 2, "d_head": 32, "algorithm": algorithm}
    return run_bench(BENCH, panel, {**base, **settings}, schedule=schedule, timed=timed)


def good(result):
    assert result.findings == [], "\n".join(map(str, result.findings))
    assert result.right, result.comparison[0].reason
    return result


def fits(algorithm, n_ranks, columns=4):
    """Whether the algorithm's wiring exists for so many ranks of a grid of four columns."""
    install = ALGORITHMS[algorithm].install
    if install == "cycle":
        return n_ranks % columns == 0 and n_ranks > columns
    return install != "grid" or n_ranks < columns or n_ranks % columns == 0


@pytest.mark.sampled(16)
@pytest.mark.parametrize("algorithm", NEW)
@pytest.mark.parametrize("n_ranks", [1, 2, 3, 4, 8])
def test_right_and_safe(algorithm, n_ranks):
    if not fits(algorithm, n_ranks):
        with pytest.raises(KernbenchError, match="whole rows"):
            run(algorithm, n_ranks=n_ranks)
        return
    heads = [(8, 8), (8, 2), (8, 1)]
    ways = list(itertools.product(heads, ((False, 7), (True, 40))))
    for (h_q, h_kv), (causal, context) in sampled.some(ways, 3):
        good(run(algorithm, n_ranks=n_ranks, causal=causal, context=context, h_q=h_q, h_kv=h_kv))


@pytest.mark.sampled(8)
@pytest.mark.parametrize("algorithm", NEW)
@pytest.mark.parametrize("dtype", ["f16", "bf16", "f32"])
def test_several_users_of_different_lengths_over_cubes(algorithm, dtype):
    panel = "multi_user_prefill" if algorithm in PREFILL else "multi_user_decode"
    for lengths in ((50, 1, 37), (16, 50, 0)):
        good(run(algorithm, panel, users=3, context=50, lengths=lengths, dtype=dtype, tokens=5))


@pytest.mark.parametrize("algorithm", NEW)
def test_on_a_larger_grid(algorithm):
    good(run(algorithm, n_ranks=16, machine="large", context=70))


@pytest.mark.parametrize("algorithm", NEW)
def test_at_the_real_head_size(algorithm):
    good(run(algorithm, h_q=4, h_kv=2, d_head=128, context=130))


@pytest.mark.sampled(4)
@pytest.mark.parametrize("algorithm", ["stream_kv", "zigzag_kv", "tiled_kv", "team_kv"])
@pytest.mark.parametrize("context", [256, 1030 if sampled.full() else 600])
def test_where_keys_do_not_fit_the_scratch_memory(algorithm, context):
    small = {"machine.pe.scratch": "256 KiB", "n_ranks": 8, "h_q": 4, "h_kv": 2, "d_head": 64}
    good(run(algorithm, context=context, **small))


# eight heads whose query tiles do not fit the scratch memory together
MANY_SETS = {
    "machine.pe.scratch": "80 KiB", "n_ranks": 4, "h_q": 8, "h_kv": 8, "d_head": 64,
    "context": 256, "tokens": 64, "block_q": 4, "block_kv": 32,
}  # fmt: skip


@pytest.mark.parametrize("algorithm", sampled.some(["mesh_kv", "ring_kv", "stream_kv", "zigzag_kv", "tiled_kv"], 3))
def test_heads_that_are_alike_are_recorded_as_if_each_had_run(algorithm, monkeypatch):
    repeated = []
    repeat = Template.repeat
    monkeypatch.setattr(Template, "repeat", lambda self, *args: (repeated.append(1), repeat(self, *args))[1])
    settings = {**MANY_SETS, "algorithm": algorithm}

    def rows():
        recording = run_bench(BENCH, "single_user_prefill", settings, shapes_only=True).recording
        return [(stream.rows.columns(), stream.views.columns()) for stream in recording.streams]

    once = rows()
    assert repeated
    monkeypatch.setattr(Routines, "call", lambda self, function, args, at: function(*args, *at))
    for some, all_of_them in zip(once, rows(), strict=True):
        assert all(np.array_equal(one, other) for one, other in zip(some, all_of_them, strict=True))


@pytest.mark.parametrize("algorithm", ["ring_kv", "zigzag_kv"])
def test_tiles_that_see_as_much_run_once_wherever_they_stand(algorithm, monkeypatch):
    """Most calls are repeated: under a causal mask each tile of a head stands elsewhere."""
    counts = {"ran": 0, "repeated": 0}

    def counted(kind, name, which):
        call = getattr(kind, name)

        def count(self, *args):
            counts[which] += 1
            return call(self, *args)

        monkeypatch.setattr(kind, name, count)

    counted(Routines, "_recorded", "ran")
    counted(Template, "repeat", "repeated")
    settings = {**MANY_SETS, "tokens": 0, "h_q": 4, "h_kv": 4, "algorithm": algorithm}
    run_bench(BENCH, "single_user_prefill", settings, shapes_only=True)
    assert counts["repeated"] > 4 * counts["ran"]


@pytest.mark.parametrize("algorithm", ["mesh_kv", "stream_kv"])
def test_heads_that_are_alike_are_right(algorithm):
    good(run(algorithm, **MANY_SETS))


@pytest.mark.sampled(4)
@pytest.mark.parametrize("algorithm", ["stream_kv", "zigzag_kv", "tiled_kv", "team_kv"])
@pytest.mark.parametrize("scale_q", [(16, 16), (64, 48), (8, 300)])
def test_any_blocks(algorithm, scale_q):
    block_q, block_kv = scale_q
    good(run(algorithm, context=150, block_q=block_q, block_kv=block_kv))


@pytest.mark.parametrize("algorithm", NEW)
def test_same_digits_under_every_schedule_and_depth(algorithm):
    depths = (1, 2, 4) if algorithm in ANY_DEPTH else (2, 4)
    ways = list(itertools.product(depths, ("canonical", "reversed", 1)))
    outputs = [
        good(run(algorithm, schedule=schedule, n_ranks=8, context=24, **{"machine.ipcq.depth": depth})).outputs["o"]
        for depth, schedule in sampled.some(ways, 3)
    ]
    for output in outputs[1:]:
        np.testing.assert_array_equal(output, outputs[0])


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_never_faster_than_its_limits(algorithm):
    ways = [{"context": 150 if sampled.full() else 70}, {"causal": False, "h_q": 8, "h_kv": 8}]
    # by turns with and without a mask
    for settings in sampled.some(ways[:: 1 - 2 * (list(ALGORITHMS).index(algorithm) % 2)], 1):
        metrics = good(run(algorithm, timed=True, **settings)).metrics
        assert metrics["time_ps"] >= max(metrics["limits_ps"].values())


@pytest.mark.parametrize(
    ("algorithm", "share"), [("mesh_kv", 7), ("ring_kv", 7), ("cycle_kv", 3.5), ("stream_kv", 3.5)]
)
def test_busiest_link_carries_what_the_limit_says(algorithm, share):
    """Steps of one chunk over a link: P - 1 on a line or one way round, half of it both ways round."""
    metrics = good(run(algorithm, context=320, timed=True)).metrics
    chunk_ps = 2 * 320 // 8 * 2 * 32 * 2 / 128e9 * 1e12
    assert metrics["floors_ps"]["link"] == pytest.approx(share * chunk_ps)
    assert metrics["limits_ps"]["link"] == pytest.approx(share * chunk_ps)


def test_zigzag_balances_a_causal_mask():
    def busiest(algorithm):
        result = run_bench(
            BENCH,
            "single_user_prefill",
            {"algorithm": algorithm, "context": 4096, "h_q": 8, "h_kv": 1},
            timed=True,
            shapes_only=True,
        )
        return result.metrics["gap_ps"].get("imbalance", 0) / result.metrics["time_ps"]

    assert busiest("stream_kv") > 0.3
    assert busiest("zigzag_kv") < 0.02


def test_where_links_bind_the_closed_walk_saves_half_and_double_buffering_reaches_the_limit():
    slow = {"context": 512, "machine.link.bandwidth": "1 GB/s", "h_q": 8, "h_kv": 8}
    line, cycle, stream = (good(run(a, timed=True, **slow)).metrics for a in ("mesh_kv", "cycle_kv", "stream_kv"))
    assert line["time_ps"] > 1.5 * cycle["time_ps"]
    assert stream["time_ps"] < 1.05 * stream["limits_ps"]["link"]


def test_two_dimensions_send_less_where_heads_are_not_grouped():
    def sent(algorithm):
        settings = {"n_ranks": 32, "machine": "large", "h_q": 2, "h_kv": 2, "context": 32, "algorithm": algorithm}
        return run_bench(BENCH, "single_user_prefill", settings, shapes_only=True).metrics["send_bytes"]

    assert sent("tiled_kv") < 0.6 * sent("stream_kv")


@pytest.mark.sampled(11)
@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("settings", [{"d_head": 512}, {"dtype": "f32", "d_head": 256}, {"tokens": 256}])
def test_the_kernels_own_blocks_fit_the_bundled_machine(algorithm, settings):
    panel = "single_user_prefill" if algorithm in PREFILL else "single_user_decode"
    chosen = {"context": 8192, "h_q": 8, "h_kv": 1, "tokens": 64, **settings, "algorithm": algorithm}
    result = run_bench(BENCH, panel, chosen, shapes_only=True)
    assert result.findings == [], "\n".join(map(str, result.findings))


def test_limits_hold_where_there_is_next_to_nothing_to_do():
    for algorithm in PREFILL:
        slow = {"machine.link.latency": "1 ms", "h_kv": 1, "d_head": 16, "algorithm": algorithm, "h_q": 8}
        for sizes in ({"context": 1, "tokens": 1}, {"context": 9, "lengths": (0,), "tokens": 3}):
            metrics = run_bench(BENCH, "single_user_prefill", {**slow, **sizes}, timed=True).metrics
            assert metrics["time_ps"] >= max(metrics["limits_ps"].values())


# Routes and shards


@pytest.mark.parametrize("n_ranks", [2, 4, 8, 12])
def test_every_chunk_reaches_every_rank_once_and_is_held_before_it_is_sent(n_ranks):
    order = list(np.random.default_rng(n_ranks).permutation(n_ranks))
    routes = {
        "line": lambda r: along_line(r, n_ranks),
        "ring": lambda r: round_ring(r, n_ranks),
        "cycle": lambda r: round_cycle(r, order),
        "chain": lambda r: along_chain(r, order, "N", "S"),
    }
    for name, route in routes.items():
        if name == "cycle" and n_ranks == 2:
            continue
        for rank in range(n_ranks):
            held = {(rank, KEY), (rank, VALUE)}
            for hop in route(rank):
                for send in hop.sends:
                    assert send.owner is None or {(send.owner, p) for p in send.parts} <= held, name
                arrived = [(r.owner, p) for r in hop.receives if r.owner is not None for p in r.parts]
                assert not held & set(arrived)
                held.update(arrived)
            assert held == set(itertools.product(range(n_ranks), BOTH)), name


def test_what_one_rank_sends_its_neighbour_receives():
    order = [0, 3, 1, 2, 5, 4]
    for place, rank in enumerate(order):
        onward = order[(place + 1) % 6]
        for mine, theirs in zip(round_cycle(rank, order), round_cycle(onward, order), strict=True):
            assert (mine.sends[0].owner, mine.sends[0].parts) == (theirs.receives[0].owner, theirs.receives[0].parts)


@pytest.mark.parametrize("total", [0, 1, 5, 16, 33, 100])
@pytest.mark.parametrize("n_ranks", [1, 3, 8])
def test_shards_hold_every_token_once(total, n_ranks):
    rows = zigzag_rows(total, n_ranks)
    np.testing.assert_array_equal(np.sort(np.concatenate(rows)), np.arange(total))
    for rank in range(n_ranks):
        for segments in (zigzag(total, rank, n_ranks), contiguous(total, rank, -(-total // n_ranks))):
            assert [s.first for s in segments] == [sum(t.rows for t in segments[:i]) for i in range(len(segments))]
        positions = [p for s in zigzag(total, rank, n_ranks) for p in range(s.position, s.position + s.rows)]
        np.testing.assert_array_equal(rows[rank], positions)


def test_runs_that_touch_are_joined():
    assert joined([(8, 4), (0, 3), (3, 2), (12, 1)]) == [(0, 5), (8, 5)]
