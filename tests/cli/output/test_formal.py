"""Formal findings reach every way a result is shown, as a note beside it, and count where --strict is given."""

import json
from pathlib import Path
from xml.etree import ElementTree

import pytest
from typer.testing import CliRunner

from kernbench.cli import app

# the second warp goes round the barrier
KERNEL = """.version 8.0
.target sm_90
.address_size 64
.visible .entry round(.param .u64 out)
{
  .reg .pred %p;
  .reg .b32 %r<2>;
  .reg .b64 %rd<3>;
  ld.param.u64 %rd1, [out];
  mov.u32 %r0, %tid.x;
  setp.ge.u32 %p, %r0, 32;
  @%p bra DONE;
  bar.sync 0;
DONE:
  mul.wide.u32 %rd2, %r0, 4;
  add.u64 %rd2, %rd2, %rd1;
  st.global.u32 [%rd2], %r0;
  ret;
}
"""
BENCH = f'''
from dataclasses import dataclass

import numpy as np

from kernbench import ptx
from kernbench.bench import Bench, Expected, param

KERNEL = """{KERNEL}"""


@dataclass(frozen=True)
class Parameters:
    launches: int = param(1, "how often it is launched", low=1)


def launch(p, x, *, torch):
    out = torch.empty((64,), "u32", "out")
    for _ in range(p.launches):
        run = torch.launch(ptx.parse(KERNEL).kernels["round"], 1, 64, [out], outputs=[out])
    return run


bench = Bench(
    "round", "numbers", Parameters, lambda p, rng: {{}}, lambda p, x: {{"out": Expected(np.arange(64))}},
    lambda p, machine: ptx.Host("emulator", "sm_90a"), launch,
)
'''
NOTE = "formal: breaks the rules, and changes no result"


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("round.py").write_text(BENCH)
    Path("round.ptx").write_text(KERNEL)
    Path("round.toml").write_text('grid = [1]\nblock = [64]\n[args.out]\ndtype = "u32"\nshape = [64]\nfill = "empty"\n')
    return tmp_path


def kernbench(*words):
    return CliRunner().invoke(app, words)


COMMANDS = (
    ("run", "round.py"),
    ("run", "round.py", "--set", "launches=3"),
    ("check", "round.py", "--jobs", "1"),
    ("ptx", "run", "round.ptx", "--launch", "round.toml"),
    ("ptx", "check", "round.ptx", "--launch", "round.toml"),
)


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_one_note_and_no_fault_unless_strict(folder, words):
    calm = kernbench(*words)
    assert calm.exit_code == 0, calm.output
    assert calm.output.count(NOTE) == 1
    assert "a barrier go on when the warps that did not come have ended" in calm.output
    strict = kernbench(*words, "--strict")
    assert strict.exit_code == 1, strict.output
    assert NOTE not in strict.output
    assert "divergent-barrier" in strict.output


def test_stopping_at_a_finding(folder):
    words = ("ptx", "run", "round.ptx", "--launch", "round.toml", "--stop-at", "finding")
    assert "the run has no findings" in str(kernbench(*words).exception)
    strict = kernbench(*words, "--strict")
    assert strict.exit_code == 1
    assert "divergent-barrier" in strict.output


def test_an_artefact(folder):
    Path("cache").mkdir()
    Path("cache/round.ptx").write_text(KERNEL)
    Path("cache/round.json").write_text(json.dumps({"name": "round", "num_warps": 2, "shared": 0, "target": {}}))
    words = ("ptx", "launch", "cache", "--launch", "round.toml")
    assert kernbench(*words).exit_code == 0
    strict = kernbench(*words, "--strict")
    assert strict.exit_code == 1, strict.output


def test_saved_runs(folder):
    assert kernbench("run", "round.py", "--json", "one.json", "--html", "one.html").exit_code == 0
    (run,) = json.loads(Path("one.json").read_text())["runs"]
    assert [found["severity"] for found in run["formal"]] == ["formal"]
    assert run["findings"] == []
    assert '"formal_notes":[{"kernel":"round"' in Path("one.html").read_text()
    shown = kernbench("report", "one.json", "--html", "two.html", "--json", "report.json")
    assert shown.exit_code == 0
    assert shown.output.count(NOTE) == 1
    assert "none (1 formal)" in shown.output
    assert '"formal_notes":[{"kernel":"round"' in Path("two.html").read_text()
    assert [len(row["formal"]) for row in json.loads(Path("report.json").read_text())["shown"]] == [1]


def test_compared_runs(folder):
    assert kernbench("run", "round.py", "--json", "one.json").exit_code == 0
    Path("round.py").write_text(BENCH.replace("  @%p bra DONE;\n", ""))
    assert kernbench("run", "round.py", "--json", "two.json").exit_code == 0
    told = kernbench("compare", "one.json", "two.json").output
    assert "only one has formal findings of kind divergent-barrier" in told
    assert "formal" in told


def test_junit(folder):
    assert kernbench("check", "round.py", "--junit", "junit.xml").exit_code == 0
    suite = ElementTree.parse("junit.xml").getroot()[0]
    assert (suite.get("failures"), suite.get("errors")) == ("0", "0")
    assert NOTE in suite.find("testcase/system-out").text
    assert kernbench("check", "round.py", "--junit", "junit.xml", "--strict").exit_code == 1
    assert ElementTree.parse("junit.xml").getroot()[0].get("failures") == "1"


def test_a_baseline_acknowledges_it(folder):
    words = ("run", "round.py", "--strict", "--write-baseline", "known.toml", "--reason", "the warps have ended")
    assert kernbench(*words).exit_code == 1
    strict = kernbench("run", "round.py", "--strict", "--baseline", "known.toml")
    assert strict.exit_code == 0, strict.output
    calm = kernbench("run", "round.py", "--baseline", "known.toml")
    assert calm.exit_code == 0
    assert NOTE not in calm.output
    assert "is acknowledged (baseline): the warps have ended" in calm.output
