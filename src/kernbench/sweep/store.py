"""The points of a sweep on disk: done points, and claims; several sweeps may work on one store at a time."""

import sqlite3
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import TracebackType

from kernbench import __version__
from kernbench.common.errors import BenchError
from kernbench.sweep.columns import bounds_of, columns, invalid, is_verdict
from kernbench.sweep.csv_store import earlier_record, earlier_rows
from kernbench.sweep.database import create_tables, explained, index_columns, is_store, opened, quoted, transaction
from kernbench.sweep.executors import Done
from kernbench.sweep.leases import LEASE, is_gone, is_owner, this_host, this_process
from kernbench.sweep.planning.plan import Plan, Position
from kernbench.sweep.planning.points import Row
from kernbench.sweep.planning.values import Axis
from kernbench.sweep.record import Record, parse_record, record_of

# seconds between two renewals of the lease, and between two checks for dead owners
_BEAT = 5.0
# characters of a wrong value in a message
_SHOWN = 80
_REMEDY = "choose another --out, or remove it"


@dataclass(frozen=True)
class Counts:
    """How many of the requested points are done, and how many of these were not right and safe."""

    done: int
    refused: int
    failed: int
    bad: int


def has_tables(database: sqlite3.Connection) -> bool:
    """Whether a sweep has begun to write to a database."""
    return database.execute("SELECT 1 FROM sqlite_master WHERE type = 'table'").fetchone() is not None


class Store:
    """A database of points (`file`) for a plan.

    Existing contents are checked at once; nothing is written before the first point is claimed. `earlier` is a CSV
    file whose rows are imported if there is no database yet. With `retry`, points that failed or were refused are run
    again.
    """

    def __init__(self, file: Path, plan: Plan, earlier: Path | None = None, retry: bool = False):
        self.file, self.plan = file, plan
        self.results = columns(plan.target)
        self.held = 0
        self._retry = retry
        self._database: sqlite3.Connection | None = None
        self._owner = self._batch = 0
        self._beat = 0.0
        self._taken_over: list[Row] = []
        self._check_names()
        self.record = record_of(plan)
        if is_store(file):
            with explained(file):
                database = self._connect()
                try:
                    if has_tables(database):
                        self._check_rows(database)
                    else:
                        # as if there were none: the first point that is claimed opens it
                        self.close()
                except BaseException:
                    self.close()
                    raise
        elif earlier is not None and earlier.exists():
            before = earlier_record(earlier)
            self._agree(before, earlier)
            self._taken_over = list(earlier_rows(earlier, plan.keys, plan.target, before))
        self._join()

    def __enter__(self) -> "Store":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Release claims, and close the database; written rows stay."""
        if self._database is None:
            return
        try:
            if self._owner:
                with transaction(self._database):
                    self._database.execute("DELETE FROM claims WHERE owner = ?", (self._owner,))
                    self._database.execute("DELETE FROM owners WHERE owner = ?", (self._owner,))
        except sqlite3.Error:
            # the next sweep notices that this one is gone
            pass
        finally:
            self._database.close()
            self._database = None

    # Opening

    def _check_names(self) -> None:
        """Refuse a key with the name of a result column; SQL names are case-insensitive."""
        own = {name.lower() for name in (*self.results, *index_columns(self.plan.keys), "owner")}
        for number, key in enumerate(self.plan.keys):
            if key.lower() in own:
                raise BenchError(f"{key} cannot be swept: results have a column of that name; rename the parameter")
            if key.lower() in map(str.lower, self.plan.keys[:number]):
                raise BenchError(f"{key} is swept twice but for its case, which no database distinguishes; rename one")

    def _connect(self, create: bool = False) -> sqlite3.Connection:
        """Open the database, and check that it holds this sweep."""
        database = opened(self.file, create)
        try:
            self._read(database)
        except BaseException:
            database.close()
            raise
        self._database = database
        return database

    def _read(self, database: sqlite3.Connection) -> None:
        """Check that a database is this sweep's; another sweep may have made it now, with nothing in it yet."""
        if not has_tables(database):
            return
        try:
            found = database.execute("SELECT value FROM meta WHERE name = 'record'").fetchone()
            record = parse_record(found[0])
        except (sqlite3.OperationalError, ValueError, TypeError, RecursionError) as error:
            raise BenchError(f"{self.file} does not say which sweep it belongs to ({error}); {_REMEDY}") from None
        self._agree(record, self.file)
        columns = [row[1] for row in database.execute("PRAGMA table_info(points)")]
        if columns != self._columns():
            raise BenchError(f"{self.file}: the columns are not those of this sweep; {_REMEDY}")

    def _check_rows(self, database: sqlite3.Connection) -> None:
        """Refuse rows that hold what no sweep writes, as those that were edited by hand may."""
        self._join()
        wrong = {}
        for number, (key, axis) in enumerate(zip(self.plan.keys, self._axes, strict=True)):
            database.create_function(f"index_{number}", 1, partial(_index_or_none, axis), deterministic=True)
            wrong[key] = (
                f"index_{number}({quoted(key)}) IS NOT at_{number}",
                f"the value number at_{number} is wanted",
            )
        for name in self.results:
            condition, wanted = invalid(name, quoted(name))
            wrong[name] = (condition, f"{wanted} is wanted")
        bounds = bounds_of(self.plan.target)
        known = ", ".join(f"'{bound}'" for bound in ("", *bounds))
        wrong["bound"] = (f"bound IS NOT NULL AND bound NOT IN ({known})", f"{' or '.join(bounds)} is wanted")
        cases = " ".join(f"WHEN {condition} THEN {number}" for number, (condition, _) in enumerate(wrong.values()))
        found = database.execute(
            f"SELECT rowid, CASE {cases} END AS wrong FROM points WHERE wrong IS NOT NULL LIMIT 1"
        ).fetchone()
        if found is not None:
            name = list(wrong)[found[1]]
            (value,) = database.execute(
                f"SELECT quote({quoted(name)}) FROM points WHERE rowid = ?", found[:1]
            ).fetchone()
            raise BenchError(
                f"{self.file}: row {found[0]} of points has {name} = {value[:_SHOWN]}: {wrong[name][1]}; delete the "
                f"row, or {_REMEDY}"
            )

    def _agree(self, before: Record, file: Path) -> None:
        differences = before.differences(self.record)
        if differences:
            raise BenchError(f"{file} holds another sweep: {'; '.join(differences)}; {_REMEDY}")
        self.record = before.joined(self.record)

    def _columns(self) -> list[str]:
        return [*index_columns(self.plan.keys), *self.plan.keys, *self.results, "owner"]

    def _join(self) -> None:
        """Set the axes of the record, and which of them begin with the plan's, so that indices are the same."""
        self._axes = [self.record.axis(key) for key in self.plan.keys]
        pairs = zip(self._axes, self.plan.axes, strict=True)
        self._same = [whole.parts[: len(axis.parts)] == axis.parts for whole, axis in pairs]

    def _begin(self) -> sqlite3.Connection:
        """Register as an owner; create the tables, and add the plan's values, if missing."""
        with explained(self.file):
            database = self._database or self._connect(create=True)
            with transaction(database):
                if database.execute("SELECT count(*) FROM sqlite_master").fetchone()[0] == 0:
                    create_tables(database, self.plan.keys, self.results)
                    database.execute("INSERT INTO meta VALUES ('kernbench', ?)", (__version__,))
                else:
                    # another sweep may have begun, or added values, since the check
                    self.record = record_of(self.plan)
                    self._read(database)
                self._refuse_other_hosts(database)
                database.execute("INSERT OR REPLACE INTO meta VALUES ('record', ?)", (self.record.text(),))
                self._join()
                mine = (this_host(), this_process(), time.time())
                self._owner = int(
                    database.execute("INSERT INTO owners (host, process, heard_of) VALUES (?, ?, ?)", mine).lastrowid
                    or 0
                )
                self._insert(database, [(self._in_store_of(row), row) for row in self._taken_over])
            self._taken_over = []
        return database

    def _refuse_other_hosts(self, database: sqlite3.Connection) -> None:
        for _, host, _, age in self._owners(database):
            if host.split()[0] != this_host().split()[0] and age < LEASE:
                raise BenchError(
                    f"{self.file} is being written by a sweep on {host.split()[0]}: SQLite's log works for processes "
                    "of one machine; choose another --out"
                )

    # A ledger of points

    def forget_held(self) -> None:
        """Reset the count of points that others are working on."""
        self.held = 0

    def claim(self, positions: list[Position]) -> list[Position]:
        """Claim the points that are neither done nor claimed by others."""
        database = self._database if self._owner and self._database is not None else self._begin()
        by_index = {self._in_store(position): position for position in positions}
        self._batch += 1
        with explained(self.file), transaction(database):
            self._look(database)
            tail = (self._owner, self._batch)
            asked = ((*index, *tail, *index, self._retry, self._owner) for index in by_index)
            database.executemany(self._claim_sql(), asked)
            mine = set(database.execute(f"SELECT {self._at()} FROM claims WHERE owner = ? AND batch = ?", tail))
            if len(mine) < len(by_index):
                self.held += sum(self._is_claimed(database, index) for index in by_index if index not in mine)
        return [position for index, position in by_index.items() if index in mine]

    def keep(self, done: list[Done]) -> None:
        """Store results, atomically; an existing result that is not a failure stays."""
        database = self._database
        assert database is not None, "nothing was claimed"
        if not done and time.monotonic() - self._beat < _BEAT:
            return
        with explained(self.file), transaction(database):
            self._look(database)
            self._insert(database, [(self._in_store(position), self._whole(position, row)) for position, row in done])
            marks = (self._in_store(position) for position, _ in done)
            database.executemany(f"DELETE FROM claims WHERE {self._here()}", marks)

    def _whole(self, position: Position, row: Row) -> Row:
        """A row with the swept values and, for a failure, the command that repeats it."""
        point = self.plan.point(position)
        repeat = {"repeat": self.plan.command(point)} if row.get("failed") else {}
        return {**row, **point, **repeat}

    def _insert(self, database: sqlite3.Connection, rows: list[tuple[Position, Row]]) -> None:
        names = [*self.plan.keys, *self.results]
        columns = [*index_columns(self.plan.keys), *map(quoted, names), "owner"]
        news = ", ".join(f"{name} = excluded.{name}" for name in columns)
        sql = (
            f"INSERT INTO points ({', '.join(columns)}) VALUES ({', '.join('?' * len(columns))}) "
            f"ON CONFLICT ({self._at()}) DO UPDATE SET {news} "
            "WHERE points.failed IS NOT NULL OR points.refused IS NOT NULL"
        )
        database.executemany(sql, ((*at, *(row.get(name) for name in names), self._owner) for at, row in rows))

    def _look(self, database: sqlite3.Connection) -> None:
        """Renew the lease, and release claims of dead owners; not each time."""
        now = time.monotonic()
        if now - self._beat < _BEAT and not self.held:
            return
        self._beat = now
        database.execute("UPDATE owners SET heard_of = ? WHERE owner = ?", (time.time(), self._owner))
        for owner, host, process, age in self._owners(database):
            if owner != self._owner and is_gone(host, process, age):
                database.execute("DELETE FROM claims WHERE owner = ?", (owner,))
                database.execute("DELETE FROM owners WHERE owner = ?", (owner,))

    def _owners(self, database: sqlite3.Connection) -> list[tuple[int, str, str, float]]:
        """Owners: their number, host, process, and seconds since they renewed their lease."""
        query = "SELECT owner, host, process, ? - heard_of FROM owners"
        found: list[tuple[int, str, str, float]] = database.execute(query, (time.time(),)).fetchall()
        for owner, *_ in (one for one in found if not is_owner(*one[1:])):
            raise BenchError(f"{self.file}: row {owner} of owners names no process; delete the row, or {_REMEDY}")
        return found

    def _is_claimed(self, database: sqlite3.Connection, index: Position) -> bool:
        return database.execute(f"SELECT 1 FROM claims WHERE {self._here()}", index).fetchone() is not None

    def _claim_sql(self) -> str:
        """The SQL that claims a point unless it is done; with `retry` earlier failures do not count as done."""
        values = ", ".join("?" * (len(self.plan.keys) + 2))
        return (
            f"INSERT OR IGNORE INTO claims SELECT {values} WHERE NOT EXISTS (SELECT 1 FROM points WHERE {self._here()} "
            "AND NOT (? AND owner IS NOT ? AND (failed IS NOT NULL OR refused IS NOT NULL)))"
        )

    def _at(self) -> str:
        return ", ".join(index_columns(self.plan.keys))

    def _here(self) -> str:
        return " AND ".join(f"{name} = ?" for name in index_columns(self.plan.keys))

    def _in_store(self, position: Position) -> Position:
        """The indices of a point of the plan among all points of the store."""
        if all(self._same):
            return position
        own = zip(self._same, self.plan.axes, self._axes, position, strict=True)
        return tuple(index if same else _index(all_, axis[index]) for same, axis, all_, index in own)

    def _in_store_of(self, row: Row) -> Position:
        return tuple(_index(axis, row[key]) for key, axis in zip(self.plan.keys, self._axes, strict=True))

    # What is there

    def counts(self) -> Counts:
        """Counts of the points of the plan."""
        if self._database is None:
            return Counts(len(self._taken_over), 0, 0, 0)
        bad = "failed IS NULL AND refused IS NULL AND (safe IS NOT 1 OR right IS 0)"
        sums = (f"coalesce(sum({which}), 0)" for which in ("refused IS NOT NULL", "failed IS NOT NULL", bad))
        with explained(self.file):
            query = f"SELECT count(*), {', '.join(sums)} FROM points WHERE {self._asked()}"
            return Counts(*self._database.execute(query).fetchone())

    def rows(self, where: str = "1", most: int = -1, asked: bool = False) -> Iterator[Row]:
        """Rows in the order of the values, the first key slowest; of all points, or of those of the plan."""
        if self._database is None:
            return
        names = [*self.plan.keys, *self.results]
        verdicts = [name for name in self.results if is_verdict(name)]
        condition = f"({where}) AND {self._asked()}" if asked else where
        query = f"SELECT {', '.join(map(quoted, names))} FROM points WHERE {condition} ORDER BY {self._at()} LIMIT ?"
        with explained(self.file):
            for values in self._database.execute(query, (most,)):
                row = dict(zip(names, values, strict=True))
                row |= {name: bool(row[name]) for name in verdicts if row[name] is not None}
                yield row

    def query(self, sql: str, *values: object) -> list[tuple[object, ...]]:
        """The result of a query."""
        if self._database is None:
            return []
        with explained(self.file):
            return self._database.execute(sql, values).fetchall()

    def number(self, name: str, function: object) -> None:
        """Make a function of one text available to queries."""
        if self._database is not None:
            self._database.create_function(name, 1, function, deterministic=True)  # type: ignore[arg-type]

    def _asked(self) -> str:
        """A condition that holds for the points of the plan; the store may have more."""
        assert self._database is not None
        conditions = ["1"]
        for number, (axis, all_) in enumerate(zip(self.plan.axes, self._axes, strict=True)):
            if axis == all_:
                continue
            table = f"asked_{number}"
            self._database.execute(f"CREATE TEMP TABLE IF NOT EXISTS {table} (number INTEGER PRIMARY KEY)")
            index_columns = ((_index(all_, value),) for value in axis)
            self._database.executemany(f"INSERT OR IGNORE INTO {table} VALUES (?)", index_columns)
            conditions.append(f"at_{number} IN (SELECT number FROM {table})")
        return " AND ".join(conditions)


def _index_or_none(axis: Axis, value: object) -> int | None:
    return axis.index(value) if isinstance(value, str) else None


def _index(axis: Axis, value: str) -> int:
    index = axis.index(value)
    assert index is not None, value
    return index
