"""Test classes run as they lie: their modules are offered, their sources compiled, cases chosen by chip and name."""

import sys

import pytest
from tests.npu.cpp.compiled import KERNELS, ORCHESTRATION, needs_compiler

from kernbench.common.errors import BenchError
from kernbench.npu.scene.cases import cases_of, files_in
from kernbench.npu.scene.mutants import mutants
from kernbench.npu.scene.running import run_case

pytestmark = pytest.mark.programs

TEXT = f"""
import ctypes

import numpy as np
from simpler.task_interface import ArgDirection as D

from simpler_setup import Scalar, SceneTestCase, TaskArgsBuilder, TensorArg, scene_test
from simpler_setup.goldens.doubled import doubled


@scene_test(level=2, runtime="tensormap_and_ringbuffer")
class TestScale(SceneTestCase):
    CALLABLE = {{
        "orchestration": {{
            "source": {str(ORCHESTRATION)!r},
            "function_name": "aicpu_orchestration_entry",
            "signature": [D.IN, D.OUT, D.IN],
        }},
        "incores": [{{"func_id": 0, "source": {str(KERNELS)!r}, "core_type": "aiv", "signature": [D.IN, D.OUT]}}],
    }}
    CASES = [
        {{"name": "small", "platforms": ["a2a3sim", "a2a3"], "params": {{"rows": 16, "factor": 1.0}}}},
        {{"name": "both", "platforms": ["a2a3sim", "a5sim"], "params": {{"rows": 8, "factor": 1.0}}}},
        {{
            "name": "wrong",
            "platforms": ["a5sim"],
            "manual": True,
            "config": {{"aicpu_thread_num": 2, "runtime_env": {{"ring_task_window": 4}}}},
            "params": {{"rows": 8, "factor": 3.0}},
        }},
    ]

    def generate_args(self, params):
        x = np.arange(params["rows"] * 64, dtype=np.float32).reshape(-1, 64)
        return TaskArgsBuilder(
            TensorArg("x", x),
            TensorArg("out", np.zeros_like(x)),
            TensorArg("sizes", np.array([params["rows"] // 8], params.get("whole", "i4"))),
            Scalar("factor", ctypes.c_float(params["factor"])),
        )

    def compute_golden(self, args, params):
        args.out[:] = doubled(args.x)


@scene_test(level=3, runtime="tensormap_and_ringbuffer")
class TestSeveral(SceneTestCase):
    CASES = [{{"name": "two", "platforms": ["a2a3"], "config": {{"device_count": 2}}, "params": {{}}}}]


if __name__ == "__main__":
    SceneTestCase.run_module(__name__)
"""


@pytest.fixture
def file(tmp_path):
    goldens = tmp_path / "simpler_setup" / "goldens"
    goldens.mkdir(parents=True)
    (goldens / "__init__.py").write_text("")
    (goldens / "doubled.py").write_text("def doubled(x):\n    return 2 * x\n")
    folder = tmp_path / "scale"
    folder.mkdir()
    (folder / "test_scale.py").write_text(TEXT)
    return folder / "test_scale.py"


SHARED = """
from simpler.worker import Worker
from simpler.task_interface import ChipConfig as Config
from simpler_setup import SceneTestLevel, scene_test
from tests.scale.test_scale import TestScale

from ..shared import FACTOR

BLOCKING = Config.BLOCKING


@scene_test(level=SceneTestLevel.L2, runtime="host_build_graph")
class TestOther(TestScale):
    CASES = [{"name": "shared", "platforms": ["a2a3"], "params": {"rows": 8, "factor": FACTOR}}]

    def test_run(self, st_platform, st_worker):
        Worker(level=2)
"""


@needs_compiler
def test_a_file_imports_others_of_its_checkout_and_names_of_the_runtime(file, tmp_path):
    folder = tmp_path / "tests" / "other"
    folder.mkdir(parents=True)
    (tmp_path / "tests" / "scale").mkdir()
    # sources are counted from the file of the class that names them
    text = TEXT.replace(str(KERNELS), "kernels.cpp").replace("'kernels.cpp'", repr("kernels.cpp"))
    (tmp_path / "tests" / "scale" / "test_scale.py").write_text(text)
    (tmp_path / "tests" / "scale" / "kernels.cpp").symlink_to(KERNELS)
    (tmp_path / "tests" / "shared.py").write_text("FACTOR = 1.0\n")
    (folder / "test_other.py").write_text(SHARED)
    before = sys.modules.get("tests")
    (case,) = cases_of(folder / "test_other.py", "a2a3")
    outcome = run_case(case)
    assert outcome.is_good, (outcome.refusal, outcome.run)
    assert sys.modules.get("tests") is before


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "from simpler.worker import Worker\nWorker(level=3)\n# @scene_test",
            "Worker speaks to the reference's own runtime",
        ),
        ("1 / 0\n# @scene_test", "ZeroDivisionError"),
    ],
)
def test_a_file_that_cannot_be_read_says_why(file, text, message):
    file.write_text(text)
    with pytest.raises(BenchError, match=message):
        cases_of(file)


ELSEWHERE = (
    "it imports files of its repository; run it in its checkout, which is known by its folder simpler_setup/goldens"
)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("from .._helpers import made", f"attempted relative import beyond top-level package: {ELSEWHERE}"),
        ("from .main import made", f"cannot be read: No module named 'main': {ELSEWHERE}"),
        ("from tests.st.other import made", f"'?tests.*: {ELSEWHERE}"),
    ],
)
def test_a_file_outside_of_its_checkout_that_imports_others_of_it(line, message, tmp_path):
    (tmp_path / "test_alone.py").write_text(f"{line}\n{TEXT}")
    with pytest.raises(BenchError, match=message):
        cases_of(tmp_path / "test_alone.py")


def test_goldens_of_a_checkout_are_told_apart_from_the_runtime(tmp_path):
    """The file can be read outside of its checkout, and its other cases run."""
    (tmp_path / "test_alone.py").write_text(TEXT)
    (case, *_) = cases_of(tmp_path / "test_alone.py", "a2a3", ["small"])
    refusal = run_case(case).refusal
    assert "simpler_setup.goldens.doubled.doubled is a function of the reference's repository" in refusal
    assert "run the test in its checkout, or copy simpler_setup/goldens beside it" in refusal


@needs_compiler
def test_whole_numbers_of_64_bits_are_inputs(file):
    outcome = run_case(cases_of(file, "a2a3", ["both"], {"whole": "i8"})[0])
    assert outcome.is_good, (outcome.refusal, outcome.run)


def titles(cases):
    return [(case.chip, case.title) for case in cases]


def test_cases_by_chip_and_name(file):
    assert files_in(file.parent) == [file]
    two = ("a2a3", "TestSeveral.two")
    assert titles(cases_of(file)) == [("a2a3", "TestScale.small"), ("a2a3", "TestScale.both"), two]
    assert titles(cases_of(file, "a5")) == [("a5", "TestScale.both")]
    assert titles(cases_of(file, "a5", ["all"])) == [("a5", "TestScale.both"), ("a5", "TestScale.wrong")]
    assert titles(cases_of(file, "a5sim", ["wrong"])) == [("a5", "TestScale.wrong")]
    with pytest.raises(BenchError, match="unknown case 'other'"):
        cases_of(file, "", ["other"])
    assert cases_of(file, "a2a3", ["all"])
    file.write_text("# no @scene_test")
    assert cases_of(file, "", ["all"]) == []
    with pytest.raises(BenchError, match="unknown platform 'a6'"):
        cases_of(file, "a6")


def test_modules_are_offered_only_while_the_file_is_read(file):
    cases_of(file)
    assert not [name for name in sys.modules if name.partition(".")[0] in ("simpler", "simpler_setup")]


@needs_compiler
@pytest.mark.parametrize("chip", ["a2a3", "a5"])
def test_a_case_is_right_safe_and_timed(file, chip):
    outcome = run_case(cases_of(file, chip, ["both"])[0])
    assert outcome.is_good, (outcome.wrong, outcome.refusal, outcome.run)
    assert outcome.time_ps > 0


@needs_compiler
def test_parameters_can_be_set(file):
    (case,) = cases_of(file, "a2a3", ["small"], {"rows": 24})
    outcome = run_case(case)
    assert outcome.is_good
    assert outcome.run.metrics["tasks"] == 6


@needs_compiler
def test_a_wrong_result_is_reported_by_the_test_itself(file):
    outcome = run_case(cases_of(file, "a5", ["wrong"])[0])
    assert outcome.run.safe
    assert not outcome.is_good
    assert "out is wrong" in outcome.wrong


def test_several_chips_are_refused_with_a_reason(file):
    outcome = run_case(cases_of(file, "a2a3", ["two"])[0])
    assert "several chips" in outcome.refusal


def test_what_the_test_itself_raises_is_named(file):
    outcome = run_case(cases_of(file, "a2a3", ["small"], {"rows": "many"})[0])
    assert "generate_args of the test raises" in outcome.refusal


@needs_compiler
def test_each_flag_that_is_left_out_is_found(file):
    every = list(mutants(cases_of(file, "a2a3", ["both"])[0]))
    found = [m for m in every if m.change == "left out"]
    assert [m.where.text for m in found if m.outcome == "found"] == [
        "set_flag(PIPE_MTE2, PIPE_V, EVENT_ID0);",
        "wait_flag(PIPE_MTE2, PIPE_V, EVENT_ID0);",
        "set_flag(PIPE_V, PIPE_MTE3, EVENT_ID0);",
        "wait_flag(PIPE_V, PIPE_MTE3, EVENT_ID0);",
        "pipe_sync();",
    ]
    assert found[-1].kinds == ("undrained-store",)
    assert len(found) == 5
    # of four arguments three are declared (the other is made by the runtime), each as two others
    directions = [m for m in every if m.change != "left out"]
    assert len(directions) == 6
    assert {m.outcome for m in directions if not m.change.endswith("declared INOUT")} == {"found"}
    assert "argument 1, OUT, declared IN" in {m.change for m in directions}
    assert all(m.where.text.startswith(("rt_submit", "TaskOutputTensors made = rt_submit")) for m in directions)
