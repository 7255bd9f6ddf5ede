"""One cause is one finding, whatever compilers made of its line; it names its launch and its test."""

import json
import unittest
from dataclasses import replace
from pathlib import Path

import pytest
from rich.table import Table
from tests.ptx.doors.kernels import ADD_ONE, word

from kernbench.cli.output.console import errors, results
from kernbench.ptx.doors.causes import Cause, causes_of, describe, key_of, summary_of
from kernbench.ptx.doors.options import Options
from kernbench.ptx.doors.summary import read_session
from kernbench.ptx.doors.terms.running import running_test
from kernbench.ptx.emulator.program.locations import library_of
from kernbench.ptx.front.commands import verdict
from kernbench.ptx.front.ending import Ended
from kernbench.result.finding import FORMAL, Blame, Finding, Other, SourceLocation, location_dict

LINE = SourceLocation("/src/k.cu", 5)


def compiled(file, register):
    """Both accesses are of one line of a source, in a text as one of several compilations writes it."""
    file.write_text("\n" * 9)
    moved = "" if register == "%r6" else f"    .reg .b32 {register};\n"
    lined = ADD_ONE.replace(".visible", f'.file 1 "{file}"\n.visible').replace(
        "    ld.global.u32 %r6", f"{moved}    .loc 1 5 0\n    ld.global.u32 %r6"
    )
    return lined.replace("%r6", register)


def launch(session, text, n=65, site=None):
    x, y = session.memory.allocate(256, "x", written=True), session.memory.allocate(256, "y")
    kernel = session.load(text).kernel("add_one")
    return session.launch(kernel, 2, 64, [word(x), word(y), word(n, 4)], site=site)


def record(number=1, test="", findings=(), formal=(), title="k", **more):
    """A launch, as a session records it."""
    return {
        "event": "launch", "process": 1, "number": number, "title": title, "kernel": title, "treatment": "checked",
        "status": "finished", "site": location_dict(SourceLocation("t.py", number)), "grid": [1], "block": [1],
        "seconds": 0.0, "thread_instructions": 1, "checked": ["race"], "details": {}, "error": "", "test": test,
        "findings": [one.to_dict() for one in findings], "formal": [one.to_dict() for one in formal], **more,
    }  # fmt: skip


def test_what_is_compiled_in_two_ways_has_one_cause(session_of, tmp_path, request):
    session = session_of(folder=tmp_path)
    for number, register in enumerate(("%r6", "%s1", "%r6"), 1):
        text = compiled(tmp_path / "k.cu", register)
        assert len(launch(session, text, site=SourceLocation("main.py", number)).findings) == 2
    summary = read_session(tmp_path)
    (kernel,) = summary.kernels
    # one array is read and the other one written: two causes
    assert summary.headline == "2 findings"
    assert [("reads" in one.message, one.count) for one in kernel.findings] == [(True, 3), (False, 3)]
    assert [[launched["number"] for launched in cause.launches] for cause in kernel.causes] == [[1, 2, 3]] * 2
    first = kernel.causes[0].to_dict()
    assert first["launches"][1]["site"]["line"] == 2
    assert first["tests"] == [request.node.nodeid]
    *_, launched = kernel.causes[0].at_launch.others
    assert launched.role == f"launched (launch 1 and 2 more) in {request.node.nodeid}"
    assert str(launched.where) == "main.py:1"
    # a test of pytest is told of each cause once
    assert summary_of(session.launches) == "out-of-bounds at k.cu:5 and 1 more"
    words = describe(session.launches)
    assert words.count("out-of-bounds") == 2
    assert [f"launch {number} launched at main.py:{number}" in words for number in (1, 2, 3)] == [True] * 3
    assert words.count("  2 as in launch 1") == 2
    # pages have it, too, for all launches and for each
    run = kernel.run("sm_90a")
    assert run.findings[0].others[-1] == launched
    assert run.launches[2].findings[0].others[-1].role == f"launched (launch 3) in {request.node.nodeid}"


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("reads 4 bytes at 0x10, offset 4 of 'x', of 4 bytes", "reads 2 bytes at 0x90, offset 8 of 'x'", True),
        ("reads 4 bytes at 0x10, offset 4 of 'x'", "reads 4 bytes at 0x10, offset 4 of 'y'", False),
        ("reads 4 bytes of 'x'", "writes 4 bytes of 'x'", False),
    ],
)
def test_a_cause_is_of_arrays_and_a_direction(one, other, same):
    found = [Finding("out-of-bounds", f"`ld {text}`: thread {text}", LINE) for text in (one, other)]
    assert (key_of(found[0]) == key_of(found[1])) == same


def test_causes_differ_where_another_line_or_statement_is_involved():
    at = [Other("the other access", SourceLocation("/src/k.cu", line)) for line in (7, 8)]
    in_ptx = [Other("in PTX", SourceLocation("<ptx k>", line)) for line in (70, 80)]
    assert key_of(Finding("race", "m", LINE, (at[0],))) != key_of(Finding("race", "m", LINE, (at[1],)))
    assert key_of(Finding("race", "m", LINE, (in_ptx[0],))) == key_of(Finding("race", "m", LINE, (in_ptx[1],)))
    twice, none = "`mbarrier.init [%r1]` (PTX line 8): initialised twice", "`mbarrier.init [%r2]`: never initialised"
    assert key_of(Finding("mbarrier-misuse", twice, LINE)) != key_of(Finding("mbarrier-misuse", none, LINE))
    # at lines of PTX nothing is known but the instruction
    where = SourceLocation("<ptx k>", 8)
    assert key_of(Finding("race", "`st a`: x", where)) != key_of(Finding("race", "`st b`: x", where))


def test_which_threads_of_another_line_are_involved_makes_no_cause():
    roles = [f"the other access, by thread ({n}, 0, 0) of block ({n}, 0, 0)" for n in (0, 96)]
    found = [Finding("race", "m", LINE, (Other(role, SourceLocation("/src/k.cu", 7)),)) for role in roles]
    assert key_of(found[0]) == key_of(found[1])


def test_a_line_that_two_kernels_have_is_one_finding(tmp_path, capsys):
    found = Finding("race", "two writes of 'x'", LINE)
    in_ptx = Finding("race", "`st.global [a]`: two", SourceLocation("<ptx k>", 8))
    records = [record(n, findings=[found, in_ptx], title=title, content=title) for n, title in ((1, "one"), (2, "two"))]
    summary = read_session(tmp_path, records)
    assert summary.headline == "3 findings"
    assert [len(kernel.findings) for kernel in summary.kernels] == [2, 2]
    verdict.show_verdict(summary, Options(), Ended(0), nothing_ran=False)
    said = capsys.readouterr().err
    assert said.count("/src/k.cu:5: race") == 1
    assert "in 2 kernels: one, two" in said


def test_formal_findings_of_a_library_are_a_line_for_each_kind_before_what_counts(tmp_path, capsys):
    def formal(file, line, kind="race"):
        return Finding(kind, f"{kind} of line {line}", SourceLocation(file, line), severity=FORMAL)

    inside = "/usr/lib/python3/dist-packages/flash/k.py"
    notes = [*(formal(inside, line) for line in range(1, 10)), formal(inside, 10, "in-flight"), formal("/src/k.cu", 3)]
    summary = read_session(tmp_path, [record(findings=[Finding("race", "a fault", LINE)], formal=notes)])
    verdict.show_verdict(summary, Options(), Ended(0), nothing_ran=False)
    said = capsys.readouterr().err
    assert "formal, in flash: breaks the rules" in said
    assert said.count(inside) == 2
    assert f"{inside}:1: race: race of line 1 (9 findings at 9 lines, of which this is the first)" in said
    assert "/src/k.cu:3: race: race of line 3" in said
    assert said.rindex("formal, in") < said.index("a fault") < said.index("1 finding")


def test_a_fault_of_the_compiler_is_named_as_such(tmp_path, capsys, session_of):
    session = session_of()
    launch(session, ADD_ONE)
    (bad,) = session.launches
    blame = Blame("compiler", "Maker 1.0", "2.0")
    bad.run.findings = [replace(finding, blame=blame) for finding in bad.findings]
    words = describe([bad])
    assert words.count(str(blame)) == len(bad.findings)
    assert "try:" not in words
    # also in a library, whose kernel it made, and in the table
    inside = SourceLocation("/usr/lib/python3/dist-packages/flash/k.py", 3)
    formal = Finding("missing-fence", "no fence", inside, severity=FORMAL, blame=blame)
    summary = read_session(tmp_path, [record(findings=bad.findings[:1], formal=[formal])])
    verdict.show_verdict(summary, Options(), Ended(0), nothing_ran=False)
    said = capsys.readouterr().err
    assert said.count(str(blame)) == 2
    assert summary.kernels[0].verdict == "out-of-bounds (compiler)"


def test_a_launch_that_was_refused_or_did_not_end_is_named_by_its_line_and_test(tmp_path):
    refused = record(1, "a", treatment="refused", status="refused", error="too many")
    begun = {**record(2, "b"), "event": "begin"}
    (kernel,) = read_session(tmp_path, [refused, begun]).kernels
    assert kernel.errors == [
        "launch 1 (at t.py:1, in a): refused: too many",
        "launch 2 (at t.py:2, in b): the process ended in it",
    ]


def test_libraries_have_names():
    assert [library_of(file) for file in (
        "/x/site-packages/triton/language/standard.py", "/x/cutlass/include/cute/layout.hpp", "/src/k.cu",
        "/usr/local/cuda-13.0/include/cuda_fp16.hpp", "/usr/include/math.h",
    )] == ["triton", "cute", "", "the CUDA toolkit", "the system's headers"]  # fmt: skip


def test_the_running_test_is_known(monkeypatch, request):
    assert running_test() == request.node.nodeid
    monkeypatch.delenv("PYTEST_CURRENT_TEST")
    assert running_test() == ""
    seen = []

    class Case(unittest.TestCase):
        def test_it(self):
            seen.append(running_test())

    Case("test_it").run()
    assert [name.rpartition(".")[2] for name in seen] == ["test_it"]


def test_a_comparison_is_about_what_was_launched_before_it_in_its_test(tmp_path):
    def compared(test, launches, right=True):
        site = location_dict(SourceLocation("t.py", 9))
        return {"event": "compared", "process": 1, "right": right, "test": test, "launches": launches, "site": site}

    records = [
        record(1, "a", title="one"), compared("a", 1), record(2, "a", title="two"), record(3, "b", title="three"),
        compared("b", 3, right=False), compared("c", 3),
    ]  # fmt: skip
    one, two, three = read_session(tmp_path, records).kernels
    assert [(kernel.compared, kernel.wrong) for kernel in (one, two, three)] == [(1, []), (0, []), (1, ["t.py:9"])]
    assert [kernel.run("sm_90a").right for kernel in (one, two, three)] == [True, None, False]


def test_the_document_says_what_is_found_where_and_in_which_test():
    documented = (Path(__file__).parents[3] / "docs" / "json.md").read_text()
    (cause,) = causes_of([record(test="t", findings=[Finding("race", "m", LINE)])], "findings")
    keys = {*cause.to_dict(), *cause.to_dict()["launches"][0], "test"}
    assert sorted(key for key in keys if f"`{key}`" not in documented) == []
    assert json.loads(json.dumps(cause.to_dict()))["launches"][0]["test"] == "t"
    assert Cause(cause.finding, []).at_launch is cause.finding


@pytest.mark.parametrize("console", [errors, results])
def test_tables_are_as_wide_as_their_names_where_there_is_no_terminal(console, capsys, monkeypatch):
    monkeypatch.delenv("COLUMNS", raising=False)
    table = Table()
    table.add_column("kernel", overflow="fold")
    table.add_row("k" * 400)
    console().print(table)
    assert "k" * 400 in "".join(capsys.readouterr())
