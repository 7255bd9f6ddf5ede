"""Whole numbers keep their values in launches without data, and what is not known of them is not made up."""

import numpy as np
import pytest
from tests.mesh.planted import line_of

from kernbench import mesh

pytestmark = pytest.mark.usefixtures("small_heap")
ROWS = np.arange(16, dtype=np.int32).reshape(4, 4)


def launch(kernel, shapes_only=True):
    """`kernel(x, table, made, o)` on one PE: floats, whole numbers, whole numbers that nobody wrote, an output."""
    host = mesh.Host("small", ranks=1, shapes_only=shapes_only)
    x, table = host.replicate(np.full((4, 4), 2, np.float32)), host.replicate(ROWS)
    return host.launch(kernel, x, table, host.workspace((4, 4), "i32"), host.empty((4, 4), "f32"))


def rows_of(run):
    return [stream.rows.columns().tolist() for stream in run.recording.streams]


def clipped(first):
    """A kernel that does as often what a tile from row `first` of the table says, of which rows lie outside."""

    def kernel(x, table, made, o, *, tl):
        tile = tl.make_block_ptr(table, (4, 4), (4, 1), (first, 0), (4, 4))
        pages = tl.load(tile, boundary_check=(0,))
        for row in range(4):
            for _ in range(1 + int(pages[row, 1])):
                tl.store(o, pages.to("f32"))

    return kernel


@pytest.mark.parametrize("first", [-4, -3, -1, 0, 2, 4, 9])
def test_a_tile_that_sticks_out_has_its_values_and_zeros(first):
    with_data, without = (launch(clipped(first), shapes_only) for shapes_only in (False, True))
    assert with_data.findings == without.findings == []
    assert rows_of(with_data) == rows_of(without)


def rounds_into(x, table, made, o, *, tl):
    tl.store(made, tl.load(x, (4, 4)).to("i32"))
    tl.store(o, tl.load(made, (4, 4)).to("f32"))


def test_what_was_made_of_floats_was_written():
    assert launch(rounds_into).findings == []


def branches_on(address):
    def kernel(x, table, made, o, *, tl):
        tl.store(table + 16, tl.load(x, (2, 4)).to("i32"))
        tl.store(table + 32, tl.full((1, 4), 3, "i32"))
        wanted = tl.load(table + address)
        if int(wanted) > 2:  # the number
            tl.store(o, tl.load(x, (4, 4)))

    return kernel


def test_what_was_made_of_floats_is_not_what_was_there_before():
    kernel = branches_on(16)
    (finding,) = launch(kernel).findings
    assert finding.kind == "value-needed"
    assert finding.where.line == line_of(kernel, "the number")


def test_what_lies_beside_it_is_known():
    assert launch(branches_on(8)).findings == []


def branches_past_the_end(x, table, made, o, *, tl):
    if int(tl.load(table + 64)) > 2:
        tl.store(o, tl.load(x, (4, 4)))


def test_a_number_from_past_the_end_is_one_finding():
    assert [finding.kind for finding in launch(branches_past_the_end).findings] == ["out-of-bounds"]
