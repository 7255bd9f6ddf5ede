"""Advice and changes in the explanation of a timed run, and of several launches as one."""

from tests.report.samples import sample

from kernbench.report import time_text
from kernbench.report.time.explanation import stalled_text
from kernbench.result.launches import joined

ADVICE = {
    "kind": "bank conflict", "line": 7, "message": "16 passes", "cost_ps": 2_000_000, "sure": "likely",
    "hint": "pad rows", "source": {"file": "/home/kernel.py", "line": 3},
}  # fmt: skip
CHANGE = {"what": "one more CTA per SM", "needs": "at most 80 registers a thread", "saves": 0.1}


def test_advice_and_changes_are_said_with_what_they_are_worth():
    run = sample()
    run.metrics |= {"advice": [ADVICE, {**ADVICE, "line": None, "source": None}], "changes": [CHANGE]}
    text = str(time_text(run))
    assert "one more CTA per SM would save 10.0 %, needs at most 80 registers a thread\n" in text
    where = "advice: bank conflict at kernel.py:3, line 7 of the text, would save 2 us (likely): "
    assert f"{where}16 passes; pad rows\n" in text
    assert "advice: bank conflict, would save 2 us" in text


def test_lines_where_warps_spend_their_cycles_fit_into_a_narrow_terminal():
    row = {"source": {"file": "/home/me/softmax.py", "line": 12}, "text": "s = tl.sum(e, axis=0)  # " + "x" * 90}
    row |= {"share": 0.621, "waits": {"shared memory": 0.5, "barriers": 0.1, "branches": 0.00001}, "bytes": 256_000}
    row |= {"coalescing": 0.125, "shared_bytes": 4096, "bank_efficiency": 0.25}
    row |= {"inner": [{"file": "/env/standard.py", "line": 314}], "callers": [{"file": "a.py", "line": 3}]}
    plain = {"line": 7, "text": "ld.global.f32", "share": 0.2, "waits": {"issuing": 0.0001}}
    run = sample()
    run.views["by_source"] = [row, plain]
    lines = str(stalled_text(run)).splitlines()
    assert lines[0] == "  where the warps spend their cycles:"
    assert lines[1].startswith("     62.1 %  softmax.py:12  s = tl.sum(e, axis=0)  # xxx")
    assert " ".join(line.strip() for line in lines[2:-2]) == (
        "shared memory 50.0 %, barriers 10.0 %; 256 kB, 12 % coalesced; 4.1 kB of shared memory in 4.0 times the "
        "passes needed; in standard.py:314; called at a.py:3"
    )
    assert lines[-2:] == ["     20.0 %  line 7  ld.global.f32", "             issuing"]
    assert max(map(len, lines)) <= 80
    assert str(stalled_text(sample())) == ""


def test_launches_in_a_row_have_the_advice_of_all():
    first, second = sample(), sample()
    first.metrics |= {"advice": [ADVICE], "changes": [CHANGE]}
    second.metrics |= {"advice": [{**ADVICE, "cost_ps": 5_000_000}], "changes": []}
    whole = joined(first, [first, second], lambda launches, begins: {})
    assert [one["cost_ps"] for one in whole.metrics["advice"]] == [5_000_000, 2_000_000]
    assert whole.metrics["changes"][0]["saves"] == 0.05


def test_a_cause_in_one_launch_comes_before_a_wait_in_another():
    first, second = sample(), sample()
    first.metrics |= {"advice": [{**ADVICE, "cost_ps": 100, "worth_ps": 50}], "changes": []}
    second.metrics |= {"advice": [{**ADVICE, "cost_ps": 60, "worth_ps": 60}], "changes": []}
    whole = joined(first, [first, second], lambda launches, begins: {})
    assert [one["cost_ps"] for one in whole.metrics["advice"]] == [60, 100]
