"""Advice and changes in the explanation of a timed run, and of several launches as one."""

from tests.report.samples import sample

from kernbench.report import time_text
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
