"""Files of results: which sweep they belong to, what may be added to them, and that a bad one is told as such."""

import json
import shutil
from pathlib import Path

import pytest

from kernbench.bench import find
from kernbench.common.errors import BenchError
from kernbench.sweep import in_order, make_plan
from kernbench.sweep.store import COLUMNS, Store, plan_file

BENCH = find("milestone_gqa_llama70b")
RESULTS = {"right": True, "safe": True, "commands": 9, "time_ps": 1000, "bound": "hbm", "floor_ratio": 1.5}


def plan(over=None, bench=BENCH, panel="single_user_decode", seed=0, **settings):
    return make_plan(bench, panel, settings, over or {"n_ranks": ["2", "4"]}, seed)


def kept(file, made):
    """A finished sweep with made-up results."""
    store = Store(file, made)
    for group in made.groups:
        for point in group.points():
            store.add({**point, **RESULTS})
    return store


@pytest.fixture
def file(tmp_path):
    kept(tmp_path / "s.csv", plan())
    return tmp_path / "s.csv"


def contents(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


def refused(file, made, words):
    """Opening the file says `words` and leaves every file as it was."""
    before = contents(file.parent)
    with pytest.raises(BenchError, match=words) as told:
        Store(file, made)
    assert "choose another --out" in str(told.value)
    assert contents(file.parent) == before


def test_rows_read_back_are_those_written(file):
    assert Store(file, plan()).rows == kept(file.with_name("t.csv"), plan()).rows


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

    kept(tmp_path / "s.csv", made())
    toml.write_text('extends = "reference"\n# the same machine\n')
    assert len(Store(tmp_path / "s.csv", made()).rows) == 2
    toml.write_text('extends = "reference"\n[link]\nlatency = "7 ns"\n')
    refused(tmp_path / "s.csv", made(), r"holds another sweep: machine .*m\.toml was [0-9a-f]{12}, is now [0-9a-f]{12}")


def test_another_source_of_the_bench_or_of_what_it_imports(tmp_path):
    bench = tmp_path / "mine.py"
    shutil.copy(str(BENCH.file), bench)
    helper = tmp_path / "my_helper.py"
    helper.write_text("NUMBER = 1\n")
    bench.write_text(bench.read_text() + "\nfrom my_helper import NUMBER\n")
    kept(tmp_path / "s.csv", plan(bench=find(str(bench))))
    assert len(Store(tmp_path / "s.csv", plan(bench=find(str(bench)))).rows) == 2
    for path in (helper, bench):
        before = path.read_text()
        path.write_text(before + "# changed\n")
        refused(tmp_path / "s.csv", plan(bench=find(str(bench))), "source of the bench was")
        path.write_text(before)


def test_another_version(file, monkeypatch):
    monkeypatch.setattr("kernbench.sweep.record.__version__", "9.9")
    refused(file, plan(), r"version of kernbench was .*, is now 9\.9")


def test_values_can_be_added(file):
    more = plan({"n_ranks": ["4", "8"]})
    store = Store(file, more)
    assert store.done == {("2",), ("4",)}
    store.add({"n_ranks": "8", **RESULTS})
    again = Store(file, plan({"n_ranks": ["8", "1"]}))
    assert [row["n_ranks"] for row in in_order(again.plan, again.rows)] == ["2", "4", "8"]
    assert json.loads(plan_file(file).read_text())["over"] == {"n_ranks": ["2", "4", "8"]}


def test_machines_can_be_added(tmp_path):
    toml = tmp_path / "m.toml"
    toml.write_text('extends = "reference"\n')
    kept(tmp_path / "s.csv", plan({"machine": ["reference"]}))
    kept(tmp_path / "s.csv", plan({"machine": [str(toml)]}))
    assert len(Store(tmp_path / "s.csv", plan({"machine": ["reference", str(toml)]})).rows) == 2
    toml.write_text('extends = "reference"\n[link]\nlatency = "7 ns"\n')
    refused(tmp_path / "s.csv", plan({"machine": [str(toml)]}), "holds another sweep: machine ")


def test_nothing_is_written_before_the_first_row(tmp_path):
    Store(tmp_path / "s.csv", plan())
    assert not list(tmp_path.iterdir())


def test_a_number_cut_short_is_not_taken_for_whole(file):
    file.write_bytes(file.read_bytes()[:-2])
    assert Store(file, plan()).done == {("2",)}
    file.write_bytes(b"n_ran")
    assert Store(file, plan()).done == set()


@pytest.mark.parametrize("content", [b"{", b"[]", b"\xff", b"[" * 100_000, b'{"keys": ["n_ranks"]}'])
def test_a_broken_plan(file, content):
    plan_file(file).write_bytes(content)
    refused(file, plan(), r"s\.plan\.json does not say which sweep")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda tree: tree["over"].update(n_ranks=4), "list of values"),
        (lambda tree: tree["over"].update(users=["1"]), "other keys"),
        (lambda tree: tree["settings"].update(users=1), "text is wanted"),
    ],
)
def test_a_plan_of_the_wrong_form(file, change, words):
    tree = json.loads(plan_file(file).read_text())
    change(tree)
    plan_file(file).write_text(json.dumps(tree))
    refused(file, plan(), words)


def test_a_plan_that_is_missing_or_a_folder(file):
    plan_file(file).unlink()
    refused(file, plan(), "holds another sweep, or none")
    plan_file(file).mkdir()
    refused(file, plan(), r"s\.plan\.json cannot be read \(Is a directory\)")


@pytest.mark.parametrize(
    ("old", "new", "words"),
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
def test_a_broken_row(file, old, new, words):
    header, rows = file.read_bytes().split(b"\r\n", 1)
    target = header if old in header else rows
    changed = target.replace(old, new, 1)
    file.write_bytes(changed + b"\r\n" + rows if target is header else header + b"\r\n" + changed)
    refused(file, plan(), words)


def test_a_row_that_cannot_be_written_is_told(file, monkeypatch):
    store = Store(file, plan({"n_ranks": ["8"]}))
    store.add({"n_ranks": "8", **RESULTS})

    def full(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "open", full)
    with pytest.raises(BenchError, match=r"cannot be written \(No space left on device\).*run the command again"):
        store.add({"n_ranks": "16", **RESULTS})


def test_a_parameter_with_the_name_of_a_column(tmp_path, monkeypatch):
    monkeypatch.setattr("kernbench.sweep.store.COLUMNS", ("n_ranks", *COLUMNS))
    with pytest.raises(BenchError, match="n_ranks cannot be swept"):
        Store(tmp_path / "s.csv", plan())
