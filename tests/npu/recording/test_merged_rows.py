"""Rows that other processes recorded: put in their places, and given as bytes only to who asks for them."""

import pickle

import numpy as np
import pytest
from tests import sampled

from kernbench.npu.recording import record
from kernbench.npu.recording.merging import _put
from kernbench.npu.recording.record import ROW_TYPE, NpuRecording


def _rows(count: int, seed: int = 0):
    words = np.random.default_rng(seed).integers(0, 256, count * ROW_TYPE.itemsize, np.uint8)
    return words.view(ROW_TYPE)


def test_rows_that_are_taken_over_are_those_that_were_recorded():
    rows = _rows(5)
    recorded = NpuRecording()
    recorded.rows.extend(row.tobytes() for row in rows)
    taken = NpuRecording()
    taken.rows.append(rows[0].tobytes())
    taken.take(rows)
    assert taken.count == recorded.count == 5
    assert repr(taken) == repr(recorded)
    assert taken.array() is rows
    assert pickle.loads(pickle.dumps(taken)).rows == recorded.rows
    assert taken.rows == recorded.rows
    assert taken.count == 5
    assert taken.array().tobytes() == recorded.array().tobytes()


@pytest.mark.parametrize("count", [0, 1, 7, 8, 9, 29])
def test_rows_become_an_array_some_at_a_time(count, monkeypatch):
    monkeypatch.setattr(record, "_AT_ONCE", 8)
    rows = _rows(count)
    recorded = NpuRecording()
    recorded.rows.extend(row.tobytes() for row in rows)
    found = recorded.array()
    assert found.tobytes() == rows.tobytes()
    assert found.dtype == ROW_TYPE
    # it stands for what was recorded
    assert not found.flags.writeable


def test_a_recording_that_was_kept_when_rows_were_always_a_list_can_be_read():
    rows = _rows(4)
    recorded = NpuRecording(block_first=[0], block_task=[0])
    recorded.rows.extend(row.tobytes() for row in rows)
    old = vars(recorded)
    old["rows"] = old.pop("_rows")
    for newer in ("_is_taken", "cases"):
        del old[newer]
    read = pickle.loads(pickle.dumps(recorded))
    assert read.count == 4
    assert read.rows == [row.tobytes() for row in rows]
    assert read.array().tobytes() == rows.tobytes()
    assert "rows" not in vars(read)


@sampled.each(range(20))
def test_rows_of_blocks_come_to_where_their_blocks_start(seed):
    rng = np.random.default_rng(seed)
    blocks, owners = int(rng.integers(1, 30)), int(rng.integers(1, 5))
    owner, sizes = rng.integers(0, owners, blocks), rng.integers(0, 4, blocks)
    if seed % 2:
        owner = np.sort(owner)
    kept = int(rng.integers(0, 3))
    starts = kept + np.concatenate([[0], np.cumsum(sizes)])
    wanted = _rows(int(starts[-1]), seed)
    merged = np.zeros(len(wanted), ROW_TYPE)
    merged[:kept] = wanted[:kept]
    for one in range(owners):
        own = [wanted[starts[b] : starts[b + 1]] for b in range(blocks) if owner[b] == one]
        rows = np.concatenate([wanted[:0], *own])
        _put(merged, starts[:-1], np.where(owner == one, sizes, 0), rows)
    assert merged.tobytes() == wanted.tobytes()


def test_the_rows_of_a_launch_that_is_over_are_one_array():
    rows = _rows(3)
    recording = NpuRecording()
    recording.finish()
    assert recording.count == 0
    recording.rows.extend(row.tobytes() for row in rows)
    held = recording.rows
    recording.finish()
    assert held == []
    assert recording.count == 3
    assert recording.array().tobytes() == rows.tobytes()
    assert recording.rows == [row.tobytes() for row in rows]


def test_blocks_as_arrays_are_those_of_the_lists():
    recording = NpuRecording()
    recording.begin_blocks(0, [0, 1])
    recording.rows.extend(row.tobytes() for row in _rows(3))
    assert recording.firsts().tolist() == [0, 0, 3]
    recording.begin_blocks(1, [0])
    recording.rows.extend(row.tobytes() for row in _rows(2))
    assert recording.firsts().tolist() == [0, 0, 3, 5]
    assert recording.owners().tolist() == [0, 0, 1]
    # where another process ran blocks, their rows come later
    recording.block_first[1:] = [4, 6]
    recording.take(_rows(8))
    assert recording.firsts().tolist() == [0, 4, 6, 8]
    assert recording.firsts() is recording.firsts()
    assert pickle.loads(pickle.dumps(recording)).firsts().tolist() == [0, 4, 6, 8]
    # one that goes on
    recording.rows.append(_rows(1)[0].tobytes())
    assert recording.firsts().tolist() == [0, 4, 6, 9]
    recording.begin_blocks(2, [0])
    assert recording.owners().tolist() == [0, 0, 1, 2]
