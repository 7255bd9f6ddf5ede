"""The results of a sweep on disk: a CSV file that grows with each point, so that a stopped sweep can go on."""

import csv
from collections.abc import Iterator
from dataclasses import replace
from io import BytesIO, StringIO
from pathlib import Path
from typing import Any

from kernbench.common.errors import BenchError
from kernbench.result.run import write_bytes
from kernbench.sweep.columns import COLUMNS, NPU, NPU_COLUMNS, as_text, problem
from kernbench.sweep.execute import point_key
from kernbench.sweep.plan import Plan
from kernbench.sweep.points import Row
from kernbench.sweep.record import Record, read_record, record_of


def plan_file(file: Path) -> Path:
    """The file beside the results that says which sweep they belong to."""
    return file.with_suffix(".plan.json")


class Store:
    """FILE.csv with a row a point; FILE.plan.json beside it says which sweep it belongs to.

    What an earlier sweep left is read and checked at once; nothing is written before the first new row. `plan` is the
    given one with the values of all points in the file.
    """

    def __init__(self, file: Path, plan: Plan):
        self.file = file
        self._begun = False
        self.columns = _columns(plan)
        self._record = record_of(plan)
        self.rows: list[Row] = []
        if file.exists():
            earlier = self._earlier()
            self.rows = list(_rows(file, self.columns, earlier))
            self._record = earlier.joined(self._record)
        self.plan = replace(plan, over=tuple(self._record.over.items()))

    @property
    def done(self) -> set[tuple[str, ...]]:
        """Points that need not be run again."""
        return {point_key(self.plan, row) for row in self.rows}

    def add(self, row: Row) -> None:
        """Keep one more row, on disk at once."""
        if not self._begun:
            self._begin()
        self.rows.append({name: as_text(row.get(name)) for name in self.columns})
        try:
            with self.file.open("a", newline="", encoding="utf-8") as stream:
                csv.DictWriter(stream, self.columns).writerow(self.rows[-1])
        except OSError as error:
            raise BenchError(
                f"{self.file} cannot be written ({error.strerror}); what it holds is kept; run the command again"
            ) from None

    def _earlier(self) -> Record:
        """The record of the file's sweep, which must be this one."""
        mark = plan_file(self.file)
        remedy = "choose another --out, or remove it"
        if not mark.exists():
            raise BenchError(f"{self.file} holds another sweep, or none: there is no {mark} beside it; {remedy}")
        earlier = read_record(mark)
        differences = earlier.differences(self._record)
        if differences:
            raise BenchError(f"{self.file} holds another sweep: {'; '.join(differences)}; {remedy}")
        return earlier

    def _begin(self) -> None:
        """Say which sweep it is, and leave whole rows only: one cut short by a stop is not to be continued."""
        write_bytes(plan_file(self.file), self._record.content())
        stream = StringIO(newline="")
        writer = csv.DictWriter(stream, self.columns)
        writer.writeheader()
        writer.writerows(self.rows)
        write_bytes(self.file, stream.getvalue().encode())
        self._begun = True


def _columns(plan: Plan) -> tuple[str, ...]:
    results = NPU_COLUMNS if plan.target == NPU else COLUMNS
    clash = [key for key in plan.keys if key in results]
    if clash:
        raise BenchError(f"{clash[0]} cannot be swept: results have a column of that name; rename the parameter")
    return (*plan.keys, *results)


def _rows(file: Path, columns: tuple[str, ...], record: Record) -> Iterator[Row]:
    """The rows of the file, each checked; the last one of a stopped sweep may lack its end and is left out."""
    seen: dict[tuple[str, ...], int] = {}
    for line, cells in _lines(file, columns):
        row = dict(zip(columns, cells, strict=False))
        point = tuple(row.get(key, "") for key in record.over)
        strange = [f"{k}={v}" for k, v in zip(record.over, point, strict=True) if v not in record.over[k]]
        if len(cells) != len(columns):
            wrong = f"{len(cells)} cells where there are {len(columns)} columns"
        elif strange:
            wrong = f"{', '.join(strange)} is no point of this sweep"
        elif point in seen:
            wrong = f"the same point as in line {seen[point]}"
        else:
            wrong = problem(row)
        if wrong:
            raise BenchError(f"{file}, line {line}: {wrong}; mend or remove the line, or choose another --out")
        seen[point] = line
        yield row


def _lines(file: Path, columns: tuple[str, ...]) -> Iterator[tuple[int, list[str]]]:
    """Number and cells of each line that was written to its end, after the header."""
    try:
        content = file.read_bytes()
        text = content[: content.rfind(b"\n") + 1].decode()
        reader = csv.reader(StringIO(text, newline=""))
        header = next(reader, list(columns))
        lines = [(reader.line_num, cells) for cells in reader if cells]
    except OSError as error:
        raise BenchError(f"{file} cannot be read ({error.strerror}); choose another --out") from None
    except (UnicodeDecodeError, csv.Error) as error:
        raise BenchError(f"{file} is no CSV file in UTF-8 ({error}); choose another --out, or remove it") from None
    if header != list(columns):
        raise BenchError(f"{file}, line 1: the columns are not those of this sweep; choose another --out, or remove it")
    yield from lines


def check_parquet() -> tuple[Any, Any]:
    """What writes Parquet; it comes with the extra `sweep`."""
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError:
        raise BenchError("Parquet needs pyarrow: pip install 'kernbench[sweep]'") from None
    return pa, pq


def write_parquet(file: Path, rows: list[Row]) -> None:
    """The rows as Parquet, whole or not at all; needs pyarrow (the extra `sweep`)."""
    pa, pq = check_parquet()
    columns = _typed_columns(rows)
    content = BytesIO()
    pq.write_table(pa.table(columns), content)
    write_bytes(file, content.getvalue())


def typed_rows(rows: list[Row]) -> list[dict[str, object]]:
    """The rows with numbers, answers and nothing where the file has text, alike in all rows of a column."""
    columns = _typed_columns(rows)
    return [{name: values[number] for name, values in columns.items()} for number in range(len(rows))]


def _typed_columns(rows: list[Row]) -> dict[str, list[object]]:
    return {name: _column([row.get(name) for row in rows]) for name in (rows[0] if rows else {})}


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
