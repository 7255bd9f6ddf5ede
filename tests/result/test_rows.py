"""Rows of a recording: what goes in comes out, in order, whatever chunk it fell into."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernbench.result.recording import (
    COMMAND_LAYOUT,
    FIRST_CHUNK,
    LARGEST_CHUNK,
    VIEW_LAYOUT,
    CommandRow,
    Rows,
    ViewRow,
)

small, large = st.integers(-(2**31), 2**31 - 1), st.integers(-(2**63), 2**63 - 1)


def views(count):
    rows = Rows(ViewRow, VIEW_LAYOUT)
    for i in range(count):
        rows.add(i, -i, i << 40)
    return rows


@given(st.lists(st.tuples(*[small] * 6, *[large] * 3), max_size=20))
def test_rows_come_back_as_they_were(given_rows):
    rows = Rows(CommandRow, COMMAND_LAYOUT)
    for row in given_rows:
        rows.add(*row)
    assert [rows[i] for i in range(len(rows))] == given_rows
    assert rows.columns().tolist() == [list(row) for row in given_rows]


@pytest.mark.parametrize("count", [0, 1, FIRST_CHUNK, FIRST_CHUNK + 1, 3 * FIRST_CHUNK, 2 * LARGEST_CHUNK + 5])
def test_chunks_do_not_show(count):
    rows = views(count)
    assert len(rows) == count
    assert rows.column("type").tolist() == list(range(count))
    assert rows.column("producer").tolist() == [-i for i in range(count)]
    for i in {0, FIRST_CHUNK - 1, FIRST_CHUNK, count - 1} & set(range(count)):
        assert rows[i] == ViewRow(i, -i, i << 40)


def test_chunks_are_never_larger_than_the_largest():
    rows = views(3 * LARGEST_CHUNK)
    assert max(len(part) for part in rows.parts()) == LARGEST_CHUNK


def test_a_row_takes_no_more_than_its_fields():
    assert Rows(CommandRow, COMMAND_LAYOUT).size == 48
    assert Rows(ViewRow, VIEW_LAYOUT).size == 16


def test_parts_share_the_memory_of_the_rows():
    rows = views(3)
    (part,) = rows.parts()
    rows.pack(rows.chunk, 0, 7, 8, 9)
    assert part[0].item() == (7, 8, 9)
    assert part.dtype.names == ViewRow._fields
    assert np.array_equal(rows.column("addr"), part["addr"])


@pytest.mark.parametrize("pieces", [1, 3, 80])
def test_some_values_of_a_column(pieces):
    rows = Rows(ViewRow, VIEW_LAYOUT)
    for i in range(pieces):
        rows.extend(np.array([(10 * i + k, k, i) for k in range(7)], rows.dtype))
        rows.add(-i, 1, 2)
    wanted = np.array([0, 8 * pieces - 1, 3, 3, 8 * pieces - 2, 7], np.int64)
    for name in ("type", "producer", "addr"):
        found = rows.values(name, wanted)
        assert found.tolist() == rows.column(name)[wanted].tolist()
        assert found.dtype == rows.column(name).dtype
    assert rows.values("type", wanted[:0]).tolist() == []
    assert Rows(ViewRow, VIEW_LAYOUT).values("addr", wanted[:0]).tolist() == []
