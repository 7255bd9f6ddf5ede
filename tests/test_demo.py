"""The demo: its commands exist, its planted race is the one its comment explains, its exit code follows its parts."""

import importlib.util
import re
import sys
from pathlib import Path

import pytest
from tests.test_tutorials import problem
from typer.main import get_command
from typer.testing import CliRunner

from kernbench.cli import app

ROOT = Path(__file__).parent.parent
EXAMPLES = ROOT / "examples" / "ptx"


@pytest.fixture(scope="module")
def demo():
    spec = importlib.util.spec_from_file_location("demo", ROOT / "tools" / "demo.py")
    module = importlib.util.module_from_spec(spec)
    # a dataclass looks its module up
    sys.modules["demo"] = module
    spec.loader.exec_module(module)
    yield module
    del sys.modules["demo"]


def test_the_commands_of_the_demo_are_commands(demo):
    assert [problem(part.command, get_command(app)) for part in (demo.MESH, demo.NPU, demo.PTX)] == [""] * 3


def instructions(name):
    """The instructions of an example without its comments, and the kernel's name left out."""
    code = re.sub(r"//[^\n]*", "", (EXAMPLES / name).read_text())
    return [line.strip().replace("row_sum_race", "row_sum") for line in code.splitlines() if line.strip()]


def test_the_planted_race_is_one_barrier_before_its_loop():
    planted, good = instructions("row_sum_race.ptx"), instructions("row_sum.ptx")
    assert sorted(planted) == sorted(good)
    assert planted[planted.index("bar.sync 0;") + 1] == "HALVE:"
    assert good[good.index("HALVE:") + 1] == "bar.sync 0;"


def test_the_planted_race_is_found_at_its_line(demo, monkeypatch):
    monkeypatch.chdir(ROOT)
    command = demo.PTX.command.removeprefix("kernbench ").partition(" --html")[0]
    result = CliRunner().invoke(app, command.split(), env={"COLUMNS": "160"})
    assert result.exit_code == demo.PTX.expected
    loads = "ld.shared.f32 %f4, [%r10];"
    lines = (EXAMPLES / "row_sum_race.ptx").read_text().splitlines()
    assert f"row_sum_race.ptx:{1 + [line.strip() for line in lines].index(loads)}: race" in result.output
    assert result.output.count(": race") == 1


def test_the_demo_shows_its_parts_in_order_and_names_what_failed(demo, capfd):
    first, refused = demo.Part("first", "this"), demo.Part("second", "json.tool --nonsense")
    meant = demo.Part("third", "json.tool --nonsense", 2, "as it should be")
    assert demo.play([first, refused], meant) == ["json.tool --nonsense: exit code 2, not 0"]
    said = capfd.readouterr().out
    order = ["first\n$ this", "Beautiful is better", "second\n$ json.tool", "third\n$", "usage:", "as it should be"]
    assert [said.find(text) >= 0 for text in order] == [True] * len(order)
    assert sorted(order, key=said.find) == order


def test_a_planted_race_that_is_not_found_fails_the_demo(demo, capfd):
    silent = demo.Part("race", "this", demo.FOUND, "as it should be")
    assert demo.play([], silent) == ["this: exit code 0, not 1"]
    assert "as it should be" not in capfd.readouterr().out
