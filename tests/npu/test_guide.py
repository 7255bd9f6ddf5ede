"""The guide tells the truth: its example runs as written, and its table of operations is the real one."""

import re
from pathlib import Path

import numpy as np

from kernbench import npu
from kernbench.npu.operations import markdown

DOCS = Path(__file__).parent.parent.parent / "docs"


def example():
    (code,) = re.findall(r"```python\n(.*?)```", (DOCS / "npu.md").read_text(), re.DOTALL)
    return code


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
