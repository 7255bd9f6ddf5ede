"""What is formal is shown as one note for each kernel, apart from what counts."""

from dataclasses import replace

import pytest

from kernbench.report import difference, formal_text, run_text
from kernbench.report.export.notebook import notebook_html
from kernbench.report.text.plain import plain_text
from kernbench.result import Finding, Run, SourceLocation, Status
from kernbench.result.finding import FAULT, FORMAL, Blame
from kernbench.result.launches import formal_by_kernel, joined
from kernbench.testing import assert_safe


def note(line, count=1):
    return Finding(
        "in-flight", f"copy {line}; kept", SourceLocation("k.cu", line, "k"), hint="wait", count=count, severity=FORMAL
    )


def launch(kernel, *formal, findings=()):
    return Run({}, list(findings), ("race",), Status.FINISHED, origin={"kernel": kernel}, formal=list(formal))


def test_launches_of_one_kernel_share_a_note():
    run = joined(launch("b"), [launch("a", note(1), note(2)), launch("a", note(1, 3)), launch("b", note(1))])
    assert [(kernel, [found.count for found in notes]) for kernel, notes in formal_by_kernel(run)] == [
        ("a", [4, 1]),
        ("b", [1]),
    ]
    text = plain_text(formal_text(run))
    assert text.count("breaks the rules, and changes no result") == 2
    assert "formal, in a:" in text
    assert "k.cu:1: in-flight: copy 1; kept (4 times)" in text


def test_a_fault_of_the_compiler_has_its_name_and_no_advice():
    compilers = replace(note(1), blame=Blame("compiler", "Maker 1.0", "2.0"))
    said = "a fault of the compiler (Maker 1.0), not of the program; 2.0 and later do not have it"
    for finding in (compilers, replace(compilers, severity=FAULT)):
        text = plain_text(run_text("k", launch("k", finding)))
        assert said in text
        assert "next: wait" not in text
    library = plain_text(run_text("k", launch("k", replace(note(1), blame=Blame("library", "fla")))))
    assert "in a kernel of a library (fla): its fault, or that of its arguments" in library
    assert "next: wait" in library


def test_it_stands_behind_what_counts():
    text = plain_text(
        run_text("k", launch("k", note(2), findings=[Finding("race", "two", SourceLocation("k.cu", 9, "k"))]))
    )
    assert text.index("two") < text.index("formal: breaks")


def test_a_notebook():
    assert "copy 1; kept" in notebook_html(launch("k", note(1)))
    assert "none (1 formal)" in notebook_html(launch("k", note(1)))
    assert "formal" not in notebook_html(launch("k"))


def test_a_comparison():
    held = difference(launch("k", note(1)), launch("k"))
    assert ("formal", "in-flight", "none") in held.answers
    assert held.warnings == ["only A has formal findings of kind in-flight"]
    assert "formal" not in [name for name, *_ in difference(launch("k"), launch("k")).answers]


def test_assertions():
    run = launch("k", note(1))
    assert_safe(run)
    assert_safe(run, strict=True, allow=("in-flight",))
    with pytest.raises(AssertionError, match="not safe: in-flight"):
        assert_safe(run, strict=True)
