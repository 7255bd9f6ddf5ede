"""`Any` switches the type checker off: each package has a ceiling of how often its code uses it, which only falls."""

import ast
import re
from collections import Counter
from pathlib import Path

import pytest

SOURCE = Path(__file__).parent.parent / "src" / "kernbench"
# package (or file beside the packages) -> how often `Any` may stand in it; a package that is not here has none
CEILINGS = {
    "bench": 15,
    "benches": 21,
    "cli": 8,
    "common": 12,
    "golden": 4,
    "machine": 2,
    "mesh": 23,
    "npu": 45,
    "ptx": 288,
    "pytest_plugin.py": 10,
    "report": 4,
    "result": 7,
    "safety": 3,
    "sweep": 9,
    "targets": 4,
    "testing.py": 1,
    "triton_emu": 44,
}
# the packages' ceilings may be moved against each other, their sum only falls
ALL_PACKAGES = 501


def uses(text: str) -> int:
    """How often `Any` stands in a file: in signatures, variables and aliases, quoted or not; its import is none."""
    if not re.search(r"\bAny\b", re.sub(r"^ *from typing import .*$", "", text, flags=re.MULTILINE)):
        return 0
    count = 0
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Name):
            count += node.id == "Any"
        elif isinstance(node, ast.Attribute):
            count += node.attr == "Any"
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            count += in_quotes(node.returns)
        elif isinstance(node, ast.arg | ast.AnnAssign):
            count += in_quotes(node.annotation)
    return count


def in_quotes(annotation: ast.expr | None) -> int:
    """How often it stands in the texts of an annotation, which are types as well."""
    inside = ast.walk(annotation) if annotation is not None else ()
    texts = [part.value for part in inside if isinstance(part, ast.Constant) and isinstance(part.value, str)]
    return sum(len(re.findall(r"\bAny\b", text)) for text in texts)


def test_any_stands_in_fewer_and_fewer_places():
    found: Counter[str] = Counter()
    for path in SOURCE.rglob("*.py"):
        found[path.relative_to(SOURCE).parts[0]] += uses(path.read_text())
    more = {
        package: (count, CEILINGS.get(package, 0))
        for package, count in found.items()
        if count > CEILINGS.get(package, 0)
    }
    assert not more, "name the type; `object` where anything is taken"
    assert sum(CEILINGS.values()) <= ALL_PACKAGES


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("from typing import Any\n", 0),
        ("def f(x: Any, *y: 'list[Any]') -> dict[str, Any]: ...\n", 3),
        ("import typing\nx: 'Any' = cast(typing.Any, 1)\n", 2),
        ("def f(x: object) -> str:\n    'Any'\n    return 'Any'\n", 0),
    ],
)
def test_uses_are_counted(text, count):
    assert uses(text) == count
