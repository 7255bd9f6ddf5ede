"""Compiled loops over the rows of a recording, against slow ones that are plain to see."""

import numpy as np
import pytest

from kernbench.npu.recording.record import ROW_TYPE, NpuRecording
from kernbench.npu.time import costs
from kernbench.npu.time.waiting import _PLAIN, KINDS, _follow, _sources


@pytest.mark.parametrize("most", [2, 4096])
def test_rows_of_one_case_have_the_same_operation_and_tiles(monkeypatch, most):
    monkeypatch.setattr(costs, "_FEW", most)
    rng = np.random.default_rng(most)
    rows = np.zeros(3000, ROW_TYPE)
    for name in ("op", "w", "a", "b"):
        rows[name] = rng.integers(-1 if name != "op" else 0, 5, len(rows))
    rows["site"] = np.arange(len(rows))
    recording = NpuRecording()
    recording.take(rows)
    examples, case, counts = costs.cases(recording)
    keys = [tuple(int(row[name]) for name in ("op", "w", "a", "b")) for row in rows]
    met = list(dict.fromkeys(keys))
    assert [met[number] for number in case] == keys
    assert [tuple(int(row[name]) for name in ("op", "w", "a", "b")) for row in examples] == met
    assert counts.tolist() == [keys.count(key) for key in met]
    assert examples["site"].tolist() == [keys.index(key) for key in met]
    # they are kept with the rows
    assert costs.cases(recording)[1] is case


def _way(node, source, kind, span_of):
    """Where the way back from a node ends, and the first kind on it that is not plain, or else the last."""
    if span_of[node] >= 0 or source[node] == node:
        return node, kind[node]
    following = source[node]
    passes = span_of[following] < 0 and source[following] != following
    end, further = _way(following, source, kind, span_of)
    return end, further if passes and _PLAIN[kind[node]] else kind[node]


@pytest.mark.parametrize("seed", range(30))
def test_ways_back_end_at_a_span_and_take_on_the_first_kind_that_says_something(seed):
    rng = np.random.default_rng(seed)
    count = int(rng.integers(1, 60))
    place = rng.permutation(count)
    source = np.arange(count, dtype=np.int32)
    for node in range(count):
        # each waits for one that has an earlier place, or for none
        before = np.flatnonzero(place < place[node])
        if len(before) and rng.random() < 0.9:
            source[node] = rng.choice(before)
    kind = rng.integers(0, len(KINDS), count).astype(np.int8)
    span_of = np.where(rng.random(count) < 0.3, np.arange(count), -1)
    wanted = [_way(node, source, kind, span_of) for node in range(count)]
    onto = np.full(count, -1, np.int32)
    _follow(source, kind, span_of, _PLAIN, onto, np.empty(count, np.int32))
    assert list(zip(onto.tolist(), kind.tolist(), strict=True)) == wanted


def test_the_node_that_was_waited_for_longest_is_that_of_the_edge():
    # node 0 leads to 1 and 2, node 1 to 2
    offsets, targets = np.array([0, 2, 3, 3], np.int32), np.array([1, 2, 2], np.int32)
    kinds, cause = np.array([4, 5, 6], np.int8), np.array([-1, 0, 2], np.int32)
    source, kind = np.arange(3, dtype=np.int32), np.full(3, 9, np.int8)
    _sources(offsets, targets, kinds, cause, source, kind)
    assert source.tolist() == [0, 0, 1]
    assert kind.tolist() == [9, 4, 6]
