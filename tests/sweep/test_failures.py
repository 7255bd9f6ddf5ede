"""Points that fail, whatever way: each is a row that says what, where and how to repeat it, and the others go on."""

import os
import signal
import sqlite3
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from kernbench.bench import find
from kernbench.cli.output.console import progress
from kernbench.sweep import Collected, Here, Limits, Processes, Store, in_order, make_plan, run_sweep
from kernbench.sweep.executors import local
from kernbench.sweep.planning import points as points_module
from kernbench.sweep.store import Counts

FILE = Path(__file__).with_name("deadly.py")
BENCH = find(str(FILE))
RATES = {"machine.hbm.bandwidth": ["256", "512"]}


def line_of(text):
    return next(number for number, line in enumerate(FILE.read_text().splitlines(), 1) if text in line)


def rows_of(how, executor, over=RATES):
    made = make_plan(BENCH, None, {}, {"how": how, **over})
    ledger = Collected(made)
    run_sweep(made, executor, ledger)
    return in_order(made, ledger.rows)


@pytest.mark.parametrize(
    ("how", "why", "where"),
    [
        ("raises", "inputs of bench deadly raised ValueError: broken; on two lines", "raise ValueError"),
        ("asks to exit", "inputs of bench deadly raised SystemExit: 0", "raise SystemExit"),
        ("interrupts", "KeyboardInterrupt", "raise KeyboardInterrupt"),
        ("breaks NumPy", "numpy.zeros is not NumPy's own any more", "np.zeros = None"),
        ("exits", "its process ended with exit code 3: os._exit was called", "os._exit(3)"),
        ("is killed", "its process was killed by SIGKILL: the system may have run out of memory", ""),
        ("crashes", "its process was killed by SIGSEGV", "signal.SIGSEGV"),
        ("calls itself", "its process was killed by SIGSEGV: its stack overflowed", "repr([self])"),
    ],
)
def test_a_failed_point_is_a_row_and_the_others_go_on(how, why, where):
    rows = rows_of(["fine", how, "fine too"], Processes(2))
    assert [row.get("failed", "")[: len(why)] for row in rows] == ["", "", why, why, "", ""]
    assert all(row["time_ps"] > 0 for row in rows if "failed" not in row)
    wanted = f"{FILE}:{line_of(where)}" if where else None
    assert {row["failed_at"] for row in rows[2:4]} == {wanted}


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_a_kernel_that_forks_is_one_point(tmp_path):
    rows = rows_of(["fine", "forks", "fine too"], Processes(1))
    assert [row.get("failed", "") for row in rows] == [""] * 6
    assert len({row["time_ps"] for row in rows[::2]}) == 1


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="looks into /proc")
def test_a_fork_that_a_kernel_leaves_behind_ends_with_its_process(tmp_path):
    marker = tmp_path / "fork"
    (row,) = rows_of(["forks and waits"], Processes(1), {"marker": [str(marker)]})
    assert "failed" not in row
    # a fork that outlives its process is found by the time limit of tests
    while not (marker.exists() and marker.read_text()) or _lives(int(marker.read_text())):
        time.sleep(0.01)


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="looks into /proc")
def test_a_program_that_a_kernel_leaves_behind_holds_no_output_and_ends(tmp_path):
    marker = tmp_path / "program"
    (row,) = rows_of(["starts a program"], Processes(1), {"marker": [str(marker)]})
    assert "failed" not in row
    process, output = marker.read_text().split()
    assert output.startswith("pipe:")
    assert output != os.readlink("/proc/self/fd/2")
    while _lives(int(process)):
        time.sleep(0.01)


def test_what_kernels_print_is_passed_on(capfd):
    rows_of(["prints", "fine"], Processes(2))
    assert capfd.readouterr().err.count("printed by a kernel") == 1


def _lives(process):
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def test_who_interrupts_a_sweep_in_this_process_ends_it():
    """Where Ctrl-C does something, as in a terminal; tests may run where it does nothing."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            rows_of(["interrupts"], Here())
    finally:
        signal.signal(signal.SIGINT, before)


def test_a_point_does_not_break_the_next_one_in_its_process():
    rows = rows_of(["breaks NumPy", "fine", "fine too"], Processes(1))
    assert ["failed" in row for row in rows] == [True, True, False, False, False, False]


def test_a_very_long_message_is_folded():
    row, _ = rows_of(["says much"], Processes(1))
    assert row["failed"].startswith("inputs of bench deadly raised ValueError: xxx")
    assert "... (100," in row["failed"]
    assert len(row["failed"]) < 400
    assert row["failed_at"] == f"{FILE}:{line_of('100_000')}"


def test_out_of_time(tmp_path, monkeypatch):
    # the parent's clock stands still until the point hangs, however busy the machine is
    marker = tmp_path / "hangs"
    clock = SimpleNamespace(sleep=time.sleep, monotonic=lambda: 100.0 * marker.exists())
    monkeypatch.setattr(local, "time", clock)
    monkeypatch.setattr(local, "_GRACE", 1000)
    rows = rows_of(["hangs", "fine"], Processes(1, Limits(seconds=60)), {"marker": [str(marker)]})
    assert rows[0]["failed"] == "out of time: more than the 60 s of --max-seconds"
    assert rows[0]["failed_at"] == f"{FILE}:{line_of('time.sleep(0.01)')}"
    assert rows[1]["time_ps"] > 0


def test_out_of_memory():
    rows = rows_of(["takes memory", "fine"], Processes(1, Limits(memory=2**30)))
    assert all(row["failed"].startswith("out of memory") for row in rows[:2])
    assert rows[0]["failed_at"] == f"{FILE}:{line_of('np.ones')}"
    assert all(row["time_ps"] > 0 for row in rows[2:])


def test_a_kernel_out_of_memory_is_neither_right_nor_wrong():
    rows = rows_of(["takes memory in its kernel", "fine"], Processes(1, Limits(memory=2**30)))
    why = "out of memory: launch of bench deadly takes more than the 1 GiB of --max-memory"
    assert [row["failed"] for row in rows[:2]] == [why, why]
    assert [row.get("safe") for row in rows] == [None, None, True, True]
    assert rows[0]["failed_at"] == f"{FILE}:{line_of('bytearray')}"


def test_memory_that_was_taken_before_does_not_count():
    """A fork has all the memory of its parent: a point must not starve of what is not its own."""
    before = np.empty(2**27)
    rows = rows_of(["fine"], Processes(1, Limits(memory=2**29)))
    assert before.nbytes == 2**30
    assert all(row["time_ps"] > 0 for row in rows)


def test_a_failed_pass_is_not_run_for_each_of_its_points(monkeypatch):
    passes = []
    whole = points_module.run_bench
    monkeypatch.setattr(points_module, "run_bench", lambda *a, **k: passes.append(a) or whole(*a, **k))
    rows = rows_of(["raises"], Here(), {"machine.hbm.bandwidth": ["1..40"]})
    assert (len(rows), len(passes)) == (40, 1)


def test_one_deadly_timing_among_many(monkeypatch):
    results = points_module._Timer.results

    def deadly(timer, rates):
        if rates["machine.hbm.bandwidth"] in ("3", "17"):
            os._exit(9)
        return results(timer, rates)

    monkeypatch.setattr(points_module._Timer, "results", deadly)
    rows = rows_of(["fine"], Processes(2), {"machine.hbm.bandwidth": ["1..20"]})
    assert [row["machine.hbm.bandwidth"] for row in rows if "failed" in row] == ["3", "17"]
    assert {row["failed"] for row in rows if "failed" in row} == {
        "its process ended with exit code 9: os._exit was called"
    }
    assert sum("time_ps" in row for row in rows) == 18


def test_an_error_in_one_timing(monkeypatch):
    results = points_module._Timer.results

    def broken(timer, rates):
        if rates["machine.hbm.bandwidth"] == "3":
            raise ZeroDivisionError("by zero")
        return results(timer, rates)

    monkeypatch.setattr(points_module._Timer, "results", broken)
    rows = rows_of(["fine"], Here(), {"machine.hbm.bandwidth": ["1..5"]})
    assert [row.get("failed") for row in rows] == [None, None, "ZeroDivisionError: by zero", None, None]
    assert "failures.py:" in rows[2]["failed_at"]


def test_failed_points_are_run_again_only_when_asked(tmp_path, monkeypatch):
    made = make_plan(BENCH, None, {}, {"how": ["fine", "raises"]})
    passes = []
    whole = points_module.run_bench
    monkeypatch.setattr(points_module, "run_bench", lambda *a, **k: passes.append(a) or whole(*a, **k))
    for retry, count in ((False, 2), (False, 2), (True, 3), (True, 4)):
        with Store(tmp_path / "s.sqlite", made, retry=retry) as store:
            run_sweep(made, Here(), store)
            assert store.counts() == Counts(done=2, refused=0, failed=1, bad=0)
        assert len(passes) == count
    with sqlite3.connect(tmp_path / "s.sqlite") as database:
        (row,) = database.execute("SELECT failed, failed_at, repeat FROM points WHERE failed IS NOT NULL")
    database.close()
    assert row[2] == f"kernbench run {BENCH.name} --set how=raises"


def test_a_process_with_threads_is_not_forked():
    """A lock that another thread holds at that moment would be held for ever in the child."""
    ended = threading.Event()
    thread = threading.Thread(target=ended.wait)
    thread.start()
    try:
        assert local._context().get_start_method() == "spawn"
        rows = rows_of(["crashes"], Processes(1))
    finally:
        ended.set()
        thread.join()
    assert {row["failed"] for row in rows} == {"its process was killed by SIGSEGV"}
    assert {row["failed_at"] for row in rows} == {f"{FILE}:{line_of('signal.SIGSEGV')}"}


def test_the_progress_line_of_a_sweep_has_no_thread():
    with progress(10, by_itself=False) as bar:
        bar.refresh()
        assert threading.active_count() == 1
