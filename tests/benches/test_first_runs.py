"""A first run, in which small loops are not compiled, gives what every later one does."""

import importlib
import pkgutil

import pytest
from tests import sampled

from kernbench.bench import find, run_bench
from kernbench.common import deferred
from kernbench.common.deferred import Deferred

PACKAGES = ("timing", "mesh.time", "npu.order", "npu.time")
# of recordings of a hundred thousand commands and more that are timed again: tests/timing/test_chains.py
OF_LARGE = ("kernbench.timing.chains.", "kernbench.timing.needed.", "kernbench.timing.playing.")
RUNS = [
    ("milestone_gqa_llama70b", "single_user_decode", {"context": 64}),
    # the same loops over more commands
    *([("milestone_gqa_llama70b", "single_user_prefill", {"context": 64})] if sampled.full() else []),
    ("paged_attention", "context_33", {}),
    ("paged_attention", "contexts_33_17", {}),
]


def loops():
    """All deferred loops of the package, by name."""
    for package in PACKAGES:
        folder = importlib.import_module(f"kernbench.{package}")
        for found in pkgutil.iter_modules(folder.__path__, f"kernbench.{package}."):
            for name, value in vars(importlib.import_module(found.name)).items():
                if isinstance(value, Deferred) and value.py_func.__module__ == found.name:
                    yield f"{found.name}.{name}", value


@pytest.fixture
def interpreted(monkeypatch):
    """Lets all deferred loops run as Python; gives the names of those that did."""
    names, plain = set(), Deferred._plain

    def noted(self):
        names.add(f"{self.py_func.__module__}.{self.py_func.__name__}")
        return plain.func(self)

    # as if nothing were compiled, kept or counted
    monkeypatch.setattr(Deferred, "_is_compiled", lambda self, arguments: False)
    monkeypatch.setattr(Deferred, "_spent", lambda self: 0.0)
    monkeypatch.setattr(Deferred, "_spend", lambda self, seconds: None)
    monkeypatch.setattr(Deferred, "_plain", property(noted))
    monkeypatch.setattr(deferred, "MOST_ROWS", 1 << 40)
    return names


def results(runs):
    return [run_bench(find(name), panel, settings, timed=True).to_dict() for name, panel, settings in runs]


def test_python_gives_what_compiled_loops_do(interpreted, monkeypatch):
    before = results(RUNS)
    left = {name for name, _ in loops() if not name.startswith(OF_LARGE)} - interpreted
    # the former is an alternative to events, the latter for blocks that are placed twice (tests/timing/test_graph.py)
    assert left == {"kernbench.timing.engine._longest_path", "kernbench.timing.graph._count_off"}
    monkeypatch.undo()
    assert results(RUNS) == before
