"""`kernbench ptx run --time`: the predicted time of a PTX file, for which GPU, and what gets none."""

import json

import numpy as np
import pytest
from tests.ptx.front.test_commands import LAUNCH, SAXPY
from typer.testing import CliRunner

from kernbench.cli import app


@pytest.fixture
def run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "launch.toml").write_text(LAUNCH)
    x = np.arange(200, dtype=np.float32)
    np.save(tmp_path / "x.npy", x)
    np.save(tmp_path / "want.npy", 2 * x)

    def command(*words, text=SAXPY):
        (tmp_path / "saxpy.ptx").write_text(text)
        return CliRunner().invoke(app, ["ptx", "run", "saxpy.ptx", "--launch", "launch.toml", *words])

    return command


def test_a_file_gets_its_time(run, tmp_path):
    done = run("--time", "--json", "out.json")
    assert done.exit_code == 0, done.output
    assert "predicted for h200" in done.output
    assert "bound by" in done.output
    found = json.loads((tmp_path / "out.json").read_text())
    metrics = found["metrics"]
    assert metrics["time_ps"] > max(metrics["floors_ps"].values()) > 0
    assert {row["line"] for row in found["views"]["stalls"]} <= set(range(1, len(SAXPY.splitlines()) + 1))


def test_a_check_may_predict_as_well(run, tmp_path):
    run()
    words = ["ptx", "check", "saxpy.ptx", "--launch", "launch.toml", "--time", "--json", "out.json"]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0, done.output
    assert "where the warps spend their cycles:" in done.output
    assert json.loads((tmp_path / "out.json").read_text())["views"]["stalls"]


def test_another_gpu_is_said_not_to_be_validated(run):
    done = run("--gpu", "b200")
    assert "predicted for b200" in done.output
    assert "not validated" in done.output


def test_the_gpu_follows_the_architecture(run):
    assert "predicted for b200" in run("--time", text=SAXPY.replace("sm_80", "sm_100a").replace("7.0", "8.6")).output
    refused = run("--time", "--gpu", "a100", text=SAXPY.replace("sm_80", "sm_90").replace("7.0", "8.0"))
    assert "no time: the kernel is for sm_90, and a100 is sm_80: choose another GPU" in refused.output
    nowhere = run("--time", text=SAXPY.replace("sm_80", "sm_120a").replace("7.0", "8.7"))
    assert "no bundled GPU runs sm_120a" in str(nowhere.exception)


def test_what_is_unsafe_gets_no_time(run):
    done = run("--time", text=SAXPY.replace("st.global.f32 [%rd5]", "st.global.f32 [%rd2]"))
    assert done.exit_code == 1
    assert "no time: it is not safe" in done.output


def test_without_the_option_nothing_is_recorded(run):
    done = run()
    assert "no time" not in done.output
    assert "predicted" not in done.output
