"""Findings in inlined functions are shown at the kernel's own line, with the lines of all functions on the way."""

import pytest

from kernbench import ptx
from kernbench.common.errors import MisuseError
from kernbench.ptx.emulator.program.locations import Locations, is_library
from kernbench.ptx.text.checkpoints import PtxCheckpoint, with_checkpoints
from kernbench.ptx.text.module import Loc

FILES = """
.file 1 "kernel.cu"
.file 2 "library.h"
.file 3 "deeper.h"
"""
OUTSIDE_OF_ALL = "  mov.u64 %rd1, 0;\n"


def where(lab, locs):
    (found,) = lab.findings(OUTSIDE_OF_ALL + locs + "  st.global.u32 [%rd1], %r0;", block=1, outside=FILES)
    inner = [other.where for other in found.others if other.role == "in the inlined function"]
    return (found.where.file, found.where.line), [(location.file, location.line) for location in inner]


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


def test_callers_that_only_a_comment_names(lab):
    inner = "  .loc 2 30 5                  // library.h:30:5 @[ kernel.cu:7:1 ]\n"
    assert where(lab, inner) == (("kernel.cu", 7), [("library.h", 30)])
    deeper = "  .loc 3 40 5                  // deeper.h:40:5 @[ library.h:30:5 @[ kernel.cu:8:1 ] ]\n"
    assert where(lab, deeper) == (("kernel.cu", 8), [("deeper.h", 40)])
    # of a file that the text does not know nothing is said
    assert where(lab, deeper.replace("kernel.cu", "other.cu")) == (("library.h", 30), [("deeper.h", 40)])
    assert where(lab, "  .loc 2 9 1                   // library.h:9:1\n") == (("library.h", 9), [])


def test_files_of_one_name_are_not_guessed():
    files = '.file 1 "a/kernel.py"\n.file 2 "b/kernel.py"\n.file 3 "standard.py"\n'
    body = "\n.visible .entry k()\n{\n.loc 3 5 1 // standard.py:5:1 @[ kernel.py:7:1 ]\nret;\n}\n"
    for text, frames in ((files, 1), (files.replace("b/kernel.py", "b/other.py"), 2)):
        module = ptx.parse(".version 8.0\n.target sm_90\n.address_size 64\n" + text + body)
        (loc,) = [one for one in module.kernels["k"].function.body.statements if isinstance(one, Loc)]
        assert len(Locations(module).at(loc).frames) == frames


def test_a_function_of_the_kernels_own_file_has_its_own_line(lab):
    locs = (
        "  .loc 1 7 1\n  .loc 1 3 5, function_name $a, inlined_at 1 7 1\n"
        "  .loc 2 40 5, function_name $b, inlined_at 1 3 5\n"
    )
    assert where(lab, locs) == (("kernel.cu", 3), [("library.h", 40)])


def test_one_library_line_inlined_in_two_locations(lab):
    locs = (
        "  .loc 2 30 5, function_name $a, inlined_at 1 7 1\n  .loc 3 40 5, function_name $b, inlined_at 2 30 5\n"
        "  .loc 2 30 5, function_name $a, inlined_at 1 9 1\n  .loc 3 40 5, function_name $b, inlined_at 2 30 5\n"
    )
    assert where(lab, locs) == (("kernel.cu", 9), [("deeper.h", 40)])


def test_a_line_inlined_in_itself_stays_small():
    locations = Locations(ptx.parse(".version 8.0\n.target sm_90\n"))
    for _ in range(1000):
        origin = locations.at(Loc(1, 2, 3, ", function_name $a, inlined_at 1 2 3"))
    assert origin.shown == 0
    assert len(origin.frames) == 64


def test_where_a_line_was_inlined():
    assert Loc(2, 30, 5, ", function_name $a+8, inlined_at 1 7 1").inlined_at == (1, 7, 1)
    assert Loc(1, 2, 3, ", function_name $a").inlined_at is None


ASSEMBLY = """
  .loc 1 7 3
  // begin inline asm
  .loc 1 7 3
  mov.u32 %r4, 1;
  .loc 1 8 3
  mov.u32 %r5, 1;
  .loc 1 9 3
  // end inline asm
"""


def test_lines_of_an_assembly_statement_are_the_statements(lab):
    assert where(lab, ASSEMBLY) == (("kernel.cu", 7), [])
    assert where(lab, ASSEMBLY.replace("  // end inline asm\n", "")) == (("kernel.cu", 9), [])
    assert where(lab, ASSEMBLY + "  .loc 1 10 3\n") == (("kernel.cu", 10), [])
    inside = ASSEMBLY.replace("  // end inline asm\n", "  st.global.u32 [%rd1], %r0;\n  // end inline asm\n")
    (found,) = lab.findings(OUTSIDE_OF_ALL + inside, block=1, outside=FILES)
    assert found.where.line == 7


def test_an_assembly_statement_in_an_inlined_function(lab):
    locs = "  .loc 1 7 1\n  .loc 2 30 5, function_name $name, inlined_at 1 7 1\n" + ASSEMBLY.replace(
        "  .loc 1 7 3\n", "", 1
    )
    assert where(lab, locs) == (("kernel.cu", 7), [("library.h", 30)])


CUTLASS = """
.file 1 "/home/somebody/cutlass/include/cutlass/device_kernel.h"
.file 2 "/home/somebody/project/kernel.h"
.file 3 "/home/somebody/cutlass/include/cute/arch/copy.hpp"
.file 4 "/home/somebody/project/loop.h"
"""
CHAIN = (
    "  .loc 1 123 1\n  .loc 2 30 5, function_name $a, inlined_at 1 123 1\n"
    "  .loc 4 40 5, function_name $b, inlined_at 2 30 5\n  .loc 3 50 5, function_name $c, inlined_at 4 40 5\n"
)


def test_of_a_librarys_kernel_the_persons_own_line_is_shown_with_all_lines_on_the_way(lab):
    (found,) = lab.findings(OUTSIDE_OF_ALL + CHAIN + "  st.global.u32 [%rd1], %r0;", block=1, outside=CUTLASS)
    assert (found.where.file, found.where.line) == ("/home/somebody/project/loop.h", 40)
    lines = [(other.role, other.where.file.rpartition("/")[2], other.where.line) for other in found.others[:-1]]
    assert lines == [
        ("in the inlined function", "copy.hpp", 50),
        ("inlined from", "kernel.h", 30),
        ("inlined from", "device_kernel.h", 123),
    ]


@pytest.mark.parametrize(
    ("file", "library"),
    [
        ("/x/cutlass/include/cutlass/device_kernel.h", True),
        ("/x/cutlass/examples/48_gemm/48_gemm.cu", False),
        ("/x/cutlass/tools/util/include/cutlass/util/device.h", True),
        ("/x/include/cute/tensor.hpp", True),
        ("/usr/local/cuda-13.0/targets/x86_64-linux/include/cuda_fp16.hpp", True),
        ("/usr/local/cuda/include/crt/sm_80_rt.hpp", True),
        ("/x/cccl/cub/cub/block/block_reduce.cuh", True),
        ("/x/lib/python3.12/site-packages/triton/language/standard.py", True),
        ("/usr/include/c++/13/bits/stl_pair.h", True),
        ("/home/somebody/include/mine.h", False),
        ("/home/somebody/cuda/kernel.cu", False),
        ("kernel.cu", False),
        ("", False),
    ],
)
def test_what_is_a_librarys_file(file, library):
    assert is_library(file) is library


CALLED = """.version 8.0
.target sm_90
.address_size 64
.file 1 "/home/somebody/kernel.cu"
.file 2 "{file}"
.func store() {{
  .reg .b64 %rd<2>;
  .loc 2 30 1
  mov.u64 %rd1, 0;
  st.global.u32 [%rd1], 1;
  ret;
}}
.func between() {{
  .loc 1 20 1
  call store;
  ret;
}}
.visible .entry k() {{
  .loc 1 7 1
  call between;
  .loc 1 9 1
  call store;
  ret;
}}
"""


def called(lab, file):
    run = lab.device.launch(ptx.parse(CALLED.format(file=file)).kernels["k"], 1, 1, [])
    return [
        (found.where.line, [(other.role, other.where.line) for other in found.others if other.role != "in PTX"])
        for found in run.findings
    ]


def test_the_callers_of_a_function_of_ones_own(lab):
    assert called(lab, "/home/somebody/other.cu") == [(30, [("called from", 20), ("called from", 7)])]


def test_the_callers_of_a_librarys_function(lab):
    assert called(lab, "/x/include/cute/copy.hpp") == [
        (20, [("in the called function", 30), ("called from", 7)]),
        (9, [("in the called function", 30)]),
    ]


def test_a_checkpoint_is_not_placed_by_the_lines_of_an_assembly_statement(lab):
    kernel = lab.kernel(ASSEMBLY + "  st.global.u32 [%rd20], %r0;", 1, FILES)
    with_checkpoints(kernel, [PtxCheckpoint("here", ("%r4",), line="kernel.cu:7")])
    with pytest.raises(MisuseError, match=r"kernel\.cu:8"):
        with_checkpoints(kernel, [PtxCheckpoint("here", ("%r4",), line="kernel.cu:8")])


TWO_CHAINS = """
  .loc 1 7 1
  .loc 2 20 5, function_name $a, inlined_at 1 7 1
  .loc 3 40 5, function_name $b, inlined_at 2 20 5
  st.shared.u32 [{earlier}], %r0;
  .loc 1 9 1
  .loc 2 30 5, function_name $a, inlined_at 1 9 1
  .loc 3 50 5, function_name $b, inlined_at 2 30 5
  ld.shared.u32 %r1, [{later}];
"""


def test_the_other_access_has_its_inlined_lines_too(lab):
    """Both accesses of a race are in functions of a library, inlined in each other."""
    body = "  mov.u32 %r5, %tid.x;\n  shl.b32 %r6, %r5, 2;\n  xor.b32 %r7, %r6, 128;\n  mov.u32 %r8, buffer;\n"
    body += "  add.u32 %r6, %r6, %r8;\n  add.u32 %r7, %r7, %r8;\n" + TWO_CHAINS.format(earlier="%r6", later="%r7")
    (found,) = lab.findings(body, block=64, outside=FILES + ".shared .align 4 .b8 buffer[256];")
    assert (found.kind, found.where.file, found.where.line) == ("race", "kernel.cu", 9)
    lines = [(other.role, other.where.file, other.where.line) for other in found.others if "PTX" not in other.role]
    assert lines == [
        ("the other access, by thread (32, 0, 0) of block (0, 0, 0)", "kernel.cu", 7),
        ("the other access, in the inlined function", "deeper.h", 40),
        ("the other access, inlined from", "library.h", 20),
        ("in the inlined function", "deeper.h", 50),
        ("inlined from", "library.h", 30),
    ]
