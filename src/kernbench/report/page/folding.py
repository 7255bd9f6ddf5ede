"""Makes a timeline small enough for a page: of very many spans, the shortest neighbours on a lane are merged."""

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from kernbench.report.time.explanation import duration
from kernbench.result.spans import timeline_dict
from kernbench.result.timeline import Timeline, Waits

Ints = NDArray[np.int64]
# limits of a browser, and of the data of one run
MOST_SPANS, MOST_BYTES = 3_000_000, 3_500_000
# pages are not reduced below this many spans
FEWEST = 100_000


def small_enough(timeline: Timeline) -> dict[str, object]:
    """The timeline as data for a page; `folded` in it says what was merged, if anything."""
    most = MOST_SPANS
    while True:
        thin, note = folded(timeline, most)
        data = timeline_dict(thin)
        packed = sum(len(data[key]["data"]) for key in ("name", "site", "start", "length"))
        if packed <= MOST_BYTES or most < FEWEST:
            waits = data.pop("waits", None)
            small = (
                waits is not None and packed + sum(len(waits[key]["data"]) for key in ("kind", "after")) <= MOST_BYTES
            )
            return {**data, "folded": note, **({"waits": waits} if small else {})}
        most //= 2


def folded(timeline: Timeline, most: int) -> tuple[Timeline, str]:
    """The timeline with about `most` spans at most, and a sentence about what was merged; empty if nothing was.

    Spans of a lane that are shorter than a cell and begin in the same cell become one, with the sum of their lengths,
    named after the longest of them. So the busy time of a lane stays exact, and nothing moves by more than a cell.
    """
    spans = len(timeline.start)
    if spans <= most:
        return timeline, ""
    cell = max(1, timeline.total >> 20)
    order = np.lexsort((timeline.finish, timeline.start, timeline.lane))
    group = _groups(timeline, order, cell)
    while int(group[-1]) >= most and cell < timeline.total:
        cell *= 2
        group = _groups(timeline, order, cell)
    thin = _merge(timeline, order, group)
    width = duration(cell) if timeline.unit == "ps" else f"{cell:,} steps"
    return thin, (
        f"{spans:,} spans are drawn as {len(thin.start):,}: those of a lane that are shorter than {width} and begin "
        f"within the same {width} are one, as long as they are together and named after the longest."
    )


def _groups(timeline: Timeline, order: Ints, cell: int) -> Ints:
    """For each span, in `order`, the number of its group."""
    lane, start = timeline.lane[order], timeline.start[order]
    long = (timeline.finish[order] - start) >= cell
    begins = np.ones(len(order), bool)
    begins[1:] = (np.diff(lane) != 0) | (np.diff(start // cell) != 0) | long[1:] | long[:-1]
    return np.cumsum(begins) - 1


def _merge(timeline: Timeline, order: Ints, group: Ints) -> Timeline:
    length = (timeline.finish - timeline.start)[order]
    first = np.flatnonzero(np.diff(group, prepend=-1))
    # the longest span of each group: the last in order of length
    longest = np.lexsort((length, group))[np.append(first[1:], len(group)) - 1]
    start = timeline.start[order][first]
    becomes = np.empty_like(order)
    becomes[order] = group
    return replace(
        timeline,
        lane=timeline.lane[order][first],
        name=timeline.name[order][longest],
        site=timeline.site[order][longest],
        start=start,
        finish=start + np.add.reduceat(length, first),
        flows=becomes[timeline.flows.reshape(-1, 2)],
        waits=None if timeline.waits is None else _merge_waits(timeline.waits, order[longest], becomes),
    )


def _merge_waits(waits: Waits, longest: Ints, becomes: Ints) -> Waits:
    """The wait of the longest span of each group, unless that waits for its own group."""
    after = waits.after[longest]
    now = np.where(after >= 0, becomes[after], -1)
    return Waits(waits.kinds, waits.kind[longest], np.where(now == np.arange(len(now)), -1, now))
