"""The columns of a sweep's results, and their valid values."""

import math
import re
from collections.abc import Callable, Mapping
from functools import cache

from kernbench.sweep.planning.points import floor_column, gap_column, utilisation_column
from kernbench.targets import registry

_WHOLE = re.compile(r"[0-9]{1,30}", re.ASCII)
_SIGNED = re.compile(r"-?[0-9]{1,30}", re.ASCII)


def _is_number(text: str) -> bool:
    try:
        return math.isfinite(float(text))
    except ValueError:
        return False


def _is_whole(text: str) -> bool:
    return _WHOLE.fullmatch(text) is not None


def _is_signed(text: str) -> bool:
    return _SIGNED.fullmatch(text) is not None


_Kind = tuple[Callable[[str], bool], str]
_VERDICT: _Kind = (lambda text: text in ("True", "False"), "True or False")
_TEXT: _Kind = (lambda text: True, "text")
_COUNT: _Kind = (_is_whole, "a whole number")
_DIFFERENCE: _Kind = (_is_signed, "a whole number")
_RATIO: _Kind = (_is_number, "a number")


# columns of every sweep
_SHARED: Mapping[str, _Kind] = {
    "right": _VERDICT,
    "safe": _VERDICT,
    "refused": _TEXT,
    "failed": _TEXT,
    "failed_at": _TEXT,
    "repeat": _TEXT,
    "commands": _COUNT,
    "time_ps": _COUNT,
    "bound": _TEXT,
    "floor_ratio": _RATIO,
    "caveat": _TEXT,
}


@cache
def columns(target: str) -> tuple[str, ...]:
    """The columns of a sweep on machines of a target."""
    measured = registry.find(target).measured()
    return (
        *_SHARED,
        *map(utilisation_column, measured.engines),
        *map(floor_column, measured.floors),
        *map(gap_column, measured.causes),
    )


def metrics(target: str) -> tuple[str, ...]:
    """Those columns that hold numbers."""
    return tuple(name for name in columns(target) if _kind(name) in (_COUNT, _DIFFERENCE, _RATIO))


def _kind(name: str) -> _Kind:
    """The valid values of a column; columns of measurements are recognised by prefix."""
    measured = {utilisation_column(""): _RATIO, _FLOOR: _COUNT, _GAP: _DIFFERENCE}
    return _SHARED.get(name) or next(kind for start, kind in measured.items() if name.startswith(start))


_FLOOR, _GAP = (column("").removesuffix("_ps") for column in (floor_column, gap_column))
_SQL = {id(kind): name for kind, name in ((_VERDICT, "INTEGER"), (_COUNT, "INTEGER"), (_DIFFERENCE, "INTEGER"))}
_SQL[id(_RATIO)] = "REAL"


def sql_type(name: str) -> str:
    """The type of a column of results in the database."""
    return _SQL.get(id(_kind(name)), "TEXT")


# SQL for each kind: where a cell holds no valid value
_INVALID = {
    id(_VERDICT): "{0} NOT IN (0, 1)",
    id(_TEXT): "typeof({0}) != 'text'",
    id(_COUNT): "typeof({0}) != 'integer' OR {0} < 0",
    id(_DIFFERENCE): "typeof({0}) != 'integer'",
    id(_RATIO): "typeof({0}) NOT IN ('real', 'integer') OR abs({0}) = 9e999",
}


def invalid(name: str, quoted: str) -> tuple[str, str]:
    """SQL that holds where a column of results, `quoted` in it, has no valid value; and what is wanted, in words."""
    kind = _kind(name)
    return f"{quoted} IS NOT NULL AND ({_INVALID[id(kind)].format(quoted)})", kind[1]


def is_verdict(name: str) -> bool:
    """Whether a column of results is boolean, stored as 1 and 0."""
    return _kind(name) is _VERDICT


def from_text(name: str, text: str) -> object:
    """A cell of a CSV file as a value; it was checked with `problem`."""
    if text == "":
        return None
    if is_verdict(name):
        return text == "True"
    return {"INTEGER": int, "REAL": float}.get(sql_type(name), str)(text)


def as_text(value: object) -> str:
    """A value as text for a file; None is an empty cell."""
    return "" if value is None else str(value)


def bounds_of(target: str) -> tuple[str, ...]:
    """What the column `bound` may say of a target."""
    measured = registry.find(target).measured()
    return (*measured.floors, *measured.bounds)


def problem(row: Mapping[str, str], target: str) -> str:
    """The error in a row of results of a sweep on machines of a target, in words; empty if there is none."""
    bounds = bounds_of(target)
    if row["bound"] and row["bound"] not in bounds:
        return f"bound = {row['bound']!r}: {' or '.join(bounds)} is wanted"
    for name in columns(target):
        fits, wanted = _kind(name)
        if row.get(name, "") != "" and not fits(row[name]):
            return f"{name} = {row[name]!r}: {wanted} is wanted"
    if row["refused"] and row["time_ps"]:
        return "a point that was refused has no time_ps"
    return ""
