"""The database of a sweep: which sweep it belongs to, what may be added to it, and that a bad file is refused."""

import contextlib
import csv
import json
import shutil
import sqlite3
import sys

import pytest
from tests import sampled

from kernbench.bench import find
from kernbench.common.errors import BenchError
from kernbench.sweep import Store, make_plan
from kernbench.sweep.columns import columns
from kernbench.sweep.csv_store import plan_file
from kernbench.sweep.export import write_csv
from kernbench.sweep.record import record_of

BENCH = find("milestone_gqa_llama70b")
RESULTS = {"right": True, "safe": True, "commands": 9, "time_ps": 1000, "bound": "hbm", "floor_ratio": 1.5}


def plan(over=None, bench=BENCH, panel="single_user_decode", seed=0, **settings):
    return make_plan(bench, panel, settings, over or {"n_ranks": ["2", "4"]}, seed)


def all_positions(made):
    return [position for choice in made.choices() for position in made.positions(choice)]


def kept(file, made, row=RESULTS):
    """A finished sweep with made-up results: its rows."""
    with Store(file, made) as store:
        store.keep([(position, row) for position in store.claim(all_positions(made))])
        return list(store.rows())


def rows_in(file, made):
    with Store(file, made) as store:
        return list(store.rows())


@pytest.fixture
def file(tmp_path):
    kept(tmp_path / "s.sqlite", plan())
    return tmp_path / "s.sqlite"


def edited(file, sql, *values):
    with sqlite3.connect(file) as database:
        database.execute(sql, values)
    database.close()


def used(file, made):
    """All that commands do with a store."""
    with Store(file, made) as store:
        store.counts()
        list(store.rows())
        store.claim(all_positions(made))


WRONG = ("'abc'", "''", "x'00ff'", "-1", "2.5", "9e999", "1 << 62", "NULL", "CAST(x'ff41' AS TEXT)")


@pytest.mark.parametrize("value", sampled.some(WRONG, 3))
def test_rows_edited_by_hand_are_refused_or_harmless(file, value):
    """Each column of each table, one at a time."""
    with sqlite3.connect(file) as database:
        tables = {"points": (), "owners": (), "claims": (), "meta": ()}
        for table in tables:
            tables[table] = [row[1] for row in database.execute(f"PRAGMA table_info({table})")]
        database.execute("INSERT INTO owners VALUES (77, 'here 1', '1 1', 1.0)")
        database.execute("INSERT INTO claims VALUES (1, 77, 1)")
    database.close()
    whole = file.read_bytes()
    refused = {}
    for table, columns_ in tables.items():
        for column in columns_:
            file.write_bytes(whole)
            try:
                edited(file, f'UPDATE {table} SET "{column}" = {value}')
                used(file, plan())
            except (sqlite3.IntegrityError, sqlite3.DataError):
                # the database itself refuses such a value
                continue
            except BenchError as error:
                refused[f"{table}.{column}"] = str(error)
    assert [said for said in refused.values() if str(file) not in said] == []
    if value == "'abc'":
        assert refused.keys() >= {f"points.{name}" for name in ("n_ranks", "right", "time_ps", "bound", "floor_ratio")}


def test_a_row_edited_by_hand_is_named(file):
    edited(file, "UPDATE points SET time_ps = 'soon' WHERE at_0 = 1")
    refused(file, plan(), r"row 2 of points has time_ps = 'soon': a whole number is wanted; delete the row, or choose")


def contents(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


def refused(file, made, words, earlier=None):
    """Opening the file says `words` and leaves every file as it was."""
    before = contents(file.parent)
    with pytest.raises(BenchError, match=words) as told:
        Store(file, made, earlier)
    assert "choose another --out" in str(told.value)
    assert contents(file.parent) == before


def test_rows_read_back_are_those_written(file):
    rows = rows_in(file, plan())
    assert rows == kept(file.with_name("t.sqlite"), plan())
    assert rows[0]["right"] is True
    assert {name: rows[1][name] for name in ("n_ranks", *RESULTS)} == {"n_ranks": "4", **RESULTS}


@pytest.mark.parametrize(
    ("made", "words"),
    [
        (plan(context=64), "holds another sweep: context was not set, is now 64;"),
        (plan(seed=1), "seed was 0, is now 1;"),
        (plan(panel="single_user_prefill"), "panel was single_user_decode, is now single_user_prefill;"),
        (plan({"users": ["1"]}), "swept keys was n_ranks, is now users;"),
        (plan(**{"machine.link.latency": "7"}), r"machine\.link\.latency was not set, is now 7;"),
        (plan(**{"machine.ipcq.depth": "8"}), r"machine\.ipcq\.depth was not set, is now 8;"),
    ],
)
def test_another_sweep_is_named(file, made, words):
    refused(file, made, words)


@pytest.mark.parametrize("swept", [True, False])
def test_another_machine_behind_the_same_name(tmp_path, swept):
    toml = tmp_path / "m.toml"
    toml.write_text('extends = "reference"\n')

    def made():
        name = str(toml)
        return plan({"machine": [name, "reference"]}) if swept else plan(machine=name)

    kept(tmp_path / "s.sqlite", made())
    toml.write_text('extends = "reference"\n# the same machine\n')
    assert len(rows_in(tmp_path / "s.sqlite", made())) == 2
    toml.write_text('extends = "reference"\n[link]\nlatency = "7 ns"\n')
    refused(
        tmp_path / "s.sqlite", made(), r"holds another sweep: machine .*m\.toml was [0-9a-f]{12}, is now [0-9a-f]{12}"
    )


def test_another_source_of_the_bench_or_of_what_it_imports(tmp_path):
    bench = tmp_path / "mine.py"
    shutil.copy(str(BENCH.file), bench)
    helper = tmp_path / "my_helper.py"
    helper.write_text("NUMBER = 1\n")
    bench.write_text(bench.read_text() + "\nfrom my_helper import NUMBER\n")
    kept(tmp_path / "s.sqlite", plan(bench=find(str(bench))))
    assert len(rows_in(tmp_path / "s.sqlite", plan(bench=find(str(bench))))) == 2
    for path in (helper, bench):
        before = path.read_text()
        path.write_text(before + "# changed\n")
        refused(tmp_path / "s.sqlite", plan(bench=find(str(bench))), "source of the bench was")
        path.write_text(before)


def test_another_version(file, monkeypatch):
    monkeypatch.setattr("kernbench.sweep.record.__version__", "9.9")
    refused(file, plan(), r"version of kernbench was .*, is now 9\.9")


def test_values_can_be_added(file):
    with Store(file, plan({"n_ranks": ["8", "4"]})) as store:
        assert store.counts().done == 1
        assert store.claim([(0,), (1,)]) == [(0,)]
        store.keep([((0,), RESULTS)])
        assert store.counts().done == 2
    rows = rows_in(file, plan({"n_ranks": ["8", "1..6"]}))
    assert [row["n_ranks"] for row in rows] == ["2", "4", "8"]
    with Store(file, plan({"n_ranks": ["1..6"]})) as store:
        assert store.claim([(place,) for place in range(6)]) == [(0,), (2,), (4,), (5,)]
    with sqlite3.connect(file) as database:
        record = json.loads(database.execute("SELECT value FROM meta WHERE name = 'record'").fetchone()[0])
    database.close()
    assert record["over"] == {"n_ranks": ["2", "4", "8", "1..6/1"]}


def test_machines_can_be_added(tmp_path):
    toml = tmp_path / "m.toml"
    toml.write_text('extends = "reference"\n')
    kept(tmp_path / "s.sqlite", plan({"machine": ["reference"]}))
    kept(tmp_path / "s.sqlite", plan({"machine": [str(toml)]}))
    assert len(rows_in(tmp_path / "s.sqlite", plan({"machine": ["reference", str(toml)]}))) == 2
    toml.write_text('extends = "reference"\n[link]\nlatency = "7 ns"\n')
    refused(tmp_path / "s.sqlite", plan({"machine": [str(toml)]}), "holds another sweep: machine ")


def test_nothing_is_written_before_the_first_point(tmp_path):
    with Store(tmp_path / "s.sqlite", plan()) as store:
        assert (store.counts().done, list(store.rows())) == (0, [])
    assert not list(tmp_path.iterdir())


def test_a_failure_gives_way_and_a_result_does_not(file):
    with Store(file, plan({"n_ranks": ["8"]})) as store:
        store.claim([(0,)])
        for row in ({"failed": "broken"}, {"failed": "again"}, RESULTS, {"failed": "late"}, {**RESULTS, "time_ps": 7}):
            store.keep([((0,), row)])
        last = list(store.rows())[-1]
        assert (last["failed"], last["time_ps"]) == (None, 1000)
        assert store.query("SELECT count(*) FROM points") == [(3,)]


def test_the_row_of_a_failure_says_how_to_repeat_it(file):
    with Store(file, plan({"n_ranks": ["8"]})) as store:
        store.claim([(0,)])
        store.keep([((0,), {"failed": "broken", "failed_at": "k.py:3"})])
        last = list(store.rows())[-1]
    assert last["repeat"] == "kernbench run milestone_gqa_llama70b -p single_user_decode --set n_ranks=8"
    assert last["failed_at"] == "k.py:3"


# Bad files


def damaged(file):
    with file.open("r+b") as stream:
        stream.seek(100)
        stream.write(b"\xff" * 3000)


def foreign(file):
    file.unlink()
    with sqlite3.connect(file) as database:
        database.execute("CREATE TABLE mine (value)")
    database.close()


def changed(sql):
    def change(file):
        with sqlite3.connect(file) as database:
            database.execute(sql)
        database.close()

    return change


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda file: file.write_bytes(b"n_ranks,time_ps\r\n2,1000\r\n" * 100), "is no database of a sweep"),
        (damaged, "is damaged .*recover"),
        (foreign, "is a database of another program"),
        (changed("PRAGMA user_version = 99"), "has form 99, this kernbench reads form 1"),
        (changed("UPDATE meta SET value = '{'"), "does not say which sweep it belongs to"),
        (changed("UPDATE meta SET value = '[]' WHERE name = 'record'"), "a table of sweep, settings"),
        (changed("DELETE FROM meta"), "does not say which sweep it belongs to"),
        (changed("DROP TABLE meta"), "does not say which sweep it belongs to"),
        (changed("ALTER TABLE points RENAME COLUMN time_ps TO time_ns"), "the columns are not those of this sweep"),
    ],
)
def test_a_file_that_is_no_store_of_this_sweep(file, change, words):
    change(file)
    refused(file, plan(), words)


def test_a_full_disk_loses_nothing(file):
    made = plan({"n_ranks": ["1..2000"]})
    with Store(file, made) as store:
        claimed = store.claim(all_positions(made)[:20])
        store.keep([(claimed[0], RESULTS)])
        before = list(store.rows())
        store.query("PRAGMA max_page_count = 12")
        long = [(position, {"refused": "x" * 5000}) for position in claimed[1:]]
        with pytest.raises(BenchError, match=r"cannot be written \(database or disk is full\).*run the same command"):
            store.keep(long)
        assert list(store.rows()) == before
    assert len(before) == 3
    assert rows_in(file, made) == before
    with Store(file, made) as store:
        assert store.claim(all_positions(made)[:20]) == claimed[1:]


@pytest.mark.skipif(sys.platform != "linux", reason="asks for Linux's limit on the size of files")
def test_a_store_beyond_the_limit_on_the_size_of_files(file):
    resource = pytest.importorskip("resource")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 13, before[1]))
    try:
        with pytest.raises(BenchError, match=r"cannot be written \(.*have 8 KiB at most \(RLIMIT_FSIZE\): raise"):
            Store(file, plan({"n_ranks": ["8"]})).close()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_store_that_cannot_be_written(file):
    with Store(file, plan({"n_ranks": ["8"]})) as store:
        store.query("PRAGMA query_only = 1")
        with pytest.raises(BenchError, match=r"cannot be written \(attempt to write a readonly database\): make it"):
            store.claim([(0,)])


def test_without_shared_memory_a_local_disk_is_named(tmp_path, monkeypatch):
    class Without(sqlite3.Connection):
        """SQLite on a file system that has none: the log is not used, and it says so."""

        def execute(self, sql, *values):
            if "journal_mode" in sql:
                sql = "PRAGMA journal_mode = DELETE"
            return super().execute(sql, *values)

    connect = sqlite3.connect
    monkeypatch.setattr(sqlite3, "connect", lambda *a, **k: connect(*a, **k, factory=Without))
    with Store(tmp_path / "s.sqlite", plan()) as store, pytest.raises(BenchError, match="keep it on a disk of this"):
        store.claim([(0,)])


def test_a_parameter_with_the_name_of_a_column(tmp_path, monkeypatch):
    monkeypatch.setattr("kernbench.sweep.store.columns", lambda target: ("N_Ranks", *columns(target)))
    with pytest.raises(BenchError, match="n_ranks cannot be swept"):
        Store(tmp_path / "s.sqlite", plan())


# What kernbench 0.1 wrote


@pytest.fixture
def old(tmp_path):
    """A CSV file with its plan, as they were before there was a database."""
    made = plan()
    names = ["n_ranks", *(name for name in columns("mesh") if name not in ("failed", "failed_at", "repeat"))]
    with (tmp_path / "s.csv").open("w", newline="") as stream:
        writer = csv.DictWriter(stream, names)
        writer.writeheader()
        writer.writerows({"n_ranks": ranks, **RESULTS} for ranks in ("2", "4"))
    plan_file(tmp_path / "s.csv").write_text(record_of(made).text())
    return tmp_path / "s.csv"


def test_a_csv_file_of_an_earlier_kernbench_is_taken_over(old):
    made = plan({"n_ranks": ["2", "4", "8"]})
    with Store(old.with_suffix(".sqlite"), made, old) as store:
        assert store.counts().done == 2
        assert store.claim(all_positions(made)) == [(2,)]
        store.keep([((2,), RESULTS)])
        assert [row["n_ranks"] for row in store.rows()] == ["2", "4", "8"]
        assert {row["time_ps"] for row in store.rows()} == {1000}
        write_csv(old, store)
    with old.open(newline="") as stream:
        assert len(list(csv.DictReader(stream))) == 3


def test_a_row_cut_short_is_not_taken_over(old):
    old.write_bytes(old.read_bytes()[:-2])
    with Store(old.with_suffix(".sqlite"), plan(), old) as store:
        assert store.counts().done == 1


@pytest.mark.parametrize("content", [b"{", b"[]", b"\xff", b"[" * 100_000, b'{"keys": ["n_ranks"]}'])
def test_a_broken_plan(old, content):
    plan_file(old).write_bytes(content)
    refused(old.with_suffix(".sqlite"), plan(), r"s\.plan\.json does not say which sweep", old)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda tree: tree["over"].update(n_ranks=4), "list of values"),
        (lambda tree: tree["over"].update(users=["1"]), "other keys"),
        (lambda tree: tree["settings"].update(users=1), "text is wanted"),
    ],
)
def test_a_plan_of_the_wrong_form(old, change, words):
    tree = json.loads(plan_file(old).read_text())
    change(tree)
    plan_file(old).write_text(json.dumps(tree))
    refused(old.with_suffix(".sqlite"), plan(), words, old)


def test_a_plan_that_is_missing_or_a_folder(old):
    plan_file(old).unlink()
    refused(old.with_suffix(".sqlite"), plan(), "holds another sweep, or none", old)
    plan_file(old).mkdir()
    refused(old.with_suffix(".sqlite"), plan(), r"s\.plan\.json cannot be read \(Is a directory\)", old)


@pytest.mark.parametrize(
    ("before", "after", "words"),
    [
        (b"1000", b"abc", r"s\.csv, line 2: time_ps = 'abc': a whole number is wanted"),
        (b"1000", b"1e3", "time_ps = '1e3'"),
        (b"1.5", b"nan", "floor_ratio = 'nan': a number is wanted"),
        (b"True", b"banana", "right = 'banana': True or False is wanted"),
        (b",hbm,", b",moon,", "bound = 'moon'"),
        (b"2,True", b"99,True", "line 2: n_ranks=99 is no point of this sweep"),
        (b"True,,9", b"True,no,9", "a point that was refused has no time_ps"),
        (b"2,True", b"4,True", "line 3: the same point as in line 2"),
        (b"2,True", b"2,True,True", "cells where there are"),
        (b",hbm,", b",\xff,", "no CSV file in UTF-8"),
        (b"n_ranks", b"ranks", "line 1: the columns are not those"),
        (b",hbm,", b',"hbm,', "cells where there are"),
    ],
)
def test_a_broken_row(old, before, after, words):
    header, rows = old.read_bytes().split(b"\r\n", 1)
    target = header if before in header else rows
    mended = target.replace(before, after, 1)
    old.write_bytes(mended + b"\r\n" + rows if target is header else header + b"\r\n" + mended)
    refused(old.with_suffix(".sqlite"), plan(), words, old)


def test_a_database_that_another_sweep_has_just_made_is_joined(tmp_path):
    """It is a file of SQLite without a table, before the other sweep writes the first one."""
    made, file = plan(), tmp_path / "s.sqlite"
    with contextlib.closing(sqlite3.connect(file)) as database:
        database.execute("PRAGMA journal_mode = WAL")
    with Store(file, made) as store:
        assert list(store.rows(asked=True)) == []
        first = (0,) * len(made.keys)
        assert store.claim([first]) == [first]
