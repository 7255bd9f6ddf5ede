"""Columns and graphs: streams end to end, one case for the same work, edges in place without a list of them."""

import numpy as np
import pytest

from kernbench import mesh
from kernbench.common.pe_commands import OPERATIONS
from kernbench.mesh.time import columns as columns_module
from kernbench.mesh.time.columns import cases, make_columns


def kernel(x_ptr, *, tl):
    rank, n = tl.program_id(0), tl.num_programs(0)
    x = tl.load(x_ptr, shape=(4, 8), dtype="f32")
    for _ in range(3):
        x = tl.exp(x + 1.0)
    y = tl.dot(x, tl.trans(x))
    if rank < n - 1:
        tl.send(dir="E", src=y)
    if rank > 0:
        tl.recv(dir="W", shape=(4, 4), dtype="f32")


@pytest.fixture(scope="module")
def recording():
    host = mesh.Host("small", ranks=3, shapes_only=True)
    run = host.launch(kernel, host.shard(np.ones((12, 8), np.float32)))
    assert run.safe, run.findings
    return run.recording


def test_columns_are_the_streams_end_to_end(recording):
    columns = make_columns(recording)
    assert np.diff(columns.first).tolist() == [len(s) for s in recording.streams]
    for number, stream in enumerate(recording.streams):
        rows = slice(columns.first[number], columns.first[number + 1])
        assert [tuple(OPERATIONS)[op] for op in columns.op[rows]] == [c.op for c in stream]
        moved = [c.nbytes if c.op == "load" else y for c, y in zip(stream, stream.rows.column("y"), strict=True)]
        assert columns.y[rows].tolist() == moved
        assert set(columns.program[rows].tolist()) == {number}


def test_operand_types_go_through_views(recording):
    columns, types = make_columns(recording), recording.tables.types
    (dot, *_) = np.flatnonzero(columns.op == OPERATIONS["dot"].code)
    assert [types[t][0] for t in columns.operand_type[dot]] == [(4, 8), (8, 4)]


@pytest.mark.parametrize("room", [1, 2, 1 << 10])
def test_one_case_for_the_same_work_however_many_there_are(recording, room, monkeypatch):
    monkeypatch.setattr(columns_module, "FIRST_CASES", room)
    columns = make_columns(recording)
    first, case = cases(columns, len(recording.tables.types))
    keys = list(zip(columns.op.tolist(), columns.type.tolist(), map(tuple, columns.operand_type.tolist()), strict=True))
    assert len(first) == len(set(keys))
    assert [keys[first[c]] for c in case] == keys
