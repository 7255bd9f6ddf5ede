"""A test process reports each test once: its preparation and its end only if they went wrong.

pytest-xdist sends what pytest says of a test's preparation, its run and its end one by one to the process that
prints, which reads it and asks all plugins each time; of thousands of tests that took longer than many of them.
"""

from collections.abc import Iterable, Iterator

import pytest
from _pytest.runner import runtestprotocol


def needs_all(config: pytest.Config) -> bool:
    """Whether times or sections of output are asked for, which come with reports of all parts."""
    return bool(config.getoption("durations", None) or config.getoption("xmlpath", None))


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> bool:
    """As pytest does it, but for which reports are sent."""
    item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
    for report in worth_sending(runtestprotocol(item, log=False, nextitem=nextitem)):
        item.ihook.pytest_runtest_logreport(report=report)
    item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
    return True


def worth_sending(reports: Iterable[pytest.TestReport]) -> Iterator[pytest.TestReport]:
    """The run of a test, and whatever did not pass."""
    return (report for report in reports if report.when == "call" or not report.passed)
