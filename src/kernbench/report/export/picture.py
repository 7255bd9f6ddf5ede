"""A timeline as a static picture (SVG), for viewers without scripts. Its colours suit light and dark backgrounds."""

import math
from collections.abc import Iterable
from html import escape

import numpy as np
from numpy.typing import NDArray

from kernbench.report.time.explanation import duration
from kernbench.result.timeline import Timeline

Floats = NDArray[np.float64]
# colours that colour-blind people can distinguish (Okabe and Ito); the last is for all others
PALETTE = ("#56b4e9", "#e69f00", "#009e73", "#cc79a7", "#d55e00", "#c9bd1b", "#7aa6ff", "#8f969e")
MOST_LANES, BINS = 24, 300
_LEFT, _WIDE, _ROW, _AXIS, _BAR = 190, 660, 15, 20, 11
_RIGHT = _LEFT + _WIDE + 10


def timeline_svg(timeline: Timeline) -> str:
    """The whole timeline: a row for each lane, columns as high as the lane was busy, coloured by what ran most.

    Of many lanes those on the critical path come first, then the busiest; the text below says so.
    """
    used = np.unique(timeline.lane)
    if not len(used) or not timeline.total:
        return ""
    lanes, classes = _chosen(timeline, used), _classes(timeline)
    height = _AXIS + _ROW * len(lanes)
    body = [_axis(timeline, height)]
    for row, lane in enumerate(lanes):
        top = _AXIS + row * _ROW
        held = timeline.lanes[lane]
        body.append(_text(_LEFT - 6, top + 11, f"{held.group} {held.name}"[-34:], "end"))
        body.append(_columns(_busy(timeline, lane, classes), top))
    body.append(_path(timeline, lanes))
    unit = duration(timeline.total) if timeline.unit == "ps" else f"{timeline.total:,} steps, in order, without time"
    title = f"timeline of {len(used)} lanes, {unit}"
    return (
        f'<svg role="img" aria-label="{title}" viewBox="0 0 {_RIGHT} {height}" '
        f'style="max-width:{_RIGHT}px;width:100%;font:10px system-ui,sans-serif;fill:currentColor">'
        f"<title>{title}</title>{''.join(body)}</svg>{_legend(timeline, classes, len(used) - len(lanes))}"
    )


def _chosen(timeline: Timeline, used: NDArray[np.int64]) -> list[int]:
    """The lanes that are drawn, in the timeline's order."""
    on_path = {step.lane for step in timeline.critical_path}
    busy = np.bincount(timeline.lane, timeline.finish - timeline.start, len(timeline.lanes))
    first = sorted(used.tolist(), key=lambda n: (timeline.lanes[n] not in on_path, -busy[n]))
    return sorted(first[:MOST_LANES])


def _classes(timeline: Timeline) -> NDArray[np.int64]:
    """The colour of each name: those with most time have one of their own."""
    # "waits for 'full' phase 3" and "waits for 'empty' phase 0" are both waits
    labels = [name.split(" '")[0] for name in timeline.names]
    spent: dict[str, float] = {}
    times = np.bincount(timeline.name, timeline.finish - timeline.start, len(labels))
    for label, time in zip(labels, times.tolist(), strict=True):
        spent[label] = spent.get(label, 0) + time
    ranks = {label: n for n, label in enumerate(sorted(spent, key=lambda label: -spent[label]))}
    return np.array([min(ranks[label], len(PALETTE) - 1) for label in labels], np.int64)


def _busy(timeline: Timeline, lane: int, classes: NDArray[np.int64]) -> Floats:
    """For each column of a lane and each colour, the share of the column's time."""
    here = timeline.lane == lane
    start, finish, kind = timeline.start[here], timeline.finish[here], classes[timeline.name[here]]
    edges = np.linspace(0, timeline.total, BINS + 1)
    shares = np.zeros((len(PALETTE), BINS))
    for number in np.unique(kind):
        mine = kind == number
        done = _before(np.sort(start[mine]), edges) - _before(np.sort(finish[mine]), edges)
        shares[number] = np.diff(done) / (timeline.total / BINS)
    # spans may be nested
    once: Floats = shares / np.maximum(1.0, shares.sum(axis=0))
    return once


def _before(times: NDArray[np.int64], edges: Floats) -> Floats:
    """For each edge the time before it, summed over `times`."""
    count = np.searchsorted(times, edges)
    total = np.concatenate([[0], np.cumsum(times, dtype=np.float64)])
    before: Floats = count * edges - total[count]
    return before


def _columns(shares: Floats, top: float) -> str:
    """One path for each colour; neighbours of the same height are merged."""
    height = np.round(2 * _BAR * shares.sum(axis=0)) / 2
    height[(height == 0) & (shares.sum(axis=0) > 0)] = 0.5
    most = shares.argmax(axis=0)
    parts: dict[int, list[str]] = {}
    edges = np.flatnonzero((np.diff(height) != 0) | (np.diff(most) != 0)) + 1
    wide = _WIDE / BINS
    for first, last in zip([0, *edges.tolist()], [*edges.tolist(), BINS], strict=True):
        if height[first]:
            x, up = f"{_LEFT + first * wide:.4g}", f"{height[first]:g}"
            bar = f"M{x} {top + 2 + _BAR:g}v-{up}h{(last - first) * wide:.4g}v{up}z"
            parts.setdefault(int(most[first]), []).append(bar)
    return "".join(f'<path fill="{PALETTE[number]}" d="{"".join(bars)}"/>' for number, bars in parts.items())


def _path(timeline: Timeline, lanes: list[int]) -> str:
    """The critical path as a line below the lanes it runs through."""
    rows = {timeline.lanes[lane]: row for row, lane in enumerate(lanes)}
    scale = _WIDE / timeline.total
    drawn: dict[tuple[int, int], int] = {}
    for step in timeline.critical_path:
        if step.lane in rows:
            first, last = int(step.start * scale), max(int(step.start * scale) + 1, math.ceil(step.finish * scale))
            for x in range(first, last):
                drawn[rows[step.lane], x] = 1
    bars = [
        f"M{_LEFT + first} {_AXIS + row * _ROW + _BAR + 2.5:g}h{last - first}v1.5h-{last - first}z"
        for row, first, last in _runs(sorted(drawn))
    ]
    return f'<path d="{"".join(bars)}"/>' if bars else ""


def _runs(points: Iterable[tuple[int, int]]) -> list[tuple[int, int, int]]:
    """Runs of consecutive points: the row, its first point, and the one after its last."""
    found: list[tuple[int, int, int]] = []
    for row, x in points:
        if found and found[-1][0] == row and found[-1][2] == x:
            found[-1] = (row, found[-1][1], x + 1)
        else:
            found.append((row, x, x + 1))
    return found


def _axis(timeline: Timeline, height: int) -> str:
    step = _nice(timeline.total / 7)
    parts = []
    for number in range(int(timeline.total / step) + 1):
        at = number * step
        x = _LEFT + _WIDE * at / timeline.total
        parts.append(f'<path d="M{x:.4g} {_AXIS - 4}V{height}" stroke="currentColor" stroke-opacity="0.2"/>')
        parts.append(_text(x + 2, _AXIS - 7, duration(at) if timeline.unit == "ps" else f"step {at:,.0f}", "start"))
    return "".join(parts)


def _nice(least: float) -> int:
    """The least of 1, 2 or 5 times a power of ten that is not below `least`."""
    power = int(10.0 ** max(0, math.floor(math.log10(max(1.0, least)))))
    return next(n * power for n in (1, 2, 5, 10) if n * power >= least)


def _text(x: float, y: float, text: str, anchor: str) -> str:
    return f'<text x="{x:.4g}" y="{y:g}" text-anchor="{anchor}">{escape(text)}</text>'


def _legend(timeline: Timeline, classes: NDArray[np.int64], hidden: int) -> str:
    names: dict[int, set[str]] = {}
    for used in np.unique(timeline.name).tolist():
        names.setdefault(int(classes[used]), set()).add(timeline.names[used].split(" '")[0])
    items = []
    for number, held in sorted(names.items()):
        label = next(iter(held)) if len(held) == 1 else f"{len(held)} others"
        swatch = f'<i style="display:inline-block;width:10px;height:10px;background:{PALETTE[number]}"></i>'
        items.append(f'<span style="margin-right:12px;white-space:nowrap">{swatch} {escape(label)}</span>')
    notes = ["the line below a lane is the critical path"] if timeline.critical_path else []
    if hidden:
        notes.append(f"{hidden} lanes with less to do are left out")
    if timeline.unit != "ps":
        notes.append("positions are the order of events: lengths are no time")
    footer = f"<div>{escape('; '.join(notes))}</div>" if notes else ""
    return f'<div style="font-size:11px">{"".join(items)}{footer}</div>'
