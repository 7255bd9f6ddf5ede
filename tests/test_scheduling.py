"""Files go to the processes of the tests as pytest-xdist hands them out, and what is done is forgotten."""

from types import SimpleNamespace

import pytest
from tests import scheduling
from xdist.scheduler import LoadFileScheduling

pytest_plugins = ["pytester"]
TESTS = [f"tests/test_{file}.py::test_it[{number}]" for file in range(9) for number in range(1 + 5 * file % 7)]


class Node:
    """A process that is told what to run."""

    def __init__(self):
        self.given, self.shutting_down = [], False
        self.gateway = SimpleNamespace(id="one")

    def send_runtest_some(self, indices):
        self.given += indices

    def shutdown(self):
        self.shutting_down = True


def handed_out(scheduler):
    """What two processes are given in which order, if the first is done with two tests whenever the other is with one;
    and the most tests that are looked through when one has ended.
    """
    nodes, most = [Node(), Node()], 0
    for node in nodes:
        scheduler.add_node(node)
    for node in nodes:
        scheduler.add_node_collection(node, TESTS)
    scheduler.schedule()
    done = dict.fromkeys(nodes, 0)
    while not all(node.shutting_down and done[node] == len(node.given) for node in nodes):
        for node in (nodes[0], nodes[0], nodes[1]):
            if done[node] < len(node.given):
                done[node] += 1
                scheduler.mark_test_complete(node, node.given[done[node] - 1])
                most = max(most, sum(map(len, scheduler.assigned_work[node].values())))
    assert scheduler.tests_finished
    assert not scheduler.has_pending
    return [node.given for node in nodes], most


def test_files_are_handed_out_as_by_the_scheduler_of_xdist(pytester):
    config = pytester.parseconfig("--tx=2*popen", "--no-loadscope-reorder")
    given, few = handed_out(scheduling.Files(config))
    usual, many = handed_out(LoadFileScheduling(config))
    assert given == usual
    assert sorted(given[0] + given[1]) == list(range(len(TESTS)))
    # the file at work, and one that waits
    assert few <= 14 < many


def test_a_name_has_the_number_of_its_first():
    names = scheduling.Numbered(["b", "a", "b", "c"])
    assert [names.index(name) for name in "abc"] == [1, 0, 3]
    assert names.index("b", 1) == 2
    with pytest.raises(ValueError, match="d"):
        names.index("d")
    assert names == ["b", "a", "b", "c"]
