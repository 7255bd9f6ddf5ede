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


CASES = """<testsuites><testsuite>
<testcase name="a"/><testcase name="b"/><testcase name="c"><failure message="assert 1 == 2"/></testcase>
<testcase name="d"><skipped message="no such GPU"/></testcase>
<testcase name="e"><skipped type="pytest.xfail" message=""/></testcase>
</testsuite></testsuites>"""
WHERE = {"file": "norm.py", "line": 7}
RACE = {"kind": "race", "where": WHERE, "message": "m"}
KERNELS = [
    {"kernel": "norm", "launches": 5, "seconds": 1.5, "cpu_seconds": 1.25, "findings": [RACE]},
    {"kernel": "scale", "launches": 2, "seconds": 0.75, "cpu_seconds": 0.5, "findings": []},
]


def test_a_whole_library_runs_in_one_process(libraries, tmp_path, monkeypatch, capsys):
    for name in ("test_a", "test_b", "test_tilelang_c"):
        folder = tmp_path / "fla" / "tests" / "ops"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{name}.py").write_text("")
    commands = []

    def run(words, root, library, seconds):
        commands.append(words)
        Path(words[words.index("--junitxml") + 1]).write_text(CASES)
        Path(words[words.index("--json") + 1]).write_text(json.dumps({"cpu_seconds": 4.25, "kernels": KERNELS}))
        return ""

    monkeypatch.setattr(libraries, "_run", run)
    library = libraries.Library(("tests/ops",), (".",), {"*tilelang*": "TileLang"})
    monkeypatch.setitem(libraries.LIBRARIES, "flash-linear-attention", library)
    words = ["--together", "--all", f"flash-linear-attention={tmp_path / 'fla'}"]
    assert libraries.main(words) == 1
    (command,) = commands
    assert command[-2:] == [str(tmp_path / "fla" / "tests" / "ops"), "--ignore-glob=*tilelang*"]
    printed = capsys.readouterr().out.splitlines()
    assert "flash-linear-attention: 1 skipped: fails by design" in printed
    row = printed[2]
    assert row.startswith(
        "| flash-linear-attention | 2 | 3 | 2 | 7 | 2 | 1 | 1 | 0 (2) | 4 (2) | 2 skipped by the tests, 0 too"
    )


def test_some_files_and_all_together_do_not_go_together(libraries, tmp_path, capsys):
    with pytest.raises(SystemExit):
        libraries.main(["--together", "--only", "test_a.py", f"dion={tmp_path}"])
    assert "--together runs all files of a library" in capsys.readouterr().err
