"""Advice: what could be saved in a timed launch, where, and how much. It is no finding: the launch is right and safe.

The cost of each piece, in picoseconds, comes from timing the launch again without the problem, or from the model's
account of warp stalls. Costs below a hundredth of the time are not reported.
"""

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from kernbench.ptx.recording.recording import Events
from kernbench.ptx.time.causes import REASONS, UNITS
from kernbench.ptx.time.changes import Again, Change, Given
from kernbench.ptx.time.engine.reasons import Reason
from kernbench.ptx.time.lines import SECTOR, least_passes, least_sectors, warps_of_events
from kernbench.ptx.time.result import LaunchTime, Unit
from kernbench.ptx.time.sources import Source, source_lines
from kernbench.result.reading import Data

WORTH = 0.01
AGAIN, ACCOUNT = "timed again without it", "the model's account of waits"
# lines of each kind that are timed again, those with the largest potential savings
_MOST_LINES = 4
_PS = 1e12
_OF_ACCESSES = frozenset(("bank conflict", "uncoalesced access"))
_QUOTED = re.compile("`[^`]*`")
# stalls that more stages, earlier loads or better balance hide
_EXPOSED = {
    Reason.GLOBAL: "load earlier, or have more bytes in flight: wider loads, more stages, more warps",
    Reason.SHARED: "load earlier: more independent work between the load and its use",
    Reason.BARRIER: "balance the work of the warps, or let fewer of them meet",
    Reason.MBARRIER: "more stages between producer and consumer, or earlier copies",
    Reason.GROUP: "commit earlier and wait later: more groups in flight",
    Reason.TENSOR: "keep more products in flight before their results are needed",
    Reason.FENCE: "fewer fences, or fewer stores before them",
}


@dataclass(frozen=True)
class Advice:
    """What to change, where (line of the PTX; 0: the whole launch), its cost, and how that was found."""

    kind: str
    line: int
    message: str
    cost_ps: int
    by: str
    hint: str

    def data(self, source: Source | None) -> Data:
        """As plain data; `source` is that of the line, if the PTX names it."""
        found: Data = {"kind": self.kind, "line": self.line or None, "message": self.message, "cost_ps": self.cost_ps}
        found |= {"by": self.by, "hint": self.hint}
        if source is not None:
            found["source"] = source.data()
        return found


def advise(again: Again, one_more: Change | None, time_again: bool) -> list[Data]:
    """All advice for a launch, largest cost first; some needs further timings, and is given only with `time_again`."""
    found = [*_tail(again.time), *_exposed(again), *_conflicts(again, time_again)]
    if time_again:
        found += [*_uncoalesced(again), *_spills(again), *_occupancy(again, one_more)]
    least = again.time.seconds * _PS * WORTH
    lines = source_lines(again.recording.text)
    worth = sorted((one for one in found if one.cost_ps >= least), key=lambda one: (-one.cost_ps, one.kind, one.line))
    return [one.data(lines.get(one.line)) for one in once(worth, lines)]


def once(given: list[Advice], lines: Mapping[int, Source]) -> list[Advice]:
    """Merge advice of one kind on one source line into the dearest, with the number of others.

    If the source line is unknown, advice with the same hint and share is merged.
    """
    found: dict[object, Advice] = {}
    more: Counter[object] = Counter()
    for one in given:
        source = lines.get(one.line)
        same = _QUOTED.sub("", one.message) if source is None else source.where
        key = (one.kind, one.hint, same) if one.kind in _OF_ACCESSES else (one.kind, one.line, one.message)
        more[key] += key in found
        found.setdefault(key, one)
    return [
        replace(one, message=f"{one.message} (and so do {more[key]} more)") if more[key] else one
        for key, one in found.items()
    ]


def _ps(seconds: float) -> int:
    return round(seconds * _PS)


def _tail(time: LaunchTime) -> list[Advice]:
    waves = len(set(zip(time.spans.group.tolist(), time.spans.slot.tolist(), strict=True))) < len(time.spans.cta)
    if not waves:
        return []
    cost = _ps(time.tail_cycles / (time.clock_mhz * 1e6))
    message = "SMs run out of CTAs while others still work: a tail wave"
    hint = "a grid of whole waves, smaller CTAs, or a persistent kernel"
    return [Advice("tail wave", 0, message, cost, ACCOUNT, hint)]


def above_floor(time: LaunchTime) -> float:
    """Seconds explained by warp stalls: the time minus the largest floor, the launch overhead and the tail."""
    tail = time.tail_cycles / (time.clock_mhz * 1e6)
    return max(time.seconds - time.floor_seconds - time.launch_seconds - tail, 0.0)


def _hint(reason: Reason, time: LaunchTime) -> str:
    """What hides a stall, if there is room for it."""
    if reason != Reason.GLOBAL:
        return _EXPOSED[reason]
    if time.bound in (Unit.HBM, Unit.L2):
        return f"{UNITS[time.bound]} works for {100 * time.busy[time.bound]:.0f} % of the cycles: move fewer bytes"
    full = time.occupancy.warps >= time.occupancy.most_warps
    return _EXPOSED[reason].removesuffix(", more warps") if full else _EXPOSED[reason]


def _exposed(again: Again) -> list[Advice]:
    """Stalls by line: the line's share of all stalls, as a part of the time above the floor."""
    time, lines = again.time, np.asarray(again.streams.ops.line, np.int64)
    cycles = np.zeros((int(lines.max(initial=0)) + 1, len(Reason)))
    np.add.at(cycles, lines, time.stalls.cycles)
    whole = float(cycles.sum())
    if not whole:
        return []
    waited = whole - float(cycles[:, Reason.ISSUED].sum())
    rows = again.recording.instructions
    texts = {line: " ".join(text.split()) for line, text in zip(rows.line.tolist(), rows.text, strict=True)}
    found = []
    for reason in _EXPOSED:
        for line in np.argsort(-cycles[:, reason], kind="stable")[:_MOST_LINES].tolist():
            share = float(cycles[line, reason]) / whole
            message = f"{100 * share:.0f} % of warp cycles wait here for {REASONS[reason]}: `{texts.get(line, '')}`"
            cost = _ps(above_floor(time) * float(cycles[line, reason]) / waited) if waited else 0
            found.append(Advice("exposed wait", line, message, cost, ACCOUNT, _hint(reason, time)))
    return found


def _dearest(excess: NDArray[np.float64], again: Again) -> list[int]:
    """The few rows of PTX instructions with the largest excess over all warps."""
    rows = again.recording.events.instruction
    by_row = np.bincount(rows, excess * warps_of_events(again.recording), len(again.recording.instructions))
    return [row for row in np.argsort(-by_row, kind="stable")[:_MOST_LINES].tolist() if by_row[row] > 0]


def _uncoalesced(again: Again) -> list[Advice]:
    events, instructions = again.recording.events, again.recording.instructions
    least = least_sectors(events)
    found = []
    rows = {row: events.instruction == row for row in _dearest(events.sectors - least, again)}
    savings = again.saved(*(Given(events=_coalesced(events, here, least)) for here in rows.values()))
    for (row, here), saved in zip(rows.items(), savings, strict=True):
        share = float(least[here].sum() / events.sectors[here].sum())
        message = f"{100 * share:.0f} % of the bytes that `{instructions.text[row]}` moves are what its lanes ask for"
        hint = "let neighbouring lanes access neighbouring bytes, or pass through shared memory"
        found.append(Advice("uncoalesced access", int(instructions.line[row]), message, _ps(saved), AGAIN, hint))
    return found


def _coalesced(events: Events, here: NDArray[np.bool_], least: NDArray[np.float64]) -> Events:
    """The events, with the chosen accesses touching only the sectors that their bytes fill."""
    ratio = np.where(here & (events.sectors > 0), least / np.maximum(events.sectors, 1), 1.0)
    sectors = np.where(here, least, events.sectors)
    lines = np.where(here, np.minimum(events.lines, np.ceil(sectors * SECTOR / 128)), events.lines)
    scaled = {name: (getattr(events, name) * ratio).astype(np.float32) for name in ("first", "other", "own")}
    return replace(events, sectors=sectors.astype(np.int32), lines=lines.astype(np.int32), **scaled)


def _conflicts(again: Again, time_again: bool) -> list[Advice]:
    """Advice on bank conflicts, from the additional passes over the banks.

    Without timing again, each pass counts as a cycle of its SM, limited to the time that stalls explain.
    """
    events, instructions = again.recording.events, again.recording.instructions
    least = least_passes(events)
    found = []
    rows = {row: events.instruction == row for row in _dearest(events.wavefronts - least, again)}
    savings = again.saved(*(_without_conflicts(events, here, least) for here in rows.values())) if time_again else []
    for number, (row, here) in enumerate(rows.items()):
        times = float(events.wavefronts[here].sum() / least[here].sum())
        more = float(((events.wavefronts - least) * warps_of_events(again.recording))[here].sum())
        message = f"`{instructions.text[row]}` takes {times:.1f} times the passes over the banks that its bytes need"
        hint = "pad rows, or swizzle addresses, so that lanes of one pass hit different banks"
        if time_again:
            saved, by = savings[number], AGAIN
        else:
            of_sm = more / float(again.gpu.chip.sms) / (again.time.clock_mhz * 1e6)
            saved, by = min(of_sm, above_floor(again.time)), ACCOUNT
        found.append(Advice("bank conflict", int(instructions.line[row]), message, _ps(saved), by, hint))
    return found


def _without_conflicts(events: Events, here: NDArray[np.bool_], least: NDArray[np.float64]) -> Given:
    """The events, with the chosen accesses taking only the passes that their bytes need."""
    return Given(events=replace(events, wavefronts=np.where(here, least, events.wavefronts).astype(np.uint16)))


def _spills(again: Again) -> list[Advice]:
    ops = again.streams.ops
    if not ops.implicit.any():
        return []
    kept = replace(again.streams, ops=replace(ops, implicit=np.zeros_like(ops.implicit)))
    which = int(np.argmax(again.time.stalls.issued * ops.implicit))
    message = f"{again.streams.spill_bytes:,} bytes of registers are spilled to local memory"
    hint = "fewer live values, a smaller tile, more threads, or a higher limit of registers"
    (saved,) = again.saved(Given(streams=kept))
    return [Advice("spills", int(ops.line[which]), message, _ps(saved), AGAIN, hint)]


def _occupancy(again: Again, one_more: Change | None) -> list[Advice]:
    held = again.time.occupancy
    if one_more is None or held.limit not in ("registers", "shared memory"):
        return []
    message = f"{held.limit} let an SM hold no more than {held.ctas} CTAs, {held.warps} of {held.most_warps} warps"
    cost = _ps(one_more.saves * again.time.seconds)
    return [Advice("low occupancy", 0, message, cost, AGAIN, f"one more CTA per SM needs {one_more.needs}")]
