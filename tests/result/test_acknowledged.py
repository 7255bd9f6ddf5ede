"""Acknowledged findings: by their source, by a baseline, and back when their cause changes."""

import linecache

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernbench.common.errors import MisuseError
from kernbench.result.acknowledged import (
    Entry,
    acknowledge,
    fingerprint,
    mark_for,
    read_baseline,
    unmet,
    write_baseline,
)
from kernbench.result.finding import Finding, Other, SourceLocation
from kernbench.result.run import Run, Status

CODE = """def kernel(tl):
    tl.store(a)
    tl.load(a)
"""


def run_of(*findings, status=Status.FINISHED):
    return Run({}, list(findings), ("race",), status)


@pytest.fixture
def source(tmp_path):
    file = tmp_path / "kernel.py"

    def write(text):
        file.write_text(text)
        linecache.checkcache(str(file))
        lines = text.splitlines()
        numbers = {name: next(n for n, line in enumerate(lines, 1) if name in line) for name in ("tl.store", "tl.load")}
        store, load = (SourceLocation(str(file), numbers[name], "kernel") for name in ("tl.store", "tl.load"))
        return Finding("race", "two accesses", load, (Other("the other", store),))

    return write


def test_a_mark_at_the_line(source):
    finding = source(CODE)
    marked = CODE.replace("tl.load(a)", f"tl.load(a)  # {mark_for(finding)} it is checked again")
    run = run_of(source(marked))
    acknowledge(run)
    assert run.safe
    (row,) = run.views["acknowledged"]
    assert (row["by"], row["reason"], row["finding"]["kind"]) == ("source", "it is checked again", "race")


def test_a_mark_above_the_line_and_other_lines_may_move(source):
    finding = source(CODE)
    mark = f"    # {mark_for(finding)} known\n    tl.load(a)"
    run = run_of(source("\n\n" + CODE.replace("    tl.load(a)", mark)))
    acknowledge(run)
    assert run.safe


@pytest.mark.parametrize(("old", "new"), [("tl.load(a)  #", "tl.load(a + 1)  #"), ("tl.store(a)", "tl.store(a, 2)")])
def test_it_comes_back_when_its_cause_changes(source, old, new):
    finding = source(CODE)
    marked = CODE.replace("tl.load(a)", f"tl.load(a)  # {mark_for(finding)} known")
    run = run_of(source(marked.replace(old, new)))
    acknowledge(run)
    (left,) = run.findings
    assert "its cause has changed" in left.message
    assert not run.safe


@pytest.mark.parametrize(
    ("comment", "words"),
    [
        ("kernbench: allow race", "the comment must read: kernbench: allow race"),
        ("kernbench: allow race {print}", "without a reason"),
        ("kernbench: allow deadlock {print} known", ""),
    ],
)
def test_marks_that_do_not_count(source, comment, words):
    finding = source(CODE)
    text = comment.format(print=fingerprint(finding))
    run = run_of(source(CODE.replace("tl.load(a)", f"tl.load(a)  # {text}")))
    acknowledge(run)
    assert len(run.findings) == 1
    assert words in run.findings[0].message


def test_a_baseline(source, tmp_path):
    finding, file = source(CODE), tmp_path / "known.toml"
    assert write_baseline(file, [finding, finding], 'odd "quotes" and \\ slashes') == 1
    entries = read_baseline(file)
    run = run_of(finding)
    acknowledge(run, entries)
    assert run.safe
    assert run.views["acknowledged"][0]["reason"] == 'odd "quotes" and \\ slashes'
    assert unmet([run], entries) == []
    changed = run_of(source(CODE.replace("store(a)", "store(b)")))
    acknowledge(changed, entries)
    assert not changed.safe
    assert unmet([changed], entries) == entries


def test_a_run_that_did_not_finish_stays_unsafe(source):
    finding = source(CODE)
    run = run_of(finding, status=Status.DEADLOCKED)
    acknowledge(run, [Entry("race", fingerprint(finding), "known")])
    assert run.findings == []
    assert run.safe is False


@given(st.text(), st.text())
def test_any_text_survives_the_file(tmp_path_factory, reason, text):
    file = tmp_path_factory.mktemp("baseline") / "known.toml"
    location = SourceLocation("k.py", 1, "", said=text)
    reason = f"why {reason}"
    write_baseline(file, [Finding("race", "m", location)], reason)
    assert [e.reason for e in read_baseline(file)] == [reason]


def test_an_editor_may_begin_the_file_with_a_mark_of_its_own(tmp_path):
    file = tmp_path / "known.toml"
    file.write_text("[[finding]]\nkind = 'race'\nfingerprint = '00000000'\nreason = 'why'\n", encoding="utf-8-sig")
    assert [entry.kind for entry in read_baseline(file)] == ["race"]


@pytest.mark.parametrize(
    "text",
    [
        "finding = 3",
        "other = 1",
        "[[finding]]\nkind = 'race'",
        "[[finding]]\nkind = 1",
        "not toml",
        f"finding = {'1' * 5000}",
        "[[finding]]\nx = 'y'",
    ],
)
def test_strange_baselines(tmp_path, text):
    file = tmp_path / "known.toml"
    file.write_text(text)
    with pytest.raises(MisuseError, match=r"known\.toml"):
        read_baseline(file)
