"""The four llama-70B panels: right and safe over heads, ranks, masks and types; depth 1 deadlocks, 2 is enough."""

import itertools

import numpy as np
import pytest
from tests import sampled

from kernbench.bench import find, run_bench
from kernbench.result import Status

BENCH = find("milestone_gqa_llama70b")
PANELS = list(BENCH.panels)
SMALL = {
    "single_user_prefill": {"context": 40},
    "single_user_decode": {"context": 90},
    "multi_user_prefill": {"context": 30, "users": 2},
    "multi_user_decode": {"context": 90, "users": 3, "lengths": (90, 1, 47)},
}


def run(panel, schedule=None, **settings):
    return run_bench(BENCH, panel, {**SMALL[panel], "d_head": 32, **settings}, schedule=schedule)


def good(result):
    assert result.findings == [], "\n".join(map(str, result.findings))
    assert result.right, result.comparison[0].reason
    assert result.safe


@pytest.mark.sampled(10)
@pytest.mark.parametrize("panel", PANELS)
@pytest.mark.parametrize("heads", [(8, 8), (64, 8), (64, 1)])
@pytest.mark.parametrize("n_ranks", [1, 2, 3, 8])
def test_right_and_safe(panel, heads, n_ranks):
    """With --full every mask and type for three ranks; elsewhere every type, with one mask or the other."""
    both = [(False, "f16"), (True, "bf16"), (False, "f32")] if n_ranks % 2 else [(True, "f16"), (False, "bf16")]
    ways = list(itertools.product((False, True), ("f16", "bf16", "f32"))) if n_ranks == 3 else both
    for causal, dtype in sampled.some(ways, 3):
        good(run(panel, h_q=heads[0], h_kv=heads[1], n_ranks=n_ranks, causal=causal, dtype=dtype))


@pytest.mark.sampled(4)
@pytest.mark.parametrize("panel", PANELS)
@pytest.mark.parametrize("heads", [(8, 8), (64, 8), (64, 1)])
def test_sixteen_ranks_on_large(panel, heads):
    good(run(panel, h_q=heads[0], h_kv=heads[1], n_ranks=16, machine="large", dtype="bf16"))


@pytest.mark.parametrize("panel", PANELS)
def test_the_real_head_size(panel):
    good(run(panel, d_head=128, context=SMALL[panel]["context"] // 2, lengths=()))


@pytest.mark.parametrize("panel", ["single_user_prefill", "multi_user_prefill"])
def test_closed_ring(panel):
    for n_ranks, causal in itertools.product((1, 2, 3, 8), (False, True)):
        good(run(panel, algorithm="ring_kv", n_ranks=n_ranks, causal=causal, h_q=8, h_kv=2))


@pytest.mark.sampled(6)
@pytest.mark.parametrize("panel", PANELS)
@pytest.mark.parametrize("depth", [1, 2, 4])
def test_queue_depth_under_every_schedule(panel, depth):
    outputs = []
    small = {"n_ranks": 4, "h_q": 4, "h_kv": 2, "context": 24, "lengths": (), "machine.ipcq.depth": depth}
    for schedule in ["canonical", "reversed", *sampled.some(range(8), 1)]:
        result = run(panel, schedule, **small)
        assert result.origin["schedule"] == schedule
        if depth == 1:
            assert result.status is Status.DEADLOCKED
            assert [f.kind for f in result.findings] == ["deadlock"]
            assert "depth 2 or more (now 1" in result.findings[0].hint
        else:
            good(result)
            outputs.append(result.outputs["o"].tobytes())
    assert len(set(outputs)) <= 1


@pytest.mark.parametrize("panel", PANELS)
def test_blocks_do_not_change_the_result_beyond_rounding(panel):
    for block_q, block_kv in ((8, 3), (64, 16), (1000, 1000)):
        good(run(panel, n_ranks=3, h_q=8, h_kv=2, block_q=block_q, block_kv=block_kv))


def test_chunks_land_in_hbm_when_scratch_is_small():
    settings = {"n_ranks": 4, "h_q": 8, "h_kv": 2, "block_q": 16, "block_kv": 8, "machine.pe.scratch": "24 KiB"}
    small = run("single_user_prefill", **settings)
    good(small)
    assert small.metrics["scratch_peak_bytes"] <= 24 << 10
    roomy = run("single_user_prefill", **{**settings, "machine.pe.scratch": "4 MiB"})
    good(roomy)
    assert small.metrics["load_bytes"] > roomy.metrics["load_bytes"]
    assert small.metrics["send_bytes"] == roomy.metrics["send_bytes"]


def test_ragged_and_chunked_prefill():
    good(run("single_user_prefill", context=41, n_ranks=8))
    good(run("single_user_prefill", context=41, tokens=7, n_ranks=3))
    good(run("single_user_prefill", context=5, n_ranks=8))
    good(run("multi_user_prefill", context=30, lengths=(30, 11), n_ranks=4))
    good(run("single_user_decode", context=9, tokens=4, n_ranks=8))
    good(run("multi_user_decode", context=9, users=2, lengths=(9, 0), n_ranks=4))


LARGE = [
    ("single_user_decode", {"tokens": 64, "context": 128, "d_head": 128, "h_q": 16, "h_kv": 2}),
    ("single_user_prefill", {"d_head": 512, "dtype": "f32", "h_q": 2, "h_kv": 2, "context": 512, "n_ranks": 4}),
    ("single_user_decode", {"tokens": 8, "context": 64, "d_head": 128, "h_q": 128, "h_kv": 1, "n_ranks": 4}),
]


@pytest.mark.parametrize(("panel", "sizes"), sampled.some(LARGE, 2))
def test_large_tiles_and_heads_do_not_deadlock(panel, sizes):
    good(run(panel, **sizes))


def test_full_attention_of_every_panel():
    for panel in PANELS:
        good(run(panel, causal=False))


def test_rows_without_a_visible_key_are_zero():
    result = run("multi_user_prefill", context=20, users=2, lengths=(20, 5), n_ranks=4)
    good(result)
    assert not result.outputs["o"].reshape(2, 20, -1)[1, :15].any()


def test_the_same_seed_gives_the_same_digits():
    first, second = (run("single_user_prefill").outputs["o"].tobytes() for _ in range(2))
    assert first == second
    assert run_bench(BENCH, "single_user_prefill", SMALL["single_user_prefill"], seed=1).right


def test_every_rank_folds_every_chunk_once():
    result = run("single_user_prefill", n_ranks=5, h_q=2, h_kv=1, causal=False)
    for stream in result.recording.streams:
        assert sum(c.op == "dot" for c in stream) == 2 * 5
        assert sum(c.op == "recv" for c in stream) == 2 * 4
    # K and V of 5 chunks reach 4 other ranks each, a hop at a time
    assert sum(c.op == "send" for s in result.recording.streams for c in s) == 2 * 5 * 4


def test_idle_pes_emit_nothing():
    result = run("multi_user_decode", n_ranks=2)
    assert {(s.cube, s.pe) for s in result.recording.streams} == {(0, 0), (1, 0)}


def test_output_is_never_poison():
    assert not np.isnan(run("multi_user_decode").outputs["o"]).any()
