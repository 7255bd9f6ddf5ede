"""Machines of one kind by name or file: finds the TOML, follows `extends`, reports all problems of a file at once."""

import os
import stat
import tomllib
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Generic, TypeVar

from kernbench.common.errors import MachineError, unknown
from kernbench.machine.description import Description
from kernbench.machine.keys import Key, clipped, described, printable
from kernbench.machine.schema import Table
from kernbench.result.reading import Fields

Kind = TypeVar("Kind", bound=Description)
_SUFFIX = ".toml"
_LARGEST_FILE = 256 * 1024
_LONGEST_CHAIN = 16


@dataclass(frozen=True)
class _Source:
    """The source of a machine's text: `label` in messages, `folder` for relative `extends`."""

    label: str
    file: Traversable
    folder: Path

    @property
    def identity(self) -> str:
        """Equal for two paths to the same file."""
        return os.path.realpath(str(self.file))

    @property
    def stem(self) -> str:
        """The file's name without its suffix."""
        return self.file.name.removesuffix(_SUFFIX)


def _home(package: str, folder: str) -> Traversable:
    return files(package) / folder


# bundled files do not change while a process runs, and descriptions are immutable: each is read once, and not for each
# device and each launch that names it
@cache
def _kept_names(package: str, folder: str) -> tuple[str, ...]:
    names = (entry.name for entry in _home(package, folder).iterdir())
    return tuple(sorted(name.removesuffix(_SUFFIX) for name in names if name.endswith(_SUFFIX)))


@cache
def _kept(library: "Library[Kind]", name: str) -> Description:
    return library._load(library._find(name, Path()), ())


@dataclass(frozen=True)
class Library(Generic[Kind]):
    """Machines of type `table`; the bundled ones are in `folder` of `package`."""

    table: type[Kind]
    package: str
    folder: str

    def bundled(self) -> list[str]:
        """The names of the bundled machines."""
        return list(_kept_names(self.package, self.folder))

    def load(self, machine: str | os.PathLike[str] | Kind) -> Kind:
        """The machine of a bundled name or a path to a TOML file; a description is returned as it is."""
        if isinstance(machine, self.table):
            return machine
        if not isinstance(machine, (str, os.PathLike)):
            raise MachineError(
                f"a {self._called} is a bundled name ({self._names()}), a path to a TOML file or a "
                f"{self.table.__name__}; got {clipped(machine)}, {described(machine)}"
            )
        if isinstance(machine, str) and machine in _kept_names(self.package, self.folder):
            found = _kept(self, machine)
            assert isinstance(found, self.table)
            return found
        return self._load(self._find(machine, Path()), ())

    def kind_of(self, machine: str | os.PathLike[str]) -> object:
        """The `kind` of a file, or of the first file it extends that has one; the rest is not read."""
        source = self._find(machine, Path())
        chain: tuple[_Source, ...] = ()
        while "kind" not in (tree := self._parse(source)) and "extends" in tree:
            chain = (*chain, source)
            source = self._extended(tree["extends"], chain)
        return tree.get("kind")

    @property
    def _called(self) -> str:
        return self.table.called

    def _names(self) -> str:
        return ", ".join(self.bundled())

    def _home(self) -> Traversable:
        return _home(self.package, self.folder)

    def _find(self, machine: str | os.PathLike[str], folder: Path) -> _Source:
        """A `str` is looked up as a bundled name first; anything else, and any other `str` that looks like a path,
        is a file.
        """
        names = self.bundled()
        if isinstance(machine, str) and machine in names:
            return _Source(f"bundled {self._called} {machine}", self._home() / f"{machine}{_SUFFIX}", folder)
        path = folder / machine
        if isinstance(machine, str) and not _looks_like_a_path(machine, path):
            raise MachineError(f"{unknown(self._called, machine, names)} A path to a TOML file works as well.")
        return _Source(printable(str(path)), path, path.parent)

    def _load(self, source: _Source, chain: tuple[_Source, ...]) -> Kind:
        """Read `source`; `chain` are the files that led here by `extends`, outermost first."""
        tree = self._parse(source)
        if "extends" not in tree:
            return self.table.build(tree, source.label)
        target = tree.pop("extends")
        tree.setdefault("name", source.stem)
        chain = (*chain, source)
        try:
            base = self._load(self._extended(target, chain), chain)
        except MachineError as error:
            return self.table.build(tree, source.label, [f"extends = {clipped(target)}: {error}"])
        return self.table.build(_overlaid(base.to_dict(), tree, self.table), source.label)

    def _extended(self, target: object, chain: tuple[_Source, ...]) -> _Source:
        """The file that the last of `chain` extends."""
        if not isinstance(target, str):
            raise MachineError(f"must be text, a bundled name ({self._names()}) or a path, not {described(target)}")
        found = self._find(target, chain[-1].folder)
        route = " -> ".join(step.label for step in (*chain, found))
        if any(step.identity == found.identity for step in chain):
            raise MachineError(f"goes round in a circle: {route}; one of these files must stand alone")
        if len(chain) >= _LONGEST_CHAIN:
            raise MachineError(f"too many files extend each other, at most {_LONGEST_CHAIN} may: {route}")
        return found

    def _parse(self, source: _Source) -> dict[str, object]:
        text = self._text(source)
        try:
            return tomllib.loads(text)
        except RecursionError:
            raise MachineError(f"{source.label}: not valid TOML: nested too deeply") from None
        except ValueError as error:
            # a TOMLDecodeError, with line and column, or Python refusing an integer of thousands of digits
            raise MachineError(f"{source.label}: not valid TOML: {error}") from error

    def _text(self, source: _Source) -> str:
        """The file's text; a byte order mark is accepted."""
        content = self._bytes(source)
        if len(content) > _LARGEST_FILE:
            raise MachineError(f"{source.label}: larger than {_LARGEST_FILE} bytes; this is not a {self._called} file")
        try:
            return content.decode("utf-8-sig")
        except UnicodeDecodeError as error:
            raise MachineError(
                f"{source.label}: not UTF-8 at byte {error.start} ({error.reason}); save the file as UTF-8 text"
            ) from error

    def _bytes(self, source: _Source) -> bytes:
        with suppress(OSError, ValueError):
            if stat.S_ISFIFO(os.stat(str(source.file)).st_mode):
                raise MachineError(
                    f"{source.label}: is a pipe, and reading it may never end; give the path of a TOML file"
                )
        try:
            with source.file.open("rb") as file:
                return file.read(_LARGEST_FILE + 1)
        except IsADirectoryError as error:
            raise MachineError(f"{source.label}: is a directory; give the path of a TOML file in it") from error
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or str(error)
            raise MachineError(
                f"{source.label}: cannot be read ({reason}); give the path of a TOML file "
                f"or the name of a bundled {self._called}: {self._names()}"
            ) from error


def _looks_like_a_path(text: str, path: Path) -> bool:
    return text != "" and (text.endswith(_SUFFIX) or os.sep in text or "/" in text or os.path.exists(path))


def _overlaid(base: Fields, top: Fields, table: type[Table]) -> dict[str, object]:
    """`base` with the keys of `top` replacing its own, table by table; the value of a key is replaced as a whole."""
    merged = dict(base)
    for name, value in top.items():
        inner = table.schema.get(name)
        if inner is None or isinstance(inner, Key) or not isinstance(value, Mapping):
            merged[name] = value
        else:
            merged[name] = _overlaid(merged[name], value, inner)
    return merged
