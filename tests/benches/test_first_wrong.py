"""Planted faults in the bundled PTX kernels: the first intermediate that is wrong is named, with who has it."""

import pytest

from kernbench.bench import find, run_bench
from kernbench.benches.batched_attention.decode_attention import _Slice
from kernbench.benches.batched_attention.incremental_attention import BatchedIncrementalAttentionKernel
from kernbench.benches.chunk_output.sm90_group import Group

SMALL = {"users": 2, "context": 16, "lengths": (16, 7), "h_q": 2, "h_kv": 1, "d_head": 64}
CHUNKS = {"lengths": (100,), "heads": 1, "value_heads": 2, "key_size": 64, "value_size": 64, "sms": 2}


def first_wrong(name, **settings):
    run = run_bench(find(name), None, settings, first_wrong=True)
    return run, run.views["first_wrong"]


def test_nothing_is_wrong_with_the_kernels_themselves():
    run, view = first_wrong("batched_incremental_attention", **SMALL, kernel="one_warp", dtype="f32")
    assert run.right
    assert view["wrong"] is None
    assert view["right"] == {"scores": 16, "weights": 1}


def test_a_kernel_that_forgets_the_largest_score_before(monkeypatch):
    monkeypatch.setattr(BatchedIncrementalAttentionKernel, "kept", lambda self, largest: largest)
    run, view = first_wrong("batched_incremental_attention", **SMALL, kernel="one_warp", dtype="f32")
    assert run.right is False
    assert view["wrong"]["name"] == "weights"
    assert view["right"] == {"scores": 16}
    assert view["wrong"]["where"]["text"].startswith('ctx.checkpoint("weights"')
    assert view["last_right"]["name"] == "scores"


def test_scores_of_one_head_are_wrong(monkeypatch):
    right = _Slice._query

    def wrong(self, head):
        query = right(self, head)
        return [self.ctx.where(self.head == 1, value * 1.5, value) for value in query]

    monkeypatch.setattr(_Slice, "_query", wrong)
    _, view = first_wrong("batched_incremental_attention", **SMALL, kernel="multi_warp", dtype="f16")
    wrong_one = view["wrong"]
    assert wrong_one["name"] == "scores"
    assert wrong_one["element"][1] == 1
    assert wrong_one["who"].startswith("block (1, ")
    assert wrong_one["actual"] == pytest.approx(1.5 * wrong_one["expected"], rel=0.01)


def test_a_decay_of_the_wrong_sign_is_seen_in_p(monkeypatch):
    right = Group._weighed
    monkeypatch.setattr(Group, "_weighed", lambda self, score, exponent, kept: right(self, score, 0.0 - exponent, kept))
    run, view = first_wrong("gated_delta_rule_chunk_output", **CHUNKS)
    assert run.right is False
    assert view["wrong"]["name"] == "p"
    assert view["last_right"]["name"] == "scores"


def test_a_forgotten_decay_of_the_state(monkeypatch):
    gates, calls = Group._row_gates, []

    def wrong(self):
        calls.append(self)
        # those of P come first: with every second ones only q H^T is decayed
        return gates(self) if len(calls) % 2 else [gate * 0.0 for gate in gates(self)]

    monkeypatch.setattr(Group, "_row_gates", wrong)
    _, view = first_wrong("gated_delta_rule_chunk_output", **CHUNKS)
    assert view["wrong"]["name"] == "carried"
    assert view["last_right"]["name"] == "p"


def test_a_masked_row_of_sm100(monkeypatch):
    from kernbench.benches.chunk_output import sm100_rows as rows

    right = rows._decayed
    monkeypatch.setattr(rows, "_decayed", lambda lane, scores, gates: right(lane, scores[::-1], gates))
    _, view = first_wrong("gated_delta_rule_chunk_output", **CHUNKS, kernel="sm_100a")
    assert view["wrong"]["name"] == "p"
    assert view["last_right"]["name"] == "scores"
    assert view["wrong"]["where"]["file"].endswith("chunk_output/layout.py")
