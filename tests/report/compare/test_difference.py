"""Two runs beside each other: what changed, in words and tables, and when no speed is compared."""

import json
from dataclasses import replace

from rich.console import Console
from tests.report.samples import HERE, SITES, metrics, sample, timeline, unsafe

from kernbench.report import difference, difference_text
from kernbench.result import Finding, SourceLocation
from kernbench.result.finding import Blame


def text(renderable, width=160):
    console = Console(width=width, markup=False, highlight=False, force_terminal=False)
    with console.capture() as captured:
        console.print(renderable)
    return captured.get()


def faster():
    """As the sample, in half the time: no dispatch, and one line of the path gone."""
    line = timeline()
    path = [step for step in line.critical_path if step.where != SITES[0]]
    held = metrics(line.total // 2) | {"gap_ps": {"dispatch": 0, "imbalance": line.total // 4}}
    return sample(timeline=replace(line, critical_path=path), metrics=held)


def test_the_faster_is_named_with_the_reasons():
    held = difference(sample(), faster(), ("before", "after"))
    assert held.summary.startswith("after is 2.00 times as fast as before: ")
    assert "dispatch -" in held.summary
    (time,) = [n for n in held.numbers if n.name == "time"]
    assert time.change == "-50.0 %"
    assert time.cost
    shown = text(difference_text(held))
    assert "after is 2.00 times as fast as before" in " ".join(shown.split())
    assert "critical path by kernel line" in shown
    json.dumps(held.to_dict())


def test_the_slower_is_told_as_well():
    assert difference(faster(), sample(), ("a", "b")).summary.startswith("a is 2.00 times as fast as b")


def test_lines_of_the_path_that_came_and_went():
    held = difference(sample(), faster())
    first = held.lines[0]
    assert first.name == "samples.py:1"
    assert first.b_ps == 0
    assert first.change.startswith("-")
    assert first.text == SITES[0].text
    assert sum(row.a_ps == row.b_ps for row in held.lines) == 4


def test_lines_where_warps_spend_their_cycles_are_compared_by_their_text():
    def run(number, time_ps):
        row = {"source": {"file": "/home/me/kernel.py", "line": number}, "text": "s = tl.sum(e)", "time_ps": time_ps}
        return replace(sample(), views={"by_source": [row]})

    (row,) = difference(run(7, 3_000_000), run(9, 1_000_000)).lines
    assert (row.name, row.text, row.a_ps, row.b_ps) == ("kernel.py:7,9", "s = tl.sum(e)", 3_000_000, 1_000_000)


def test_kernels_of_a_program_compare_the_time_of_all_their_launches():
    runs = [
        replace(sample(), metrics=metrics(100) | {"in_all": {"launches": 3, "time_ps": time}}) for time in (300, 150)
    ]
    (row,) = [number for number in difference(*runs).numbers if number.name == "time of all launches"]
    assert (row.a, row.b, row.change) == ("300 ps", "150 ps", "-50.0 %")


def test_a_fault_of_the_compiler_leaves_the_speed_and_any_other_takes_it():
    found = Finding("missing-fence", "m", SITES[0], blame=Blame("compiler", "Maker 1.0"))
    assert difference(replace(sample(), findings=[found]), faster()).summary.startswith("B is 2.00 times as fast as A")
    own = replace(found, blame=Blame("library", "fla"))
    assert "no speed is compared" in difference(replace(sample(), findings=[found, own]), faster()).summary


def test_a_line_that_moved_is_the_same_line():
    line = timeline()
    said = {site: site.text or "blank" for site in SITES}
    paths = [
        [
            replace(s, where=SourceLocation(HERE, s.where.line + by, "kernel", f"{said[s.where]} {s.where.line}"))
            for s in steps
        ]
        for by, steps in ((0, line.critical_path), (7, line.critical_path))
    ]
    held = difference(*(sample(timeline=replace(line, critical_path=path)) for path in paths))
    assert {row.change for row in held.lines} == {"="}
    assert held.lines[0].name == "samples.py:1,8"
    assert "critical path by kernel line: the same in both" in text(difference_text(held))


def in_file(file, steps, by=0):
    """The path's steps, as if the kernel lay in another file."""
    return [
        replace(s, where=SourceLocation(file, s.where.line + by, "kernel", f"{s.where.text} {s.where.line}"))
        for s in steps
    ]


def test_a_line_is_the_same_line_in_a_copy_of_the_file():
    line = timeline()
    paths = (in_file("v1/mine.py", line.critical_path), in_file("v2/mine2.py", line.critical_path, 3))
    held = difference(*(sample(timeline=replace(line, critical_path=path)) for path in paths))
    assert {row.change for row in held.lines} == {"="}
    assert held.lines[0].name == "mine.py:1, mine2.py:4"


def test_a_line_that_two_files_of_a_version_have_is_nobodys_copy():
    line = timeline()
    steps = line.critical_path
    paths = (in_file("mine.py", steps), in_file("one.py", steps) + in_file("two.py", steps))
    held = difference(*(sample(timeline=replace(line, critical_path=path)) for path in paths))
    assert all(row.a_ps == 0 or row.b_ps == 0 for row in held.lines)


def test_equal_runs():
    held = difference(sample(), sample())
    assert held.summary.startswith("both take ")
    assert held.settings == []
    assert {n.change for n in held.numbers} == {"="}


def test_no_speed_is_compared_where_one_is_wrong_or_unsafe():
    held = difference(sample(), unsafe(), ("good", "bad"))
    assert held.summary == "bad is not right and safe: no speed is compared"
    assert "only bad has findings of kind deadlock, race" in held.warnings
    assert held.causes == held.kinds == held.lines == []
    assert ("right", "yes", "NO") in held.answers
    assert "2.00 times" not in text(difference_text(held))


def test_runs_without_time_and_runs_of_a_gpu():
    untimed = sample(metrics={"commands": 3}, timeline=None)
    assert difference(sample(), untimed).summary == "B has no time: only answers are compared"
    gpu = sample(metrics={"gpu_time_ns": 10}, timeline=None)
    held = difference(sample(), gpu, ("model", "card"))
    assert "the time of card was measured on a GPU, that of model is a model's" in held.warnings
    assert "times as fast" in held.summary


def test_what_differs_in_how_they_were_run():
    other = sample(origin={**sample().origin, "machine_hash": "def", "parameters": {"n_ranks": 4, "lengths": (1, 2)}})
    held = difference(sample(), other)
    assert ("parameters.n_ranks", "2", "4") in held.settings
    assert ("machine_hash", "abc", "def") in held.settings
    assert len(held.settings) == 2
    assert "machine differs: abc in A, def in B" in held.warnings
