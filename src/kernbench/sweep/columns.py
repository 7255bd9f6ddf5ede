"""The columns of a sweep's results, and what may stand in each."""

import math
import re
from collections.abc import Callable, Mapping

from kernbench.mesh.time import CAUSES
from kernbench.npu.time.causes import FLOORS, GAPS, PIPE_FLOORS
from kernbench.sweep.points import floor_column, gap_column, utilisation_column

_WHOLE = re.compile(r"[0-9]{1,30}", re.ASCII)
_SIGNED = re.compile(r"-?[0-9]{1,30}", re.ASCII)
MESH, NPU = "mesh", "npu"
# by target: floors, engines, and causes of the gap
_MEASURED = {
    MESH: (("compute", "exp", "hbm", "link"), ("gemm", "math", "dma", "link"), CAUSES),
    NPU: (FLOORS, (*PIPE_FLOORS, "mte", "memory"), GAPS),
}
_BOUNDS = [name for floors, _, _ in _MEASURED.values() for name in floors]


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
_BOUND: _Kind = (lambda text: text in _BOUNDS, " or ".join(_BOUNDS))
_COUNT: _Kind = (_is_whole, "a whole number")
_DIFFERENCE: _Kind = (_is_signed, "a whole number")
_RATIO: _Kind = (_is_number, "a number")


def _kinds(target: str) -> dict[str, _Kind]:
    floors, engines, causes = _MEASURED[target]
    return {
        "right": _VERDICT,
        "safe": _VERDICT,
        "refused": _TEXT,
        "failed": _TEXT,
        "failed_at": _TEXT,
        "repeat": _TEXT,
        "commands": _COUNT,
        "time_ps": _COUNT,
        "bound": _BOUND,
        "floor_ratio": _RATIO,
        **{utilisation_column(engine): _RATIO for engine in engines},
        **{floor_column(name): _COUNT for name in floors},
        **{gap_column(cause): _DIFFERENCE for cause in causes},
    }


_KINDS: Mapping[str, _Kind] = {name: kind for target in _MEASURED for name, kind in _kinds(target).items()}
COLUMNS, NPU_COLUMNS = (tuple(_kinds(target)) for target in (MESH, NPU))
METRICS = tuple(name for name, kind in _KINDS.items() if kind in (_COUNT, _DIFFERENCE, _RATIO))


_SQL = {id(kind): name for kind, name in ((_VERDICT, "INTEGER"), (_COUNT, "INTEGER"), (_DIFFERENCE, "INTEGER"))}
_SQL[id(_RATIO)] = "REAL"


def sql_type(name: str) -> str:
    """The type of a column of results in the database."""
    return _SQL.get(id(_KINDS[name]), "TEXT")


def is_verdict(name: str) -> bool:
    """Whether a column of results holds true or false, which the database keeps as 1 and 0."""
    return _KINDS[name] is _VERDICT


def from_text(name: str, text: str) -> object:
    """A cell of a CSV file as a value; what it may hold was checked with `problem`."""
    if text == "":
        return None
    if is_verdict(name):
        return text == "True"
    return {"INTEGER": int, "REAL": float}.get(sql_type(name), str)(text)


def as_text(value: object) -> str:
    """A value as the file holds it; nothing is an empty cell."""
    return "" if value is None else str(value)


def problem(row: Mapping[str, str]) -> str:
    """What is wrong with the results in a row, in words; empty if nothing is."""
    for name, (fits, wanted) in _KINDS.items():
        if row.get(name, "") != "" and not fits(row[name]):
            return f"{name} = {row[name]!r}: {wanted} is wanted"
    if row["refused"] and row["time_ps"]:
        return "a point that was refused has no time_ps"
    return ""
