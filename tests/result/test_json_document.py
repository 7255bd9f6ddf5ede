"""The document of the JSON form, against what real runs write."""

import json
import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from kernbench.cli import app
from kernbench.result.run import SCHEMA, Status

TEXT = (Path(__file__).parents[2] / "docs" / "json.md").read_text()


def words(text):
    return set(re.findall(r"`(\w+)`", text))


def section(start, end):
    return TEXT[TEXT.index(start) : TEXT.index(end, TEXT.index(start))]


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """A good run and one with a finding and a wrong output, of two targets, as they are written."""
    folder = tmp_path_factory.mktemp("json")
    found = []
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        for target, old, new in (("mesh", "o * shrink", "o"), ("npu", "core.wait_flag(MTE2, V, 0)", "")):
            for name, change in ((f"{target}_good", ("", "")), (f"{target}_bad", (old, new))):
                CliRunner().invoke(app, ["new", target, name])
                file = folder / f"{name}.py"
                file.write_text(file.read_text().replace(*change))
                CliRunner().invoke(app, ["run", file.name, "--json", f"{name}.json"])
                found.append(json.loads((folder / f"{name}.json").read_text()))
    return found


def test_a_file_of_runs_has_the_keys_of_the_document(runs):
    rows = section("## A run", "A finding has").split("|---|---|")[1]
    keys = {key for row in rows.strip().splitlines() for key in words(row.split("|")[1])}
    for file in runs:
        assert set(file) == {"schema", "command", "bench", "runs"}
        assert [set(run) for run in file["runs"]] == [keys]


def test_the_version_and_the_words_for_the_end_are_those_of_the_document(runs):
    assert re.search(rf"`schema`[^\n]*\b{SCHEMA}\b", TEXT)
    assert {run["schema"] for file in runs for run in file["runs"]} == {SCHEMA}
    assert [str(status) for status in Status if f'"{status}"' not in TEXT] == []


def test_findings_comparisons_and_timelines_have_the_keys_of_the_document(runs):
    every = [run for file in runs for run in file["runs"]]
    findings = [finding for run in every for finding in run["findings"]]
    place, finding = (
        words(section("or has `file`", "\n")),
        words(section("A finding has", "A source location")) - {"role"},
    )
    assert findings
    assert all(set(one) == finding for one in findings)
    assert all(set(one["where"]) == place for one in findings)
    compared = [one for run in every for one in run["comparison"]]
    ranks = words(section("Each of `ranks` has", "\n")) - {"ranks"}
    keys = words(section("A comparison has", "Each of")) - {"shape", "block", "values"}
    assert {one["passed"] for one in compared} == {True, False}
    assert all(set(one) == keys for one in compared)
    assert all(set(rank) == ranks for one in compared for rank in one["ranks"])
    timelines = [run["timeline"] for run in every if run["timeline"] is not None]
    assert timelines
    assert all(set(line) <= words(TEXT[TEXT.index("## A timeline") :]) for line in timelines)
