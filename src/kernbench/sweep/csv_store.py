"""The result files of kernbench 0.1, FILE.csv with FILE.plan.json: read, checked, and imported."""

import csv
from collections.abc import Iterator
from io import StringIO
from pathlib import Path

from kernbench.common.errors import BenchError
from kernbench.sweep.columns import columns as result_columns
from kernbench.sweep.columns import from_text, problem
from kernbench.sweep.planning.points import Row
from kernbench.sweep.record import Record, read_record

# columns added with the database
_NEW = ("failed", "failed_at", "repeat")


def plan_file(file: Path) -> Path:
    """The file beside the results that identifies the sweep."""
    return file.with_suffix(".plan.json")


def earlier_record(file: Path) -> Record:
    """The record of the sweep that the results belong to."""
    mark = plan_file(file)
    if not mark.exists():
        raise BenchError(
            f"{file} holds another sweep, or none: there is no {mark} beside it, nor a database; choose another --out, "
            "or remove it"
        )
    return read_record(mark)


def earlier_rows(file: Path, keys: tuple[str, ...], target: str, record: Record) -> Iterator[Row]:
    """The rows of the file, each checked; an incomplete last row of a stopped sweep is left out."""
    columns = (*keys, *(name for name in result_columns(target) if name not in _NEW))
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
            wrong = problem(row, target)
        if wrong:
            raise BenchError(f"{file}, line {line}: {wrong}; mend or remove the line, or choose another --out")
        seen[point] = line
        yield {name: text if name in keys else from_text(name, text) for name, text in row.items()}


def _lines(file: Path, columns: tuple[str, ...]) -> Iterator[tuple[int, list[str]]]:
    """Number and cells of each complete line after the header."""
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
