"""The results of a sweep on disk: a CSV file that grows with each point, so that a stopped sweep can go on."""

import csv
import json
from collections.abc import Iterable
from io import StringIO
from pathlib import Path

from kernbench.common.errors import BenchError
from kernbench.result.run import write_bytes
from kernbench.sweep.execute import point_key
from kernbench.sweep.plan import Plan
from kernbench.sweep.points import Row, gap_column
from kernbench.timing import CAUSES

COLUMNS = (
    "right", "safe", "commands", "time_ps", "bound", "floor_ratio",
    "utilisation_gemm", "utilisation_math", "utilisation_dma", "utilisation_link",
    "floor_compute_ps", "floor_exp_ps", "floor_hbm_ps", "floor_link_ps", *map(gap_column, CAUSES),
)  # fmt: skip


class Store:
    """FILE.csv with a row a point; FILE.plan.json beside it says which sweep it belongs to."""

    def __init__(self, file: Path, plan: Plan):
        self._file = file
        self._plan = plan
        self._mark = file.with_suffix(".plan.json")
        self.columns = (*plan.keys, *COLUMNS)
        self.rows: list[Row] = self._resume()

    @property
    def done(self) -> set[tuple[str, ...]]:
        """Points that need not be run again."""
        return {point_key(self._plan, row) for row in self.rows}

    def add(self, row: Row) -> None:
        """Keep one more row, on disk at once."""
        self.rows.append({name: row.get(name, "") for name in self.columns})
        fresh = not self._file.exists()
        with self._file.open("a", newline="") as stream:
            writer = csv.DictWriter(stream, self.columns)
            if fresh:
                writer.writeheader()
            writer.writerow(self.rows[-1])

    def _resume(self) -> list[Row]:
        identity = self._identity()
        if self._file.exists():
            known = json.loads(self._mark.read_text()) if self._mark.exists() else None
            if known != identity:
                raise BenchError(f"{self._file} holds another sweep; choose another --out, or remove it")
            with self._file.open(newline="") as stream:
                whole: list[Row] = [dict(row) for row in _whole(csv.DictReader(stream), self.columns)]
            # a row cut short by the stop is not to be continued
            write_bytes(self._file, self._text(whole).encode())
            return whole
        self._mark.write_text(json.dumps(identity, indent=2) + "\n")
        return []

    def _text(self, rows: list[Row]) -> str:
        stream = StringIO(newline="")
        writer = csv.DictWriter(stream, self.columns)
        writer.writeheader()
        writer.writerows(rows)
        return stream.getvalue()

    def _identity(self) -> dict[str, object]:
        plan = self._plan
        fixed = [sorted((k, v) for k, v in g.settings.items() if k not in plan.keys) for g in plan.groups[:1]]
        return json.loads(  # type: ignore[no-any-return]
            json.dumps(
                {
                    "bench": plan.bench,
                    "panel": plan.panel,
                    "seed": plan.seed,
                    "shapes_only": plan.shapes_only,
                    "keys": plan.keys,
                    "settings": fixed,
                }
            )
        )


def _whole(rows: Iterable[dict[str, str]], columns: tuple[str, ...]) -> Iterable[dict[str, str]]:
    """Rows that were written to their end; the last of a stopped sweep may not have been."""
    return (row for row in rows if None not in row and all(row.get(name) is not None for name in columns))


def write_parquet(file: Path, rows: list[Row]) -> None:
    """The rows as Parquet; needs pyarrow (the extra `sweep`)."""
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError:
        raise BenchError("Parquet needs pyarrow: pip install 'kernbench[sweep]'") from None
    columns = {name: _column([row.get(name) for row in rows]) for name in (rows[0] if rows else {})}
    pq.write_table(pa.table(columns), file)


def _column(values: list[object]) -> list[object]:
    """Numbers where all are numbers, else text."""
    typed = [_typed(v) for v in values]
    kinds = {type(v) for v in typed if v is not None}
    return typed if len(kinds) <= 1 or kinds == {int, float} else [None if v is None else str(v) for v in typed]


def _typed(value: object) -> object:
    text = str(value)
    if text in ("", "None"):
        return None
    if text in ("True", "False"):
        return text == "True"
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text
