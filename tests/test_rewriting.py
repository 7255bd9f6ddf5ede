"""Processes of the tests share the rewriting of assertions, and have the same tests in the same order."""

import pytest
from tests import rewriting

pytest_plugins = ["pytester"]
SOURCE = "import pytest\n@pytest.mark.parametrize('n', [2, 1])\ndef test_it(n):\n    assert [1, n] == [1, 3]\n"
FILES = ["a/test_0.py", "a/test_1.py", "b/c/test_2.py", "b/test_3.py", "d/test_4.py", "test_5.py"]


@pytest.fixture
def files(pytester, monkeypatch):
    monkeypatch.setattr("sys.dont_write_bytecode", False)
    for name in FILES:
        path = pytester.path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(SOURCE)
    return pytester.path


class Seen:
    """The files in the order in which they were collected, and the tests in the end."""

    def __init__(self):
        self.files, self.tests = [], []

    def pytest_collectstart(self, collector):
        if isinstance(collector, pytest.Module):
            self.files.append(str(collector.path))

    def pytest_collection_finish(self, session):
        self.tests = [item.nodeid for item in session.items]


def collected(pytester, number, count):
    """The files as they were collected, and the tests in the end, of process `number` of `count`."""
    seen = Seen()
    options = ("-p", "no:cacheprovider", "--import-mode=importlib", "--collect-only")
    pytester.inline_run(*options, plugins=[seen, rewriting.Turns(number, count)])
    return [name.removeprefix(f"{pytester.path}/") for name in seen.files], seen.tests


def test_every_entry_has_its_turn():
    assert [rewriting.turned("abcde", number, 2) for number in range(2)] == [list("abcde"), list("cdeab")]
    assert [rewriting.turned("ab", number, 3)[0] for number in range(3)] == ["a", "a", "b"]
    assert rewriting.turned("", 1, 2) == []


def test_processes_begin_elsewhere_and_have_the_same_tests(files, pytester):
    first, tests = collected(pytester, 0, 2)
    second, same = collected(pytester, 1, 2)
    assert same == tests
    assert [name for name in tests if name.endswith("[2]")] == [f"{name}::test_it[2]" for name in FILES]
    assert first == FILES
    assert second == ["d/test_4.py", "test_5.py", "a/test_1.py", "a/test_0.py", "b/test_3.py", "b/c/test_2.py"]


def test_what_another_process_has_kept_is_not_rewritten(files, pytester):
    def kept():
        return {path: path.stat().st_mtime_ns for path in files.rglob("test_*.pyc")}

    collected(pytester, 0, 2)
    before = kept()
    collected(pytester, 1, 2)
    assert len(before) == len(FILES)
    assert kept() == before
    result = pytester.inline_run("-p", "no:cacheprovider", "--import-mode=importlib")
    assert "At index 1 diff: 2 != 3" in str(result.getfailures()[0].longrepr)
