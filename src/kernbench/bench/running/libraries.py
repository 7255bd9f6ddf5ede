"""Detects whether NumPy is still unchanged: a bench that replaces a function of it breaks whatever runs afterwards,
at lines that are not its own.
"""

import ast
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from kernbench.common.errors import BenchError, said

_FUNCTIONS = {name: value for name, value in vars(np).items() if callable(value)}
_SHOWN = 4


def replaced_functions() -> list[str]:
    """Functions and types of NumPy that are missing or were replaced."""
    now = vars(np)
    return [name for name, value in _FUNCTIONS.items() if now.get(name) is not value]


def blamed(error: Exception, files: Iterable[Path]) -> BenchError | None:
    """An error for replaced functions of NumPy, with the line where one of `files` does it; None if nothing was
    replaced, so that the error is kernbench's own.
    """
    names = replaced_functions()
    if not names:
        return None
    where = next((f"{file}:{line}: " for file in files if (line := _line(file, names))), "")
    which = ", ".join(f"numpy.{name}" for name in names[:_SHOWN]) + (", ..." if len(names) > _SHOWN else "")
    is_, they = ("is", "it") if len(names) == 1 else ("are", "them")
    return BenchError(
        f"{where}{which} {is_} not NumPy's own any more, and kernbench computes with {they} ({said(error)}): "
        "give the replacement a name of its own"
    )


def _line(file: Path, names: list[str]) -> int:
    """The first line of a file that assigns an attribute of one of these names; 0 if there is none."""
    try:
        tree = ast.parse(file.read_bytes())
    except (OSError, SyntaxError, ValueError, RecursionError):
        return 0
    lines = [
        node.lineno
        for node in ast.walk(tree)
        if (isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store | ast.Del) and node.attr in names)
        or (isinstance(node, ast.Call) and ast.unparse(node.func) == "setattr" and _names_one(node, names))
    ]
    return min(lines, default=0)


def _names_one(call: ast.Call, names: list[str]) -> bool:
    return any(isinstance(word, ast.Constant) and word.value in names for word in call.args)
