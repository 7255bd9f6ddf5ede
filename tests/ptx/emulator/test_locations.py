"""Findings in inlined functions are shown at the kernel's own line, with the function's line beside it."""

from kernbench.ptx.emulator.locations import Locations
from kernbench.ptx.module import Loc

FILES = """
.file 1 "kernel.cu"
.file 2 "library.h"
.file 3 "deeper.h"
"""
OUTSIDE_OF_ALL = "  mov.u64 %rd1, 0;\n"


def where(lab, locs):
    (found,) = lab.findings(OUTSIDE_OF_ALL + locs + "  st.global.u32 [%rd1], %r0;", block=1, outside=FILES)
    inner = [other.where for other in found.others if other.role == "in the inlined function"]
    return (found.where.file, found.where.line), [(place.file, place.line) for place in inner]


def test_a_line_that_was_not_inlined(lab):
    assert where(lab, "  .loc 1 7 1\n") == (("kernel.cu", 7), [])
    assert where(lab, "  .loc 2 9 1\n") == (("library.h", 9), [])


def test_an_inlined_function_of_a_library(lab):
    locs = "  .loc 1 7 1\n  .loc 2 30 5, function_name $name, inlined_at 1 7 1\n"
    assert where(lab, locs) == (("kernel.cu", 7), [("library.h", 30)])


def test_the_callers_line_need_not_come_first(lab):
    locs = "  .loc 2 30 5, function_name $name+4, inlined_at 1 8 2\n"
    assert where(lab, locs) == (("kernel.cu", 8), [("library.h", 30)])


def test_functions_inlined_in_each_other(lab):
    locs = (
        "  .loc 1 7 1\n  .loc 2 30 5, function_name $a, inlined_at 1 7 1\n"
        "  .loc 3 40 5, function_name $b, inlined_at 2 30 5\n"
    )
    assert where(lab, locs) == (("kernel.cu", 7), [("deeper.h", 40)])


def test_a_function_of_the_kernels_own_file_has_its_own_line(lab):
    locs = (
        "  .loc 1 7 1\n  .loc 1 3 5, function_name $a, inlined_at 1 7 1\n"
        "  .loc 2 40 5, function_name $b, inlined_at 1 3 5\n"
    )
    assert where(lab, locs) == (("kernel.cu", 3), [("library.h", 40)])


def test_one_library_line_inlined_in_two_places(lab):
    locs = (
        "  .loc 2 30 5, function_name $a, inlined_at 1 7 1\n  .loc 3 40 5, function_name $b, inlined_at 2 30 5\n"
        "  .loc 2 30 5, function_name $a, inlined_at 1 9 1\n  .loc 3 40 5, function_name $b, inlined_at 2 30 5\n"
    )
    assert where(lab, locs) == (("kernel.cu", 9), [("deeper.h", 40)])


def test_a_line_inlined_in_itself_stays_small():
    locations = Locations()
    for _ in range(1000):
        origin = locations.at(Loc(1, 2, 3, ", function_name $a, inlined_at 1 2 3"))
    assert origin.own is origin.inner


def test_where_a_line_was_inlined():
    assert Loc(2, 30, 5, ", function_name $a+8, inlined_at 1 7 1").inlined_at == (1, 7, 1)
    assert Loc(1, 2, 3, ", function_name $a").inlined_at is None
