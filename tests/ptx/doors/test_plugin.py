"""`pytest --kernbench sm_90a`: all tests on an emulated GPU; a finding fails the test that made it."""

from pathlib import Path

import numba
import pytest
from tests.ptx.doors.kernels import ADD_ONE

from kernbench.common.compiled import folder

pytest_plugins = ["pytester"]


@pytest.fixture(autouse=True)
def no_other_plugins(monkeypatch):
    """The plugin is named where pytest is called: it is there also where kernbench is not installed."""
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")


@pytest.fixture(autouse=True, scope="module")
def whole_numba():
    """pytester forgets what tests inside it import, and numba, which imports parts of itself late, takes that ill."""
    numba.njit(lambda: 0)()


TESTS = f"""
import pytest

TEXT = '''{ADD_ONE}'''


def launch(n):
    from kernbench.ptx.doors.opening.emulated import current

    session = current()
    x, y = session.memory.allocate(256, "x", written=True), session.memory.allocate(256, "y")
    kernel = session.load(TEXT).kernel("add_one")
    session.launch(kernel, 2, 64, [x.to_bytes(8, "little"), y.to_bytes(8, "little"), n.to_bytes(4, "little")])
"""
ON_THE_GPU = """
def test_safe():
    launch(64)


def test_unsafe():
    launch(65)


def test_safe_again():
    launch(64)


def test_that_fails_by_itself():
    launch(65)
    assert False, "for a reason of its own"


@pytest.fixture
def prepared():
    launch(65)


def test_unsafe_fixture(prepared):
    pass
"""
BY_ITSELF = """
def test_safe(kernbench_session):
    launch(64)
    assert len(kernbench_session.launches) == 1


@pytest.mark.kernbench(arch="sm_80")
def test_unsafe(kernbench_session):
    assert kernbench_session.arch == "sm_80"
    launch(65)
    assert kernbench_session.findings
"""


def test_a_finding_fails_the_test_that_made_it(pytester):
    pytester.makepyfile(TESTS + ON_THE_GPU)
    done = pytester.runpytest_inprocess(
        "-p", "kernbench.pytest_plugin", "-p", "no:cacheprovider", "--kernbench", "sm_90a"
    )
    done.assert_outcomes(passed=2, failed=2, errors=1)
    shown = "\n".join(done.outlines)
    assert "add_one (launch 2): finished" in shown
    assert "for a reason of its own" in shown
    assert "out-of-bounds" in shown
    # once for each test, whether pytest cuts the lines of its summary or not (on a server for continuous integration it
    # does not): where a test failed by itself it stands beside its reason
    reports, _, summary = shown.partition("short test summary info")
    # in the summary the kind comes first
    assert "::test_unsafe - out-of-" in summary
    assert reports.count("add_one (launch 2): finished") == 1


def test_predicted_times_are_shown_with_what_they_are_of(pytester):
    pytester.makepyfile(
        TESTS + "\n\ndef test_it():\n    launch(64)\n    launch(65)\n\n\ndef test_again():\n    launch(64)\n"
    )
    done = pytester.runpytest_inprocess(
        "-p", "kernbench.pytest_plugin", "-p", "no:cacheprovider", "--kernbench", "sm_90a", "--kernbench-time"
    )
    done.stdout.fnmatch_lines(["*kernbench: predicted times*", "add_one: no time: it is not safe"])
    pytester.makepyfile(TESTS + "\n\ndef test_it():\n    launch(64)\n")
    done = pytester.runpytest_inprocess(
        "-p", "kernbench.pytest_plugin", "-p", "no:cacheprovider", "--kernbench", "sm_90a", "--kernbench-time"
    )
    done.assert_outcomes(passed=1)
    done.stdout.fnmatch_lines(["add_one: 100 % of the time*", "time * us, predicted for h200*", "*warps spend their*"])


COPIES = """
def copied(nbytes):
    from kernbench.ptx.doors.driver.requests import Request
    from kernbench.ptx.doors.driver.service import DriverService
    from kernbench.ptx.doors.opening.emulated import current

    service = DriverService(current())
    (x,) = service.answer(Request.ALLOCATE, (256, 1), b"").words
    service.answer(Request.SET, (x, 128, 128, 1), b"")
    service.answer(Request.COPY, (0x7FFF00001000, nbytes, nbytes, x, nbytes, nbytes, nbytes, 1, 1, 0), b"")


def test_written():
    copied(128)


def test_unwritten():
    copied(256)


def test_unwritten_as_well():
    copied(256)


def test_written_again():
    copied(128)
"""


def test_a_copy_of_what_nobody_wrote_fails_the_test_that_makes_it(pytester):
    pytester.makepyfile(test_copies=COPIES)
    done = pytester.runpytest_inprocess(
        "-p", "kernbench.pytest_plugin", "-p", "no:cacheprovider", "--kernbench", "sm_90a"
    )
    done.assert_outcomes(passed=2, failed=2)
    shown = "\n".join(done.outlines)
    assert shown.count("nobody wrote 128 of the 256 bytes") == 2
    assert "::test_unwritten - uninitialised-read" in shown


@pytest.mark.programs
def test_findings_of_workers_reach_the_report(pytester, monkeypatch):
    """pytest-xdist: the tests run in processes of their own, each with a GPU of its own."""
    pytest.importorskip("xdist", reason="pytest-xdist is not installed")
    # pytester's programs have another home, where no compiled loops are kept
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(Path(folder()).parent.parent))
    pytester.makepyfile(TESTS + ON_THE_GPU)
    done = pytester.runpytest_subprocess(
        "-p", "xdist", "-p", "kernbench.pytest_plugin", "-p", "no:cacheprovider", "-n", "1", "--kernbench", "sm_90a",
        "--junitxml", "out.xml",
    )  # fmt: skip
    done.assert_outcomes(passed=2, failed=2, errors=1)
    assert "\n".join(done.outlines).count("out-of-bounds") >= 3
    assert (pytester.path / "out.xml").read_text().count("out-of-bounds") >= 3


def test_a_test_may_have_a_gpu_by_itself(pytester):
    pytester.makepyfile(TESTS + BY_ITSELF)
    done = pytester.runpytest_inprocess("-p", "kernbench.pytest_plugin", "-p", "no:cacheprovider")
    # what was found is told when the test has ended
    done.assert_outcomes(passed=2, errors=1)


def test_options_of_the_gpu(pytester):
    pytester.makepyfile(TESTS + ON_THE_GPU)
    chosen = ["--kernbench", "sm_80", "--kernbench-option", "skip=add_*", "--kernbench-schedule", "reversed"]
    done = pytester.runpytest_inprocess("-p", "kernbench.pytest_plugin", "-p", "no:cacheprovider", *chosen)
    done.assert_outcomes(passed=4, failed=1)


@pytest.mark.parametrize(
    ("option", "message"),
    [
        (["--kernbench", "sm_1"], "unknown architecture 'sm_1'"),
        (["--kernbench", "sm_90a", "--kernbench-option", "first"], "write NAME=VALUE"),
        (["--kernbench", "sm_90a", "--kernbench-option", "first=many"], "'many' is no number"),
        (["--kernbench", "sm_90a", "--kernbench-option", "frist=1"], "Did you mean 'first'"),
    ],
)
def test_misuse_is_told_before_any_test_runs(pytester, option, message):
    pytester.makepyfile("def test_nothing(): pass")
    done = pytester.runpytest_inprocess("-p", "kernbench.pytest_plugin", "-p", "no:cacheprovider", *option)
    assert done.ret == pytest.ExitCode.USAGE_ERROR
    assert message in "\n".join([*done.outlines, *done.errlines])


def test_conftest_files_find_the_gpu(pytester):
    asked = "from kernbench.ptx.doors.opening.emulated import current\n\nARCH = current().arch\n"
    pytester.makeconftest(asked)
    pytester.makepyfile("from conftest import ARCH\n\n\ndef test_arch():\n    assert ARCH == 'sm_100a'\n")
    done = pytester.runpytest_inprocess(
        "-p", "kernbench.pytest_plugin", "-p", "no:cacheprovider", "--kernbench", "sm_100a"
    )
    done.assert_outcomes(passed=1)


PARAMETRISED = """
import pytest


@pytest.mark.parametrize("number", [*range(7), pytest.param(7, marks=pytest.mark.skipif(True, reason="never"))])
def test_many(number):
    print("case", number)


def test_one():
    pass


@pytest.mark.parametrize("dtype", ["f32", "bf16"])
@pytest.mark.parametrize("shape", [(64, 64), (4, 4), (2, 512)])
def test_shapes(shape, dtype):
    print("case", shape[0], dtype)


@pytest.mark.parametrize("seconds", [0, 60])
def test_slow(seconds):
    import time
    time.sleep(seconds)
"""


def test_some_cases_of_each_test(pytester):
    pytester.makepyfile(PARAMETRISED)
    chosen = ["-p", "kernbench.pytest_plugin", "-p", "no:cacheprovider", "-s", "-k", "not slow"]
    done = pytester.runpytest_inprocess(*chosen, "--kernbench-cases", "3")
    done.assert_outcomes(passed=7, deselected=10)
    shown = [line.partition("case ")[2] for line in done.outlines if "case " in line]
    # the smallest numbers, then the smallest shape with each element type
    assert shown == ["0", "1", "2", "4 f32", "4 bf16", "2 f32"]
    done = pytester.runpytest_inprocess(*chosen, "--kernbench-size", "1024")
    done.assert_outcomes(passed=12, skipped=1, deselected=4)
    assert pytester.runpytest_inprocess(*chosen, "--kernbench-cases", "0").ret == pytest.ExitCode.USAGE_ERROR


def test_a_test_that_takes_too_long_fails_and_the_next_one_runs(pytester):
    pytester.makepyfile(PARAMETRISED)
    done = pytester.runpytest_inprocess(
        "-p",
        "kernbench.pytest_plugin",
        "-p",
        "no:cacheprovider",
        "-k",
        "test_slow or test_one",
        "--kernbench-seconds",
        "0.2",
    )
    done.assert_outcomes(passed=2, failed=1, deselected=14)
    assert "the test took longer than 0.2 seconds" in "\n".join(done.outlines)
