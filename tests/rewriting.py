"""Processes of the tests share the rewriting of assertions: each begins with files of its own, and finds the others'.

pytest rewrites the assertions of each file of tests before it imports it, and keeps what it has made beside the file.
In a fresh checkout nothing is kept, and processes that all begin with the same file rewrite every file of the suite
each: half of the time that they take until their first test. So each goes through the entries of every folder from
another one on, and when it comes to those where another process began, they are kept.
"""

from collections.abc import Sequence
from typing import TypeVar

import pytest

Entry = TypeVar("Entry")


def turned(entries: Sequence[Entry], number: int, count: int) -> list[Entry]:
    """All entries, from the part of process `number` of `count` on."""
    first = number * len(entries) // count
    return [*entries[first:], *entries[:first]]


class Turns:
    """A plugin for process `number` of `count`: it collects files in an order of its own; tests keep theirs."""

    def __init__(self, number: int, count: int):
        self._number, self._count = number, count

    @pytest.hookimpl(wrapper=True)
    def pytest_make_collect_report(self, collector: pytest.Collector) -> object:
        """Turn the entries of each folder."""
        report = yield
        if isinstance(collector, pytest.Directory) and report.passed:
            report.result = turned(report.result, self._number, self._count)
        return report

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """All processes must have the same order of tests: by file, and in a file as it has them."""
        items.sort(key=lambda item: item.path.parts)
