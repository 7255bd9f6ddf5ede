"""Counting launches that agree: what is identical, what is explained, and what is not."""

import json
import subprocess
from pathlib import Path
from types import SimpleNamespace

import pytest
from benchmarks.ptx_agreement import Counted, main

from benchmarks import ptx_agreement


def run(number, outcome, reason="", text=""):
    first = {"text": text} if text else None
    return {"number": number, "agreement": {"outcome": outcome, "reason": reason, "first": first}}


MOSTLY = [
    {"kernel": "softmax", "runs": [run(n, "identical") for n in range(97)]},
    {
        "kernel": "sum",
        "runs": [
            run(1, "order", "the order of threads shows at line 3, `red.global.add.f32 [%rd1], %f1;`: a sum of floats"),
            run(2, "rounding", "first difference: ...", "ex2.approx.ftz.f32 %f2, %f1;"),
            {"number": 3},
        ],
    },
]


def test_outcomes_are_counted_and_explained():
    counted = Counted()
    counted.add("a.py", MOSTLY)
    assert (counted.compared, counted.outcomes["identical"], len(counted.kernels)) == (99, 97, 2)
    assert counted.explained == {"a sum of floats": 1, "ex2.approx.ftz.f32": 1}
    assert counted.reached
    counted.add("b.py", [{"kernel": "other", "runs": [run(1, "different")]}])
    assert counted.unexplained == ["b.py: other, launch 1: different: no reason is known"]
    assert not counted.reached


def test_few_that_are_identical_miss_the_aim():
    counted = Counted()
    counted.add("a.py", [{"kernel": "k", "runs": [run(1, "identical"), run(2, "rounding", "", "fma.rn.f32 %f1;")]}])
    assert not counted.unexplained
    assert not counted.reached
    assert not Counted().reached


def test_programs_are_run_under_exec(monkeypatch, capsys, tmp_path):
    seen = []

    def pretended(command, **options):
        seen.append(command)
        if "broken.py" not in command:
            Path(command[command.index("--json") + 1]).write_text(json.dumps({"kernels": MOSTLY}))
        return SimpleNamespace(returncode=2, stderr=b"no GPU to run on")

    monkeypatch.setattr(ptx_agreement, "subprocess", SimpleNamespace(run=pretended, DEVNULL=0, PIPE=subprocess.PIPE))
    (tmp_path / "list").write_text("# mine\npython -m pytest test_it.py\n")
    assert main(["good.py", "--list", str(tmp_path / "list"), "--all-configs"]) == 0
    assert seen[0][-1] == "good.py"
    assert seen[1][-4:] == ["python", "-m", "pytest", "test_it.py"]
    assert {"--compare", "--all-configs", "--no-checks"} <= set(seen[0])
    assert "identical: 98.0 % (aim 95 %)" in capsys.readouterr().out
    assert main(["broken.py"]) == 2
    assert "broken.py: not run: no GPU to run on" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main([])
