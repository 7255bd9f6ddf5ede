"""Writes docs/api.md: the public names of each package with their signatures and docstrings, as the sources say them.

Run it after changing a public name: `python tools/api_reference.py`. A test holds the file to the sources.
"""

import ast
import importlib
import inspect
from functools import cached_property
from pathlib import Path
from types import ModuleType
from typing import Any

ROOT = Path(__file__).parent.parent
TARGET = ROOT / "docs" / "api.md"
PACKAGES = ("mesh", "npu", "ptx", "bench", "golden", "machine", "mesh.time", "result", "report", "sweep", "testing")
# shown beside the names a package exports: objects that kernels get
KERNEL_SIDE = {"mesh": [("kernbench.triton_emu.tl_context", "TLContext")]}
HEAD = """# API reference

The public names of each package, made from the sources by `python tools/api_reference.py`. Methods of the PTX builder's
context are in [ptx-builder.md](ptx-builder.md), tile operations of the npu in [npu-operations.md](npu-operations.md).
"""


def reference() -> str:
    """The whole document."""
    parts = [HEAD]
    for package in PACKAGES:
        module = importlib.import_module(f"kernbench.{package}")
        parts.append(f"## kernbench.{package}\n\n{_doc(module)}\n")
        found = [(name, getattr(module, name)) for name in _public(module)]
        found += [(name, getattr(importlib.import_module(where), name)) for where, name in KERNEL_SIDE.get(package, [])]
        parts.extend(filter(None, (_entry(name, value) for name, value in found)))
    return "\n".join(parts)


def _public(module: ModuleType) -> list[str]:
    names = getattr(module, "__all__", None)
    if names is None:
        names = [n for n, v in vars(module).items() if inspect.isfunction(v) and v.__module__ == module.__name__]
    return sorted((n for n in names if not n.startswith("_")), key=str.lower)


def _entry(name: str, value: Any) -> str:
    if inspect.isclass(value):
        return _class(name, value)
    if inspect.isfunction(value):
        return f"### `{_signature(name, _node(value))}`\n\n{_doc(value)}\n"
    return ""


def _class(name: str, value: type) -> str:
    lines = [f"### class `{name}`\n\n{_doc(value)}\n"]
    for method, inner in _methods(value):
        lines.append(f"- `{_signature(method, _node(inner))}`: {_first(inner)}")
    return "\n".join(lines) + "\n"


def _methods(value: type) -> list[tuple[str, Any]]:
    """Public methods and properties that kernbench itself defines, those of base classes included."""
    found: dict[str, Any] = {}
    for base in reversed(value.__mro__):
        if base.__module__.startswith("kernbench"):
            found |= vars(base)
    kept = []
    for name, inner in sorted(found.items()):
        inner = inner.func if isinstance(inner, cached_property) else inner
        inner = inner.fget if isinstance(inner, property) else getattr(inner, "__func__", inner)
        if not name.startswith("_") and inspect.isfunction(inner) and inner.__module__.startswith("kernbench"):
            kept.append((name, inner))
    return kept


def _node(function: Any) -> ast.FunctionDef:
    source = inspect.cleandoc(f"\n{inspect.getsource(function)}")
    node = ast.parse(source).body[0]
    assert isinstance(node, ast.FunctionDef)
    return node


def _signature(name: str, node: ast.FunctionDef) -> str:
    arguments = node.args
    kept = [a for a in arguments.args if a.arg not in ("self", "cls")]
    if len(kept) < len(arguments.args):
        arguments.args = kept
    if any(isinstance(d, ast.Name) and d.id in ("property", "cached_property") for d in node.decorator_list):
        return name
    result = f" -> {ast.unparse(node.returns)}" if node.returns is not None else ""
    return f"{name}({ast.unparse(arguments)}){result}"


def _doc(value: Any) -> str:
    text = inspect.getdoc(value) or ""
    return "" if text.startswith(f"{getattr(value, '__name__', '')}(") else text


def _first(value: Any) -> str:
    return (inspect.getdoc(value) or "").split("\n\n")[0].replace("\n", " ")


if __name__ == "__main__":
    TARGET.write_text(reference())
