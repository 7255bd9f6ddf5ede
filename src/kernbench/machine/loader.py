"""Machines by name or by file: finds the TOML, follows `extends`, and reports every problem of a file in one error."""

import os
import stat
import tomllib
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any

from kernbench.common.errors import MachineError, unknown
from kernbench.machine.keys import clipped, described, printable
from kernbench.machine.model import Machine

_SUFFIX = ".toml"
_LARGEST_FILE = 256 * 1024
_LONGEST_CHAIN = 16


def bundled() -> list[str]:
    """The names of the machines that come with kernbench."""
    return sorted(entry.name.removesuffix(_SUFFIX) for entry in _folder().iterdir() if entry.name.endswith(_SUFFIX))


def load(machine: "str | os.PathLike[str] | Machine") -> Machine:
    """The machine meant by a bundled name, a path to a TOML file, or a `Machine`, which is returned as it is.

    A file may say `extends = "<bundled name or path beside the file>"` and give only the keys that differ. Its name is
    then that of the file unless it gives one.
    """
    if isinstance(machine, Machine):
        return machine
    if not isinstance(machine, (str, os.PathLike)):
        raise MachineError(
            f"a machine is a bundled name ({', '.join(bundled())}), a path to a TOML file or a Machine; "
            f"got {clipped(machine)}, {described(machine)}"
        )
    return _load(_find(machine, Path()), ())


@dataclass(frozen=True)
class _Source:
    """Where a machine's text comes from: `label` in messages, `folder` for what it extends."""

    label: str
    file: Traversable
    folder: Path

    @property
    def identity(self) -> str:
        """Equal for two ways to the same file."""
        return os.path.realpath(str(self.file))

    @property
    def stem(self) -> str:
        """The file's name without its suffix."""
        return self.file.name.removesuffix(_SUFFIX)


def _folder() -> Traversable:
    return files("kernbench.machine") / "bundled"


def _find(machine: str | os.PathLike[str], folder: Path) -> _Source:
    """A `str` is a bundled name first; anything else, and any other `str` that looks like a path, is a file."""
    names = bundled()
    if isinstance(machine, str) and machine in names:
        return _Source(f"bundled machine {machine}", _folder() / f"{machine}{_SUFFIX}", folder)
    path = folder / machine
    if isinstance(machine, str) and not _looks_like_a_path(machine, path):
        raise MachineError(f"{unknown('machine', machine, names)} A path to a TOML file works as well.")
    return _Source(printable(str(path)), path, path.parent)


def _looks_like_a_path(text: str, path: Path) -> bool:
    return text != "" and (text.endswith(_SUFFIX) or os.sep in text or "/" in text or os.path.exists(path))


def _load(source: _Source, chain: tuple[_Source, ...]) -> Machine:
    """Read `source`; `chain` are the files that led here by `extends`, outermost first."""
    tree = _parse(source)
    if "extends" not in tree:
        return Machine.build(tree, source.label)
    target = tree.pop("extends")
    tree.setdefault("name", source.stem)
    try:
        base = _base(target, source, (*chain, source))
    except MachineError as error:
        return Machine.build(tree, source.label, [f"extends = {clipped(target)}: {error}"])
    return Machine.build(_overlaid(base.to_dict(), tree), source.label)


def _base(target: object, source: _Source, chain: tuple[_Source, ...]) -> Machine:
    if not isinstance(target, str):
        raise MachineError(f"must be text, a bundled name ({', '.join(bundled())}) or a path, not {described(target)}")
    found = _find(target, source.folder)
    route = " -> ".join(step.label for step in (*chain, found))
    if any(step.identity == found.identity for step in chain):
        raise MachineError(f"goes round in a circle: {route}; one of these files must stand alone")
    if len(chain) >= _LONGEST_CHAIN:
        raise MachineError(f"too many files extend each other, at most {_LONGEST_CHAIN} may: {route}")
    return _load(found, chain)


def _overlaid(base: Mapping[str, Any], top: Mapping[str, Any]) -> dict[str, Any]:
    """`base` with the keys of `top` in place of its own, table by table."""
    merged = dict(base)
    for name, value in top.items():
        below = merged.get(name)
        both = isinstance(below, Mapping) and isinstance(value, Mapping)
        merged[name] = _overlaid(merged[name], value) if both else value
    return merged


def _parse(source: _Source) -> dict[str, Any]:
    text = _text(source)
    try:
        return tomllib.loads(text)
    except RecursionError:
        raise MachineError(f"{source.label}: not valid TOML: nested too deeply") from None
    except ValueError as error:
        # A TOMLDecodeError, with line and column, or Python refusing an integer of thousands of digits.
        raise MachineError(f"{source.label}: not valid TOML: {error}") from error


def _text(source: _Source) -> str:
    """The file's text; a byte order mark is let pass."""
    content = _bytes(source)
    if len(content) > _LARGEST_FILE:
        raise MachineError(f"{source.label}: larger than {_LARGEST_FILE} bytes; this is not a machine file")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise MachineError(
            f"{source.label}: not UTF-8 at byte {error.start} ({error.reason}); save the file as UTF-8 text"
        ) from error


def _bytes(source: _Source) -> bytes:
    with suppress(OSError, ValueError):
        if stat.S_ISFIFO(os.stat(str(source.file)).st_mode):
            raise MachineError(f"{source.label}: is a pipe, and reading it may never end; give the path of a TOML file")
    try:
        with source.file.open("rb") as file:
            return file.read(_LARGEST_FILE + 1)
    except IsADirectoryError as error:
        raise MachineError(f"{source.label}: is a directory; give the path of a TOML file in it") from error
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise MachineError(
            f"{source.label}: cannot be read ({reason}); give the path of a TOML file "
            f"or the name of a bundled machine: {', '.join(bundled())}"
        ) from error
