"""The database of a sweep: one SQLite file in WAL mode, its errors, and its tables.

- `meta`: `record`, the identity of the sweep (JSON, see `record.py`), and the versions that made it
- `points`: a row for each point that is done. `at_0`, `at_1`, ... are the indices of its values on the axes of the
  record, the first key slowest; then the values as text, and the results. A unique index lets each be there once.
- `owners`: the sweeps that work, or worked, on it
- `claims`: points that an owner is working on
"""

import sqlite3
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from kernbench.common.errors import BenchError
from kernbench.common.files import size_in_words, size_limit
from kernbench.sweep.columns import sql_type

# "kbsw"
APPLICATION = 0x6B627377
FORMAT = 1
SUFFIXES = (".sqlite", ".sqlite3", ".db")
_PATIENCE = 60.0
# what SQLite says where a file cannot grow, and bytes by which it lets one grow at most, with room to spare
_NOT_WRITTEN = ("I/O error", "full")
_STEP = 1 << 20
_LOCAL = "keep it on a disk of this machine (--out), and copy it when the sweep is done"


@contextmanager
def explained(file: Path) -> Iterator[None]:
    """Turn SQLite's errors into messages with a remedy."""
    try:
        yield
    except sqlite3.Error as error:
        raise BenchError(f"{file} {_beyond_size(file, error) or _explanation(error)}") from None


def _beyond_size(file: Path, error: sqlite3.Error) -> str:
    """The reason, where SQLite wrote up to the limit on the size of files; empty otherwise."""
    limit = size_limit()
    sizes = [one.stat().st_size for one in file.parent.glob(f"{file.name}*") if one.is_file()]
    if limit is None or not any(words in str(error) for words in _NOT_WRITTEN) or max(sizes, default=0) + _STEP < limit:
        return ""
    return f"cannot be written ({error}): {size_in_words(limit)}"


def _explanation(error: sqlite3.Error) -> str:
    text = str(error)
    kept = "what it holds is kept"
    if "full" in text:
        return f"cannot be written ({text}); {kept}: make room, and run the same command again"
    if "readonly" in text or "read-only" in text:
        return f"cannot be written ({text}): make it writable, or choose another --out"
    if "not a database" in text:
        return f"is no database of a sweep ({text}): choose another --out, or remove it"
    if "malformed" in text or "corrupt" in text:
        return (
            f"is damaged ({text}): `sqlite3 FILE .recover` may save its rows; choose another --out, or remove it "
            "together with its -wal file"
        )
    if "locked" in text or "busy" in text:
        return f"is locked by another program ({text}); {kept}: end that, and run the same command again"
    if "unable to open" in text or "locking protocol" in text or "I/O error" in text:
        return (
            f"cannot be used ({text}): SQLite needs files that it can lock and map, which network disks lack; {_LOCAL}"
        )
    return f"cannot be used ({text}); choose another --out"


def is_store(file: Path) -> bool:
    """Whether a non-empty file exists."""
    return file.exists() and file.stat().st_size > 0


def opened(file: Path, create: bool = False) -> sqlite3.Connection:
    """A connection to the store; a file of another program is refused and left as it is."""
    mode = "rwc" if create else "rw"
    uri = f"{file.resolve().as_uri()}?mode={mode}"
    database = sqlite3.connect(uri, uri=True, timeout=_PATIENCE, isolation_level=None)
    try:
        _check(file, database)
        _use_log(file, database)
        database.execute("PRAGMA synchronous = NORMAL")
        database.execute("PRAGMA cache_size = -16000")
    except BaseException:
        database.close()
        raise
    return database


def _check(file: Path, database: sqlite3.Connection) -> None:
    """Refuse a file that is not a store of this format."""
    # in one transaction: another sweep may be creating the tables at the same time
    database.execute("BEGIN")
    empty = database.execute("SELECT count(*) FROM sqlite_master").fetchone()[0] == 0
    application = database.execute("PRAGMA application_id").fetchone()[0]
    version = database.execute("PRAGMA user_version").fetchone()[0]
    database.execute("COMMIT")
    if application != APPLICATION and not empty:
        raise BenchError(f"{file} is a database of another program: choose another --out, or remove it")
    if not empty and version != FORMAT:
        raise BenchError(f"{file} has form {version}, this kernbench reads form {FORMAT}: choose another --out")


def _use_log(file: Path, database: sqlite3.Connection) -> None:
    """WAL: readers do not wait for writers, and a commit is one write."""
    end = time.monotonic() + _PATIENCE
    while True:
        try:
            mode = database.execute("PRAGMA journal_mode = WAL").fetchone()[0]
            break
        except sqlite3.OperationalError as error:
            # while another process begins, the mode cannot be changed; SQLite does not retry this by itself
            if "locked" not in str(error) or time.monotonic() > end:
                raise
            time.sleep(0.01)
    if mode != "wal":
        raise BenchError(f"{file}: its file system has no shared memory, which SQLite's log needs; {_LOCAL}")


@contextmanager
def transaction(database: sqlite3.Connection) -> Iterator[None]:
    """All of it, or nothing; others wait meanwhile."""
    database.execute("BEGIN IMMEDIATE")
    try:
        yield
    except BaseException:
        if database.in_transaction:
            database.execute("ROLLBACK")
        raise
    database.execute("COMMIT")


def quoted(name: str) -> str:
    """A quoted SQL identifier."""
    return '"' + name.replace('"', '""') + '"'


def index_columns(keys: Sequence[str]) -> list[str]:
    """The columns of a point's indices."""
    return [f"at_{number}" for number in range(len(keys))]


def create_tables(database: sqlite3.Connection, keys: Sequence[str], results: Sequence[str]) -> None:
    """Make the tables; called within a transaction."""
    at = index_columns(keys)
    columns = [
        *(f"{name} INTEGER NOT NULL" for name in at),
        *(f"{quoted(key)} TEXT NOT NULL" for key in keys),
        *(f"{quoted(name)} {sql_type(name)}" for name in results),
        "owner INTEGER",
    ]
    database.execute(f"PRAGMA application_id = {APPLICATION}")
    database.execute(f"PRAGMA user_version = {FORMAT}")
    database.execute("CREATE TABLE meta (name TEXT PRIMARY KEY, value TEXT NOT NULL)")
    database.execute(f"CREATE TABLE points ({', '.join(columns)})")
    database.execute(f"CREATE UNIQUE INDEX point ON points ({', '.join(at)})")
    database.execute(
        "CREATE TABLE owners (owner INTEGER PRIMARY KEY AUTOINCREMENT, host TEXT, process TEXT, heard_of REAL)"
    )
    claims = ", ".join(f"{name} INTEGER NOT NULL" for name in at)
    database.execute(
        f"CREATE TABLE claims ({claims}, owner INTEGER NOT NULL, batch INTEGER NOT NULL, "
        f"PRIMARY KEY ({', '.join(at)})) WITHOUT ROWID"
    )
