"""Finding and running benches: by name, from a file, and files that are not what they should be."""

import sys
import textwrap
from itertools import chain, repeat
from pathlib import Path

import pytest

from kernbench.bench import find, known, run_bench, variants_of
from kernbench.bench.discovery.collection import python_files
from kernbench.bench.running import runner
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


def given(inputs, more=""):
    """A file whose bench has other fields."""
    ending = f"Bench('own', '', Parameters, {inputs}, golden, host, launch, {more})"
    return OWN[: OWN.index("bench = Bench(")] + f"bench = {ending}\n"


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


def test_time_spent_outside_kernels_is_told(own, monkeypatch):
    # begin, into the kernel, out of it, and when it is asked for
    monkeypatch.setattr(runner, "perf_counter", chain([100.0, 101.0, 110.0], repeat(115.0)).__next__)
    assert "outside_seconds" not in run_bench(find(str(own)), budget=Budget(seconds=7.0)).views
    monkeypatch.setattr(runner, "perf_counter", chain([100.0, 101.0, 110.0], repeat(115.0)).__next__)
    run = run_bench(find(str(own)), budget=Budget(seconds=5.0))
    assert run.ok
    assert run.views["outside_seconds"] == 6.0


def test_known_benches():
    assert "milestone_gqa_llama70b" in known()
    with pytest.raises(BenchError, match="Did you mean 'milestone_gqa_llama70b'"):
        find("milestone_llama70b")


def test_folders_of_kernels_are_no_benches():
    assert [find(name).name for name in known()] == known()
    with pytest.raises(BenchError, match="unknown bench 'gqa_attention'"):
        find("gqa_attention")


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
            r"bad.py:\d+: launch of bench own raised TypeError",
        ),
        (OWN.replace("def inputs(p, rng)", "def inputs(p)"), r"bad.py:\d+: inputs of bench own raised TypeError"),
        (OWN.replace("def golden(p, x)", "def golden(p)"), r"bad.py:\d+: golden of bench own raised TypeError"),
        (given("3"), "inputs must be a function; got 3"),
        (given("inputs", "panels=[1]"), "panels must be name -> values of parameters"),
        (given("inputs", "panels={3: {}}"), "panels must be name -> values of parameters"),
        (given("inputs", "sizes={'s': 3}"), "sizes must be name -> Size"),
        (given("inputs", "repeats=80"), "repeats must be a Repeats"),
        (given("inputs", "limits=lambda p, m: None"), "limits must return name -> picoseconds, 0 or more; got None"),
        (given("inputs", "limits=lambda p, m: {'hbm': -1}"), "limits must return name -> picoseconds, 0 or more"),
        (given("inputs", "limits=lambda p, m: 1 / 0"), r"bad.py:\d+: limits of bench own raised ZeroDivisionError"),
        (
            OWN.replace("def inputs(p, rng):", "def inputs(p, rng):\n    return\n"),
            "inputs must return name -> array; got N",
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


@pytest.mark.parametrize(
    ("variants", "words"),
    [
        ("None", "variants must return name -> Variant; got None"),
        ("{'a': 3}", "variants must return name -> Variant"),
        ("1 / 0", "variants of bench own raised ZeroDivisionError"),
    ],
)
def test_bad_variants(tmp_path, variants, words):
    file = tmp_path / "bad.py"
    file.write_text(given("inputs", f"variants=lambda p: {variants}"))
    with pytest.raises(BenchError, match=words):
        variants_of(find(str(file)))


def test_a_bench_may_state_no_limit(tmp_path):
    file = tmp_path / "none.py"
    file.write_text(given("inputs", "limits=lambda p, machine: {}"))
    run = run_bench(find(str(file)), timed=True)
    assert run.metrics["time_ps"] > 0
    assert "limit" not in run.metrics


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


def test_files_that_were_meant(own, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "sub").mkdir()
    for name in ("own", "own.txt"):
        with pytest.raises(BenchError, match=f"there is no bench '{name}', but a file own.py: name the file"):
            find(name)
    for name in (".", "sub/"):
        with pytest.raises(BenchError, match=f"{name} is a folder: .* kernbench check {name}"):
            find(name)
    with pytest.raises(BenchError, match=r"there is no folder own; did you mean the file own\.py\?"):
        python_files(Path("own"))
    with pytest.raises(BenchError, match=rf"did you mean {own}\?"):
        find("sub/own.py")
    (tmp_path / "other" / "deep").mkdir(parents=True)
    Path(own).rename(tmp_path / "other" / "deep" / "own.py")
    monkeypatch.chdir(tmp_path / "other")
    with pytest.raises(BenchError, match=r"did you mean .*other/deep/own\.py\?"):
        find("own.py")


def test_findings_of_every_launch_count(tmp_path):
    file = tmp_path / "twice.py"
    careless = "def careless(o_ptr, *, tl):\n    tl.send(dir='N', src=tl.zeros((1,)))\n\n\ndef double("
    twice = "torch.launch(careless, torch.workspace((1,)))\n    return torch.launch("
    file.write_text(OWN.replace("def double(", careless).replace("return torch.launch(", twice))
    run = run_bench(find(str(file)))
    assert [f.kind for f in run.findings] == ["no-neighbour"]
    assert run.right
    assert not run.ok


def _with(helper: str, late: str = "") -> str:
    """The bench, with its kernel's factor from another file: imported at once, or when it is launched."""
    text = OWN.replace("import numpy as np\n", f"import numpy as np\n{'' if late else helper}\n", 1)
    return text.replace("    tensor, o =", f"    {late}\n    tensor, o =").replace("p.factor)", "FACTOR)")


def test_benches_of_several_folders_have_modules_of_their_own(tmp_path):
    for folder, factor in (("first", 2.0), ("second", 3.0)):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "shared_names.py").write_text(f"FACTOR = {factor}\n")
        (tmp_path / folder / "at_once.py").write_text(_with("from shared_names import FACTOR"))
        (tmp_path / folder / "late.py").write_text(_with("", "from shared_names import FACTOR"))
    before = set(sys.modules)
    for name in ("at_once.py", "late.py"):
        assert run_bench(find(str(tmp_path / "first" / name))).right
        assert run_bench(find(str(tmp_path / "second" / name))).right is False
    assert not {m for m in set(sys.modules) - before if "shared_names" in m}


@pytest.mark.parametrize("statement", ["from .._numbers import FACTOR", "from outer._numbers import FACTOR"])
@pytest.mark.parametrize("late", [False, True])
def test_a_bench_in_a_package_may_import_from_it(tmp_path, statement, late):
    inner = tmp_path / "outer" / "inner"
    inner.mkdir(parents=True)
    for folder in (inner, inner.parent):
        (folder / "__init__.py").touch()
    (inner.parent / "_numbers.py").write_text("FACTOR = 2.0\n")
    (inner / "own.py").write_text(_with("", statement) if late else _with(statement))
    assert run_bench(find(str(inner / "own.py"))).right
    assert "outer" not in sys.modules


def test_what_is_installed_below_a_folder_is_not_loaded_twice(tmp_path):
    installed = tmp_path / ".venv" / "site-packages"
    installed.mkdir(parents=True)
    (installed / "kernbench_installed_thing.py").write_text("FACTOR = 2.0\n")
    (tmp_path / "own.py").write_text(
        _with(f"import sys\nsys.path.append({str(installed)!r})\nfrom kernbench_installed_thing import FACTOR")
    )
    try:
        assert run_bench(find(str(tmp_path / "own.py"))).right
        assert sys.modules.pop("kernbench_installed_thing").FACTOR == 2.0
    finally:
        sys.path.remove(str(installed))


def test_a_generator_without_data_names_what_draws_shapes(tmp_path):
    file = tmp_path / "own.py"
    drawn = '    return {"x": rng.standard_normal((p.rows, 4)).astype(np.float32)}'
    line = OWN.splitlines().index(drawn) + 1
    file.write_text(OWN.replace(drawn, drawn.replace("standard_normal", "standard_gamma")))
    wanted = rf"own.py:{line}: inputs of bench own .*draws no standard_gamma: .*kernbench.bench.normal\(rng, shape"
    with pytest.raises(BenchError, match=wanted):
        run_bench(find(str(file)), shapes_only=True)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ("del made.budget", "has no `budget`: begin with `budget = Budget\\(\\)`"),
        ("made.budget = None", "has no `budget`: begin with"),
        ("made.budget = 5", "has a `budget` that is a int: begin with"),
    ],
)
@pytest.mark.parametrize("given", [None, {"steps": 9}])
def test_a_host_without_a_budget_is_named(change, words, given, tmp_path):
    file = tmp_path / "own.py"
    made = "def host(p, machine):\n    made = mesh.Host(machine, ranks=2)\n"
    whole = OWN.replace(
        "def host(p, machine):\n    return mesh.Host(machine, ranks=2)\n", f"{made}    {change}\n    return made\n"
    )
    file.write_text(whole)
    with pytest.raises(BenchError, match=rf"the host of bench own \(Host\) {words}"):
        run_bench(find(str(file)), budget=given)


@pytest.mark.parametrize(
    ("statement", "words"),
    [
        ("raise GeneratorExit('gone')", "own.py:3: could not be loaded: GeneratorExit: gone"),
        ("import asyncio; raise asyncio.CancelledError", "own.py:3: could not be loaded: CancelledError"),
        ("import greenlet; raise greenlet.GreenletExit", "own.py:3: could not be loaded: GreenletExit"),
        (
            "raise type('Mute', (Exception,), {'__str__': lambda self: 1 / 0})",
            "Mute, which cannot say why: its __str__",
        ),
    ],
)
def test_whatever_a_file_raises_is_reported_as_its_own(tmp_path, statement, words):
    for function in ("", "    "):
        anchor = "def inputs(p, rng):\n" if function else "import numpy as np\n"
        file = tmp_path / "own.py"
        file.write_text(OWN.replace(anchor, f"{anchor}{function}{statement}\n", 1))
        line = file.read_text().splitlines().index(function + statement) + 1
        wanted = words.replace("own.py:3", f"own.py:{line}")
        wanted = wanted.replace("could not be loaded:", "inputs of bench own raised") if function else wanted
        with pytest.raises(BenchError) as raised:
            run_bench(find(str(file)))
        assert wanted in str(raised.value)


SKIPS = OWN.replace("import numpy as np\n", "import numpy as np\nimport pytest\npytest.skip('no luck')\n", 1)


def test_a_bench_that_skips_the_test_does_so(tmp_path):
    file = tmp_path / "own.py"
    file.write_text(SKIPS)
    with pytest.raises(pytest.skip.Exception, match="no luck"):
        find(str(file))


def test_a_bench_skips_nothing_where_no_test_runs(tmp_path, monkeypatch):
    monkeypatch.delenv("PYTEST_CURRENT_TEST")
    file = tmp_path / "own.py"
    file.write_text(SKIPS)
    with pytest.raises(BenchError, match=r"own.py:\d+: could not be loaded: Skipped: no luck"):
        find(str(file))


@pytest.mark.parametrize("statement", ["sys.path.clear()", "sys.path = None"])
def test_a_file_takes_nothing_from_where_imports_are_looked_for(tmp_path, statement):
    before = list(sys.path)
    file = tmp_path / "own.py"
    file.write_text(OWN.replace("import numpy as np\n", f"import sys\nimport numpy as np\n{statement}\n", 1))
    try:
        assert run_bench(find(str(file))).ok
        assert set(sys.path) == set(before)
    finally:
        sys.path[:] = before


def test_no_name_is_no_folder():
    with pytest.raises(BenchError, match=r"unknown bench ''; known: .* A path to a .py file works as well"):
        find("")


def test_what_check_takes_is_said(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(
        BenchError, match=r"no folder paged_attention; a folder of benches or a file is wanted, .* kernbench run paged_"
    ):
        python_files(Path("paged_attention"))
    with pytest.raises(
        BenchError, match=r"no folder mine; a folder of benches or a file is wanted, such as my_bench.py$"
    ):
        python_files(Path("mine"))
    Path("mine.py").write_text("")
    with pytest.raises(BenchError, match=r"no folder mine; did you mean the file mine.py\?$"):
        python_files(Path("mine"))
