"""A test process reports each test once: its preparation and its end only if they went wrong.

pytest-xdist sends what pytest says of a test's preparation, its run and its end one by one to the process that
prints, which reads it and asks all plugins each time; of thousands of tests that took longer than many of them. Nor
does it send that a test begins and has ended where that is not shown: the report of the test says as much.
"""

from collections.abc import Iterable, Iterator

import pytest
from _pytest.runner import runtestprotocol


def needs_all(config: pytest.Config) -> bool:
    """Whether times or sections of output are asked for, which come with reports of all parts."""
    return bool(config.getoption("durations", None) or config.getoption("xmlpath", None))


def shows_files(config: pytest.Config) -> bool:
    """Whether the file or the name of a test is shown when it begins."""
    return config.get_verbosity(pytest.Config.VERBOSITY_TEST_CASES) >= 0


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> bool:
    """As pytest does it, but for which reports are sent."""
    shown = shows_files(item.config)
    if shown:
        item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
    for report in worth_sending(runtestprotocol(item, log=False, nextitem=nextitem)):
        item.ihook.pytest_runtest_logreport(report=report)
    if shown:
        item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
    return True


class Ends:
    """A plugin for the process that prints: a test has ended when its report is there."""

    def __init__(self, config: pytest.Config):
        self._config = config

    @pytest.hookimpl(trylast=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._config.hook.pytest_runtest_logfinish(nodeid=report.nodeid, location=report.location)


def worth_sending(reports: Iterable[pytest.TestReport]) -> Iterator[pytest.TestReport]:
    """The run of a test, and whatever did not pass."""
    return (report for report in reports if report.when == "call" or not report.passed)
