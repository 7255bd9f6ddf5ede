"""`--first-wrong`: which value that a kernel names is the first to leave the golden."""

import json

import pytest
from typer.testing import CliRunner

from kernbench.cli import app
from kernbench.common.errors import BenchError

MESH = """

def intermediates(p, x):
    q, k = (x[name][:, 0].astype(np.float64).reshape(p.n_ranks, p.S, p.d) for name in ("q", "k"))

    def scores(rank, step):
        return Expected(q[rank] @ k[(rank - step) % p.n_ranks].T * p.d**-0.5, reduction=p.d)

    return {"s": scores, "l": lambda rank, step: np.exp(scores(rank, step).reference - 9).sum(1)}


bench = Bench("mine", "a ring", Parameters, inputs, golden, host, launch, intermediates=intermediates)
"""
NPU = """

def intermediates(p, x):
    q, k = (x[name].astype(np.float64) for name in ("q", "k"))
    return {"s": Expected(q @ k.transpose(0, 2, 1) * p.d**-0.5, reduction=p.d)}


bench = Bench("mine", "a tile", Parameters, inputs, golden, host, launch, intermediates=intermediates)
"""


@pytest.fixture
def command(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def run(*arguments, code=0):
        result = CliRunner().invoke(app, [str(a) for a in arguments], env={"COLUMNS": "160"})
        assert result.exit_code == code, result.output
        return result

    return run


def make(command, tmp_path, target, golden, *changes):
    command("new", target, "mine")
    file = tmp_path / "mine.py"
    text = file.read_text()
    for old, new in changes:
        assert old in text
        text = text.replace(old, new, 1)
    file.write_text(text + golden)


def after(line, more):
    return line, f"{line}{more}"


NAMED = after("* d**-0.5\n", '        tl.checkpoint("s", s, rank=tl.program_id(0), step=step)\n')
NAMED_TILE = after("core.tmuls(s_ub, s_ub, scale)\n", '    core.checkpoint("s", s_ub, at=(head, mine))\n')


def test_a_kernel_that_keeps_to_the_golden_is_told_so(command, tmp_path):
    make(command, tmp_path, "mesh", MESH, NAMED)
    shown = command("run", "mine.py", "--first-wrong").output
    assert "no intermediate leaves the golden (s 16 times)" in shown
    assert "never met: l" in shown


def test_a_checkpoint_is_no_command_and_takes_no_time(command, tmp_path):
    command("new", "mesh", "mine")
    command("run", "mine.py", "--json", "before.json")
    (tmp_path / "mine.py").unlink()
    make(command, tmp_path, "mesh", "", NAMED)
    command("run", "mine.py", "--json", "after.json")
    before, now = (json.loads((tmp_path / f"{n}.json").read_text())["runs"][0]["metrics"] for n in ("before", "after"))
    assert (before["commands"], before["time_ps"]) == (now["commands"], now["time_ps"])


def test_the_first_that_leaves_is_named_with_rank_line_and_element(command, tmp_path):
    wrong = (
        "if step < n_ranks - 1:\n",
        "if step < n_ranks - 1:\n            k = k * (1 + 0.5 * (tl.program_id(0) == 2))\n",
    )
    make(command, tmp_path, "mesh", MESH, NAMED, wrong)
    shown = command("run", "mine.py", "--first-wrong", "--json", "r.json", code=1).output
    assert "s is the first intermediate that leaves the golden" in shown
    (run,) = json.loads((tmp_path / "r.json").read_text())["runs"]
    found = run["views"]["first_wrong"]["wrong"]
    assert (found["name"], found["who"], found["keys"]) == ("s", "rank 3", {"rank": "3", "step": "1"})
    assert len(found["element"]) == 2
    assert found["where"]["text"].startswith("tl.checkpoint(")


def test_tiles_of_the_npu_are_parts_of_an_array(command, tmp_path):
    make(command, tmp_path, "npu", NPU, NAMED_TILE)
    assert "(s 16 times)" in command("run", "mine.py", "--first-wrong").output


def test_a_wrong_tile_is_told_with_its_core(command, tmp_path):
    make(
        command, tmp_path, "npu", NPU, NAMED_TILE, ("tmuls(s_ub, s_ub, scale)", "tmuls(s_ub, s_ub, scale + head // 5)")
    )
    shown = command("run", "mine.py", "--first-wrong", code=1).output
    assert "aiv0 of task 1 (softmax), block 5, at=(5, slice(0, 8, None))" in shown
    assert "right before it: s 10 times" in shown


@pytest.mark.parametrize(
    ("call", "told"),
    [
        ('tl.checkpoint("t", s)', "unknown intermediate 't'"),
        ('tl.checkpoint("s", s, at=(0,))', "could not be had"),
        ('tl.checkpoint("s", 3)', "checkpoint needs a tensor handle"),
    ],
)
def test_mistakes_are_findings_at_the_line(command, tmp_path, call, told):
    make(command, tmp_path, "mesh", MESH, after("* d**-0.5\n", f"        {call}\n"))
    assert told in command("run", "mine.py", "--first-wrong", code=1).output


def test_what_cannot_be_asked_is_refused(command, tmp_path):
    command("new", "mesh", "mine")
    refused = command("run", "mine.py", "--first-wrong", code=1).exception
    assert isinstance(refused, BenchError)
    assert "has no intermediates" in str(refused)
    refused = command("run", "mine.py", "--first-wrong", "--shapes-only", code=1).exception
    assert "--shapes-only" in str(refused)
