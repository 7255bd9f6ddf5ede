"""Commands on a Ray cluster of several nodes, one of which is killed midway: what they give without `--ray`."""

import json
import re
import subprocess
import sys

import pytest
from tests.clusters import HAS_RAY, WAIT_FOR_DEATH, WITHOUT_RAY, fake_ray, on_two_nodes

from kernbench.bench.discovery.new import filled_in

with_ray = pytest.mark.skipif(not HAS_RAY, reason=WITHOUT_RAY)
SWEPT = f"""{WAIT_FOR_DEATH}
from dataclasses import replace
from kernbench.benches import milestone_gqa_llama70b as whole

def inputs(p, rng):
    wait_for_death()
    return whole.bench.inputs(p, rng)

bench = replace(whole.bench, inputs=inputs)
"""
SMALL = ["context=24", "d_head=16", "h_q=4", "h_kv=2"]


def checked(name, in_launch):
    text = filled_in("mesh", name).replace("import numpy as np\n", f"import numpy as np\n{WAIT_FOR_DEATH}\n", 1)
    return text.replace("torch):\n", f"torch):\n    {in_launch}\n", 1)


@pytest.fixture
def folder(tmp_path):
    """Benches that wait where death comes, good ones, one that is wrong, one that ends its process, a broken one."""
    (tmp_path / "benches").mkdir()
    texts = {f"good_{number}": checked("good", "wait_for_death()") for number in range(4)}
    texts["wrong"] = checked("wrong", "pass").replace("tl.trans(k)", "tl.reshape(k, (d, S))")
    texts["leaves"] = checked("leaves", "os._exit(5)")
    texts["broken"] = "from kernbench.bench import Bench\nbench = Bench(\n"
    for name, text in texts.items():
        (tmp_path / "benches" / f"{name}.py").write_text(text)
    (tmp_path / "swept.py").write_text(SWEPT)
    return tmp_path


def alone(folder, *arguments):
    words = [sys.executable, "-m", "kernbench.cli", *arguments]
    return subprocess.run(words, cwd=folder, capture_output=True, text=True)


def untimed(text):
    """Without what no two runs have alike."""
    text = re.sub(r'(time|seconds)("?[=:] ?"?)[0-9.e-]+', r"\1\2", text)
    return re.sub(r"  [0-9.]+ s$", "", text, flags=re.M)


@pytest.mark.programs
@with_ray
def test_check_gives_the_same_though_a_node_is_killed(folder):
    files = [["--junit", f"{who}.xml", "--json", f"{who}.json"] for who in ("here", "there")]
    here = alone(folder, "check", "benches", *files[0])
    there = on_two_nodes(folder, "check", "benches", *files[1])
    assert (here.returncode, there.returncode) == (1, 1)
    assert untimed(there.stdout) == untimed(here.stdout)
    assert "4 of 7 right and safe; 7 bench files among 7 Python files" in there.stdout
    for name in ("xml", "json"):
        read = [untimed((folder / f"{who}.{name}").read_text()) for who in ("here", "there")]
        assert read[1] == read[0]
    assert len(json.loads((folder / "there.json").read_text())["cases"]) == 7


@pytest.mark.programs
@with_ray
def test_sweep_gives_the_same_though_a_node_is_killed(folder):
    words = ["sweep", "swept.py", "-p", "single_user_decode", *(word for one in SMALL for word in ("--set", one))]
    words += ["--over", "machine.hbm.bandwidth=256,512", "--over", "n_ranks=1,2,4"]
    here = alone(folder, *words, "--out", "here.csv")
    there = on_two_nodes(folder, *words, "--out", "there.csv")
    assert (here.returncode, there.returncode) == (0, 0), there.stderr
    assert (folder / "there.csv").read_text() == (folder / "here.csv").read_text()
    assert len((folder / "there.csv").read_text().splitlines()) == 7


@pytest.mark.parametrize(
    "words",
    [["check", "."], ["sweep", "milestone_gqa_llama70b", "-p", "single_user_decode", "--over", "n_ranks=2"]],
)
def test_what_is_refused(kernbench, words, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    both = kernbench(*words, "--jobs", "2", "--ray", "local")
    assert (both.returncode, "with --ray the cluster says how many there are" in both.stderr) == (2, True)
    monkeypatch.setitem(sys.modules, "ray", None)
    missing = kernbench(*words, "--ray", "local")
    assert (missing.returncode, "pip install 'kernbench[ray]'" in missing.stderr) == (2, True)
    fake_ray(monkeypatch)
    nobody = kernbench(*words, "--ray", "127.0.0.1:1")
    assert (nobody.returncode, "no Ray cluster answers there" in nobody.stderr) == (2, True)


def test_a_stopped_check_on_a_cluster(kernbench, folder, monkeypatch):
    """What is under way is ended, and the command says that it is not whole."""
    ray = fake_ray(monkeypatch)
    monkeypatch.chdir(folder)

    def stopped(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(ray, "wait", stopped)
    result = kernbench("check", "benches", "--ray", "local")
    assert (result.returncode, "stopped: what was not finished" in result.stderr) == (130, True)
    assert ray.log == [("init", "local", False), "cancel", "cancel", "shutdown"]
