"""The timeline as a still picture: true to the spans, small, and readable without a script on any ground."""

import re
from dataclasses import replace
from xml.etree import ElementTree

import numpy as np
import pytest
from tests.report.samples import HOSTILE, timeline

from kernbench.report.export.picture import BINS, MOST_LANES, PALETTE, timeline_svg
from kernbench.result.timeline import Lane


def parsed(shown):
    return ElementTree.fromstring(f"<div>{shown}</div>")


def area(shown):
    """The drawn area of all bars, over what it would be if every lane were busy all the time."""
    held = re.findall(r'fill="#\w+" d="([^"]*)"', shown)
    bars = [bar for path in held for bar in re.findall(r"v-([\d.]+)h([\d.]+)", path)]
    lanes = shown.count('text-anchor="end"')
    return sum(float(up) * float(wide) for up, wide in bars) / (11 * 660 * lanes)


def test_lanes_axis_and_legend_are_there():
    line = timeline(4_000)
    shown = timeline_svg(line)
    texts = [text.text for text in parsed(shown).iter("text")]
    assert texts[0] == "0 ps"
    assert [f"{lane.group} {lane.name}"[-34:] for lane in line.lanes] == texts[-len(line.lanes) :]
    assert "5 others" in shown
    assert "critical path" in shown
    assert "<script" not in shown
    assert "currentColor" in shown


@pytest.mark.parametrize("spans", [80, 4_000, 200_000])
def test_bars_are_as_high_as_lanes_are_busy(spans):
    line = timeline(spans)
    shown = timeline_svg(line)
    busy = (line.finish - line.start).sum() / (line.total * len(line.lanes))
    assert area(shown) == pytest.approx(busy, rel=0.05)
    assert len(shown) < 200_000


def test_spans_within_spans_count_once():
    line = replace(
        timeline(80),
        lane=np.zeros(2, int),
        name=np.zeros(2, int),
        site=np.zeros(2, int),
        start=np.array([0, 250]),
        finish=np.array([1000, 750]),
        flows=np.empty((0, 2), int),
        critical_path=[],
        waits=None,
    )
    assert area(timeline_svg(line)) == pytest.approx(1, rel=0.01)


def test_of_many_lanes_those_of_the_path_are_shown_and_the_rest_is_told():
    line = timeline(800, lanes=80)
    texts = [text.text for text in parsed(timeline_svg(line)).iter("text")]
    assert len([text for text in texts if text.startswith(("cube", "0 PE", "links"))]) == MOST_LANES
    assert any(text.endswith("cube 0 PE 0 gemm") for text in texts)
    assert f"{80 - MOST_LANES} lanes with less to do are left out" in timeline_svg(line)


def test_an_order_is_no_time():
    shown = timeline_svg(timeline(unit="order", path=False))
    assert "lengths are no time" in shown
    assert re.findall(r"\d (?:ps|ns|us|ms|s)\b", shown) == []


def test_strange_names_are_text_and_nothing_gives_nothing():
    line = timeline(80)
    hostile = replace(line, names=[HOSTILE] * len(line.names), lanes=[Lane(HOSTILE, "x")] * len(line.lanes))
    assert "<script" not in timeline_svg(hostile)
    parsed(timeline_svg(hostile))
    empty = np.empty(0, int)
    assert timeline_svg(replace(line, lane=empty, name=empty, site=empty, start=empty, finish=empty)) == ""


def test_colours_stand_out_on_light_and_on_dark():
    """Three to one against white and against a notebook's dark ground, as graphics need, or nearly."""
    for colour in PALETTE:
        parts = [int(colour[n : n + 2], 16) / 255 for n in (1, 3, 5)]
        linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
        light = 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
        assert 1.05 / (light + 0.05) > 1.9, colour
        assert (light + 0.05) / (0.012 + 0.05) > 3, colour
    assert BINS <= 400
