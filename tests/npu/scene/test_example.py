"""The example of the tutorial: safe for one round, a race for several, and safe again once it is mended."""

import shutil
from pathlib import Path

import pytest
from tests.npu.cpp.compiled import needs_compiler

from kernbench.npu.scene.cases import cases_of, files_in
from kernbench.npu.scene.running import run_case

EXAMPLE = Path(__file__).parents[3] / "examples" / "cpp_softmax"
MENDED = """TSTORE(to, x);
        set_flag(PIPE_MTE3, PIPE_MTE2, EVENT_ID0);
        wait_flag(PIPE_MTE3, PIPE_MTE2, EVENT_ID0);"""
pytestmark = [needs_compiler, pytest.mark.programs]


def run(folder, name):
    (file,) = files_in(folder)
    return run_case(cases_of(file, "a2a3", [name])[0])


def test_several_rounds_race():
    assert run(EXAMPLE, "one_round").is_good
    outcome = run(EXAMPLE, "three_rounds")
    assert not outcome.wrong
    assert {f.kind for f in outcome.run.findings} == {"race", "flag-misuse"}
    assert "TROWEXPANDSUB(x, x, largest);" in {f.where.text for f in outcome.run.findings if f.kind == "race"}


def test_what_the_tutorial_adds_mends_it(tmp_path):
    folder = tmp_path / "mended"
    shutil.copytree(EXAMPLE, folder)
    kernel = folder / "kernels" / "softmax.cpp"
    kernel.write_text(kernel.read_text().replace("TSTORE(to, x);", MENDED))
    outcome = run(folder, "three_rounds")
    assert outcome.is_good, outcome.run.findings
    assert outcome.time_ps > 0
