"""Mesh machines by name or by file."""

import os

from kernbench.machine.library import Library
from kernbench.machine.model import Machine

_LIBRARY = Library(Machine, "kernbench.machine", "bundled")


def bundled() -> list[str]:
    """The names of the machines that come with kernbench."""
    return _LIBRARY.bundled()


def kind_of(machine: str | os.PathLike[str]) -> object:
    """The `kind` of a name or file; the rest is not read."""
    return _LIBRARY.kind_of(machine)


def load(machine: "str | os.PathLike[str] | Machine") -> Machine:
    """The machine of a bundled name, a path to a TOML file, or a `Machine`, which is returned as it is.

    A file may say `extends = "<bundled name or path relative to the file>"` and give only the keys that differ. Its
    name is then that of the file unless it gives one.
    """
    return _LIBRARY.load(machine)
