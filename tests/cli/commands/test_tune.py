"""`kernbench tune`: the ranking, what takes no part in it, what a GPU measures, and what is refused before anything."""

import json
from functools import partial

import pytest

import kernbench.cli.commands.tune as command
from kernbench.bench import find, run_bench
from kernbench.result.run import Run, Status

SETTINGS = {"context": 24, "d_head": 16, "h_q": 4, "h_kv": 2}
SMALL = [word for key, value in SETTINGS.items() for word in ("--set", f"{key}={value}")]
OVER = ["--over", "n_ranks=4,2", "--over", "machine.hbm.bandwidth=512,256", "--jobs", "1"]


@pytest.fixture(autouse=True, scope="module")
def compiled():
    """Compiled loops are loaded once: the processes of a sweep are forks of this one."""
    run_bench(find("milestone_gqa_llama70b"), "single_user_decode", {**SETTINGS, "n_ranks": 2}, timed=True)


@pytest.fixture
def tune(tmp_path, kernbench, monkeypatch):
    """Rankings in a folder of their own."""
    monkeypatch.chdir(tmp_path)
    return partial(kernbench, "tune", "milestone_gqa_llama70b", "-p", "single_user_decode", *SMALL)


def test_the_fastest_comes_first_and_nothing_is_left_behind(tune, tmp_path):
    done = tune(*OVER, "--json", "ranked.json")
    assert done.returncode == 0, done.stderr
    ranked = json.loads((tmp_path / "ranked.json").read_text())["rows"]
    times = [row["time_ps"] for row in ranked]
    assert len(times) == 4
    assert times == sorted(times)
    for row in ranked:
        settings = {**SETTINGS, "n_ranks": row["n_ranks"], "machine.hbm.bandwidth": row["machine.hbm.bandwidth"]}
        run = run_bench(find("milestone_gqa_llama70b"), "single_user_decode", settings, timed=True)
        assert run.metrics["time_ps"] == row["time_ps"]
    assert f"--set n_ranks={ranked[0]['n_ranks']} --set machine.hbm.bandwidth=" in done.stdout
    assert [file.name for file in tmp_path.iterdir()] == ["ranked.json"]


def test_only_the_best_are_shown_and_points_can_be_kept(tune, tmp_path):
    done = tune(*OVER, "--best", "2", "--out", "points")
    assert done.returncode == 0, done.stderr
    assert sum(line.startswith("│") for line in done.stdout.splitlines()) == 2
    assert (tmp_path / "points.sqlite").exists()
    again = tune(*OVER, "--best", "2", "--out", "points")
    assert again.stdout == done.stdout
    assert "holds 4 of 4 points" in again.stderr


def test_a_point_that_is_refused_takes_no_part(tune):
    done = tune("--over", "n_ranks=2,64", "--jobs", "1")
    assert done.returncode == 0, done.stderr
    assert "1 of 2 points refused: they take no part" in done.stderr


def test_what_cannot_be_measured_is_refused_first(tune):
    done = tune(*OVER, "--device", "cuda")
    assert done.returncode == 2
    assert "has no parameter device: it runs on no GPU" in done.stderr
    done = tune(*OVER, "--device", "tpu")
    assert done.returncode == 2
    assert "cuda is wanted" in done.stderr


def run_on_gpu(nanoseconds, right=True):
    made = Run({}, [], (), Status.FINISHED, metrics={"gpu_time_ns": nanoseconds})
    return made if right else type("Wrong", (), {"right": False, "findings": [], "metrics": made.metrics})()


def test_a_gpu_measures_the_best(monkeypatch):
    one = command.Ranked({"n": "4", "time_ps": 2_000_000})
    seen = []

    def fake(bench, panel, settings, seed):
        seen.append((panel, settings, seed))
        return run_on_gpu(2500)

    monkeypatch.setattr(command, "run_bench", fake)
    measured = command._measured(one, None, "p", {"m": 1}, ("n",), 7)
    assert seen == [("p", {"m": 1, "n": "4", "device": "cuda"}, 7)]
    assert measured.measured_ps == 2_500_000
    assert command._measurement(measured) == ("2.5 us", "-20 %")


def test_no_time_of_a_wrong_answer(monkeypatch):
    monkeypatch.setattr(command, "run_bench", lambda *_: run_on_gpu(2500, right=False))
    measured = command._measured(command.Ranked({"n": "4", "time_ps": 2}), None, None, {}, ("n",), 0)
    assert measured.measured_ps is None
    assert command._measurement(measured) == ("wrong on the GPU", "")


def test_points_of_ptx_are_recorded_and_timed(tmp_path, kernbench, monkeypatch):
    monkeypatch.chdir(tmp_path)
    small = [word for one in ("users=1", "lengths=33", "h_q=2", "d_head=64") for word in ("--set", one)]
    over = ("--over", "gpu=h200,h100", "--jobs", "1", "--json", "ranked.json")
    done = kernbench("tune", "batched_incremental_attention", "-p", "one_warp", *small, *over)
    assert done.returncode == 0, done.stderr
    ranked = json.loads((tmp_path / "ranked.json").read_text())["rows"]
    assert sorted(row["gpu"] for row in ranked) == ["h100", "h200"]
    assert all(row["time_ps"] > 0 for row in ranked)
