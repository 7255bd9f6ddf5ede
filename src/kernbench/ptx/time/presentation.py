"""Shows a `LaunchTime` as all targets do: metrics for tables, the page and sweeps, and a timeline."""

from collections.abc import Iterator, Mapping
from dataclasses import replace

import numpy as np

from kernbench.ptx.sass.join.making import EXPANSION, UNJOINED
from kernbench.ptx.sass.streams import Streams
from kernbench.ptx.time.causes import ENGINES, LATENCY, LAUNCH, REASONS, REST, TAIL, UNITS
from kernbench.ptx.time.changes import Again
from kernbench.ptx.time.engine.reasons import Reason
from kernbench.ptx.time.lines import LineStalls
from kernbench.ptx.time.result import MOSTLY, LaunchTime, Unit
from kernbench.ptx.time.roles import with_warps
from kernbench.ptx.time.sequence import following_ps
from kernbench.ptx.time.waits import LOWER_BOUND
from kernbench.result.finding import SourceLocation
from kernbench.result.reading import Data
from kernbench.result.run import Run
from kernbench.result.timeline import Ints, Lane, Step, Timeline

_PS = 1e12
# statements on accuracy: of machine code, and of the expansion as measured on an H200 (a test compares the figure with
# the data of the page)
EXPANSION_OFF = "15 %"
_EXPANDED = f"off by {EXPANSION_OFF} on average, and some by far more, as"
_ACCURACY = {
    EXPANSION: f"{_EXPANDED} there is no machine code",
    UNJOINED: f"{_EXPANDED} nothing of the launch was found in its machine code",
}
_HELD = "how near such times are"
# share of a launch timed by the expansion of PTX from which on tables mention it
_WORTH_SAYING = 0.1


def timed(run: Run, again: Again, drawn: bool = True) -> Run:
    """The run with its time; unless `drawn`, without timeline and lines."""
    time, recording, streams = again.time, again.recording, again.streams
    metrics = {**run.metrics, **warned(measure(time), run), **_joined(streams)}
    metrics["time_facts"] = [*metrics["time_facts"], *_unjoined(streams)]
    if not drawn:
        return replace(run, metrics=metrics)
    views = {**run.views, **LineStalls(time, recording, streams).views()}
    drawn_line = with_warps(timeline(time, recording.entry), time, recording, streams)
    return replace(run, metrics=metrics, views=views, timeline=drawn_line)


def warned(metrics: Data, run: Run) -> Data:
    """The metrics of a time with a warning, if the launch has faults of its compiler, which leave it its time."""
    faults = {str(finding.blame): finding.kind for finding in run.findings if finding.is_compilers}
    if not faults:
        return metrics
    said = [f"warning: {kind} is {blame}; this is the time of the code as it is" for blame, kind in faults.items()]
    caveat = ", ".join(filter(None, (metrics["caveat"], "with a compiler's fault")))
    return metrics | {"caveat": caveat, "time_facts": [*said, *metrics["time_facts"]]}


def _joined(streams: Streams) -> Data:
    """The share of the recording that was joined with machine code, and why the rest was not."""
    return {
        "unjoined": [{"reason": one.reason, "steps": one.steps} for one in streams.unjoined],
        "events_without_code": streams.events_without_op,
    }


def _unjoined(streams: Streams) -> list[str]:
    """The same in words, if there is anything to say."""
    machine_code = streams.joined > 0
    facts = [
        f"{one.steps:,} steps timed by the expansion of PTX: {one.reason}" for one in streams.unjoined if one.steps
    ]
    if streams.events_without_op and machine_code:
        facts.append(f"{streams.events_without_op:,} accesses of paths were merged or removed by ptxas")
    return facts


def measure(time: LaunchTime) -> Data:
    """The metrics of a timed launch, under the names shared by all targets, and those specific to GPUs."""
    total = round(time.seconds * _PS)
    floors = {UNITS[unit]: int(seconds * _PS) for unit, seconds in time.floors.items() if seconds > 0}
    floors = floors or {UNITS[Unit.ISSUE]: 0}
    bound = max(floors, key=lambda name: floors[name])
    return {
        "time_ps": total,
        "following_ps": following_ps(time),
        "cycles": time.cycles,
        "clock_mhz": time.clock_mhz,
        "predictions": time.predictions,
        "instructions_from": time.source,
        "joined": time.joined,
        "simulated_instructions": time.simulated,
        "occupancy": {
            "ctas": time.occupancy.ctas,
            "warps": time.occupancy.warps,
            "share": time.occupancy.share,
            "limit": time.occupancy.limit,
        },
        "utilisation": {UNITS[unit]: share for unit, share in time.busy.items()},
        "engines": ENGINES,
        "floors_ps": floors,
        "bound": bound,
        "limited_by": _limited_by(time),
        "floor_ratio": total / floors[bound] if floors[bound] else None,
        "gap_ps": gap(time, total, floors[bound]),
        "critical_path_ps": _by_reason(time, total),
        "sensitivity": {},
        "rates": _rates(time),
        "load_bytes": time.traffic.hbm_read,
        "store_bytes": time.traffic.hbm_written,
        "traffic_bytes": {
            "l1": time.traffic.l1,
            "l2": time.traffic.l2,
            "hbm": time.traffic.hbm_read + time.traffic.hbm_written,
            "shared": time.traffic.shared,
        },
        "time_note": _note(time),
        "caveat": ", ".join(_caveats(time)),
        "time_facts": [_limit(time), _resident(time), *(note for note in time.notes if time.predictions not in note)],
    }


def _note(time: LaunchTime) -> str:
    """Which GPU the time is for, and how it was found."""
    joined = f" ({100 * time.joined:.0f} % joined)" if time.joined else ""
    near = _ACCURACY.get(time.source, _HELD)
    held = f"; {near}: docs/gpu-accuracy.md" if time.predictions == "validated" else ""
    doubt = held or f"; {time.predictions}"
    if any(note.startswith(LOWER_BOUND) for note in time.notes):
        doubt += f"; {LOWER_BOUND}"
    why = f"; no machine code: {' '.join(time.no_code.split())}" if time.no_code else ""
    return f"predicted for {time.machine} at {time.clock_mhz:.0f} MHz from {time.source}{joined}{doubt}{why}"


def _caveats(time: LaunchTime) -> Iterator[str]:
    """Caveats on the time for tables, in a few words each."""
    if time.predictions != "validated":
        yield time.predictions
    if any(note.startswith(LOWER_BOUND) for note in time.notes):
        yield "lower bound"
    if time.source in _ACCURACY:
        yield "without machine code"
    elif 1 - time.joined >= _WORTH_SAYING:
        yield f"{100 * (1 - time.joined):.0f} % without machine code"


def _limited_by(time: LaunchTime) -> str:
    """What bounds the time.

    In this order: a floor that is most of it; the launch overhead, if CTAs run for little of it; the unit that is busy
    for most of the cycles; latency.
    """
    floor = _main_floor(time)
    if floor is not None:
        return UNITS[floor]
    if time.launch_seconds > MOSTLY * time.seconds or _begins_slowly(time):
        return LAUNCH
    return LATENCY if time.bound is None else UNITS[time.bound]


def _main_floor(time: LaunchTime) -> Unit | None:
    """The largest floor, if it is most of the time."""
    unit = max(time.floors, key=lambda one: (time.floors[one], -one), default=None)
    return unit if unit is not None and time.floors[unit] >= MOSTLY * time.seconds else None


def _begins_slowly(time: LaunchTime) -> bool:
    """Whether the launch rate of CTAs is the bottleneck, more than any unit."""
    share = time.dispatch_cycles / time.cycles if time.cycles else 0.0
    return share > max(MOSTLY, *time.busy.values())


def _limit(time: LaunchTime) -> str:
    """Why that is the bound."""
    floor = _main_floor(time)
    if floor is not None:
        return f"the floor of {UNITS[floor]} is {100 * time.floors[floor] / time.seconds:.0f} % of the time"
    if _limited_by(time) == LAUNCH and _begins_slowly(time):
        share = 100 * time.dispatch_cycles / time.cycles
        return f"CTAs begin for {share:.0f} % of the cycles: fewer of them, with more work each"
    if _limited_by(time) == LAUNCH:
        return f"the launch itself takes {100 * time.launch_seconds / time.seconds:.0f} % of the time"
    busiest = max(time.busy, key=lambda one: (time.busy[one], -one))
    return f"the busiest unit is {UNITS[busiest]}: {100 * time.busy[busiest]:.0f} % of the cycles that CTAs run"


def _resident(time: LaunchTime) -> str:
    held = time.occupancy
    limit = "the grid" if held.limit == "grid" else held.limit
    ctas = f"{held.ctas} CTA{'s' if held.ctas != 1 else ''}"
    return f"an SM holds {ctas}, {held.warps} of {held.most_warps} warps, limited by {limit}"


def gap(time: LaunchTime, total: int, floor: int) -> dict[str, int]:
    """The time above the floor by cause; floor and causes add up exactly to the time.

    The launch overhead and the tail are known; the rest is distributed in proportion to warp stalls.
    """
    left = total - floor
    causes = {}
    for name, wanted in ((LAUNCH, round(time.launch_seconds * _PS)), (TAIL, _ps(time, time.tail_cycles))):
        causes[name] = max(0, min(left, wanted))
        left -= causes[name]
    waited = {REASONS[reason]: cycles for reason, cycles in time.stalls.by_reason().items() if reason != Reason.ISSUED}
    causes |= shared_out(left, waited)
    return {name: value for name, value in causes.items() if value}


def shared_out(amount: int, weights: Mapping[str, float]) -> dict[str, int]:
    """Distributes an integer in proportion to weights without remainder; without weights it is unexplained."""
    whole = sum(weights.values())
    if amount <= 0 or whole <= 0:
        return {REST: amount} if amount else {}
    exact = {name: amount * weight / whole for name, weight in weights.items()}
    parts = {name: int(value) for name, value in exact.items()}
    for name in sorted(exact, key=lambda one: parts[one] - exact[one])[: amount - sum(parts.values())]:
        parts[name] += 1
    return parts


def _by_reason(time: LaunchTime, total: int) -> dict[str, int]:
    """The whole time by what warps did, stalled or issuing, plus the launch overhead."""
    launch = min(total, round(time.launch_seconds * _PS))
    spent = {REASONS[reason]: cycles for reason, cycles in time.stalls.by_reason().items() if cycles > 0}
    parts = {LAUNCH: launch, **shared_out(total - launch, spent)}
    return {name: value for name, value in parts.items() if value}


def _rates(time: LaunchTime) -> dict[str, dict[str, float]]:
    moved = time.traffic.hbm_read + time.traffic.hbm_written
    floor, seconds = time.floors.get(Unit.HBM, 0.0), time.seconds
    if not moved or not floor or not seconds:
        return {}
    return {"hbm": {"amount": moved, "achieved": moved / seconds, "peak": time.traffic.hbm_read / floor}}


def _ps(time: LaunchTime, cycles: float) -> int:
    return round(cycles / (time.clock_mhz * 1e6) * _PS)


def timeline(time: LaunchTime, kernel: str) -> Timeline:
    """The simulated CTAs on the slots of their SMs, after the launch overhead.

    The critical path is the slot that ends last.
    """
    spans, factor = time.spans, _PS / (time.clock_mhz * 1e6)
    before = round(time.overhead_ns * 1000)
    stands = dict(zip(spans.group.tolist(), spans.stands_for.tolist(), strict=True))
    keys = sorted(set(zip(spans.group.tolist(), spans.slot.tolist(), strict=True)))
    lanes = [Lane("GPU", "launch")] + [Lane(_group(group, stands[group]), f"slot {slot}") for group, slot in keys]
    lane_of = {key: number for number, key in enumerate(keys, 1)}
    on_slots = [lane_of[key] for key in zip(spans.group.tolist(), spans.slot.tolist(), strict=True)]
    lane = np.array([0, *on_slots, 0], np.int64)
    # stores still in flight after the last CTA count as well
    last, total = before + round(float(spans.end.max(initial=0.0)) * factor), round(time.seconds * _PS)
    start = np.concatenate([[0], before + np.rint(spans.start * factor), [min(last, total)]]).astype(np.int64)
    finish = np.concatenate([[before], before + np.rint(spans.end * factor), [total]]).astype(np.int64)
    names = ["launch", *(f"CTA {cta}" for cta in spans.cta.tolist()), "memory"]
    name = np.arange(len(names), dtype=np.int64)
    columns = (lane, name, np.zeros_like(name), start, finish, np.zeros((0, 2), np.int64))
    # a CTA has no source line
    sites = [SourceLocation(kernel, 0, said="")]
    return Timeline("ps", lanes, names, sites, *columns, _path(lanes, names, lane, start, finish))


def _group(group: int, stands_for: int) -> str:
    return f"SM {group}" if stands_for == 1 else f"SM {group}, like {stands_for - 1} others"


def _path(lanes: list[Lane], names: list[str], lane: Ints, start: Ints, finish: Ints) -> list[Step]:
    """The launch overhead, the CTAs on the slot that ends last, and the stores in flight after them."""
    ends = len(names) - 1
    chosen = [0, ends] if finish[ends] > start[ends] else [0]
    if ends > 1:
        last = int(lane[1 + int(finish[1:ends].argmax())])
        chosen += np.flatnonzero(lane[:ends] == last).tolist()
    steps: list[Step] = []
    reached = 0
    for number in sorted(chosen, key=lambda n: (int(start[n]), n)):
        begin, end = int(start[number]), int(finish[number])
        waited = "stores" if number == ends else ("", "launch", "a free slot")[min(len(steps), 2)]
        steps.append(Step(lanes[int(lane[number])], names[number], None, waited, max(0, begin - reached), begin, end))
        reached = end
    return steps
