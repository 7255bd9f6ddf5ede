"""Whether Python, its library and NumPy are still what kernbench was loaded with: a bench that replaces a function of
them breaks whatever runs after it, at lines that are not its own.
"""

import ast
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from types import FunctionType

from kernbench.common.errors import BenchError, said
from kernbench.safety.processes.interpreter import Interpreter, restore_builtins, some_of
from kernbench.safety.source_locations import is_installed

# modules of Python's library that kernbench computes, waits and reports with
_LIBRARY = (
    "_thread", "abc", "ast", "collections", "contextlib", "copy", "dataclasses", "enum", "functools", "greenlet",
    "hashlib", "importlib", "inspect", "io", "itertools", "json", "linecache", "math", "operator", "os", "os.path",
    "pathlib", "pickle", "random", "re", "select", "selectors", "shutil", "signal", "struct", "subprocess", "sys",
    "tempfile", "threading", "time", "traceback", "types", "typing", "warnings", "weakref", "zlib",
)  # fmt: skip
# set by kernbench, by debuggers and by terminals
_HOOKS = frozenset(("_exit", "excepthook", "breakpointhook", "displayhook", "unraisablehook", "showwarning"))
_NUMPY = ("numpy", "numpy.random", "numpy.linalg")


def _functions(modules: Iterable[str]) -> dict[str, dict[str, object]]:
    loaded = {name: vars(sys.modules[name]) for name in modules if sys.modules.get(name)}
    return {
        module: {name: value for name, value in held.items() if callable(value) and name not in _HOOKS}
        for module, held in loaded.items()
    }


_OF_NUMPY, _OF_PYTHON = _functions(_NUMPY), _functions(_LIBRARY)


def replaced_functions() -> list[str]:
    """Functions and types of NumPy and of Python's library that are not there any more, or are others, by dotted name.

    Of Python's library not those that an installed package has replaced.
    """
    return [*_changed(_OF_NUMPY, lambda now: True), *_changed(_OF_PYTHON, _is_from_a_file_of_users)]


def _changed(functions: dict[str, dict[str, object]], minded: Callable[[object], bool]) -> list[str]:
    found = []
    for module, held in functions.items():
        now = vars(sys.modules[module])
        found += [f"{module}.{n}" for n, value in held.items() if now.get(n) is not value and minded(now.get(n))]
    return found


def _is_from_a_file_of_users(now: object) -> bool:
    if isinstance(now, FunctionType):
        return not is_installed(now.__code__.co_filename) and not str(now.__module__).startswith("kernbench.")
    return not callable(now)


def restore_functions() -> None:
    """Put back what was replaced, so that an error can be reported."""
    for name in replaced_functions():
        module, _, function = name.rpartition(".")
        setattr(sys.modules[module], function, {**_OF_NUMPY, **_OF_PYTHON}[module][function])


def blamed(error: Exception, files: Iterable[Path], builtins: Iterable[str] = ()) -> BenchError | None:
    """An error for those who replaced functions, with the line where one of `files` does; None where nobody did, and
    the error is our own. `builtins` have been put back already.
    """
    names = [f"builtins.{name}" for name in (*builtins, *restore_builtins())] + replaced_functions()
    if not names:
        return None
    restore_functions()
    where = next((f"{file}:{line}: " for file in files if (line := changing_line(file, _last(names)))), "")
    is_, they = ("is", "it") if len(names) == 1 else ("are", "them")
    owner = "NumPy" if all(name.startswith("numpy.") for name in names) else "Python"
    return BenchError(
        f"{where}{some_of(names)} {is_} not {owner}'s own any more, and kernbench computes with {they} "
        f"({said(error)}): give the replacement a name of its own"
    )


def restored(before: Interpreter, file: Path) -> BenchError | None:
    """What a file has taken from Python since `before`, as an error with its line; it is put back."""
    names, modules = before.restore()
    if names:
        line = changing_line(file, names)
        return BenchError(
            f"{file}:{f'{line}:' if line else ''} {some_of(f'builtins.{name}' for name in names)} "
            f"{'is' if len(names) == 1 else 'are'} not Python's own any more, and kernbench computes with what is "
            "there: give the replacement a name of its own"
        )
    if modules:
        line = changing_line(file, ["modules"], is_stored=False)
        return BenchError(
            f"{file}:{f'{line}:' if line else ''} sys.modules lost {some_of(modules)}, which kernbench runs on: remove "
            "only modules of your own, by name"
        )
    return None


def _last(names: list[str]) -> list[str]:
    return [name.rpartition(".")[2] for name in names]


def changing_line(file: Path, names: list[str], is_stored: bool = True) -> int:
    """The first line of a file that gives an attribute of one of these names a value, or that has it at all; 0 if none
    does.
    """
    try:
        tree = ast.parse(file.read_bytes())
    except (OSError, SyntaxError, ValueError, RecursionError):
        return 0
    lines = [
        node.lineno
        for node in ast.walk(tree)
        if (
            isinstance(node, ast.Attribute)
            and node.attr in names
            and (not is_stored or isinstance(node.ctx, ast.Store | ast.Del))
        )
        or (isinstance(node, ast.Call) and ast.unparse(node.func) == "setattr" and _names_one(node, names))
    ]
    return min(lines, default=0)


def _names_one(call: ast.Call, names: list[str]) -> bool:
    return any(isinstance(word, ast.Constant) and word.value in names for word in call.args)
