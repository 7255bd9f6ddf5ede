"""A reader who goes away: what was asked for as a file is written all the same, and the verdict is the exit code."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.programs

BENCH = """
from dataclasses import dataclass
import numpy as np
from kernbench import mesh
from kernbench.bench import Bench, Expected, param

@dataclass(frozen=True)
class Parameters:
    factor: float = param(2.0, "by which the kernel multiplies")

def double(x, o, factor, *, tl):
    tl.store(o, tl.load(x, shape=(4,)) * factor)

def launch(p, x, *, torch):
    return torch.launch(double, torch.shard(x["x"]), torch.empty((4,), "f32", axis=0), p.factor)

bench = Bench(
    "doubling", "a small one", Parameters,
    lambda p, rng: {"x": np.ones(4, np.float32)},
    lambda p, x: {"o": Expected(2.0 * x["x"], 0, 1)},
    lambda p, machine: mesh.Host(machine, ranks=1),
    launch,
)
"""


def read_by_nobody(*words, both=False):
    """The exit code of a command whose standard output (and error, of `both`) is closed, and its other output."""
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run(
        [sys.executable, "-m", "kernbench", *words],
        stdout=writing,
        stderr=writing if both else subprocess.PIPE,
        text=True,
        timeout=900,
    )
    os.close(writing)
    return done.returncode, "" if both else done.stderr


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("doubling.py").write_text(BENCH)


@pytest.mark.parametrize(("settings", "code"), [((), 0), (("--set", "factor=3"), 1)])
def test_files_are_written_and_the_verdict_counts(settings, code, folder):
    found = read_by_nobody("run", "doubling.py", *settings, "--json", "runs.json", "--html", "page.html")
    assert found[0] == code, found[1]
    assert "Traceback" not in found[1]
    (run,) = json.loads(Path("runs.json").read_text())["runs"]
    assert run["right"] is (code == 0)
    assert Path("page.html").exists()


def test_nobody_reads_errors_either(folder):
    assert read_by_nobody("check", ".", "--json", "cases.json", both=True)[0] == 0
    assert len(json.loads(Path("cases.json").read_text())["cases"]) == 1


def test_without_files_the_command_ends_there(folder):
    code, printed = read_by_nobody("run", "doubling.py")
    assert (code, printed.strip()) == (1, "")


def test_whatever_a_bench_writes_to_standard_output_leaves_the_document_alone(folder):
    """Python's own stream, the descriptor, C's stream (written when its buffer is full, or at the end), and others."""
    ways = "print('said')", "os.write(1, b'wrote')", "ctypes.CDLL(None).puts(b'put')", "os.system('echo echoed')"
    more = "sys.__stdout__.write('streamed')"
    Path("loud.py").write_text("import ctypes, os, sys\n" + "\n".join((*ways, more, BENCH)))
    words = [sys.executable, "-m", "kernbench", "run", "loud.py", "--json", "-"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["runs"][0]["safe"] is True
    assert all(word in done.stderr for word in ("said", "wrote", "put", "echoed", "streamed", "1 of 1 right and safe"))
