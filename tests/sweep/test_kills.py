"""Sweeps that are killed at any moment, and several on one store: no row is lost or doubled, no process stays."""

import os
import random
import signal
import sqlite3
import sys
import time
import traceback
import warnings
from pathlib import Path

import pytest

from kernbench.bench import find
from kernbench.common.errors import BenchError
from kernbench.sweep import Collected, Here, Processes, Store, in_order, make_plan, run_sweep

FILE = Path(__file__).with_name("deadly.py")
BENCH = find(str(FILE))
OVER = {"how": ["fine", "raises"], "machine.hbm.bandwidth": ["100..160/10 GB/s"], "number": ["0..5"]}


def plan(over=OVER):
    return make_plan(BENCH, None, {}, over)


def undisturbed(made):
    ledger = Collected(made)
    run_sweep(made, Here(), ledger)
    return in_order(made, ledger.rows)


def results(rows):
    """Rows without what is empty, and without what only a store adds."""
    return [{k: v for k, v in row.items() if v is not None and k != "repeat"} for row in rows]


def forked_sweep(file, made):
    """A sweep of its own in another process: a fork, which is there at once."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        number = os.fork()
    if number:
        return number
    try:
        os.setpgid(0, 0)
        with Store(file, made) as store:
            run_sweep(made, Processes(2), store)
        os._exit(0)
    except BaseException:
        # what a fork of the tests says is seen where they fail
        traceback.print_exc()
        sys.stderr.flush()
        os._exit(1)


def children(parent):
    """The processes of a process group, other than its leader."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                state, _, group, *_ = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            if int(group) == parent and int(entry.name) != parent and state not in "ZX":
                found.append(int(entry.name))
    return found


linux = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="looks into /proc, and forks")


@linux
def test_killed_at_any_moment_nothing_is_lost_or_doubled(tmp_path):
    made, file = plan(), tmp_path / "s.sqlite"
    moments = random.Random(7)
    for _ in range(6):
        number = forked_sweep(file, made)
        time.sleep(moments.uniform(0.0, 0.25))
        workers = children(number)
        os.kill(number, signal.SIGKILL)
        os.waitpid(number, 0)
        end = time.monotonic() + 20
        while children(number) and time.monotonic() < end:
            time.sleep(0.01)
        assert not children(number), f"workers {workers} outlive their parent"
    with Store(file, made) as store:
        run_sweep(made, Here(), store)
        rows = list(store.rows())
        assert store.query("SELECT count(*) FROM claims") == [(0,)]
    assert results(rows) == results(undisturbed(made))


@linux
def test_several_sweeps_share_one_store(tmp_path):
    made, file = plan(), tmp_path / "s.sqlite"
    others = [plan({**OVER, "number": ["3..8"]}), plan({**OVER, "how": ["raises", "fine"]}), made]
    numbers = [forked_sweep(file, one) for one in others]
    assert [os.waitstatus_to_exitcode(os.waitpid(number, 0)[1]) for number in numbers] == [0, 0, 0]
    with Store(file, made) as store:
        rows = list(store.rows(asked=True))
        assert store.query("SELECT count(*) FROM points") == [(2 * 7 * 9,)]
        assert store.query("SELECT count(DISTINCT owner) > 1 FROM points") == [(1,)]
    assert sorted(results(rows), key=str) == sorted(results(undisturbed(made)), key=str)


def test_points_of_a_sweep_that_is_at_work_are_waited_for_and_those_of_a_dead_one_are_not(tmp_path):
    made, file = plan({"number": ["0..3"]}), tmp_path / "s.sqlite"
    positions = [(place,) for place in range(4)]
    with Store(file, made) as first, Store(file, made) as second:
        assert first.claim(positions[:3]) == positions[:3]
        assert second.claim(positions) == positions[3:]
        assert second.held == 3
        first.keep([(positions[0], {"safe": True})])
        second.forget_held()
        assert second.claim(positions) == []
        # ours count, too: nobody is to begin them again
        assert second.held == 3
        # a process of a number that is another's by now
        with sqlite3.connect(file) as database:
            database.execute("UPDATE owners SET process = ? WHERE owner = 1", (f"{os.getpid()} 1",))
        database.close()
        assert second.claim(positions) == positions[1:3]


@pytest.mark.parametrize(("age", "mine"), [(10, []), (100, [(0,)])])
def test_a_lease_of_another_machine_expires(tmp_path, age, mine):
    made, file = plan({"number": ["0..3"]}), tmp_path / "s.sqlite"
    with Store(file, made) as first, Store(file, made) as second:
        first.claim([(0,)])
        second.claim([(1,)])
        with sqlite3.connect(file) as database:
            values = ("elsewhere 1 2", time.time() - age)
            database.execute("UPDATE owners SET host = ?, heard_of = ? WHERE owner = 1", values)
        database.close()
        second.held = 1
        assert second.claim([(0,)]) == mine


def test_a_sweep_on_another_machine_is_refused(tmp_path):
    made, file = plan({"number": ["0..3"]}), tmp_path / "s.sqlite"
    with Store(file, made) as first, Store(file, made) as second:
        first.claim([(0,)])
        with sqlite3.connect(file) as database:
            database.execute("UPDATE owners SET host = 'elsewhere 1 2'")
        database.close()
        with pytest.raises(BenchError, match="is being written by a sweep on elsewhere"):
            second.claim([(1,)])


@linux
def test_workers_in_the_middle_of_a_pass_end_with_their_parent(tmp_path):
    number = forked_sweep(tmp_path / "s.sqlite", plan({"seconds": ["30", "31"]}))
    end = time.monotonic() + 60
    while len(children(number)) < 2 and time.monotonic() < end:
        time.sleep(0.01)
    assert len(children(number)) == 2
    os.kill(number, signal.SIGKILL)
    os.waitpid(number, 0)
    while children(number) and time.monotonic() < end:
        time.sleep(0.01)
    assert not children(number)
