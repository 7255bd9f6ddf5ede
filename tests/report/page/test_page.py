"""The page as text: it holds everything, lets nothing in, and escapes what kernels are called."""

import base64
import copy
import hashlib
import io
import json
import re
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console
from tests import sampled
from tests.report.samples import HOSTILE, metrics, sample, timeline, unsafe

from kernbench.common.errors import MisuseError
from kernbench.report import difference, page_html, run_text, runs_table, time_text, titles
from kernbench.report.compare.titles import apart
from kernbench.report.page import folding
from kernbench.report.page.folding import folded, small_enough
from kernbench.report.time.explanation import untimed
from kernbench.result import Run, Status
from kernbench.result.columns import pack
from kernbench.result.load import read_run
from kernbench.result.reading import Reader
from kernbench.result.spans import read_timeline, timeline_dict


def data_of(page):
    (held,) = re.findall(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)
    return json.loads(held)


def test_the_page_is_one_document_with_its_data():
    page = page_html("two runs", [("first", sample()), ("second", unsafe())])
    held = data_of(page)
    assert [run["title"] for run in held["runs"]] == ["first", "second"]
    # the one that failed is open
    assert held["first"] == 1
    assert data_of(page_html("", [("first", sample()), ("second", sample())]))["first"] == 0
    assert held["runs"][0]["metrics"]["bound"] == "hbm"
    assert held["kinds"]["race"].startswith("two accesses")
    assert "samples.py" in json.dumps(held["runs"][1]["sources"])


def test_nothing_is_fetched_and_only_its_own_scripts_may_run():
    page = page_html("t", [("r", sample())])
    assert not re.findall(r'(?:src|href)\s*=\s*["\'](?!#)', page)
    (policy,) = re.findall(r'Content-Security-Policy" content="([^"]*)"', page)
    assert policy.startswith("default-src 'none'")
    blocks = re.findall(r"<script>(.*?)</script>", page, re.DOTALL) + re.findall(
        r"<style>(.*?)</style>", page, re.DOTALL
    )
    assert len(blocks) == 3
    for block in blocks:
        assert base64.b64encode(hashlib.sha256(block.encode()).digest()).decode() in policy
    assert "Copyright (c) 2022 Leon Sorokin" in page


def test_hostile_names_stay_text():
    page = page_html(HOSTILE, [(HOSTILE, sample(name=HOSTILE)), ("b", unsafe())])
    assert "<script>window.hacked" not in page
    assert "<img" not in page
    assert data_of(page)["runs"][0]["title"] == HOSTILE
    assert data_of(page)["runs"][0]["origin"]["kernel"] == HOSTILE


def test_text_that_is_no_unicode_is_written_all_the_same():
    page = page_html("a\udc80b", [("r\udc80", sample(name="k\udc80"))])
    page.encode("utf-8")


def test_the_table_of_runs_is_there_without_a_script():
    page = page_html("t", [("first", sample()), ("second", unsafe())])
    assert '<a href="#panel-0">first</a>' in page
    assert '<td class="bad">NO</td>' in page
    assert "deadlock, race" in page
    assert '<table class="index">' not in page_html("t", [("first", sample())])


def test_a_typical_page_is_small():
    assert len(page_html("t", [("r", sample(20_000))])) < 600_000
    assert len(page_html("t", [("r", sample(200_000))])) < 2_500_000


def busy(line):
    return np.bincount(line.lane, line.finish - line.start)


def test_few_spans_are_not_folded():
    line = timeline()
    assert folded(line, most=400) == (line, "")
    assert small_enough(line)["folded"] == ""


@pytest.mark.parametrize("unit", ["ps", "order"])
def test_folding_keeps_how_busy_lanes_are(unit):
    line = timeline(40_000, unit=unit)
    thin, told = folded(line, most=5_000)
    assert len(thin.start) <= 5_000
    np.testing.assert_array_equal(busy(thin), busy(line))
    assert told.startswith(f"40,000 spans are drawn as {len(thin.start):,}")
    assert (unit == "order") == (" steps " in told)
    assert (thin.finish > thin.start).all()
    same_lane = np.diff(thin.lane) == 0
    assert (thin.start[1:] >= thin.finish[:-1])[same_lane].all()
    assert thin.flows.max() < len(thin.start)
    assert thin.lane[thin.flows].tolist() == line.lane[line.flows].tolist()


def test_folding_moves_nothing_far():
    line = timeline(40_000)
    thin, told = folded(replace(line, unit="order"), most=5_000)
    cell = int(re.findall(r"shorter than ([\d,]+) steps", told)[0].replace(",", ""))
    bins = np.arange(0, line.total + 1, 20 * cell)
    for lane in range(3):
        whole, less = (np.histogram(x.start[x.lane == lane], bins, weights=busy_of(x, lane))[0] for x in (line, thin))
        assert np.abs(np.cumsum(whole) - np.cumsum(less)).max() <= 2 * cell


def test_what_is_too_much_for_a_page_is_folded_until_it_fits(monkeypatch):
    monkeypatch.setattr(folding, "MOST_BYTES", 60_000)
    monkeypatch.setattr(folding, "FEWEST", 1_000)
    monkeypatch.setattr(folding, "MOST_SPANS", 30_000)
    line = timeline(40_000)
    held = small_enough(line)
    back = read_timeline(Reader(held, "t"))
    assert 1_000 < len(back.start) < 15_000
    assert sum(len(held[key]["data"]) for key in ("name", "site", "start", "length")) <= 60_000
    np.testing.assert_array_equal(busy(back), busy(line))
    assert held["folded"].startswith("40,000 spans are drawn as ")


def test_waits_come_back_and_are_folded_with_their_spans():
    line = timeline(40_000)
    back = read_timeline(Reader(timeline_dict(line), "t"))
    np.testing.assert_array_equal(back.waits.after, line.waits.after)
    assert back.waits.kinds == line.waits.kinds
    thin, _ = folded(line, most=5_000)
    again = read_timeline(Reader(timeline_dict(thin), "t"))
    assert len(again.waits.after) == len(thin.start)
    # each waited for the one before it, and what was folded into one does not wait for itself
    assert set((np.arange(len(thin.start)) - thin.waits.after).tolist()) <= {
        1,
        *(np.arange(len(thin.start)) + 1).tolist(),
    }
    held = timeline_dict(line)
    held["waits"]["after"] = pack(np.full(len(line.start), 7))
    with pytest.raises(MisuseError, match="a span waits for another"):
        read_timeline(Reader(held, "t"))


def test_what_spans_waited_for_is_left_out_before_spans_are(monkeypatch):
    line = timeline(40_000)
    held = timeline_dict(line)
    size = sum(len(held[key]["data"]) for key in ("name", "site", "start", "length"))
    monkeypatch.setattr(folding, "MOST_BYTES", size)
    assert "waits" not in small_enough(line)
    assert small_enough(line)["folded"] == ""
    monkeypatch.undo()
    assert "waits" in small_enough(line)


def busy_of(line, lane):
    return (line.finish - line.start)[line.lane == lane]


def test_titles_tell_runs_apart():
    runs = [sample(origin={"panel": "p", "parameters": {"algorithm": a, "n": 2}}) for a in ("ring", "tree", "tree")]
    assert titles(runs) == ["p algorithm=ring", "p algorithm=tree", "p algorithm=tree (2)"]
    assert titles([sample(), sample(origin={})]) == ["attention", "run"]


@pytest.mark.parametrize(
    ("a", "b", "told"),
    [
        ("before: decode", "after: decode", ("decode", "before", "after")),
        ("p algorithm=x", "p algorithm=y", ("p", "algorithm=x", "algorithm=y")),
        ("p", "p", ("", "p", "p")),
        ("a", "b", ("", "a", "b")),
        ("p", "p n=2", ("", "p", "p n=2")),
        ("run a.json: p", "run b.json: p", ("run p", "a.json", "b.json")),
    ],
)
def test_what_two_names_share_is_said_once(a, b, told):
    assert apart(a, b) == told


def places(data, path=()):
    """The way to every value of a JSON document."""
    inside = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ()
    for key, value in inside:
        yield (*path, key)
        yield from places(value, (*path, key))


WHOLE = [json.loads(json.dumps(run.to_dict())) for run in (sample(), unsafe())]
ODD = [None, -1, "x", [], {}, 1e308, True, 2**70, "inf", "nan", 0, [1, 2], {"a": 1}, 0.5]


@settings(max_examples=sampled.examples(30, 60))
@given(st.data())
def test_whatever_can_be_read_can_be_shown(data):
    held = copy.deepcopy(data.draw(st.sampled_from(WHOLE)))
    *way, last = data.draw(st.sampled_from([p for p in places(held) if p[0] != "timeline"]))
    change(held, way, last, data.draw(st.sampled_from(ODD)))
    try:
        run = read_run(Reader(held, "run"))
    except MisuseError:
        return
    page_html("t", [(titles([run])[0], run)], [difference(run, run).to_dict()])
    console = Console(file=io.StringIO())
    for shown in (runs_table("t", [("r", run)]), time_text(run), run_text("r", run)):
        console.print(shown)


def change(held, way, last, value):
    for key in way:
        held = held[key]
    held[last] = value


def test_why_a_run_has_no_time():
    run = Run({}, [], ("race",), Status.FINISHED)
    assert untimed(run) == "it was not asked for, or this target has none"
    run.metrics["no_time"] = "PTX on the emulator has an order, but no clock"
    assert data_of(page_html("x", [("x", run)]))["runs"][0]["untimed"] == run.metrics["no_time"]
    run.metrics["time_ps"] = 1
    assert untimed(run) == ""


def test_what_the_program_itself_compared_is_an_answer():
    run = sample()
    run.comparison = None
    for compared, right in (({"times": 3, "wrong": []}, True), ({"times": 3, "wrong": ["test.py:8"]}, False)):
        run.views["compared"] = compared
        assert run.right is right
        (held,) = data_of(page_html("", [("kernel", run)]))["runs"]
        assert (held["right"], held["views"]["compared"]) == (right, compared)


def test_kernels_of_a_program_are_listed_with_the_time_of_all_their_launches_and_their_share():
    def kernel(time_ps):
        held = metrics(100) | {"in_all": {"launches": 2, "time_ps": time_ps, "longest": 1}}
        return replace(sample(), timeline=None, metrics=held)

    page = page_html("t", [("long", kernel(300)), ("short", kernel(100)), ("untimed", replace(sample(), metrics={}))])
    head = '<th scope="col" class="n">time</th><th scope="col" class="n">of the program</th>'
    assert head in page
    assert '<td class="n">300 ps</td><td class="n">75.0 %</td>' in page
    assert '<td class="n">100 ps</td><td class="n">25.0 %</td>' in page
    assert '<td class="n"></td><td class="n"></td>' in page
    assert "of the program" not in page_html("t", [("a", sample()), ("b", sample())]).partition("<script")[0]
