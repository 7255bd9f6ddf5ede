"""What the processes of the tests leave out of their reports changes nothing that is counted or shown."""

import re

import pytest
from tests import reports

pytest_plugins = ["pytester"]

SUITE = """
import pytest

@pytest.fixture
def unprepared():
    raise OSError("no such thing")

@pytest.fixture
def untidy():
    yield
    raise OSError("left behind")

def test_good(): ...
def test_bad(): assert 1 + 1 == 3
def test_unprepared(unprepared): ...
def test_untidy(untidy): ...
def test_bad_and_untidy(untidy): assert "one" == "other"
@pytest.mark.skip
def test_left_out(): ...
def test_leaves_itself_out(): pytest.skip("none here")
@pytest.mark.xfail(strict=True)
def test_known(): assert 0
@pytest.mark.xfail(strict=True)
def test_mended(): ...
"""


@pytest.fixture
def run(pytester, capsys):
    """Runs the suite; gives what was told of it, and what pytest shows but for times."""
    pytester.makepyfile(test_it=SUITE)

    def run(plugins, *options):
        inside = pytester.inline_run("-p", "no:cacheprovider", "-rA", *options, plugins=plugins)
        whens = [call.report.when for call in inside.getcalls("pytest_runtest_logreport")]
        return whens, re.sub(r"\d+\.\d+s", "", capsys.readouterr().out)

    return run


def test_what_is_shown_is_the_same(run):
    everything, shown = run(plugins=[])
    few, shown_of_few = run(plugins=[reports])
    assert shown_of_few == shown
    assert "3 failed, 2 passed, 2 skipped, 1 xfailed, 3 errors" in shown
    assert everything.count("call") == few.count("call") == 7
    assert (len(everything), len(few)) == (25, 11)


class Configured:
    """As `conftest.py` does it for the process that prints."""

    def pytest_configure(self, config):
        config.pluginmanager.register(reports.Ends(config), "ends")


def test_what_is_shown_of_a_quiet_run_is_the_same(run):
    _, shown = run([], "-q")
    _, shown_of_few = run([reports, Configured()], "-q")
    assert shown_of_few == shown
    assert "[100%]" in shown


@pytest.mark.parametrize(("options", "shown"), [((), True), (("-v",), True), (("-q",), False)])
def test_files_are_shown_unless_it_is_quiet(pytester, options, shown):
    assert reports.shows_files(pytester.parseconfig(*options)) == shown


@pytest.mark.parametrize("option", ["--durations=3", "--junitxml=out.xml", "-q"])
def test_whoever_asks_for_times_gets_all(pytester, option):
    assert reports.needs_all(pytester.parseconfig(option)) == (option != "-q")
