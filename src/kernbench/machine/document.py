"""Writes a table as a TOML file, each key under a comment with its help, allowed values and role."""

from collections.abc import Iterator

from kernbench.machine.keys import Key
from kernbench.machine.schema import Table


def document(table: Table) -> str:
    """The file's text; reading it gives an equal table."""
    return "\n".join(_lines(table, "", table)) + "\n"


def _lines(table: Table, name: str, whole: Table) -> Iterator[str]:
    yield f"# {_first_line(table)}"
    if name:
        yield f"[{name}]"
    inner: list[str] = []
    for field, entry in table.schema.items():
        value = getattr(table, field)
        if isinstance(entry, Key):
            allowed = whole.allowed(f"{name}.{field}".lstrip("."), entry)
            yield f"# {entry.help} ({allowed}; {entry.role})"
            yield f"{field} = {entry.toml(value)}{_unit_comment(entry, value)}"
        else:
            inner += ["", *_lines(value, f"{name}.{field}".lstrip("."), whole)]
    yield from inner


def _first_line(table: Table) -> str:
    return (type(table).__doc__ or "").splitlines()[0]


def _unit_comment(key: Key, value: object) -> str:
    """The unit for a bare number; text such as "20 ns" contains its own."""
    return f"  # {key.unit}" if key.unit and not key.toml(value).startswith('"') else ""
