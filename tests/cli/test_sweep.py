"""`kernbench sweep`: the table is in the order of the values, a stopped sweep goes on, and where it may run."""

import csv
import importlib.util
import os
import subprocess
import sys

import pytest

SMALL = ["--set", "context=24", "--set", "d_head=16", "--set", "h_q=4", "--set", "h_kv=2"]
OVER = ["--over", "n_ranks=4,2", "--over", "machine.hbm.bandwidth=512,256"]


def sweep(*arguments, cwd):
    command = [sys.executable, "-m", "kernbench.cli", "sweep", "milestone_gqa_llama70b", "-p", "single_user_decode"]
    return subprocess.run(
        [*command, *SMALL, *OVER, *arguments],
        capture_output=True,
        text=True,
        cwd=cwd,
        env={**os.environ, "COLUMNS": "200", "NO_COLOR": "1", "TERM": "dumb"},
        timeout=100,
        check=False,
    )


def rows_in(file):
    with file.open(newline="") as stream:
        return list(csv.DictReader(stream))


def test_rows_are_shown_in_order_and_kept(tmp_path):
    done = sweep("--jobs", "2", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    shown = [line.split("│")[1:3] for line in done.stdout.splitlines() if line.startswith("│")]
    assert [[cell.strip() for cell in row] for row in shown] == [["4", "512"], ["4", "256"], ["2", "512"], ["2", "256"]]
    kept = rows_in(tmp_path / "sweep.csv")
    assert len(kept) == 4
    for row in kept:
        causes = sum(int(time) for name, time in row.items() if name.startswith("gap_"))
        assert causes + int(row[f"floor_{row['bound']}_ps"]) == int(row["time_ps"])
    again = sweep(cwd=tmp_path)
    assert again.returncode == 0
    assert rows_in(tmp_path / "sweep.csv") == kept


def test_processes_and_a_cluster_are_not_both_asked_for(tmp_path):
    done = sweep("--jobs", "2", "--ray", "local", cwd=tmp_path)
    assert done.returncode == 2
    assert "with --ray the cluster says how many" in done.stderr
    assert not list(tmp_path.iterdir())


@pytest.mark.skipif(importlib.util.find_spec("ray") is not None, reason="Ray is installed")
def test_without_ray_the_extra_is_named(tmp_path):
    done = sweep("--ray", "local", cwd=tmp_path)
    assert done.returncode == 2
    assert "pip install 'kernbench[ray]'" in done.stderr
    assert not list(tmp_path.iterdir())
