"""One CTA of a timed launch, warp by warp: what each did over time, by role, and the asynchronous units it started.

The role of a warp follows from what it issues: producers start copies and no products, consumers issue products. The
activity of a warp is shown as spans: it issues, or it waits for something at a line of the kernel.
"""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from kernbench.ptx.recording.recording import LaunchRecording
from kernbench.ptx.sass.streams import Pipe, Streams
from kernbench.ptx.time.causes import REASONS
from kernbench.ptx.time.engine import codes
from kernbench.ptx.time.engine.reasons import WAIT_BY_THEMSELVES, Reason
from kernbench.ptx.time.result import Followed, LaunchTime
from kernbench.ptx.time.sources import source_lines
from kernbench.result.finding import SourceLocation
from kernbench.result.timeline import Lane, Timeline

Ints = NDArray[np.int32]
Longs = NDArray[np.int64]
# shorter waits count as issuing
SHORT = 8.0
RUNS = "issues"
# largest number of lanes for overlapping work of a unit
_MOST_LANES = 8
_UNITS = {
    codes.BULK_LOAD: ("bulk copies", "copy in"),
    codes.BULK_STORE: ("bulk copies", "copy out"),
    codes.CP_ASYNC: ("cp.async", "copy in"),
    codes.WGMMA: ("tensor core", "product"),
    codes.PRODUCT: ("tensor core", "product"),
}
_COPIES = (Pipe.BULK, Pipe.CP_ASYNC)
_PRODUCTS = (Pipe.MMA, Pipe.WGMMA, Pipe.TCGEN05)


@dataclass
class Spans:
    """Spans under construction: lane, name, line of the PTX, start and end in cycles."""

    lane: list[Lane] = field(default_factory=list)
    name: list[str] = field(default_factory=list)
    line: list[int] = field(default_factory=list)
    start: list[float] = field(default_factory=list)
    finish: list[float] = field(default_factory=list)

    def add(self, lane: Lane, name: str, line: int, start: float, finish: float) -> None:
        """Add a span."""
        self.lane.append(lane)
        self.name.append(name)
        self.line.append(line)
        self.start.append(start)
        self.finish.append(finish)


def roles(recording: LaunchRecording, streams: Streams, kind: int) -> list[str]:
    """The role of each warp in a class of CTAs."""
    paths = streams.trace_path[recording.class_trace[kind]].tolist()
    named: dict[int, str] = {}
    for path in dict.fromkeys(paths):
        ops = streams.op[streams.path_start[path] : streams.path_start[path + 1]]
        pipes = set(np.unique(streams.ops.pipe[ops]).tolist())
        multiplies, copies = (bool(pipes & {int(one) for one in which}) for which in (_PRODUCTS, _COPIES))
        named[path] = "producer" if copies and not multiplies else "consumer" if multiplies else "others"
    # if all do the same, there are no roles
    return [named[path] if len(set(named.values())) > 1 else "warps" for path in paths]


def warp_spans(time: LaunchTime, recording: LaunchRecording, streams: Streams) -> Spans:
    """Spans of the warps and units of the traced CTA; empty if none was traced."""
    spans, followed = Spans(), time.followed
    if followed is None:
        return spans
    group = f"CTA {followed.cta}"
    names = roles(recording, streams, followed.kind)
    lines = np.asarray(streams.ops.line)
    order = sorted(range(len(names)), key=lambda warp: (names.index(names[warp]), warp))
    for warp in order:
        _warp(spans, followed, warp, Lane(f"{group}: {names[warp]}", f"warp {warp}"), lines)
    _units(spans, followed, f"{group}: units", lines)
    return spans


def _warp(spans: Spans, followed: Followed, warp: int, lane: Lane, lines: Ints) -> None:
    """The spans of one warp: it issues until a long wait."""
    rows = np.flatnonzero(followed.warp == warp)
    runs_from, line, before = -1.0, 0, 0
    last = 0.0
    for row in rows.tolist():
        begin, end, reason = _wait(followed, row)
        here = int(lines[followed.op[row]])
        if runs_from < 0:
            runs_from, line = float(followed.since[row]), here
        if end - begin >= SHORT:
            if begin > runs_from:
                spans.add(lane, RUNS, line, runs_from, begin)
            at = before if reason in WAIT_BY_THEMSELVES and before else here
            spans.add(lane, f"waits: {REASONS[reason]}", at, begin, end)
            runs_from, line = end, here
        last, before = float(followed.issued[row]) + 1.0, here
    if runs_from >= 0 and last > runs_from:
        spans.add(lane, RUNS, line, runs_from, last)


def _wait(followed: Followed, row: int) -> tuple[float, float, Reason]:
    """The longest wait before an instruction: for its dependences, or for a unit or its turn."""
    columns = (followed.since, followed.fixed, followed.ready, followed.issued)
    since, fixed, ready, issued = (float(column[row]) for column in columns)
    depends = max(fixed, since + 1.0), min(ready, issued)
    held = max(min(ready, issued), since + 1.0), issued
    if depends[1] - depends[0] >= held[1] - held[0]:
        return depends[0], depends[1], Reason(int(followed.why[row]))
    return held[0], held[1], Reason(int(followed.held[row]))


def _units(spans: Spans, followed: Followed, group: str, lines: Ints) -> None:
    """Spans of asynchronous units; overlapping work of a unit is on separate lanes."""
    free: dict[str, list[float]] = defaultdict(list)
    rows = np.flatnonzero(np.isin(followed.began, list(_UNITS)) & (followed.until > followed.issued))
    for row in rows.tolist():
        unit, name = _UNITS[int(followed.began[row])]
        begin, end = float(followed.issued[row]), float(followed.until[row])
        if int(followed.began[row]) in (codes.WGMMA, codes.PRODUCT):
            # a tensor core executes its products in order; tcgen05 has one for the whole SM
            if int(followed.began[row]) == codes.WGMMA:
                unit = f"{unit} {int(followed.warp[row]) % codes.SUB_CORES}"
            begin = min(max(begin, *free[unit], 0.0), end)
        lanes = free[unit]
        which = next((n for n, until in enumerate(lanes) if until <= begin), len(lanes))
        if which >= _MOST_LANES:
            continue
        lanes[which : which + 1] = [end]
        lane = Lane(group, unit if which == 0 else f"{unit} {which + 1}")
        spans.add(lane, name, int(lines[followed.op[row]]), begin, end)


def locations(recording: LaunchRecording, lines: list[int]) -> tuple[list[SourceLocation], list[int]]:
    """Source locations of lines of the PTX (in the source if the PTX names it).

    And the index of each line's location.
    """
    sources = source_lines(recording.text)
    rows = recording.instructions
    texts = dict(zip(rows.line.tolist(), rows.text, strict=True))
    made: dict[int, int] = {}
    found: list[SourceLocation] = []
    for line in lines:
        if line not in made:
            made[line] = len(found)
            source = sources.get(line)
            own = SourceLocation(f"<ptx {recording.entry}>", line, recording.entry, texts.get(line, ""))
            found.append(SourceLocation(*source.where, recording.entry) if source else own)
    return found, [made[line] for line in lines]


def with_warps(line: Timeline, time: LaunchTime, recording: LaunchRecording, streams: Streams) -> Timeline:
    """A timeline of CTAs, with the warps and units of one CTA added on lanes of their own."""
    spans = warp_spans(time, recording, streams)
    if not spans.lane:
        return line
    lanes, names = list(dict.fromkeys(spans.lane)), list(dict.fromkeys(spans.name))
    lane_of = {lane: number for number, lane in enumerate(lanes, len(line.lanes))}
    name_of = {name: number for number, name in enumerate(names, len(line.names))}
    sites, which = locations(recording, spans.line)
    before, picoseconds = round(time.overhead_ns * 1000), 1e6 / time.clock_mhz

    def joined(one: Longs, more: Iterable[float]) -> Longs:
        return np.concatenate([one, np.rint(np.array(list(more))).astype(np.int64)])

    def moments(cycles: list[float]) -> Iterable[float]:
        return (min(before + one * picoseconds, line.total) for one in cycles)

    return replace(
        line,
        lanes=[*line.lanes, *lanes],
        names=[*line.names, *names],
        sites=[*line.sites, *sites],
        lane=joined(line.lane, (lane_of[lane] for lane in spans.lane)),
        name=joined(line.name, (name_of[name] for name in spans.name)),
        site=joined(line.site, (one + len(line.sites) for one in which)),
        start=joined(line.start, moments(spans.start)),
        finish=joined(line.finish, moments(spans.finish)),
    )
