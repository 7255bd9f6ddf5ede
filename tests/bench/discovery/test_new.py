"""New benches: what `kernbench new` writes runs, right and safe."""

import re
from pathlib import Path

import pytest

from kernbench.bench import load_file, run_bench
from kernbench.bench.discovery.new import targets, template, write_new
from kernbench.common.errors import BenchError

README = Path(__file__).parents[3] / "README.md"


@pytest.mark.parametrize("target", targets())
def test_a_new_bench_is_right_and_safe(target, tmp_path):
    file = write_new(target, "mine", tmp_path)
    run = run_bench(load_file(file), timed=True)
    assert run.right
    assert run.safe
    assert target == "ptx" or run.metrics["time_ps"] > 0


@pytest.mark.parametrize("target", [target for target in targets() if target != "ptx"])
def test_a_new_bench_runs_without_data(target, tmp_path):
    """PTX runs on data, whose values decide where it goes."""
    run = run_bench(load_file(write_new(target, "mine", tmp_path)), timed=True, shapes_only=True)
    assert run.ok
    assert run.comparison is None
    assert run.metrics["time_ps"] > 0


CHANGES = {
    "mesh": {"n_ranks": 3, "S": 17, "d": 48},
    "npu": {"heads": 3, "queries": 32, "keys": 48, "d": 32, "chip": "a5"},
    "ptx": {"heads": 3, "keys": 1, "d": 96},
}


@pytest.mark.parametrize("target", targets())
def test_its_parameters_may_be_changed(target, tmp_path):
    run = run_bench(load_file(write_new(target, "mine", tmp_path)), None, CHANGES[target])
    assert run.right
    assert run.safe


FAULTS = {
    "mesh": ("tl.trans(k)", "tl.reshape(k, (d, S))"),
    "npu": (
        "core.trowexpandsub(s_ub, s_ub, stat)",
        "core.trowexpandsub(s_ub, s_ub, stat)\n    core.tmuls(s_ub, s_ub, 2.0)",
    ),
    "ptx": ("(16, 8, 4, 2, 1)", "(8, 4, 2, 1)"),
}


@pytest.mark.parametrize("target", targets())
def test_a_fault_in_it_is_caught(target, tmp_path):
    file = write_new(target, "mine", tmp_path)
    old, new = FAULTS[target]
    assert old in file.read_text()
    file.write_text(file.read_text().replace(old, new))
    run = run_bench(load_file(file))
    assert not run.ok


def test_the_readme_shows_the_kernel_of_the_mesh_template():
    (code,) = re.findall(r"<!-- excerpt: my_ring.py -->\n```python\n(.*?)```", README.read_text(), re.DOTALL)
    assert code in template("mesh", "my_ring")
    assert code.startswith("def ring(")


def test_what_is_there_is_left_alone(tmp_path):
    file = write_new("mesh", "mine", tmp_path)
    file.write_text("precious")
    with pytest.raises(BenchError, match="is there already"):
        write_new("ptx", "mine", tmp_path)
    assert file.read_text() == "precious"


@pytest.mark.parametrize(
    ("target", "name", "words"),
    [
        ("gpu", "mine", "known: mesh, npu, ptx"),
        ("mesh", "my-ring", "cannot be a bench's name"),
        ("mesh", "class", "cannot be a bench's name"),
        ("mesh", "../up", "cannot be a bench's name"),
        ("mesh", "paged_attention", "bundled bench"),
        ("mesh", "numpy", "name of a Python module"),
        ("mesh", "kernbench", "name of a Python module"),
        ("mesh", "dataclasses", "name of a Python module"),
        ("mesh", "test_ring", "a name for tests"),
        ("mesh", "conftest", "a name for tests"),
    ],
)
def test_misuse(target, name, words, tmp_path):
    with pytest.raises(BenchError, match=words):
        write_new(target, name, tmp_path)
    assert not list(tmp_path.iterdir())


def test_a_folder_that_is_not_there_is_made(tmp_path):
    assert write_new("mesh", "mine", tmp_path / "kernels" / "mesh").is_file()


def test_a_file_is_no_folder(tmp_path):
    (tmp_path / "kernels").write_text("precious")
    with pytest.raises(BenchError, match="is a file, not a folder"):
        write_new("mesh", "mine", tmp_path / "kernels")
