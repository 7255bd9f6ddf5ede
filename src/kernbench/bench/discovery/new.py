"""Templates of benches: a small, working file for each target."""

import keyword
import sys
from importlib.machinery import PathFinder
from pathlib import Path

from kernbench.bench.discovery.collection import LEFT_ALONE
from kernbench.bench.discovery.registry import known
from kernbench.common.errors import BenchError, unknown
from kernbench.targets import registry

_PLACEHOLDER = "NAME"


def targets() -> list[str]:
    """Targets that have a template."""
    return sorted(row.name for row in registry.listed() if row.template)


def template(target: str, name: str) -> str:
    """The text of a bench named `name` for a target."""
    if target not in targets():
        raise BenchError(unknown("target", target, targets()))
    if not name.isidentifier() or keyword.iskeyword(name) or name.startswith("_"):
        raise BenchError(f"{name!r} cannot be a bench's name: letters, digits and _, such as my_attention")
    if name.startswith(LEFT_ALONE):
        raise BenchError(f"{name} is a name for tests, which kernbench check leaves alone: choose another")
    if _is_module(name):
        raise BenchError(f"{name} is the name of a Python module, which a file of this name would hide: choose another")
    if name in known():
        raise BenchError(
            f"{name} is a bundled bench, which a file of this name could not be distinguished from: choose another"
        )
    return filled_in(target, name)


def _is_module(name: str) -> bool:
    """Whether Python or an installed package has a module of this name; files beside the new one do not count."""
    if name == "kernbench" or name in sys.stdlib_module_names:
        return True
    here = Path.cwd()
    spec = PathFinder.find_spec(name, [folder for folder in sys.path if folder and Path(folder) != here])
    # a plain folder of this name is no module
    return spec is not None and spec.origin is not None


def filled_in(target: str, name: str) -> str:
    """As `template`, for a target and a name that were checked."""
    return registry.find(target).template().replace(_PLACEHOLDER, name)


def write_new(target: str, name: str, folder: Path) -> Path:
    """Write the file of a new bench, and its folder if missing; existing files are not changed."""
    text = template(target, name)
    file = folder / f"{name}.py"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with file.open("x", encoding="utf-8") as stream:
            stream.write(text)
    except FileExistsError:
        if not folder.is_dir():
            raise BenchError(f"{folder} is a file, not a folder: name another with --dir") from None
        raise BenchError(f"{file} is there already: choose another name, or remove it first") from None
    except OSError as error:
        raise BenchError(f"{file}: {error.strerror or error}") from None
    return file
