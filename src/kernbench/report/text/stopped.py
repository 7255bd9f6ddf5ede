"""The values of a run where it was stopped: a table of arrays, and a file of them."""

import io
import zipfile
from pathlib import Path

import numpy as np
from rich.console import Group
from rich.table import Table
from rich.text import Text

from kernbench.common.dtypes import Array
from kernbench.result.finding import SourceLocation
from kernbench.result.run import Run, write_bytes

_FIRST = 4
# most arrays that are shown
_ROWS = 100


def stopped_table(title: str, run: Run) -> Group:
    """The stopping point with its program, then a row for each array."""
    view = run.views["stopped"]
    where = view["where"]
    head = Text()
    head.append(f"{title} stopped at {SourceLocation(where['file'], where['line'])}", style="bold")
    head.append(f"\n  {view['who']}: {view['why'].splitlines()[0]}")
    if where["text"]:
        head.append(f"\n  > {where['text']}")
    table = Table()
    for column in ("name", "shape", "type", "min", "max", "NaN", "first values"):
        table.add_column(column, overflow="fold")
    names = list(view["arrays"])
    for name in names[:_ROWS]:
        table.add_row(Text(name), *row_of(np.asarray(view["arrays"][name]), view["about"].get(name, "")))
    left = len(names) - _ROWS
    return Group(
        head, table, *([Text(f"  and {left:,} arrays more: --dump FILE.npz has them all")] if left > 0 else [])
    )


def row_of(array: Array, about: str) -> list[str]:
    """Shape, type, least, greatest, how many are NaN, and the first values."""
    wide = widened(array)
    shape = "x".join(map(str, array.shape)) or "number"
    if not array.size:
        return [shape, about or array.dtype.name, "", "", "", "no data"]
    kept = wide[~np.isnan(wide)] if wide.dtype.kind == "f" else wide
    ends = (_text(kept.min()), _text(kept.max())) if kept.size else ("", "")
    first = ", ".join(_text(value) for value in wide.reshape(-1)[:_FIRST])
    more = ", ..." if wide.size > _FIRST else ""
    return [shape, about or array.dtype.name, *ends, str(wide.size - kept.size), first + more]


def _text(value: object) -> str:
    return f"{value:.5g}" if isinstance(value, np.floating) else str(value)


def widened(array: Array) -> Array:
    """Element types that NumPy lacks as float32, which represents them exactly; booleans as bytes."""
    if array.dtype.kind == "b":
        return array.astype(np.uint8)
    return array if array.dtype.kind in "iuf" else array.astype(np.float32)


def write_dump(path: Path, run: Run) -> None:
    """Write the arrays by name to an .npz file, atomically."""
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        for name, array in run.views["stopped"]["arrays"].items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                np.lib.format.write_array(member, widened(np.asarray(array)), allow_pickle=False)
    write_bytes(path, stream.getvalue())
