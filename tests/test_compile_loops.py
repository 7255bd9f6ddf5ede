"""What `make test` runs before the tests, so that loops are compiled: its runs exist, its programs are launched."""

import importlib.util
from pathlib import Path

import pytest

from kernbench.bench import find

TOOL = Path(__file__).parent.parent / "tools" / "compile_loops.py"


@pytest.fixture(scope="module")
def tool():
    spec = importlib.util.spec_from_file_location("compile_loops", TOOL)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_its_benches_have_the_panels_that_it_runs(tool):
    runs = [(name, panel) for runs in tool.RUNS.values() for name, panel in runs]
    assert [(name, panel) for name, panel in runs if panel not in find(name).panels] == []


def test_its_random_programs_are_launched(tool, monkeypatch):
    monkeypatch.setattr(tool, "PROGRAMS", tool.PROGRAMS[:1])
    tool.run_programs()
