"""kernbench run --html, report and compare: files in, pages and tables out, and misuse told in a sentence."""

import json
import re
import shlex
import shutil
from pathlib import Path

import pytest
from tests.ptx.front.test_commands import SAXPY
from tests.report.samples import sample, unsafe
from typer.testing import CliRunner

from kernbench.cli import app
from kernbench.common.errors import MisuseError
from kernbench.result.run import write_json

SMALL = ["context=24", "d_head=16", "h_q=4", "h_kv=2", "lengths=", "n_ranks=2"]


def kernbench(*arguments):
    return CliRunner().invoke(app, [str(a) for a in arguments], env={"COLUMNS": "200"})


def misuse(*arguments):
    done = kernbench(*arguments)
    assert isinstance(done.exception, MisuseError), done.output
    return str(done.exception)


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """Two algorithms of a panel as files, and the page of the first."""
    folder = tmp_path_factory.mktemp("runs")
    panel = ["run", "milestone_gqa_llama70b", "-p", "single_user_prefill"]
    small = [word for setting in SMALL for word in ("--set", setting)]
    done = kernbench(*panel, *small, "--json", folder / "before.json", "--html", folder / "before.html")
    assert done.exit_code == 0, done.output
    done = kernbench(*panel, *small, "--set", "algorithm=ring_kv", "--json", folder / "after.json")
    assert done.exit_code == 0, done.output
    return folder


def test_a_run_writes_its_page(saved):
    page = (saved / "before.html").read_text()
    assert page.startswith("<!doctype html>")
    assert "single_user_prefill" in page


def test_a_saved_run_gives_the_same_page(saved, tmp_path):
    done = kernbench("report", saved / "before.json", "--html", tmp_path / "page.html")
    assert done.exit_code == 0, done.output
    assert "single_user_prefill" in done.output
    assert (tmp_path / "page.html").read_text() == (saved / "before.html").read_text()


def test_the_page_lies_beside_its_file(saved, tmp_path):
    shutil.copy(saved / "after.json", tmp_path / "mine.json")
    assert kernbench("report", tmp_path / "mine.json").exit_code == 0
    assert (tmp_path / "mine.html").exists()


def test_several_files_are_one_page(saved, tmp_path):
    done = kernbench("report", saved / "before.json", saved / "after.json", "--html", tmp_path / "page.html")
    assert done.exit_code == 0, done.output
    page = (tmp_path / "page.html").read_text()
    assert '<a href="#panel-1">after: single_user_prefill</a>' in page


def test_compare_two_files(saved, tmp_path):
    done = kernbench(
        "compare",
        saved / "before.json",
        saved / "after.json",
        "--html",
        tmp_path / "p.html",
        "--json",
        tmp_path / "c.json",
    )
    assert done.exit_code == 0, done.output
    assert "parameters.algorithm" in done.output
    assert "mesh_kv" in done.output
    assert "ring_kv" in done.output
    (held,) = json.loads((tmp_path / "c.json").read_text())["comparisons"]
    assert held["names"] == ["before", "after"]
    assert held["title"] == "single_user_prefill"
    assert "ring_kv" in (tmp_path / "p.html").read_text()


def runs_file(path, *names):
    runs = [sample(origin={"panel": name, "bench": "b"}).to_dict() for name in names]
    write_json(path, {"bench": "b", "runs": runs})
    return path


def test_the_commands_of_the_guide_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "out").mkdir()
    text = (Path(__file__).parents[3] / "docs" / "report.md").read_text()
    lines = re.findall(r"^\$ kernbench (.*)$", text, re.MULTILINE)
    assert len(lines) == 9
    small = [word for setting in SMALL for word in ("--set", setting)]
    for line in lines:
        words = shlex.split(line, comments=True)
        done = kernbench(*words, *(small if words[0] == "run" else []))
        assert done.exit_code == 0, f"{line}: {done.output} {done.exception}"
    pages = ("milestone.html", "decode.html", "page.html", "compare.html", "all.html")
    assert all((tmp_path / "out" / name).stat().st_size > 100_000 for name in pages)


def test_a_ptx_file_gives_a_page_as_well(tmp_path):
    (tmp_path / "saxpy.ptx").write_text(SAXPY)
    done = kernbench("ptx", "run", tmp_path / "saxpy.ptx", "--html", tmp_path / "a.html", "--json", tmp_path / "r.json")
    assert done.exit_code == 0, done.output
    assert kernbench("ptx", "check", tmp_path / "saxpy.ptx", "--html", tmp_path / "b.html").exit_code == 0
    assert kernbench("report", tmp_path / "r.json").exit_code == 0
    for name in ("a", "b", "r"):
        assert "<title>saxpy</title>" in (tmp_path / f"{name}.html").read_text()


def test_files_with_several_runs_are_compared_by_name(tmp_path):
    a, b = runs_file(tmp_path / "a.json", "p", "q", "r"), runs_file(tmp_path / "b.json", "q", "p", "s")
    done = kernbench("compare", a, b, "--json", tmp_path / "c.json")
    held = json.loads((tmp_path / "c.json").read_text())["comparisons"]
    assert done.exit_code == 0
    assert [(one["title"], *one["names"]) for one in held] == [("p", "a", "b"), ("q", "a", "b")]


def test_two_runs_of_one_file(tmp_path):
    a = runs_file(tmp_path / "a.json", "p", "q", "r")
    assert kernbench("compare", a, "--run-a", "p", "--run-b", "r").exit_code == 0
    assert kernbench("compare", runs_file(tmp_path / "two.json", "p", "q")).exit_code == 0
    assert "holds 'p', 'q', 'r': name a second file, or choose two" in misuse("compare", a)
    assert "--run-b: 'p', 'q', 'r'" in misuse("compare", a, "--run-a", "p")
    assert "unknown run of" in misuse("compare", a, "--run-a", "p", "--run-b", "x")
    assert "both name p" in misuse("compare", a, "--run-a", "p", "--run-b", "p")


def test_files_without_a_run_in_common(tmp_path):
    a, b = runs_file(tmp_path / "a.json", "p", "q"), runs_file(tmp_path / "b.json", "s", "t")
    assert "no run is in both files" in misuse("compare", a, b)


def test_unsafe_runs_are_reported_and_compared(tmp_path):
    unsafe().save(tmp_path / "bad.json")
    sample().save(tmp_path / "good.json")
    assert kernbench("report", tmp_path / "bad.json").exit_code == 0
    done = kernbench("compare", tmp_path / "good.json", tmp_path / "bad.json")
    assert "no speed is compared" in done.output


def test_files_that_cannot_be(tmp_path):
    (tmp_path / "old.json").write_text('{"bench": "b", "runs": [{"schema": 1}]}')
    assert "written by an older kernbench: schema 1" in misuse("report", tmp_path / "old.json")
    assert "written by an older kernbench: schema 1" in misuse("compare", tmp_path / "old.json", tmp_path / "old.json")
    assert "cannot be read" in misuse("report", tmp_path / "none.json")
    sample().save(tmp_path / "good.json")
    assert "is a file to read from" in misuse("report", tmp_path / "good.json", "--html", tmp_path / "good.json")
    assert "is a file to read from" in misuse("compare", tmp_path / "good.json", "--html", tmp_path / "good.json")
    assert "there is no folder" in misuse("report", tmp_path / "good.json", "--html", tmp_path / "no" / "page.html")
    both = ["--json", tmp_path / "x", "--html", tmp_path / "x"]
    assert "--json and --html both name" in misuse("run", "milestone_gqa_llama70b", *both)
