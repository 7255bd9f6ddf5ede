"""`kernbench ptx compare`: the verdict on a file and its launch, and what may go wrong."""

import json

import pytest
from tests.ptx.front.test_commands import SAXPY, folder, kernbench

__all__ = ["folder"]
LINE = 1 + SAXPY.splitlines().index("    fma.rn.f32 %f3, %f1, %f2, %f3;")
PLANTED = "tests.ptx.comparing.planted"


def compared(folder, other, code=1, *more):
    words = (folder / "saxpy.ptx", "-l", folder / "launch.toml", "--with", f"{PLANTED}:{other}")
    return kernbench("compare", *words, *more, code=code)


def test_the_same_bytes(folder):
    assert "saxpy: identical: all bytes are the same" in compared(folder, "Planted", code=0)


def test_a_difference_with_its_instruction(folder):
    said = compared(folder, "wrong_fma", 1, "--json", folder / "out.json")
    assert "saxpy: different: results differ by more than rounding" in said
    assert "  y: 200 of 200 elements (float32) differ" in said
    assert f"first difference: line {LINE}, `fma.rn.f32 %f3, %f1, %f2, %f3;`" in said
    assert "operand %f1 = 0x40000000 (2)" in said
    saved = json.loads((folder / "out.json").read_text())
    assert (saved["command"], saved["outcome"], saved["first"]["line"]) == (
        "ptx compare",
        "different",
        LINE,
    )


def test_without_a_search(folder):
    said = compared(folder, "wrong_fma", 1, "--no-search")
    assert "y: 200 of 200" in said
    assert "first difference" not in said


def test_what_the_other_device_cannot_do_is_said(folder):
    assert "not compared\non tests.ptx.comparing.planted:without_memory: cuMemAlloc" in compared(
        folder, "without_memory"
    )
    assert "not compared\non tests.ptx.comparing.planted:trapping: 'saxpy' died of" in compared(folder, "trapping")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["saxpy.ptx", "--with", "gpu"], "device 'gpu': cuda, or MODULE:FUNCTION"),
        (["saxpy.ptx", "--with", "tests:nothing"], "device 'tests:nothing': module 'tests' has no attribute"),
        (["nothing.ptx"], "nothing.ptx: No such file"),
        (["launch.toml"], "launch.toml"),
    ],
)
def test_misuse(folder, words, said):
    assert said in kernbench("compare", folder / words[0], "-l", folder / "launch.toml", *words[1:], code=2)
