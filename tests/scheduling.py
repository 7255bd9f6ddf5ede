"""Which process of the tests gets which file: as pytest-xdist hands them out, without going through all tests for each.

It looks for a test's number among all tests from the first on, and counts what is left to do among all tests that a
process was ever given, whenever one has ended: of thousands of tests, seconds.
"""

from collections.abc import Iterable
from typing import SupportsIndex

from xdist.scheduler import LoadFileScheduling
from xdist.workermanage import WorkerController


class Numbered(list[str]):
    """Names in their order that know their numbers."""

    def __init__(self, names: Iterable[str]):
        super().__init__(names)
        self._numbers: dict[str, int] = {}
        for number, name in enumerate(self):
            self._numbers.setdefault(name, number)

    def index(self, name: str, start: SupportsIndex = 0, *end: SupportsIndex) -> int:
        if start or end or name not in self._numbers:
            return super().index(name, start, *end)
        return self._numbers[name]


class Files(LoadFileScheduling):
    """A file is given to one process as a whole; one that is done is forgotten."""

    def add_node_collection(self, node: WorkerController, collection: list[str]) -> None:
        super().add_node_collection(node, collection)
        if node in self.registered_collections:
            self.registered_collections[node] = Numbered(self.registered_collections[node])

    def mark_test_complete(self, node: WorkerController, item_index: int, duration: float = 0) -> None:
        file = self.registered_collections[node][item_index].partition("::")[0]
        super().mark_test_complete(node, item_index, duration)
        given = self.assigned_work.get(node, {})
        if all(given.get(file, {"": False}).values()):
            del given[file]
