"""Outputs: parts that nobody wrote, and copies that disagree."""

from tests.mesh.planted import D, S, at, launch, line_of, only


def stores_half(q_ptr, o_ptr, *, tl):
    x = tl.load(q_ptr, shape=(S, D))
    tl.store(o_ptr, x if tl.program_id(0) == 0 else x[0:1])


def stores_nothing(q_ptr, o_ptr, *, tl):
    tl.load(q_ptr, shape=(S, D))


def test_output_never_written():
    finding = only(launch(stores_half, 3), "output-unwritten")
    assert "48 elements of output 'o' were never written: 24 of them on rank 1, the first at [1, 0]" in finding.message
    assert finding.ranks == (1, 2)
    assert "64 elements" in only(launch(stores_nothing), "output-unwritten").message


def copies_differ(q_ptr, o_ptr, *, tl):
    x = tl.full((S, D), 1.0)
    tl.store(o_ptr, x + (0.5 if tl.program_id(0) == 2 else 0.0))


def copies_round_differently(q_ptr, o_ptr, *, tl):
    x = tl.full((S, D), 1.0)
    tl.store(o_ptr, x * (1.0 + tl.program_id(0) * 2.0**-22))


def test_copies_that_disagree():
    finding = only(launch(copies_differ, 4, out_axis=None), "output-disagreement")
    assert "32 elements between rank 0 and rank 2, by up to 0.5 at [0, 0] (unlike rank 0: rank 2)" in finding.message


def copies_hide_behind_infinity(q_ptr, o_ptr, *, tl):
    x = tl.full((S, D), 1.0 + tl.program_id(0))
    tl.store(o_ptr, tl.where(tl.arange(0, D) == 0, float("inf"), x))


def test_an_infinity_hides_no_difference():
    assert only(launch(copies_hide_behind_infinity, 2, out_axis=None), "output-disagreement")


def test_copies_that_differ_by_rounding_are_fine():
    assert launch(copies_round_differently, 4, out_axis=None).safe


def stores_in_two_places(q_ptr, o_ptr, *, tl):
    x = tl.load(q_ptr, shape=(S, D))
    if tl.program_id(0) == 0:
        tl.store(o_ptr, x)
    else:
        tl.store(o_ptr + 4 * D, x[1:])


def test_findings_about_outputs_are_told_where_they_are_stored():
    at(only(launch(stores_half, 3), "output-unwritten"), stores_half, "tl.store")
    at(only(launch(stores_nothing), "output-unwritten"), stores_nothing, "def ")
    at(only(launch(copies_differ, 4, out_axis=None), "output-disagreement"), copies_differ, "tl.store")
    finding = only(launch(stores_in_two_places), "output-unwritten")
    at(finding, stores_in_two_places, "tl.store(o_ptr, x)")
    (other,) = finding.others
    assert other.where.line == line_of(stores_in_two_places, "4 * D")
