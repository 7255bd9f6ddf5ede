"""Processes of the tests share the rewriting of assertions, and what they make is what pytest would have made."""

import pytest
from _pytest.assertion import rewrite
from tests import rewriting

pytest_plugins = ["pytester"]
SOURCE = "def test_it():\n    one = [1, 2]\n    assert one == [1, 3], {!r}\n"


@pytest.fixture
def files(pytester, monkeypatch):
    monkeypatch.setattr("sys.dont_write_bytecode", False)
    for number in range(5):
        pytester.makepyfile(**{f"test_{number}": SOURCE.format(str(number))})
    return rewriting.files_of(pytester.path)


def test_each_process_has_a_part_and_all_parts_are_all_files(files, pytestconfig):
    parts = [rewriting.rewrite_part(pytestconfig, files, number, 2) for number in range(2)]
    assert [[path.stem for path in part] for part in parts] == [["test_0", "test_2", "test_4"], ["test_1", "test_3"]]
    # what is kept is not rewritten again, what has changed since is
    assert rewriting.rewrite_part(pytestconfig, files, 0, 1) == []
    files[3].write_text(SOURCE.format("changed"))
    assert rewriting.rewrite_part(pytestconfig, files, 0, 1) == [files[3]]


def test_pytest_takes_what_is_kept(files, pytester, pytestconfig, monkeypatch):
    rewriting.rewrite_part(pytestconfig, files, 0, 1)
    rewritten = []
    monkeypatch.setattr(rewrite, "_rewrite_test", lambda path, config: rewritten.append(path))
    result = pytester.inline_run("-p", "no:cacheprovider")
    result.assertoutcome(failed=5)
    assert rewritten == []
    assert "At index 1 diff: 2 != 3" in str(result.getfailures()[0].longrepr)


def test_a_file_that_is_no_python_is_left_to_who_imports_it(files, pytestconfig):
    files[1].write_text("def test_it(:\n")
    assert rewriting.rewrite_part(pytestconfig, files, 1, 4) == []


def test_nothing_is_kept_where_python_is_told_so(files, pytestconfig, monkeypatch):
    monkeypatch.setattr("sys.dont_write_bytecode", True)
    assert rewriting.rewrite_part(pytestconfig, files, 0, 1) == []
