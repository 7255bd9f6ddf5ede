"""Shell completion of benches, panels, machines and parameters, without running any user file."""

import ast
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from kernbench.bench import Bench


def benches(incomplete: str) -> list[str]:
    """Names of bundled benches, and Python files."""
    from kernbench.bench import known

    return _starting(incomplete, [*known(), *_files(incomplete, ".py")])


def panels(ctx: typer.Context, incomplete: str) -> list[str]:
    """Panels of the bench that the command line names."""
    name = _named(ctx)
    bench = _bundled(name)
    return _starting(incomplete, bench.panels if bench is not None else _panels_in(Path(name)))


def machines(incomplete: str) -> list[str]:
    """Bundled machines and chips, and TOML files."""
    return _starting(incomplete, [*_machines(), *_files(incomplete, ".toml")])


def settings(ctx: typer.Context, incomplete: str) -> list[str]:
    """Parameters of a bundled bench, as key=; with values if these are few."""
    from kernbench.targets.registry import machine_words

    key, equals, _ = incomplete.partition("=")
    if equals and key in machine_words():
        return _starting(incomplete, (f"{key}={name}" for name in _machines()))
    from kernbench.bench import describe

    bench = _bundled(_named(ctx))
    return _starting(incomplete, (f"{row.name}=" for row in describe(bench.parameters))) if bench is not None else []


def _named(ctx: typer.Context) -> str:
    """The bench on the command line; while an option is completed, the words before it are not parsed yet."""
    words = [word for word in ctx.args if not word.startswith("-")]
    return str(ctx.params.get("name") or next(iter(words), ""))


def _machines() -> list[str]:
    from kernbench.targets.registry import with_machines

    return [name for target in with_machines() for name in target.machines.bundled()]


def _bundled(name: str) -> "Bench | None":
    from kernbench.bench import find, known

    try:
        return find(name) if name in known() else None
    except ImportError:
        return None


def _starting(incomplete: str, names: Iterable[str]) -> list[str]:
    return [name for name in names if name.startswith(incomplete)]


def _files(incomplete: str, suffix: str) -> Iterator[str]:
    """Files with a suffix, and folders, whose path begins with this text."""
    folder = incomplete.rpartition("/")[0]
    try:
        found = sorted(Path(folder or ("/" if incomplete.startswith("/") else ".")).iterdir())
    except OSError:
        return
    for path in found:
        if path.is_dir() and not path.name.startswith("."):
            yield f"{path}/"
        elif path.suffix == suffix:
            yield str(path)


def _panels_in(file: Path) -> list[str]:
    """Panels that a file spells out, in its call of Bench or in a variable."""
    try:
        tree = ast.parse(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, SyntaxError):
        return []
    named = {
        target.id: node.value
        for node in tree.body
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    given = [
        k.value for node in ast.walk(tree) if isinstance(node, ast.Call) for k in node.keywords if k.arg == "panels"
    ]
    tables = [named.get(value.id, value) if isinstance(value, ast.Name) else value for value in given]
    keys = [key for table in tables if isinstance(table, ast.Dict) for key in table.keys]
    return [key.value for key in keys if isinstance(key, ast.Constant) and isinstance(key.value, str)]
