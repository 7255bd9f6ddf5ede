"""Compiled loops over the rows of a recording, against slow ones that are plain to see."""

from itertools import pairwise

import numpy as np
import pytest
from tests import sampled

from kernbench.npu.isa.operations import CLASSES, LOAD, POP, PUSH, STORE
from kernbench.npu.isa.units import AIC, PER_LANE
from kernbench.npu.recording.record import ROW_TYPE, FifoRecord, NpuRecording, Pattern, TaskRecord, TileShape
from kernbench.npu.time import costs
from kernbench.npu.time.edges import arrows
from kernbench.npu.time.waiting import _PLAIN, KINDS, _follow, _show, _sources


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


@sampled.each(range(30))
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
    # in any order
    for begin, end in sorted(pairwise([0, count // 3, count]), key=lambda _: rng.random()):
        _follow(begin, end, _PLAIN, np.empty(count, np.int32), source, kind, span_of, onto)
    assert list(zip(onto.tolist(), kind.tolist(), strict=True)) == wanted


def test_the_node_that_was_waited_for_longest_is_that_of_the_edge():
    # node 0 leads to 1 and 2, node 1 to 2
    offsets, targets = np.array([0, 2, 3, 3], np.int32), np.array([1, 2, 2], np.int32)
    kinds, cause = np.array([4, 5, 6], np.int8), np.array([-1, 0, 2], np.int32)
    source, kind = np.arange(3, dtype=np.int32), np.full(3, 9, np.int8)
    _sources(0, 2, offsets, targets, kinds, cause, source, kind)
    assert source.tolist() == [0, 0, 1]
    _sources(2, 3, offsets, targets, kinds, cause, source, kind)
    assert source.tolist() == [0, 0, 1]
    assert kind.tolist() == [9, 4, 6]


def _random_rows(rng, count):
    rows = np.zeros(count, ROW_TYPE)
    rows["op"] = rng.integers(0, len(CLASSES), count)
    for name in ("w", "a", "b", "c", "y"):
        rows[name] = rng.integers(-1, 4, count)
    for name, most in (("lane", 3), ("pipe", PER_LANE), ("x", 5)):
        rows[name] = rng.integers(0, most, count)
    moving = np.isin(CLASSES[rows["op"]], (LOAD, STORE, PUSH, POP))
    for name in ("w", "a", "y"):
        rows[name][moving] = rng.integers(0, 4, int(moving.sum()))
    return rows


@pytest.mark.parametrize("seed", range(5))
def test_transfers_are_the_rows_that_move_bytes(seed):
    """Looked at as a whole, and in parts, of which one is empty."""
    rng = np.random.default_rng(seed)
    recording = NpuRecording(block_first=[0, 90, 90, 251], block_task=[0] * 4, block_index=[0, 1, 2, 3])
    recording.take(_random_rows(rng, 400))
    recording.tables.patterns += [Pattern((2, k), (8, 1), 4) for k in range(4)]
    recording.tables.tiles += [TileShape("UB", 0, (8, 8), "f32", "rows", (k, 3), k) for k in range(4)]
    wanted, read = {}, 0
    for number, row in enumerate(recording.array()):
        kind = CLASSES[row["op"]]
        nbytes = 0
        if kind in (LOAD, STORE) and row["c"] >= 0:
            nbytes = 2 * int(row["y"]) * 4
        elif kind in (PUSH, POP):
            nbytes = int(row["a" if kind == PUSH else "w"]) * 3 * int(row["y"])
        if nbytes > 0:
            wanted[number] = nbytes
            read += nbytes * (kind in (LOAD, POP))
    for parts in ([(0, 4)], [(0, 1), (1, 2), (2, 4)]):
        found = costs.find_transfers(recording, parts)
        assert list(zip(found.rows.tolist(), found.moved.tolist(), strict=True)) == list(wanted.items())
        assert found.read == read
        kinds = np.bincount(CLASSES[recording.array()["op"]], minlength=len(found.counts))
        assert found.counts.tolist() == kinds.tolist()


def test_rows_that_are_not_aligned_can_be_read():
    rows = _random_rows(np.random.default_rng(1), 50)
    moved = np.frombuffer(b"x" + rows.tobytes(), np.uint8)[1:].view(ROW_TYPE)
    recording = NpuRecording()
    recording.take(moved)
    op, message = recording.columns("op", "message")
    assert op.flags.aligned
    assert message.flags.aligned
    assert op.tolist() == rows["op"].tolist()
    assert message.tolist() == rows["x"].tolist()
    assert recording.array().tobytes() == rows.tobytes()


def test_times_of_pipes_are_those_of_their_rows():
    rng = np.random.default_rng(3)
    rows = _random_rows(rng, 300)
    case, cost = rng.integers(0, 6, len(rows)).astype(np.int32), rng.integers(0, 10**6, 6)
    sums, counts = np.zeros((2, 2 * PER_LANE), np.int64)
    costs.sum_of_pipes(rows["lane"], rows["pipe"], case, cost, sums, counts)
    key = (rows["lane"] != AIC) * PER_LANE + rows["pipe"]
    assert sums.tolist() == [int(cost[case[key == k]].sum()) for k in range(2 * PER_LANE)]
    assert counts.tolist() == [int((key == k).sum()) for k in range(2 * PER_LANE)]


@pytest.mark.parametrize("seed", range(12))
def test_arrows_lead_from_each_push_of_a_message_to_each_pop_of_it(seed):
    rng = np.random.default_rng(seed)
    push, pop, other = (int(np.flatnonzero(kind == CLASSES)[0]) for kind in (PUSH, POP, LOAD))
    producers, consumers = ((0,), (1, 2)) if seed % 2 else ((1, 2), (0,))
    depth, fifos = int(rng.integers(1, 4)), int(rng.integers(1, 3))
    rows, firsts = [], [0]
    for _ in range(2):
        pushed, popped = ({(fifo, lane): 0 for fifo in range(fifos) for lane in range(3)} for _ in range(2))
        for _ in range(120):
            fifo, lane = int(rng.integers(0, fifos)), int(rng.integers(0, 3))
            if lane in producers and pushed[fifo, lane] < depth + min(popped[fifo, one] for one in consumers):
                rows.append((push, lane, fifo, pushed[fifo, lane]))
                pushed[fifo, lane] += 1
            elif lane in consumers and popped[fifo, lane] < min(pushed[fifo, one] for one in producers):
                rows.append((pop, lane, fifo, popped[fifo, lane]))
                popped[fifo, lane] += 1
            else:
                rows.append((other, lane, 0, 0))
        firsts.append(len(rows))
    recording = NpuRecording(block_first=firsts[:-1], block_task=[0, 0], block_index=[0, 1])
    kinds = tuple(FifoRecord(f"f{k}", producers, consumers, depth, 4) for k in range(fifos))
    recording.tasks.append(TaskRecord(0, "t", (0, 1, 2), 2, 0, {}, 0, 0, 0, False, kinds))
    array = np.zeros(len(rows), ROW_TYPE)
    for name, column in zip(("op", "lane", "c", "x"), zip(*rows, strict=True), strict=True):
        array[name] = column
    recording.take(array)
    span_of = np.where(rng.random(len(rows)) < 0.9, np.arange(len(rows)) + 7, -1).astype(np.int32)
    wanted = [
        [int(span_of[source]), int(span_of[target])]
        for begin, end in pairwise(firsts)
        for target in range(begin, end)
        for source in range(begin, end)
        if (rows[source][0], rows[target][0]) == (push, pop) and rows[source][2:] == rows[target][2:]
        if span_of[source] >= 0 and span_of[target] >= 0
    ]
    pops = sum(row[0] == pop for row in rows)
    assert wanted
    columns = recording.columns("op", "lane", "c", "message")
    assert arrows(recording.firsts(), recording.fifo_table(), columns, span_of, pops).tolist() == wanted


def test_a_span_behind_one_that_says_little_is_said_to_have_waited_for_what_that_did():
    plain = int(np.flatnonzero(_PLAIN)[0])
    telling = [int(kind) for kind in np.flatnonzero(~_PLAIN)[:3]]
    # 3 waits for 2, that for 1, that for 0; only 0 is a span
    source, kind = (
        np.array([0, 0, 1, 2, 2], np.int32),
        np.array([plain, telling[0], telling[1], plain, telling[2]], np.int8),
    )
    span_of, onto = np.array([5, -1, -1, -1, -1], np.int32), np.array([0, 0, 0, 0, 0], np.int32)
    cause, nodes = np.array([-1, 1, 2, 3, 4], np.int32), np.array([3, 4, 0])
    shown, after = np.empty((2, 3), np.int64)
    _show(0, len(nodes), nodes, (source, kind, kind, span_of, onto, cause, _PLAIN), shown, after)
    assert shown.tolist() == [telling[1], telling[2], plain]
    assert after.tolist() == [5, 5, -1]
