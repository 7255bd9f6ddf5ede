"""Finding benches: those in `kernbench.benches` by name, a user's own by the path of its file."""

import importlib
import pkgutil
import sys
from dataclasses import replace
from difflib import get_close_matches
from pathlib import Path
from types import ModuleType

from kernbench.bench.definition.bench import Bench
from kernbench.bench.discovery.modules import OURS, folders_of, importable, load_module
from kernbench.common.errors import BenchError, unknown

# most files of a folder that are listed
MAX_FILES_LISTED = 8
PACKAGE = "kernbench.benches"


def known() -> list[str]:
    """Names of the bundled benches."""
    package = importlib.import_module(PACKAGE)
    modules = pkgutil.iter_modules(package.__path__)
    # packages hold the kernels that benches launch
    return sorted(m.name for m in modules if not m.ispkg and not m.name.startswith("_"))


def find(name_or_path: str) -> Bench:
    """The bench with this name, or the one in this file."""
    if name_or_path in known():
        module = importlib.import_module(f"{PACKAGE}.{name_or_path}")
        return _bench_of(module, str(module.__file__))
    if name_or_path.endswith(".py") or "/" in name_or_path or Path(name_or_path).is_file():
        return load_file(name_or_path)
    meant = Path(name_or_path).with_suffix(".py") if Path(name_or_path).name else Path()
    if meant.is_file():
        raise BenchError(f"there is no bench {name_or_path!r}, but a file {meant}: name the file")
    if name_or_path and Path(name_or_path).is_dir():
        raise BenchError(_folder(name_or_path))
    raise BenchError(unknown("bench", name_or_path, known()) + " A path to a .py file works as well.")


def _folder(path: str | Path) -> str:
    """The error message for a folder where a bench is wanted."""
    return f"{path} is a folder: name one of its files, or run all with kernbench check {path}"


def load_file(path: str | Path) -> Bench:
    """The bench defined in a Python file of the user's own."""
    file = Path(path).resolve()
    if file.is_dir():
        raise BenchError(_folder(path))
    if not file.is_file():
        raise BenchError(f"no such file: {path}{_beside(file)}")
    with importable(*folders_of(file)):
        module = load_module(file)
    # classes of the bench can still be looked up by its module's name
    sys.modules[module.__name__] = module
    return _bench_of(module, str(file))


def loaded_anew(bench: Bench) -> Bench:
    """The same bench from its file, with the initial values of module variables; `bench` itself if it was changed after
    loading, and if it is one of kernbench's own.
    """
    module = sys.modules.get(str(getattr(bench.launch, "__module__", "")))
    if not bench.file or module is None or not module.__name__.split(".")[-1].startswith(OURS):
        return bench
    made = [value for value in vars(module).values() if isinstance(value, Bench)]
    if len(made) != 1 or replace(made[0], file=bench.file) != bench:
        return bench
    return load_file(bench.file)


def _beside(file: Path) -> str:
    """The Python files beside a missing one, the most similar one, or that there is no such folder."""
    if not file.parent.is_dir():
        return f"; there is no folder {file.parent}"
    names = sorted(p.name for p in file.parent.glob("*.py"))
    close = get_close_matches(file.name, names, n=1)
    if close:
        return f"; did you mean {close[0]}?"
    # the file may be one folder up or down
    near = [file.parent.parent / file.name, *sorted(file.parent.glob(f"*/{file.name}"))]
    for other in near:
        if other.is_file():
            return f"; did you mean {other}?"
    more = ", ..." if len(names) > MAX_FILES_LISTED else ""
    return f"; Python files in {file.parent}: {', '.join(names[:MAX_FILES_LISTED]) or 'none'}{more}"


def _bench_of(module: ModuleType, file: str) -> Bench:
    benches = [v for v in vars(module).values() if isinstance(v, Bench)]
    if len(benches) != 1:
        raise BenchError(
            f"{file} defines {len(benches)} benches; one is wanted: bench = Bench(name=..., parameters=..., ...)"
        )
    return replace(benches[0], file=file)
