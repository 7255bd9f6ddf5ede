"""Imports Python files of user folders, so that they can import each other and leave no trace."""

import importlib.util
import linecache
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

from kernbench.bench.discovery.libraries import restored
from kernbench.common.errors import BenchError, said, traced
from kernbench.safety.alarm import TooLateError, within
from kernbench.safety.processes.interpreter import Interpreter

# prefix of the names of modules loaded from files
OURS = "kernbench_user_"
# longer imports have an endless loop, or do their work at import
IMPORT_SECONDS = 120.0


@contextmanager
def importable(*folders: Path) -> Iterator[None]:
    """Inside this context, files of these folders can import each other; afterwards their module names are free
    again.
    """
    # thousands of names: comparing two equal lists takes a third of the time of two sets
    before, searched, ways = list(sys.modules), sys.path, list(sys.path)
    paths = [str(folder) for folder in folders]
    sys.path[:0] = paths
    try:
        yield
    finally:
        _search_again(searched, ways, paths)
        added = set(sys.modules).difference(before) if list(sys.modules) != before else ()
        for name in added:
            if any(_found_in(folder, name) for folder in folders):
                del sys.modules[name]


def _search_again(searched: list[str], before: list[str], added: list[str]) -> None:
    """Restore the import path: additions of the file itself stay, and entries that it removed, without which
    kernbench's own modules would not be found, are added again.
    """
    now = list(sys.path or ())
    for path in added:
        if path in now:
            now.remove(path)
    searched[:] = now + [path for path in before if path not in now]
    sys.path = searched


def _found_in(folder: Path, name: str) -> bool:
    """Whether a module belongs to a folder, and not to packages installed below it."""
    module = sys.modules[name]
    file = getattr(module, "__file__", None) or next(iter(getattr(module, "__path__", [])), None)
    if not isinstance(file, str) or not Path(file).is_relative_to(folder):
        return False
    first, *_, last = name.split(".") if "." in name else (name, name)
    beside = Path(Path(file).relative_to(folder).parts[0]).stem
    return last.startswith(OURS) or (first == beside and first != "kernbench")


def folders_of(file: Path) -> tuple[Path, ...]:
    """The folders on the import path of a file: its folder and, if that is a package, the folder around it."""
    holder = file.parent
    while (holder / "__init__.py").is_file() and holder != holder.parent:
        holder = holder.parent
    return (file.parent,) if holder == file.parent else (file.parent, holder)


def _name_of(file: Path) -> str:
    """A name that no import statement uses: the file may be imported under its own name as well. If its package can be
    imported, the name is part of it, so that relative imports work.
    """
    holder = folders_of(file)[-1]
    package = file.parent.relative_to(holder).parts if str(holder) in sys.path else ()
    return ".".join((*package, f"{OURS}{file.stem}"))


def load_module(file: Path) -> ModuleType:
    """The module in a file; errors in it are reported with its line."""
    spec = importlib.util.spec_from_file_location(_name_of(file), file)
    if spec is None or spec.loader is None:
        raise BenchError(f"{file} is no Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    # findings show the current lines, also if an earlier version of the file was shown before
    linecache.checkcache(str(file))
    before = Interpreter()
    try:
        with within(IMPORT_SECONDS):
            try:
                spec.loader.exec_module(module)
            finally:
                # leaving the block needs builtins
                before.restore_builtins()
    except BaseException as error:
        broken = restored(before, file)
        if broken is not None:
            raise broken from error
        if passes_through(error):
            raise
        line, text = error_at(error, file)
        raise BenchError(f"{file}{f':{line}:' if line else ''} could not be loaded: {text}") from error
    broken = restored(before, file)
    if broken is not None:
        raise broken
    return module


def passes_through(error: BaseException) -> bool:
    """Whether an error that left user code is not the user's: an interrupt, a test that skips itself, control flow of
    kernbench, or greenlet ending this coroutine.
    """
    if isinstance(error, (Exception, SystemExit, TooLateError)):
        return False
    packages = {str(kind.__module__).split(".")[0] for kind in type(error).__mro__}
    if "greenlet" in packages:
        return sys.modules["greenlet"].getcurrent().parent is not None
    # skips have no effect outside of tests
    is_of_a_test = "_pytest" in packages and "PYTEST_CURRENT_TEST" in os.environ
    return isinstance(error, KeyboardInterrupt) or "kernbench" in packages or is_of_a_test


def error_text(error: BaseException, file: Path) -> str:
    """The text of an error, with the line of a file."""
    line, text = error_at(error, file)
    return f"line {line}: {text}" if line else text


def error_at(error: BaseException, file: Path) -> tuple[int, str]:
    """The line of a file where an error was raised, 0 if it was elsewhere, and its text."""
    lines = [line for frame, line in traced(error) if frame.f_code.co_filename == str(file)]
    if isinstance(error, SyntaxError) and error.filename == str(file) and error.lineno:
        lines.append(error.lineno)
    return (lines[-1] or 0 if lines else 0), said(error)
