"""`kernbench cache`: what it prints and writes; `tests/common/test_sharing.py` has what may go wrong with files."""

import json

import pytest

from kernbench.bench import find
from kernbench.common import compiled
from kernbench.targets.registry import BUNDLED

LOOP = "timing/engine.play-9.py311"


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder with one loop."""
    mine = tmp_path / "kept" / "version"
    (mine / "timing").mkdir(parents=True)
    (mine / f"{LOOP}.1.nbc").write_bytes(b"code" * 1024)
    (mine / f"{LOOP}.nbi").write_bytes(b"table")
    monkeypatch.setattr(compiled, "folder", lambda: str(mine))
    return mine


def test_show(kernbench, folder):
    done = kernbench("cache", "show", "--json", "-")
    assert done.returncode == 0, done.stderr
    shown = json.loads(done.stdout)
    assert shown["loops"] == {"timing.engine.play": 4096 + 5}
    assert set(shown["machine"]) == {"system", "cpu", "features", "python", "numba", "llvmlite", "numpy", "kernbench"}
    assert "timing.engine.play" in done.stderr


def test_export_clear_and_import(kernbench, folder, tmp_path):
    file = tmp_path / "loops.zip"
    told = json.loads(kernbench("cache", "export", str(file), "--json", "-").stdout)
    assert told["loops"] == 1
    assert "0.0 MiB removed" in kernbench("cache", "clear").stdout
    assert list(folder.iterdir()) == []
    refused = kernbench("cache", "import", str(file), "--sha256", "0" * 64)
    assert refused.returncode == 2
    assert "not the file that was meant" in refused.stderr
    done = kernbench("cache", "import", str(file), "--sha256", told["sha256"])
    assert done.returncode == 0, done.stderr
    assert done.stdout == "1 compiled loops imported; 0 were kept already\n"
    assert (folder / f"{LOOP}.nbi").read_bytes() == b"table"


def test_a_source_is_not_overwritten(kernbench, folder, tmp_path):
    (tmp_path / "mine.py").write_text("")
    done = kernbench("cache", "export", str(tmp_path / "mine.py"))
    assert done.returncode == 2
    assert (tmp_path / "mine.py").read_text() == ""


def test_an_unknown_target(kernbench):
    done = kernbench("cache", "warm", "ptz")
    assert done.returncode == 2
    assert "ptx" in done.stderr


def test_warm_runs_small_panels(kernbench, folder, monkeypatch):
    import kernbench.bench as bench

    ran = []
    monkeypatch.setattr(bench, "run_bench", lambda found, panel, timed: ran.append((found.name, panel, timed)))
    done = kernbench("cache", "warm", "npu")
    assert done.returncode == 0, done.stderr
    assert ran == [("paged_attention", "context_33", True), ("paged_attention", "contexts_33_17", True)]
    assert done.stdout.startswith("0 loops compiled; 1 are kept in")


def test_every_run_of_warm_exists():
    for row in BUNDLED:
        assert row.small_runs
        for name, panel in row.small_runs:
            assert panel in find(name).panels
