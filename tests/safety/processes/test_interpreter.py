"""What code of users takes away from Python comes back, and is named."""

import builtins
import sys

import pytest

from kernbench.safety.processes.interpreter import Interpreter, restore_builtins


def removed_module():
    del sys.modules["json"]


@pytest.mark.parametrize(
    ("change", "names", "modules"),
    [
        (lambda: setattr(builtins, "len", lambda given: 3), ["len"], []),
        (lambda: setattr(builtins, "isinstance", lambda one, kind: False), ["isinstance"], []),
        (lambda: setattr(builtins, "__import__", None), ["__import__"], []),
        (lambda: delattr(builtins, "range"), ["range"], []),
        (lambda: setattr(builtins, "extra", 1), [], []),
        (removed_module, [], ["json"]),
        (lambda: sys.modules.clear(), [], None),
        (lambda: setattr(sys, "modules", {}), [], []),
        (lambda: sys.setrecursionlimit(sys.getrecursionlimit() // 2), [], []),
        (lambda: sys.meta_path.clear(), [], []),
        (lambda: setattr(sys, "stdout", None), [], []),
    ],
)
def test_what_was_taken_away_is_put_back(change, names, modules, monkeypatch):
    monkeypatch.setattr(sys, "stdout", sys.stdout)
    modules_before, limit, finders, length = dict(sys.modules), sys.getrecursionlimit(), list(sys.meta_path), len
    before = Interpreter()
    try:
        change()
        before.restore_builtins()
    finally:
        found = before.restore()
    assert found[0] == names
    assert found[1] == modules or (modules is None and "sys" in found[1])
    assert dict(sys.modules) == modules_before
    assert (sys.getrecursionlimit(), sys.meta_path, builtins.len) == (limit, finders, length)
    assert sys.stdout is not None
    vars(builtins).pop("extra", None)


def test_what_programs_replace_on_purpose_is_left():
    before = builtins.print
    builtins.print = lambda *given: None
    try:
        assert restore_builtins() == []
        assert builtins.print is not before
    finally:
        builtins.print = before


def test_modules_of_users_may_be_removed():
    sys.modules["somebodys_module"] = sys
    before = Interpreter()
    del sys.modules["somebodys_module"]
    assert before.restore() == ([], [])
    assert "somebodys_module" not in sys.modules
