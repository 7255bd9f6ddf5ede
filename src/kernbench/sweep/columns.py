"""The columns of a sweep's results, and what may stand in each."""

import math
import re
from collections.abc import Callable, Mapping

from kernbench.sweep.points import gap_column
from kernbench.timing import CAUSES

_WHOLE = re.compile(r"[0-9]{1,30}", re.ASCII)
_SIGNED = re.compile(r"-?[0-9]{1,30}", re.ASCII)
_FLOORS = ("compute", "exp", "hbm", "link")


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
_BOUND: _Kind = (lambda text: text in _FLOORS, " or ".join(_FLOORS))
_COUNT: _Kind = (_is_whole, "a whole number")
_DIFFERENCE: _Kind = (_is_signed, "a whole number")
_RATIO: _Kind = (_is_number, "a number")

_KINDS: Mapping[str, _Kind] = {
    "right": _VERDICT,
    "safe": _VERDICT,
    "refused": _TEXT,
    "commands": _COUNT,
    "time_ps": _COUNT,
    "bound": _BOUND,
    "floor_ratio": _RATIO,
    **{f"utilisation_{engine}": _RATIO for engine in ("gemm", "math", "dma", "link")},
    **{f"floor_{name}_ps": _COUNT for name in _FLOORS},
    **{gap_column(cause): _DIFFERENCE for cause in CAUSES},
}
COLUMNS = tuple(_KINDS)
METRICS = tuple(name for name, kind in _KINDS.items() if kind in (_COUNT, _DIFFERENCE, _RATIO))


def as_text(value: object) -> str:
    """A value as the file holds it; nothing is an empty cell."""
    return "" if value is None else str(value)


def problem(row: Mapping[str, str]) -> str:
    """What is wrong with the results in a row, in words; empty if nothing is."""
    for name, (fits, wanted) in _KINDS.items():
        if row[name] != "" and not fits(row[name]):
            return f"{name} = {row[name]!r}: {wanted} is wanted"
    if row["refused"] and row["time_ps"]:
        return "a point that was refused has no time_ps"
    return ""
