"""The page of predictions against measurements: its figures, its gates, and that it is what its data files give."""

import json
from pathlib import Path

import pytest
from benchmarks.truth.points import points

from benchmarks.truth import accuracy
from kernbench.ptx.time.presentation import EXPANSION_OFF

ALL = points()


def times(scale):
    """Rows of all points; `scale` by number of the point."""
    return {point.id: {"id": point.id, "time_ns": 1000.0 * (n + 1) * scale(n)} for n, point in enumerate(ALL)}


def test_predictions_that_are_right_meet_every_gate():
    truth = times(lambda n: 1.0)
    found = accuracy.summary(accuracy.compared(truth, truth))
    assert (found["mape"], found["worst"], found["signed"]) == (0, 0, 0)
    assert (found["spearman"], found["pairs"]) == (1, 1)
    assert all(accuracy.met(name, value) for name, value in found.items())
    assert "**missed**" not in accuracy.page(truth, truth, "")


def test_errors_are_signed_and_of_what_was_measured():
    pairs = accuracy.compared(times(lambda n: 1.0), times(lambda n: 1.2 if n % 2 else 0.9))
    assert {round(pair.error, 6) for pair in pairs} == {0.2, -0.1}
    found = accuracy.summary(pairs)
    assert found["worst"] == pytest.approx(0.2)
    assert found["p90"] == pytest.approx(0.2)
    assert not accuracy.met("mape", found["mape"])


def test_ranks_and_winners():
    assert accuracy.spearman([1, 2, 3], [10, 20, 30]) == 1
    assert accuracy.spearman([1, 2, 3], [3, 2, 1]) == -1
    assert accuracy.ranks([5, 5, 1]) == [2.5, 2.5, 1]
    same = [point for point in ALL if point.problem == "softmax"][:2]
    first, second = same
    pairs = [accuracy.Pair(first, 100, 90, {}), accuracy.Pair(second, 110, 80, {})]
    assert accuracy.winners(pairs) == (0, 1)
    near = [accuracy.Pair(first, 100, 90, {}), accuracy.Pair(second, 102, 80, {})]
    assert accuracy.winners(near) == (1, 1)


def test_what_is_not_predicted_is_named():
    text = accuracy.page(times(lambda n: 1.0), {}, "Remarks.")
    assert f"{len(ALL)} of {len(ALL)} points" in text
    assert text.endswith("Remarks.\n")


def test_the_page_in_the_documents_is_what_its_data_give():
    data, page = accuracy.DATA, Path(__file__).parents[3] / "docs" / "gpu-accuracy.md"
    remarks = data / "remarks.md"
    text = remarks.read_text(encoding="utf-8") if remarks.exists() else ""
    rows = accuracy.rows(data / "h200.jsonl"), accuracy.rows(data / "h200-predicted.jsonl")
    seen = json.loads((accuracy.DATA / "looks.json").read_text(encoding="utf-8"))
    expansion = accuracy.rows(data / "h200-expansion.jsonl")
    assert page.read_text(encoding="utf-8") == accuracy.page(*rows, text, seen, expansion)


def test_what_is_said_beside_times_by_the_expansion_is_what_came_out():
    measured, expanded = (accuracy.rows(accuracy.DATA / f"{name}.jsonl") for name in ("h200", "h200-expansion"))
    pairs = accuracy.compared(measured, expanded)
    assert len(pairs) > 200
    assert f"{accuracy.summary(pairs)['mape']:.0%}".replace("%", " %") == EXPANSION_OFF
