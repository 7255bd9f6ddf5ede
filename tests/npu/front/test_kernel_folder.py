"""Folders of npu kernels against golden files: the example runs, and whatever is wrong is told in a sentence."""

import shutil
from pathlib import Path

import numpy as np
import pytest

from kernbench.bench import default_cases, folder_bench, platform_chip, run_bench
from kernbench.common.errors import BenchError

EXAMPLE = Path(__file__).parents[3] / "examples" / "paged_attention"

ORCHESTRATION = """
from kernbench.npu import IN, OUT
from double import double

def orchestrate(rt, x, out, factor=2.0):
    rt.submit(aiv0=double, args=[IN(x), OUT(out), factor])
"""
KERNEL = """
def double(core, x, out, factor):
    tile = core.alloc("UB", (8, 8))
    core.tload(tile, x)
    core.set_flag("MTE2", "V", 0)
    core.wait_flag("MTE2", "V", 0)
    core.tmuls(tile, tile, factor)
    core.set_flag("V", "MTE3", 0)
    core.wait_flag("V", "MTE3", 0)
    core.tstore(out, tile)
    core.pipe_sync()
"""
GOLDEN = """
import numpy as np
RTOL = ATOL = 1e-6

def generate_inputs(case):
    return {"x": np.random.standard_normal((8, 8)).astype(np.float32), "out": np.zeros((8, 8), np.float32)}

def compute_golden(tensors, case):
    tensors["out"][:] = tensors["x"] * 2
"""
CONFIG = """
ORCHESTRATION = {"source": "main.py", "function_name": "orchestrate"}
KERNELS = [{"func_id": 7, "name": "DOUBLE", "source": "double.py", "core_type": "aiv"}]
"""


def bench_of(folder, golden=GOLDEN, **files):
    """A folder with these files (a keyword per file, without .py) and a golden file beside it."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in {"main": ORCHESTRATION, "double": KERNEL, **files}.items():
        if text is not None:
            (folder / f"{name}.py").write_text(text)
    file = folder.parent / f"golden_{folder.name}.py"
    file.write_text(golden)
    return folder_bench(folder, file)


def run_of(folder, panel="case_0", settings=None, seed=0, **files):
    return run_bench(bench_of(folder, **files), panel, settings, seed, timed=True)


def test_the_example_is_right_safe_and_timed():
    bench = folder_bench(EXAMPLE / "kernels", EXAMPLE / "golden.py")
    assert default_cases(bench) == ["ragged"]
    for case in bench.panels:
        run = run_bench(bench, case, timed=True)
        assert run.right
        assert run.safe
        assert run.metrics["time_ps"] > 0


def test_a_mutant_of_the_example_is_found(tmp_path):
    shutil.copytree(EXAMPLE, tmp_path / "copy")
    file = tmp_path / "copy" / "kernels" / "aiv" / "softmax.py"
    lines = file.read_text().splitlines(keepends=True)
    del lines[next(i for i, text in enumerate(lines) if 'pipe_barrier("V")' in text)]
    file.write_text("".join(lines))
    run = run_bench(folder_bench(tmp_path / "copy" / "kernels", tmp_path / "copy" / "golden.py"), "ragged")
    assert {f.kind for f in run.findings} == {"missing-barrier"}
    assert run.findings[0].where.file == str(file)


def test_without_a_configuration_the_file_with_orchestrate_is_the_orchestration(tmp_path):
    assert run_of(tmp_path / "plain").ok


def test_two_folders_with_the_same_names_keep_apart(tmp_path):
    one, two = (
        bench_of(tmp_path / "one"),
        bench_of(tmp_path / "two", double=KERNEL.replace("tile, factor)", "tile, 3.0)")),
    )
    assert run_bench(one, "case_0").right
    assert not run_bench(two, "case_0").right
    assert run_bench(one, "case_0").right


def test_kernels_by_number_are_held_to_their_core(tmp_path):
    by_number = ORCHESTRATION.replace("aiv0=double", "aiv0=7").replace("from double import double\n", "")
    assert run_of(tmp_path / "number", main=by_number, kernel_config=CONFIG).ok
    run = run_of(tmp_path / "cube", main=by_number.replace("aiv0=7", "aic=7"), kernel_config=CONFIG)
    assert "kernel 7 (double) is one for an aiv, and was submitted to the aic" in run.findings[0].message
    run = run_of(tmp_path / "other", main=by_number.replace("aiv0=7", "aiv0=8"), kernel_config=CONFIG)
    assert "unknown kernel number 8; known: 7" in run.findings[0].message


def test_a_tolerance_is_the_one_that_was_given(tmp_path):
    off = KERNEL.replace("tile, factor)", "tile, factor * 1.001)")
    assert not run_of(tmp_path / "tight", double=off).right
    assert run_of(tmp_path / "loose", double=off, golden=GOLDEN.replace("1e-6", "1e-2")).right


def test_inputs_are_equal_for_equal_seeds_and_leave_the_generators_alone(tmp_path):
    bench = bench_of(tmp_path / "seeds")
    np.random.seed(3)
    wanted = np.random.random()
    np.random.seed(3)
    first, again, other = (run_bench(bench, "case_0", None, seed).outputs["out"] for seed in (1, 1, 2))
    assert np.random.random() == wanted
    assert (first == again).all()
    assert (first != other).any()


def test_cases_inputs_in_order_scalars_and_a_golden_that_returns(tmp_path):
    golden = """
import ctypes
import numpy as np
ALL_CASES = {"two": {"factor": 2.0}, "three": {"factor": 3.0}}
DEFAULT_CASE = "three"
__outputs__ = ["y"]

def generate_inputs(case):
    a, y = np.ones((8, 8), np.float32), np.zeros((8, 8), np.float32)
    return [("a", a), ("y", y), ("by", ctypes.c_float(case["factor"]))]

def compute_golden(tensors, case):
    return {"y": tensors["a"] * case["factor"]}
"""
    bench = bench_of(tmp_path / "cases", golden=golden)
    assert default_cases(bench) == ["three"]
    for case, value in (("two", 2), ("three", 3)):
        run = run_bench(bench, case)
        assert run.right
        assert (run.outputs["y"] == value).all()


def test_parameters_of_the_orchestration_may_come_from_the_case(tmp_path):
    golden = GOLDEN.replace("RTOL", 'PARAMS_LIST = [{"name": "wide", "factor": 2.0}]\nRTOL')
    assert run_of(tmp_path / "case", "wide", golden=golden, main=ORCHESTRATION.replace("factor=2.0", "factor")).right


WRONG_FOLDERS = {
    "none": ({"main": None, "double": None}, "no file defines orchestrate.rt, .... .no Python files."),
    "several": ({"double": KERNEL + "\ndef orchestrate(rt): pass\n"}, "several files define .*double.py and main.py"),
    "broken": ({"double": "def double(:"}, "double.py could not be read"),
    "raises": ({"double": KERNEL + "\nraise ValueError('no')\n"}, "could not be loaded: .*ValueError: no"),
    "stranger": ({"kernel_config": "KERNEL = []"}, "unknown name 'KERNEL'; known: .* Did you mean 'KERNELS'"),
    "key": ({"kernel_config": CONFIG.replace("func_id", "id")}, "unknown key 'id'"),
    "source": ({"kernel_config": CONFIG.replace("double.py", "double.txt")}, "double.txt': sources are Python"),
    "no such C++": ({"kernel_config": CONFIG.replace("double.py", "double.cpp")}, "there is no file .*double.cpp"),
    "missing": ({"kernel_config": CONFIG.replace("double.py", "triple.py")}, "there is no file .*triple.py"),
    "core": ({"kernel_config": CONFIG.replace("aiv", "aicpu")}, "unknown core_type 'aicpu'; known: aic, aiv"),
    "function": ({"kernel_config": CONFIG.replace('"orchestrate"', '"main"')}, "has no function main; it defines orch"),
    "lacks": ({"kernel_config": "KERNELS = [{'func_id': 1}]"}, "lacks source, core_type"),
    "runtime": ({"kernel_config": CONFIG + "RUNTIME_CONFIG = {'runtime': 'other'}"}, "unknown runtime 'other'"),
    "threads": ({"kernel_config": CONFIG + "RUNTIME_CONFIG = {'aicpu_thread_num': 1}"}, "a whole number from 2 on"),
    "ambiguous": ({"kernel_config": CONFIG.replace("DOUBLE", "X"), "double": KERNEL + "\ndef other(core): pass\n"},
                  "which function of double.py is the kernel. It defines double, other"),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG_FOLDERS)
def test_wrong_folders(name, tmp_path):
    files, told = WRONG_FOLDERS[name]
    with pytest.raises(BenchError, match=told):
        bench_of(tmp_path / name, **files)


WRONG_GOLDENS = {
    "lacks": (lambda t: t.replace("compute_golden", "golden"), "lacks compute_golden: a golden file has both"),
    "cases": (lambda t: t + "\nALL_CASES = [1]", "ALL_CASES is a dictionary of cases"),
    "default": (lambda t: t + "\nDEFAULT_CASE = 'x'", "DEFAULT_CASE: unknown case 'x'; known: case_0"),
    "tolerance": (lambda t: t + "\nRTOL = 'small'", "RTOL = 'small': a number from 0 on"),
    "outputs": (lambda t: t + "\n__outputs__ = ['y']", "__outputs__: unknown input 'y'; known: x, out"),
    "no output": (lambda t: t.replace("out", "y"), "which of x, y are outputs"),
    "dtype": (lambda t: t.replace("np.float32", "np.float64"), "generate_inputs: x: unknown element type 'float64'"),
    "shape": (lambda t: t.replace('["out"][:] =', '["out"] = 1 +').replace("* 2", "[0]"), "the input .8, 8."),
    "raises": (lambda t: t.replace("* 2", "/ nothing"), "compute_golden failed: line 9: NameError"),
    "order": (lambda t: t + "\nTENSOR_ORDER = ['z']", r"generate_inputs gives x, out; wanted once: \['z'\]"),
    "many": (lambda t: t.replace('{"x"', '{"z": 1.0, "w": 2, "x"'), "4 inputs .z, w, x, out. for 3 parameters"),
    "nothing": (lambda t: t.replace("return {", "return 3 #"), "gives names with arrays or numbers; got 3"),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG_GOLDENS)
def test_wrong_goldens(name, tmp_path):
    change, told = WRONG_GOLDENS[name]
    with pytest.raises(BenchError, match=told):
        run_of(tmp_path / "folder", golden=change(GOLDEN))


def test_an_output_that_no_task_writes(tmp_path):
    with pytest.raises(BenchError, match="no task writes out2"):
        run_of(tmp_path / "unwritten", golden=GOLDEN.replace('"out": np', '"out2": np.zeros(3, np.float32), "out": np'),
               main=ORCHESTRATION.replace("x, out,", "x, out2, out,"))  # fmt: skip


def test_inputs_of_another_shape_are_a_finding_at_the_kernels_line(tmp_path):
    run = run_of(tmp_path / "shape", golden=GOLDEN.replace("(8, 8)", "(8, 16)"))
    (finding,) = run.findings
    assert finding.kind == "shape"
    assert finding.where.text == "core.tload(tile, x)"


def test_a_folder_that_is_none(tmp_path):
    with pytest.raises(BenchError, match="is no folder"):
        folder_bench(tmp_path / "nothing", EXAMPLE / "golden.py")
    with pytest.raises(BenchError, match="no golden file"):
        folder_bench(EXAMPLE / "kernels", tmp_path / "golden.py")


def test_platforms():
    assert [platform_chip(p) for p in ("sim", "a2a3sim", "a5sim")] == ["a2a3", "a2a3", "a5"]
    with pytest.raises(BenchError, match="unknown platform 'a6sim'; known: sim, a2a3sim, a5sim"):
        platform_chip("a6sim")
    with pytest.raises(BenchError, match="cannot be reached from here: a2a3sim"):
        platform_chip("a2a3")
