"""Finds the Python files that make a bench when imported, from their text, so that no other file is run."""

import ast
from collections.abc import Iterator
from pathlib import Path

from kernbench.common.errors import BenchError

# the functions of kernbench that make a bench
_MAKERS = {"Bench", "folder_bench"}
_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)


def makes_bench(file: Path) -> bool | None:
    """Whether importing a file makes a bench: yes, if it calls kernbench's Bench outside of all functions; None, if
    it calls something else for its variable `bench`. A file with a syntax error is searched for these words.
    """
    try:
        text = file.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise BenchError(f"{file} cannot be read: {error.strerror}") from None
    if "bench" not in text.lower():
        return False
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError):
        return "kernbench" in text and "Bench(" in text
    makers, modules = _imported(tree)
    nodes = list(_outside_functions(tree))
    if any(isinstance(node, ast.Call) and _names_maker(node.func, makers, modules) for node in nodes):
        return True
    return None if any(map(_calls_for_bench, nodes)) else False


def _imported(tree: ast.Module) -> tuple[set[str], set[str]]:
    """Names of the makers in a file, and names of the modules that have them."""
    makers, modules = set(), set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "kernbench":
            makers |= {alias.asname or alias.name for alias in node.names if alias.name in _MAKERS}
            modules |= {alias.asname or alias.name for alias in node.names if alias.name not in _MAKERS}
        elif isinstance(node, ast.Import):
            roots = [alias for alias in node.names if alias.name.split(".")[0] == "kernbench"]
            modules |= {alias.asname or "kernbench" for alias in roots}
    return makers, modules


def _outside_functions(tree: ast.Module) -> Iterator[ast.AST]:
    """Everything that runs when the file is imported."""
    waiting: list[ast.AST] = list(tree.body)
    while waiting:
        node = waiting.pop()
        yield node
        if isinstance(node, _SCOPES):
            waiting.extend(getattr(node, "decorator_list", []))
        elif not (isinstance(node, ast.If) and _only_as_program(node.test)):
            waiting.extend(ast.iter_child_nodes(node))


def _only_as_program(test: ast.expr) -> bool:
    return isinstance(test, ast.Compare) and isinstance(test.left, ast.Name) and test.left.id == "__name__"


def _calls_for_bench(node: ast.AST) -> bool:
    targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
    named = any(isinstance(target, ast.Name) and target.id == "bench" for target in targets)
    return named and isinstance(getattr(node, "value", None), ast.Call)


def _names_maker(function: ast.expr, makers: set[str], modules: set[str]) -> bool:
    if isinstance(function, ast.Name):
        return function.id in makers
    if not isinstance(function, ast.Attribute) or function.attr not in _MAKERS:
        return False
    root = function.value
    while isinstance(root, ast.Attribute):
        root = root.value
    return isinstance(root, ast.Name) and root.id in modules
