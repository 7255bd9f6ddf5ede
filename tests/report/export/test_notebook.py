"""A run in a notebook."""

import json
import re
from html import unescape

import pytest

from kernbench.bench import load_file, run_bench
from kernbench.bench.discovery.new import write_new


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return run_bench(load_file(write_new("mesh", "mine", tmp_path_factory.mktemp("b"))), timed=True)


def test_a_timed_run_has_a_table_a_picture_and_its_page(run):
    shown = run._repr_html_()
    assert "<caption>mine</caption>" in shown
    assert ">yes</td>" in shown
    # what needs no script comes first, and is drawn in the notebook's own colours
    plain = shown[: shown.index("<details>")]
    assert "<svg" in plain
    assert "<script" not in plain
    assert "background:#fff" not in plain
    (page,) = re.findall(r'srcdoc="([^"]*)"', shown)
    assert unescape(page).startswith("<!doctype html>")
    assert "sandbox=" in shown


def test_findings_are_told_and_strange_names_are_no_markup(tmp_path):
    file = write_new("mesh", "mine", tmp_path)
    file.write_text(file.read_text().replace("attention over", "<script>alert(1)</script>").replace("src=v)", "src=q)"))
    run = run_bench(load_file(file), None, {"machine.ipcq.depth": 1})
    run.origin["bench"] = "<script>alert(2)</script>"
    shown = run._repr_html_()
    assert "deadlock" in shown
    assert "<script>" not in shown
    assert "<iframe" not in shown


def test_a_run_without_anything_shows_too(run):
    json.dumps(run._repr_html_())
    run = type(run)({}, [], (), run.status)
    assert "not asked" in run._repr_html_()
