"""The guide tells the truth: its example runs as written, and its table of operations is the real one."""

import inspect
import re
from pathlib import Path

import numpy as np
from tests import sampled

from kernbench import npu
from kernbench.bench import default_cases, folder_bench, run_bench
from kernbench.npu.core.transfers import KernelCore
from kernbench.npu.isa.operations import OPERATIONS, call_of, markdown

DOCS = Path(__file__).parent.parent.parent / "docs"


def example(name="scale.py"):
    text = (DOCS / "npu.md").read_text()
    (code,) = re.findall(rf"<!-- example: {re.escape(name)} -->\n```python\n(.*?)```", text, re.DOTALL)
    return code


def port(folder):
    """The folder that the guide's port makes, as a bench."""
    (folder / "kernels").mkdir()
    for name in ("kernels/softmax.py", "kernels/orchestration.py", "golden.py"):
        (folder / name).write_text(example(name))
    return folder_bench(folder / "kernels", folder / "golden.py")


def test_the_port_runs_as_written(tmp_path):
    bench = port(tmp_path)
    assert default_cases(bench) == ["small"]
    for case in bench.panels:
        run = run_bench(bench, case, timed=True)
        assert run.right
        assert run.safe
        assert run.metrics["time_ps"] > 0


def test_the_port_without_its_first_barrier_is_right_and_not_safe(tmp_path):
    port(tmp_path)
    file = tmp_path / "kernels" / "softmax.py"
    file.write_text(file.read_text().replace('    core.pipe_barrier("V")\n', "", 1))
    run = run_bench(folder_bench(tmp_path / "kernels", tmp_path / "golden.py"), "small")
    assert run.right
    (finding,) = run.findings
    assert finding.kind == "missing-barrier"
    assert "trowexpandsub on pipe V" in finding.message
    assert "trowmax on pipe V" in finding.message
    assert finding.hint == "put pipe_barrier(V) between them"


def test_the_example_runs(capsys):
    names = {}
    exec(compile(example(), "npu.md", "exec"), names)
    run = names["run"]
    assert run.safe
    assert (run.outputs["y"] == 2).all()
    assert run.metrics["time_ps"] == sum(run.metrics["critical_path_ps"].values())
    assert "True" in capsys.readouterr().out


def test_the_example_without_a_flag_is_found():
    code = example().split("chip = ")[0].replace('    core.wait_flag("MTE2", "V", 0)\n', "")
    names = {}
    exec(compile(code, "npu.md", "exec"), names)
    run = npu.Chip("a2a3").launch(names["orchestrate"], np.ones((32, 64), np.float32), np.zeros((32, 64), np.float32))
    assert {"race", "flag-misuse"} == {f.kind for f in run.findings}


def test_the_table_of_operations_is_up_to_date():
    assert (DOCS / "npu-operations.md").read_text() == markdown()


@sampled.each(OPERATIONS.values())
def test_the_calls_of_the_table_are_those_of_a_core(op):
    """Each call of the table fits its method, and has no argument that the method lacks."""
    told = [name.split("=")[0].strip() for name in call_of(op).partition("(")[2].rstrip(")").split(",")]
    parameters = inspect.signature(getattr(KernelCore, op.name)).parameters
    by_name = [n for n in told if n in parameters and parameters[n].kind is inspect.Parameter.KEYWORD_ONLY]
    given = [n for n in told if n not in by_name], dict.fromkeys(by_name, 0)
    assert inspect.signature(getattr(KernelCore, op.name)).bind("core", *given[0], **given[1])
    assert len(told) == len(parameters) - 1 - ("more" in parameters and "mode" not in told[3:])
