"""Exports a store to CSV, Parquet and JSON. Rows are streamed; files are written atomically."""

import csv
import io
import os
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from types import ModuleType
from typing import IO

from kernbench.common.errors import BenchError
from kernbench.common.files import why
from kernbench.sweep.columns import as_text, is_verdict, sql_type
from kernbench.sweep.planning.points import Row
from kernbench.sweep.planning.values import Axis, Counted
from kernbench.sweep.store import Store

_BATCH = 10_000
# values of a key that are tested for being numbers; ranges need no test
_LOOKED_AT = 100_000


@contextmanager
def _whole(file: Path) -> Iterator[IO[bytes]]:
    """A file that gets its name when it is complete; the last writer wins."""
    target = file.resolve()
    partial = target.with_name(f"{target.name}.{os.getpid()}.partial")
    try:
        with partial.open("wb") as stream:
            yield stream
        partial.replace(target)
    except OSError as error:
        raise BenchError(f"{file} cannot be written ({why(error)}); the database beside it is whole") from None
    finally:
        partial.unlink(missing_ok=True)


def write_csv(file: Path, store: Store) -> None:
    """All rows as CSV."""
    names = [*store.plan.keys, *store.results]
    with _whole(file) as stream, io.TextIOWrapper(stream, encoding="utf-8", newline="") as text:
        writer = csv.writer(text)
        writer.writerow(names)
        for row in store.rows():
            writer.writerow([as_text(row[name]) for name in names])


def check_parquet() -> tuple[ModuleType, ModuleType]:
    """The modules that write Parquet; they come with the extra `sweep`."""
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError:
        raise BenchError("Parquet needs pyarrow: pip install 'kernbench[sweep]'") from None
    return pa, pq


def write_parquet(file: Path, store: Store) -> None:
    """All rows as Parquet; needs pyarrow (the extra `sweep`)."""
    pa, pq = check_parquet()
    types = {"INTEGER": pa.int64(), "REAL": pa.float64(), "TEXT": pa.string(), "BOOLEAN": pa.bool_()}
    schema = pa.schema([(name, types[kind]) for name, kind in _types(store).items()])
    rows = typed_rows(store)
    with _whole(file) as stream, pq.ParquetWriter(stream, schema) as writer:
        while some := list(islice(rows, _BATCH)):
            writer.write_table(pa.Table.from_pylist(some, schema=schema))


def typed_rows(store: Store) -> Iterator[Row]:
    """All rows; the values of a key are numbers if all of them are."""
    kinds = {key: {"INTEGER": int, "REAL": float}.get(_types(store)[key], str) for key in store.plan.keys}
    for row in store.rows():
        yield row | {key: kind(row[key]) for key, kind in kinds.items()}


def _types(store: Store) -> dict[str, str]:
    """The type of each column: that of its values, or of its results."""
    keys = {key: _kind(store.record.axis(key)) for key in store.plan.keys}
    return keys | {name: "BOOLEAN" if is_verdict(name) else sql_type(name) for name in store.results}


def _kind(axis: Axis) -> str:
    """Whether all values of a key are integers, numbers or words."""
    kinds = set()
    for part in axis.parts:
        samples = (part[0], part[1 % len(part)]) if isinstance(part, Counted) else islice(part.values, _LOOKED_AT)
        kinds |= {_number_kind(value) for value in samples}
    return next(kind for kind in ("TEXT", "REAL", "INTEGER") if kind in kinds)


def _number_kind(text: str) -> str:
    for kind, name in ((int, "INTEGER"), (float, "REAL")):
        try:
            kind(text)
        except ValueError:
            continue
        return name
    return "TEXT"
