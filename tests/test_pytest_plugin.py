"""The pytest plugin, in a pytest of its own."""

import re
from importlib.machinery import SourceFileLoader
from pathlib import Path

import numba
import pytest
from tests.cli.output.test_formal import BENCH

from kernbench.bench.discovery import new
from kernbench.bench.discovery.new import write_new

pytest_plugins = ["pytester"]


@pytest.fixture(autouse=True, scope="module")
def whole_numba():
    """pytester forgets what tests inside it import, and numba, which imports parts of itself late, takes that ill."""
    numba.njit(lambda: 0)()


TESTS = """
import pytest
from kernbench import ptx
from kernbench.testing import assert_faster, assert_right, assert_safe


def test_by_call(kernbench_run):
    run = kernbench_run("ring.py", settings={"S": 16}, timed=True)
    assert_right(run)
    assert_safe(run)
    assert_faster(run, 10**12)


@pytest.mark.kernbench("ring.py", settings={"S": 16, "n_ranks": 2})
def test_by_mark(kernbench_run):
    run = kernbench_run(settings={"d": 32})
    assert_right(run)
    assert run.origin["parameters"]["n_ranks"] == 2
    assert run.origin["parameters"]["d"] == 32


def test_wrong(kernbench_run):
    assert_right(kernbench_run("wrong.py", settings={"S": 16}))


def test_stuck(kernbench_run):
    assert_safe(kernbench_run("ring.py", settings={"machine.ipcq.depth": 1}))


def test_which(kernbench_run):
    kernbench_run()


@pytest.mark.kernbench("ring.py", settngs={"S": 16})
def test_misspelt(kernbench_run):
    kernbench_run()


def test_ptx(kernbench_ptx):
    kernbench_ptx(ptx.PtxKernel("k").build(lambda ctx: None), "k")
"""


@pytest.fixture
def project(pytester, monkeypatch):
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    pytester.makepyfile(test_mine=TESTS)
    text = write_new("mesh", "ring", pytester.path).read_text()
    (pytester.path / "wrong.py").write_text(text.replace("tl.trans(k)", "tl.reshape(k, (d, S))"))
    return pytester


def run(project, *arguments):
    return project.runpytest_inprocess("-p", "kernbench.pytest_plugin", "-p", "no:cacheprovider", *arguments)


def test_fixtures_mark_and_assertions(project):
    result = run(project, "-k", "not ptx")
    result.assert_outcomes(passed=2, failed=4)
    text = result.stdout.str()
    assert "the result is wrong" in text
    assert "not safe: deadlock" in text
    assert "receive before sending more" in text
    assert "which bench?" in text
    assert "unknown option of kernbench_run 'settngs'" in text


def test_a_missing_file_is_told_of_beside_the_test(project):
    folder = project.mkdir("deeper")
    (folder / "test_deeper.py").write_text('def test_deeper(kernbench_run):\n    kernbench_run("rnig.py")\n')
    (project.path / "ring.py").rename(folder / "ring.py")
    result = run(project, "-k", "deeper")
    result.assert_outcomes(failed=1)
    assert "rnig.py; did you mean ring.py?" in result.stdout.str()


def test_golden_ptx(project):
    assert run(project, "-k", "ptx").ret == 1
    assert run(project, "-k", "ptx", "--update-ptx").ret == 0
    golden = project.path / "golden" / "k.ptx"
    assert ".entry k" in golden.read_text()
    assert run(project, "-k", "ptx").ret == 0
    golden.write_text(golden.read_text().replace("ret;", "exit;"))
    result = run(project, "-k", "ptx")
    assert result.ret == 1
    assert "-    exit;" in result.stdout.str().replace("\t", "    ")


def test_the_mark_is_known(project):
    assert "kernbench(bench" in run(project, "--markers").stdout.str()


def test_the_guide(project):
    guide = (Path(__file__).parent.parent / "docs" / "testing.md").read_text()
    (code,) = re.findall(r"<!-- example: test_ring.py -->\n```python\n(.*?)```", guide, re.DOTALL)
    (project.path / "test_mine.py").unlink()
    project.makepyfile(test_ring=code)
    write_new("mesh", "my_ring", project.path)
    run(project).assert_outcomes(passed=7)


FORMAL = """
from kernbench.testing import assert_safe


def test_round(kernbench_run):
    assert_safe(kernbench_run("round.py"))
"""


def test_formal_findings_are_notes_in_the_summary(pytester, monkeypatch):
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    pytester.makepyfile(test_round=FORMAL)
    Path("round.py").write_text(BENCH)
    calm = run(pytester)
    calm.assert_outcomes(passed=1)
    assert str(calm.stdout).count("formal: breaks the rules, and changes no result") == 1
    strict = run(pytester, "--kernbench-strict")
    strict.assert_outcomes(failed=1)
    assert "not safe: divergent-barrier" in str(strict.stdout)


def test_modules_of_the_package_are_imported_as_they_are():
    assert isinstance(new.__spec__.loader, SourceFileLoader)
