"""The table of public libraries: which files run first, and what is taken from an earlier run."""

import importlib.util
import json
import sys
from argparse import Namespace
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


@pytest.fixture
def libraries(monkeypatch):
    spec = importlib.util.spec_from_file_location("libraries", ROOT / "tools" / "libraries.py")
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "libraries", module)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def earlier(libraries, tmp_path):
    """A library with four test files, of which an earlier run ended two and did not begin one."""
    root = tmp_path / "fla"
    (root / "tests").mkdir(parents=True)
    for name, size in (("whole", 50), ("cut", 40), ("new", 10), ("waiting", 20)):
        (root / "tests" / f"test_{name}.py").write_text("#" * size)
    files = [
        libraries.FileResult("tests/test_whole.py", passed=3, failed=1, launches=9),
        libraries.FileResult("tests/test_cut.py", passed=1, problem=libraries.STOPPED),
        libraries.FileResult("tests/test_waiting.py", problem=libraries.NOT_BEGUN),
    ]
    document = tmp_path / "earlier.json"
    document.write_text(json.dumps([{"name": "flash-linear-attention", "files": [vars(one) for one in files]}]))
    return root, libraries.read_earlier(str(document), {"flash-linear-attention": root})


def test_what_an_earlier_run_did_not_begin_runs_first(libraries, earlier):
    root, known = earlier
    files = sorted((root / "tests").iterdir(), key=lambda file: libraries._turn(root, file, Namespace(earlier=known)))
    assert [file.stem for file in files] == ["test_waiting", "test_new", "test_cut", "test_whole"]


def test_a_file_for_which_no_time_is_left_has_the_figures_of_the_earlier_run(libraries, earlier):
    root, known = earlier
    given = Namespace(end=0.0, earlier=known)
    library = libraries.LIBRARIES["flash-linear-attention"]
    results = [
        libraries.run_file(library, root, root / "tests" / f"test_{name}.py", given) for name in ("whole", "new")
    ]
    rows = libraries.table_of_files([libraries.LibraryResult("fla", results)]).splitlines()
    assert rows[2:] == [
        "| fla | tests/test_new.py | 0 | 0 | 0 | 0 | 0 | 0 | not begun: the time was over |",
        "| fla | tests/test_whole.py | 4 | 3 | 1 | 0 | 0 | 9 | of the earlier run |",
    ]
