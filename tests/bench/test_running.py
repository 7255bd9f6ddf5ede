"""Finding and running benches: by name, from a file, and files that are not what they should be."""

import textwrap
from pathlib import Path

import pytest

from kernbench.bench import find, known, run_bench
from kernbench.common.errors import BenchError, MachineError
from kernbench.safety.budget import Budget

OWN = textwrap.dedent('''
    """Doubling, on two ranks."""
    from dataclasses import dataclass

    import numpy as np

    from kernbench import mesh
    from kernbench.bench import Bench, Expected, param


    def double(x_ptr, o_ptr, rows, factor, *, tl):
        x = tl.load(x_ptr, shape=(rows, 4))
        while factor < 0:
            x = x + 0.0
        tl.store(o_ptr, x * factor)


    @dataclass(frozen=True)
    class Parameters:
        rows: int = param(6, "rows", low=1)
        factor: float = param(2.0, "what the kernel multiplies with")
        machine: str = param("small", "machine")


    def inputs(p, rng):
        return {"x": rng.standard_normal((p.rows, 4)).astype(np.float32)}


    def golden(p, x):
        return {"o": Expected(2.0 * x["x"].astype(np.float64), 0, 2)}


    def host(p, machine):
        return mesh.Host(machine, ranks=2)


    def launch(p, x, *, torch):
        tensor, o = torch.shard(x["x"]), torch.empty(x["x"].shape, "f32", axis=0)
        return torch.launch(double, tensor, o, p.rows // 2, p.factor)


    bench = Bench("own", "doubling", Parameters, inputs, golden, host, launch)
''')


@pytest.fixture
def own(tmp_path):
    file = tmp_path / "own.py"
    file.write_text(OWN)
    return str(file)


def test_a_file_of_ones_own(own):
    bench = find(own)
    run = run_bench(bench)
    assert run.right
    assert run.safe
    assert run.origin["bench"] == "own"
    assert run.origin["parameters"] == {"rows": 6, "factor": 2.0, "machine": "small"}


def test_a_wrong_result_names_rank_and_row(own):
    run = run_bench(find(own), None, {"factor": "3"})
    assert run.right is False
    assert run.safe
    assert "rank 0, row" in run.comparison[0].reason
    assert "every element is 1.5 x the expected one" in run.comparison[0].reason


def test_machine_keys_are_settings(own):
    run = run_bench(find(own), None, {"machine.ipcq.depth": "2", "machine": "reference"})
    assert run.origin["machine"] == "reference"
    assert run.origin["machine_overrides"] == {"ipcq.depth": "2"}
    with pytest.raises(MachineError, match=r"ipcq\.dept"):
        run_bench(find(own), None, {"machine.ipcq.dept": "2"})


def test_a_bench_that_never_ends_is_stopped(own):
    run = run_bench(find(own), None, {"factor": "-1"}, budget=Budget(steps=100))
    assert run.findings[0].kind == "over-budget"
    assert run.right is None
    assert not run.ok


def test_known_benches():
    assert "milestone_gqa_llama70b" in known()
    with pytest.raises(BenchError, match="Did you mean 'milestone_gqa_llama70b'"):
        find("milestone_llama70b")


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("x = 1\n", "defines 0 benches"),
        ("import nosuchmodule\n", ":1: could not be loaded: ModuleNotFoundError"),
        ("def broken(:\n", "SyntaxError"),
        ("\n\nraise SystemExit(3)\n", ":3: could not be loaded: SystemExit"),
        (OWN + "\nother = Bench('two', '', Parameters, inputs, golden, host, launch)\n", "defines 2 benches"),
        (OWN.replace('Bench("own"', 'Bench("not a name"'), "Python identifier"),
        (OWN.replace("return torch.launch(", "torch.launch("), "launch must return the Run"),
        (
            OWN.replace("def launch(p, x, *, torch)", "def launch(p, x, *, host)"),
            "launch of bench own raised TypeError",
        ),
        (
            OWN.replace('return {"o": Expected', '1 / 0\n    return {"o": Expected'),
            "golden of bench own raised ZeroDivision",
        ),
        (
            OWN.replace('return {"o": Expected(2.0 * x["x"].astype(np.float64), 0, 2)}', "return {}"),
            "says nothing of output",
        ),
        (
            OWN.replace('return {"o": Expected', 'return {"p": Expected'),
            "golden says nothing of output 'o', only of 'p'",
        ),
    ],
)
def test_bad_files(tmp_path, content, words):
    file = tmp_path / "bad.py"
    file.write_text(content)
    with pytest.raises(BenchError, match=words):
        run_bench(find(str(file)))


def test_missing_file_and_panel(own):
    with pytest.raises(BenchError, match=r"no such file: nowhere/bench.py; there is no folder"):
        find("nowhere/bench.py")
    near = str(Path(own).with_name("owm.py"))
    with pytest.raises(BenchError, match=f"did you mean {Path(own).name}"):
        find(near)
    with pytest.raises(BenchError, match=f"Python files in .*: {Path(own).name}"):
        find(str(Path(own).with_name("something_else.py")))
    with pytest.raises(BenchError, match="no panels"):
        run_bench(find(own), "first")
    with pytest.raises(BenchError, match="unknown panel of milestone_gqa_llama70b 'single'"):
        run_bench(find("milestone_gqa_llama70b"), "single")


def test_findings_of_every_launch_count(tmp_path):
    file = tmp_path / "twice.py"
    careless = "def careless(o_ptr, *, tl):\n    tl.send(dir='N', src=tl.zeros((1,)))\n\n\ndef double("
    twice = "torch.launch(careless, torch.workspace((1,)))\n    return torch.launch("
    file.write_text(OWN.replace("def double(", careless).replace("return torch.launch(", twice))
    run = run_bench(find(str(file)))
    assert [f.kind for f in run.findings] == ["no-neighbour"]
    assert run.right
    assert not run.ok
