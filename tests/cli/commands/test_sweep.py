"""`kernbench sweep`: the order of the table, going on and growing, refused points, where it may run, bad files."""

import csv
import importlib.util
import io
import json
import shutil
import sqlite3
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest

import kernbench.cli.processes.sweeping as sweeping
import kernbench.sweep as sweep_package
from kernbench.bench import find, run_bench

SMALL = ["--set", "context=24", "--set", "d_head=16", "--set", "h_q=4", "--set", "h_kv=2"]
OVER = ["--over", "n_ranks=4,2", "--over", "machine.hbm.bandwidth=512,256"]


@pytest.fixture(autouse=True, scope="module")
def compiled():
    """Compiled loops are loaded once: the processes of a sweep are forks of this one."""
    settings = {"context": 24, "d_head": 16, "h_q": 4, "h_kv": 2, "n_ranks": 2}
    run_bench(find("milestone_gqa_llama70b"), "single_user_decode", settings, timed=True)


@pytest.fixture
def sweep(tmp_path, kernbench, monkeypatch):
    """Sweeps that write into a folder of their own."""
    monkeypatch.chdir(tmp_path)
    return partial(kernbench, "sweep", "milestone_gqa_llama70b", "-p", "single_user_decode", *SMALL)


def rows_in(file):
    with file.open(newline="") as stream:
        return list(csv.DictReader(stream))


def test_rows_are_shown_in_order_and_kept(sweep, tmp_path):
    done = sweep(*OVER, "--jobs", "2")
    assert done.returncode == 0, done.stderr
    shown = [line.split("│")[1:3] for line in done.stdout.splitlines() if line.startswith("│")]
    assert [[cell.strip() for cell in row] for row in shown] == [["4", "512"], ["4", "256"], ["2", "512"], ["2", "256"]]
    kept = rows_in(tmp_path / "sweep.csv")
    assert len(kept) == 4
    for row in kept:
        causes = sum(int(time) for name, time in row.items() if name.startswith("gap_"))
        assert causes + int(row[f"floor_{row['bound']}_ps"]) == int(row["time_ps"])
    again = sweep(*OVER)
    assert again.returncode == 0
    assert rows_in(tmp_path / "sweep.csv") == kept


def test_processes_and_a_cluster_are_not_both_asked_for(sweep, tmp_path):
    done = sweep(*OVER, "--jobs", "2", "--ray", "local")
    assert done.returncode == 2
    assert "with --ray the cluster says how many" in done.stderr
    assert not list(tmp_path.iterdir())


@pytest.mark.skipif(importlib.util.find_spec("ray") is not None, reason="Ray is installed")
def test_without_ray_the_extra_is_named(sweep, tmp_path):
    done = sweep(*OVER, "--ray", "local")
    assert done.returncode == 2
    assert "pip install 'kernbench[ray]'" in done.stderr
    assert not list(tmp_path.iterdir())


@pytest.fixture
def here(sweep):
    """Sweeps without other processes: exit code, output and errors."""

    def sweep_here(*arguments):
        done = sweep("--jobs", "1", *arguments)
        return done.returncode, done.stdout, done.stderr

    return sweep_here


def test_more_values_are_added_to_the_file(here, tmp_path):
    assert here("--over", "n_ranks=2,4")[0] == 0
    first = rows_in(tmp_path / "sweep.csv")
    code, shown, _ = here("--over", "n_ranks=4,8")
    assert code == 0
    assert "3 points in sweep.csv" in shown
    rows = rows_in(tmp_path / "sweep.csv")
    assert rows[:2] == first
    assert [row["n_ranks"] for row in rows] == ["2", "4", "8"]


def test_a_sweep_that_is_stopped_says_how_to_go_on(here, tmp_path, monkeypatch):
    keep = sweep_package.Store.keep

    def interrupted(store, done):
        keep(store, done)
        if done:
            raise KeyboardInterrupt

    monkeypatch.setattr(sweep_package.Store, "keep", interrupted)
    code, _, told = here("--over", "n_ranks=2,4")
    assert code == 130
    assert "going on" not in told
    assert "stopped: sweep.sqlite holds 1 of 2 points; the same command goes on" in told
    monkeypatch.setattr(sweep_package.Store, "keep", keep)
    code, _, told = here("--over", "n_ranks=2,4")
    assert code == 0
    assert "going on: sweep.sqlite holds 1 of 2 points" in told
    assert len(rows_in(tmp_path / "sweep.csv")) == 2


def test_another_machine_is_not_taken_for_this_one(here, tmp_path):
    assert here("--over", "n_ranks=2,4", "-s", "machine.link.latency=100")[0] == 0
    before = (tmp_path / "sweep.csv").read_bytes()
    code, _, told = here("--over", "n_ranks=2,4", "-s", "machine.link.latency=100000")
    assert code == 2
    assert "holds another sweep: machine.link.latency was 100, is now 100000" in told
    assert (tmp_path / "sweep.csv").read_bytes() == before


def test_points_without_a_time_in_a_sweep_of_bandwidths(here):
    over = ["--over", "machine.ipcq.depth=1,4", "--over", "machine.hbm.bandwidth=256,512"]
    for _ in range(2):
        code, shown, told = here(*over)
        assert code == 1
        assert "4 points in sweep.csv" in shown
        assert "anomaly" not in told
        assert (
            "2 of 4 points wrong or unsafe; to see why:\n  kernbench run milestone_gqa_llama70b -p single_user_decode"
            in told
        )
        assert "--set machine.ipcq.depth=1 --set machine.hbm.bandwidth=512\n" in told
        assert [line.split("│")[3:5] for line in shown.splitlines() if line.startswith("│")][1:3] == [
            [" not asked ", " NO   "],
            [" yes       ", " yes  "],
        ]


@pytest.mark.parametrize(
    ("file", "says"),
    [
        ("x.json", "say --out x.csv --json x.json"),
        ("x.XLSX", "say --out x.csv"),
    ],
)
def test_a_name_that_says_another_format_is_refused(here, tmp_path, file, says):
    code, _, told = here("--over", "n_ranks=2", "--out", file)
    assert (code, list(tmp_path.iterdir())) == (2, [])
    assert says in told
    assert "say --parquet p.parquet" in here("--over", "n_ranks=2", "--parquet", "p.csv")[2]


def test_a_refused_point_is_shown_and_kept(here, tmp_path):
    for _ in range(2):
        code, shown, told = here("--over", "n_ranks=4,64", "--plot", "p.png", "--parquet", "p.parquet")
        assert code == 1
        assert "64 ranks on machine 'reference'" in shown
        assert "1 of 2 points refused; --retry-failed tries them again" in told
    rows = rows_in(tmp_path / "sweep.csv")
    assert [row["time_ps"] != "" for row in rows] == [True, False]
    assert rows[1]["refused"].startswith("64 ranks")
    # whoever asks for other points is not told off for it again
    assert here("--over", "n_ranks=4")[0] == 0


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--metric", "bound", "--plot", "p.png"], "--metric bound: a column of numbers is wanted: commands, time_ps"),
        (["--metric", "none"], "--metric none: a column of numbers is wanted"),
        (["--plot", "p.gif"], "ends in .png or .svg"),
        (["--parquet", "q.csv", "--out", "q.csv"], "--out and --parquet both name q.csv"),
        (["--plot", "q.png", "--out", "q.png"], "--out and --plot both name q.png"),
        (["--parquet", "sweep.sqlite"], "the database of --out and --parquet both name sweep.sqlite"),
        (["--max-memory", "lots"], "--max-memory lots: must be a number"),
        (["--max-memory", "1 MiB"], "--max-memory 1 MiB: a process needs 64 MiB at least"),
        (["--out", "none/q.csv"], "--out none/q.csv: there is no folder none"),
        (["--out", "/proc/q.csv"], "--out /proc/q.csv cannot be written"),
        (["--out", ""], "is a folder"),
        (["--parquet", "none/q"], "--parquet none/q: there is no folder none"),
    ],
)
def test_files_are_checked_before_any_point_runs(here, tmp_path, options, words):
    code, shown, told = here("--over", "n_ranks=2", *options)
    assert (code, shown) == (2, "")
    assert words in told
    assert not list(tmp_path.iterdir())


DEADLY = Path(__file__).parents[2] / "sweep" / "deadly.py"


@pytest.fixture
def deadly(tmp_path, kernbench, monkeypatch):
    """Sweeps over points that fail."""
    monkeypatch.chdir(tmp_path)
    shutil.copy(DEADLY, "deadly.py")
    return partial(kernbench, "sweep", "deadly.py", "--jobs", "1")


def test_failed_points_are_shown_kept_and_repeated_when_asked(deadly, tmp_path):
    over = ["--over", "how=fine,exits,raises", "--over", "machine.hbm.bandwidth=100..104"]
    for more in ([], [], ["--retry-failed"]):
        done = deadly(*over, *more, "--json", "s.json")
        assert done.returncode == 1
        assert "10 of 15 points failed; column failed of sweep.csv says why, and --retry-failed runs" in done.stderr
        repeat = "kernbench run deadly.py --set how=exits --set machine.hbm.bandwidth=100"
        assert f"  {repeat}\n    its process ended with exit code 3: os._exit was called at " in done.stderr
        assert "  and so on for 6 more\n" in done.stderr
        assert "its process ended with exit code 3" in done.stdout
        data = json.loads((tmp_path / "s.json").read_text())
        assert (data["points"], data["failed"], data["refused"]) == (15, 10, 0)
        assert data["rows"][5]["repeat"] == repeat
        assert data["rows"][0]["machine.hbm.bandwidth"] == 100
        assert data["written"] == {"database": "sweep.sqlite", "csv": "sweep.csv", "parquet": None, "plot": None}
    rows = rows_in(tmp_path / "sweep.csv")
    assert rows[10]["failed"] == "inputs of bench deadly raised ValueError: broken; on two lines"
    line = next(number for number, text in enumerate(DEADLY.read_text().splitlines(), 1) if "raise ValueError" in text)
    assert rows[10]["failed_at"].endswith(f"deadly.py:{line}")
    assert rows[10]["repeat"].endswith("--set how=raises --set machine.hbm.bandwidth=100")


def test_limits_of_a_point(deadly):
    done = deadly("--over", "how=fine,takes memory", "--max-memory", "1GiB")
    assert done.returncode == 1
    assert "1 of 2 points failed" in done.stderr
    assert "out of memory: inputs of bench deadly takes more than the 1 GiB of --max-memory" in done.stderr
    done = deadly("--over", "how=hangs", "--max-seconds", "0.5", "--out", "time.csv")
    assert done.returncode == 1
    assert "out of time: more than the 0.5 s of --max-seconds" in done.stderr


def test_names_of_the_other_forms(here, tmp_path):
    assert here("--over", "n_ranks=2,4", "--out", "a.sqlite")[0] == 0
    assert [path.name for path in tmp_path.iterdir()] == ["a.sqlite"]
    assert here("--over", "n_ranks=2,4", "--out", "a.parquet")[0] == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.parquet", "a.sqlite"]
    (tmp_path / "b.parquet").write_text("somebody's own")
    assert "b.parquet is there, but no b.sqlite" in here("--over", "n_ranks=2,4", "--out", "b.parquet")[2]
    (tmp_path / "b.csv").write_text("somebody's own")
    assert "b.csv holds another sweep, or none" in here("--over", "n_ranks=2,4", "--out", "b.csv")[2]
    (tmp_path / "b.sqlite").write_text("somebody's own, and long enough to be read as the head of a file" * 9)
    assert "is no database of a sweep" in here("--over", "n_ranks=2,4", "--out", "b.sqlite")[2]


def test_many_passes_need_a_word_and_many_rates_do_not(here, tmp_path, monkeypatch):
    monkeypatch.setattr(sweeping, "_MANY_PASSES", 2)
    monkeypatch.setattr("sys.stdin", io.StringIO())
    code, _, told = here("--over", "n_ranks=1,2,4", "--over", "machine.hbm.bandwidth=100..101")
    assert code == 2
    assert "the kernel has to run 1 more times, which takes " in told
    assert "if all take as long as the first 2" in told
    assert "say --yes to begin" in told
    # what it took to know how long that is, is kept
    assert len(database(tmp_path / "sweep.sqlite")) == 4
    assert here("--over", "n_ranks=1,2,4", "--over", "machine.hbm.bandwidth=100..101", "--yes")[0] == 0
    assert len(database(tmp_path / "sweep.sqlite")) == 6
    assert here("--over", "machine.hbm.bandwidth=100..200", "--out", "rates.csv")[0] == 0


def database(file):
    with sqlite3.connect(file) as opened:
        rows = opened.execute("SELECT time_ps FROM points").fetchall()
    opened.close()
    return rows


def test_how_long_a_sweep_takes_is_said(monkeypatch, capsys):
    """By the pace of what came after the first points: 10 in 4 seconds, so that 980 take 392."""
    clock = iter([100.0, 104.0])
    monkeypatch.setattr(sweeping.time, "monotonic", lambda: next(clock))
    monkeypatch.setattr(sweeping._Shown, "_refresh", lambda self: None)
    store = SimpleNamespace(plan=SimpleNamespace(points=1000), keep=lambda done: None)
    shown = sweeping._Shown(store, SimpleNamespace(advance=lambda *given: None, task_ids=[0]), done=0)
    shown.keep([None] * 10)
    assert capsys.readouterr().err == ""
    shown.keep([None] * 10)
    assert capsys.readouterr().err == "980 points left, 2.5 points a second so far: about 7 minutes\n"
    assert [sweeping._span(seconds) for seconds in (0.1, 5, 119, 150, 7000, 9000, 200_000)] == [
        *("less than a second", "about 5 s", "about 119 s", "about 2 minutes", "about 117 minutes"),
        *("about 2 hours", "about 2 days"),
    ]


def test_the_help_names_ranges_and_limits(kernbench):
    told = " ".join(kernbench("sweep", "--help").stdout.split())
    for words in ("1..64", "100..400/50 GB/s", "8..64*2", "--max-seconds", "--max-memory", "--retry-failed", "--yes"):
        assert words in told
