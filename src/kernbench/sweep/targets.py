"""The output files of a sweep: whether each can be written is checked before any point runs."""

from collections.abc import Mapping
from itertools import combinations
from pathlib import Path
from tempfile import TemporaryFile

from kernbench.common.errors import BenchError
from kernbench.common.files import why


def check_targets(files: Mapping[str, Path | None]) -> None:
    """Refuse files that cannot be written, and one file for two purposes; the keys are the options that name them."""
    named = {option: file for option, file in files.items() if file is not None}
    targets = {option: _target(option, file) for option, file in named.items()}
    for one, other in combinations(targets, 2):
        if _same(targets[one], targets[other]):
            raise BenchError(f"{one} and {other} both name {named[other]}: give each a file of its own")


def _target(option: str, file: Path) -> Path:
    """The resolved path of the file."""
    try:
        target = file.resolve()
        if target.is_dir():
            raise BenchError(f"{option} {file} is a folder: choose another file")
        if not target.parent.is_dir():
            raise BenchError(f"{option} {file}: there is no folder {file.parent} to write it to; make it first")
        if _is_there(target) and not target.is_file():
            raise BenchError(f"{option} {file} is no ordinary file: choose another name")
        with TemporaryFile(dir=target.parent):
            return target
    except (OSError, RuntimeError) as error:
        reason = why(error) if isinstance(error, OSError) else error
        raise BenchError(f"{option} {file} cannot be written ({reason}): choose another file") from None


def _is_there(target: Path) -> bool:
    """Whether a file exists. An invalid name is an error; `Path.exists` calls it absent since Python 3.14."""
    try:
        target.stat()
    except FileNotFoundError:
        return False
    return True


def _same(one: Path, other: Path) -> bool:
    return one == other or (one.exists() and other.exists() and one.samefile(other))
