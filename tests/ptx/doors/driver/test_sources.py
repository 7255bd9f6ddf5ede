"""Lines of sources that a program compiles itself: in its own file where the string is there, else by themselves."""

import linecache
import zlib

import pytest

from kernbench.ptx.doors.driver.images.sources import CUPY_FOLDER, FOLDER, at_own_lines, distance

SOURCE = """#include <stdint.h>
extern "C" __global__ void twice(const float* x, float* y) {
  int i = threadIdx.x;
  y[i] = 2 * x[i];
}
"""
PTX = """.version 8.0
.target sm_80
.address_size 64
.visible .entry twice(
)
{
    .loc 1 3 7
    .loc 2 9 1
    .loc 1 4 3, function_name info, inlined_at 1 5 1
    ret;
}
    .file   1 "/somewhere/default_program"
    .file   2 "HEADER"
"""
PROGRAM = f"""import sys

KERNEL = r'''
{SOURCE}'''
print(KERNEL)
"""


@pytest.fixture
def text(tmp_path, monkeypatch):
    """A PTX text with its source kept as the driver library keeps it, and a header that is a file."""
    header = tmp_path / "header.h"
    header.write_text("")
    text = PTX.replace("HEADER", str(header))
    (tmp_path / f"{zlib.crc32(text.encode()):08x}-{len(text)}-default_program").write_text(SOURCE)
    monkeypatch.setenv(FOLDER, str(tmp_path))
    monkeypatch.delenv(CUPY_FOLDER, raising=False)
    return text


def test_lines_are_those_of_the_file_that_has_the_string(text, tmp_path):
    other, program = tmp_path / "other.py", tmp_path / "program.py"
    other.write_text("import program\n")
    program.write_text(PROGRAM)
    moved = at_own_lines(text, [str(other), str(program)])
    assert f'.file   1 "{program}"' in moved
    assert ".loc 1 6 7" in moved
    assert ".loc 1 7 3, function_name info, inlined_at 1 8 1" in moved
    assert linecache.getline(str(program), 7).strip() == "y[i] = 2 * x[i];"
    # the header's stay, and so do the lines of the PTX
    assert ".loc 2 9 1" in moved
    assert len(moved.splitlines()) == len(text.splitlines())


def test_a_source_that_is_in_no_file_is_shown_by_itself(text, tmp_path):
    other = tmp_path / "other.py"
    other.write_text("print('nothing of it')\n")
    moved = at_own_lines(text, [str(other)])
    assert '.file   1 "<CUDA source of twice>"' in moved
    assert ".loc 1 4 3" in moved
    assert linecache.getline("<CUDA source of twice>", 4) == "  y[i] = 2 * x[i];\n"


def test_a_text_whose_source_was_not_kept_stays_as_it_is(text):
    changed = text.replace("ret;", "ret; // another text")
    assert at_own_lines(changed, []) == changed


def test_cupy_keeps_the_sources_of_kernels_that_it_has_compiled_before(text, tmp_path, monkeypatch):
    monkeypatch.delenv(FOLDER)
    monkeypatch.setenv(CUPY_FOLDER, str(tmp_path))
    (tmp_path / "default_program").write_text(SOURCE)
    assert "<CUDA source of twice>" in at_own_lines(text, [])


@pytest.mark.parametrize(
    ("source", "lines", "expected"),
    [
        (["int a = 1;", "int b = 2;"], ["x", "int a = 1;", "int b = 2;"], 1),
        # a front end has put a line in front
        (["#include <x>", "int a = 1;", "int b = 2;"], ["s = '''", "  int a = 1;", "  int b = 2;", "'''"], 0),
        (["int a = 1;", "int b = 2;", "int c = 3;"], ["s = '''int a = 1;", "int b = 4;", "int c = 3;'''"], None),
        # one line between quotation marks
        (["int a = 1;"], ["import x", "s = 'int a = 1;'"], 1),
        (["int a = 1;", "int b = 2;"], ["nothing"], None),
        ([], ["nothing"], None),
    ],
)
def test_how_many_lines_further_down_a_source_stands(source, lines, expected):
    assert distance(source, lines) == expected
