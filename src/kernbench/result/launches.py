"""Several launches as one run: findings, counts and times combined, in sequence."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import accumulate
from typing import Any, Generic, TypeVar

import numpy as np

from kernbench.result.finding import Finding, FindingLog, SourceLocation
from kernbench.result.following import in_a_row
from kernbench.result.reading import Data, Fields
from kernbench.result.run import Run, Status
from kernbench.result.timeline import Ints, Lane, Timeline, Waits

Thing = TypeVar("Thing")

# the lane with a span for each launch
LAUNCHES = Lane("launches", "kernel")
# a cause of the gap: another resource bounds some of the launches
OTHERWISE = "bound otherwise"
# a target's word for times that were compared with measurements
SURE = "validated"
# largest number of different notes that are shown
_MOST_NOTES = 3
Metrics = Data


Views = Callable[[Sequence[Run], Sequence[int]], Mapping[str, object]]


def joined(run: Run, launches: Sequence[Run], timed_views: Views | None = None) -> Run:
    """The `run` a bench gave back, extended to all its `launches`; unchanged if there are fewer than two.

    Findings and counts are those of all launches. There is a time if all launches have one. If all have a time or all
    an order, the timeline shows them in sequence. Outputs, and views without times, are those of `run`. `timed_views`
    makes the views with times, from the launches and their start times.
    """
    if len(launches) < 2:
        return run
    bad = [launch.status for launch in launches if launch.status is not Status.FINISHED]
    have_time = ["time_ps" in launch.metrics for launch in launches]
    timed = all(have_time)
    views = {**run.views, **_listed(launches), **_parts(launches)}
    if timed and timed_views is not None:
        views |= timed_views(launches, _begins(launch.metrics["time_ps"] for launch in launches))
    found = [finding for launch in launches for finding in launch.findings]
    # a bench may construct its Run itself
    found += [finding for finding in run.findings if finding not in found]
    formal = [finding for launch in launches for finding in launch.formal]
    formal += [finding for finding in run.formal if finding not in formal]
    return replace(
        run,
        findings=found,
        formal=formal,
        checked=tuple(name for name in run.checked if all(name in launch.checked for launch in launches)),
        status=bad[0] if bad and run.status is Status.FINISHED else run.status,
        metrics=joined_metrics([launch.metrics for launch in launches]),
        timeline=_timeline(launches) or (None if any(have_time) else run.timeline),
        views=views,
        launches=list(launches),
    )


def _parts(launches: Sequence[Run]) -> dict[str, object]:
    """How much of all launches was run, if one of them was run in part."""
    parts = [launch.views["part"] for launch in launches if "part" in launch.views]
    return {"part": {name: sum(part[name] for part in parts) for name in ("run", "of")}} if parts else {}


def kernel_of(run: Run) -> str:
    """The name of a run's kernel."""
    return str(run.origin.get("kernel") or "kernel")


def launch_names(run: Run) -> list[tuple[str, Run]]:
    """The launches of a run with names: that of the kernel, numbered if it is launched again."""
    names = [kernel_of(launch) for launch in run.launches]
    seen: Counter[str] = Counter()
    found = []
    for name, launch in zip(names, run.launches, strict=True):
        seen[name] += 1
        found.append((f"{name} {seen[name]}" if names.count(name) > 1 else name, launch))
    return found


def formal_by_kernel(run: Run) -> list[tuple[str, list[Finding]]]:
    """The formal findings of a run by kernel; those shared by several launches of a kernel are listed once."""
    pairs = [(launch, finding) for launch in run.launches for finding in launch.formal]
    # those of the whole run are those of its launches, counted together
    known = {(finding.kind, finding.where) for _, finding in pairs}
    pairs += [(run, finding) for finding in run.formal if (finding.kind, finding.where) not in known]
    logs: dict[str, FindingLog] = {}
    for launch, finding in pairs:
        logs.setdefault(kernel_of(launch), FindingLog()).add(finding, finding.hint)
    return [(kernel, log.findings()) for kernel, log in logs.items()]


# Metrics


def joined_metrics(parts: Sequence[Metrics]) -> Metrics:
    """The metrics of launches in sequence: counts and times are summed, shares are weighted by time.

    There is no time if some launches have none.
    """
    total: Metrics = {}
    if len({"time_ps" in part for part in parts}) > 1:
        parts = _shared(parts)
    for part in parts:
        total = _added(total, part)
    if all("time_ps" in part for part in parts):
        times = [part["time_ps"] for part in parts]
        total |= {key: make(key, parts, times) for key, make in _TIMED.items() if all(key in part for part in parts)}
        total |= _bound(total, parts)
        if all("following_ps" in part for part in parts):
            total["in_a_row_ps"] = in_a_row(times, [part["following_ps"] for part in parts])
    return total


def _shared(parts: Sequence[Metrics]) -> list[Metrics]:
    """The metrics that all launches have, and the reason why one has no time."""
    kept = set.intersection(*(set(part) for part in parts)) | {"no_time"}
    return [{name: value for name, value in part.items() if name in kept} for part in parts]


# metrics that are not summed: the last one's value, or the largest
_KEPT = frozenset(("repetitions", "engines", "rings", "bound", "limit"))
_LARGEST = frozenset(("scratch_peak_bytes",))


def _added(total: Metrics, more: Metrics) -> Metrics:
    found = dict(total)
    for name, value in more.items():
        known = found.get(name)
        if isinstance(value, dict):
            found[name] = _added(known if isinstance(known, dict) else {}, value)
        elif not isinstance(value, (int, float)) or isinstance(value, bool) or name in _KEPT:
            found[name] = value
        elif name in _LARGEST:
            found[name] = max(known or 0, value)
        else:
            found[name] = (known or 0) + value
    return found


def _weighed(key: str, parts: Sequence[Metrics], times: Sequence[int]) -> dict[str, float]:
    """Shares of time, weighted by each launch's time."""
    whole = sum(times) or 1
    names = dict.fromkeys(name for part in parts for name in part[key])
    return {
        name: sum(part[key].get(name, 0.0) * time for part, time in zip(parts, times, strict=True)) / whole
        for name in names
    }


def _rates(key: str, parts: Sequence[Metrics], times: Sequence[int]) -> dict[str, dict[str, float]]:
    """Amounts over the whole time, and the largest peak."""
    whole = sum(times) or 1
    found: dict[str, dict[str, float]] = {}
    for part, time in zip(parts, times, strict=True):
        for name, rate in part[key].items():
            row = found.setdefault(name, {"amount": 0, "achieved": 0.0, "peak": 0})
            row["amount"] += rate["amount"]
            row["achieved"] += rate["achieved"] * time / whole
            row["peak"] = max(row["peak"], rate["peak"])
    return found


def _advice(key: str, parts: Sequence[Metrics], times: Sequence[int]) -> list[Metrics]:
    """The advice for all launches, the most useful first: by what a saving counts, where some are less sure."""
    return sorted(
        (one for part in parts for one in part[key]), key=lambda one: -int(one.get("worth_ps", one["cost_ps"]))
    )


def _changes(key: str, parts: Sequence[Metrics], times: Sequence[int]) -> list[Metrics]:
    """The changes of all launches; each saves its share of the whole."""
    whole = sum(times) or 1
    return [
        {**one, "saves": one["saves"] * time / whole}
        for part, time in zip(parts, times, strict=True)
        for one in part[key]
    ]


def _mean(key: str, parts: Sequence[Metrics], times: Sequence[int]) -> float:
    """The mean of a clock or a share over the time."""
    whole = sum(times)
    weights = times if whole else [1] * len(times)
    return float(sum(part[key] * weight for part, weight in zip(parts, weights, strict=True)) / sum(weights))


def _longest(key: str, parts: Sequence[Metrics], times: Sequence[int]) -> object:
    """The value of the launch that takes longest."""
    return parts[max(range(len(times)), key=lambda number: times[number])][key]


def _doubted(key: str, parts: Sequence[Metrics], times: Sequence[int]) -> str:
    """The predictions of the whole are validated only if those of all launches are."""
    return next((part[key] for part in parts if part[key] != SURE), SURE)


def _caveats(key: str, parts: Sequence[Metrics], times: Sequence[int]) -> str:
    """The caveats of all launches."""
    return ", ".join(dict.fromkeys(word for part in parts for word in part[key].split(", ") if word))


def _notes(key: str, parts: Sequence[Metrics], times: Sequence[int]) -> str:
    """The different notes of launches, that of the longest first."""
    order = sorted(range(len(times)), key=lambda number: -times[number])
    found = list(dict.fromkeys(parts[number][key] for number in order))
    more = [f"{len(found) - _MOST_NOTES} more"] if len(found) > _MOST_NOTES else []
    return "; and ".join([*found[:_MOST_NOTES], *more])


_TIMED: dict[str, Callable[[str, Sequence[Metrics], Sequence[int]], object]] = {
    "utilisation": _weighed,
    "sensitivity": _weighed,
    "rates": _rates,
    "advice": _advice,
    "changes": _changes,
    "clock_mhz": _mean,
    "joined": _mean,
    "occupancy": _longest,
    "time_facts": _longest,
    "unjoined": _longest,
    "predictions": _doubted,
    "caveat": _caveats,
    "time_note": _notes,
    "instructions_from": _notes,
}


def bound_of(metrics: Fields, key: str = "bound") -> str:
    """What bounds a run, the same for tables, pages, sweeps and `tune`.

    It is `limited_by` if the target knows more than the largest floor, else the metric named by `key`.
    """
    return str(metrics.get("limited_by", metrics.get(key, "")) if key == "bound" else metrics.get(key, ""))


def _bound(total: Metrics, parts: Sequence[Metrics]) -> Metrics:
    """What bounds all launches together, and how far they are from it."""
    floors = total["floors_ps"]
    bound = max(floors, key=lambda name: floors[name])
    found: Metrics = {"bound": bound, "floor_ratio": total["time_ps"] / floors[bound] if floors[bound] else None}
    if all("limited_by" in part for part in parts):
        found["limited_by"] = max(parts, key=lambda part: part["time_ps"])["limited_by"]
    if "gap_ps" in total:
        own = sum(part["floors_ps"][part["bound"]] for part in parts)
        found["gap_ps"] = {**total["gap_ps"], **({OTHERWISE: own - floors[bound]} if own > floors[bound] else {})}
    return found


# The timeline


def _timeline(launches: Sequence[Run]) -> Timeline | None:
    """The launches in sequence, with a lane of launches; None if their units differ.

    Kernels without waits have no order to show, and are left out.
    """
    pairs = [(launch, launch.timeline) for launch in launches if launch.timeline is not None]
    units = {line.unit for _, line in pairs}
    if len(units) != 1 or (len(pairs) < len(launches) and "ps" in units):
        return None
    launches, lines = [launch for launch, _ in pairs], [line for _, line in pairs]
    unit = lines[0].unit
    lengths = [launch.metrics["time_ps"] if unit == "ps" else line.total for launch, line in pairs]
    begins = _begins(lengths)
    lanes = Numbered([LAUNCHES])
    names, sites = Numbered([kernel_of(launch) for launch in launches]), Numbered[SourceLocation]([])
    columns: dict[str, list[Ints]] = {key: [] for key in ("lane", "name", "site", "start", "finish", "flows")}
    first = len(lines)
    for line, begin in zip(lines, begins, strict=True):
        columns["lane"].append(lanes.of(line.lanes)[line.lane])
        columns["name"].append(names.of(line.names)[line.name])
        columns["site"].append(sites.of(line.sites)[line.site])
        columns["start"].append(line.start + begin)
        columns["finish"].append(line.finish + begin)
        columns["flows"].append(line.flows.reshape(-1, 2) + first)
        first += len(line.start)
    own = _own_spans(launches, lines, (begins, lengths), names, sites)
    whole = {key: np.concatenate([own[key], *parts]) for key, parts in columns.items()}
    path = [
        replace(step, start=step.start + begin, finish=step.finish + begin)
        for line, begin in zip(lines, begins, strict=True)
        for step in line.critical_path
    ]
    return Timeline(
        unit,
        lanes.known,
        names.known,
        sites.known,
        whole["lane"],
        whole["name"],
        whole["site"],
        whole["start"],
        whole["finish"],
        whole["flows"],
        critical_path=path,
        counters=_counters(lines, begins),
        waits=_waits(lines),
    )


def _waits(lines: Sequence[Timeline]) -> Waits | None:
    """What each span waited for; a launch waits for the one before it."""
    if any(line.waits is None for line in lines):
        return None
    kinds = Numbered(["launch"])
    launches = np.arange(len(lines), dtype=np.int64) - 1
    kind, after, first = [np.zeros(len(lines), np.int64)], [launches], len(lines)
    for line in lines:
        assert line.waits is not None
        kind.append(kinds.of(line.waits.kinds)[line.waits.kind])
        after.append(np.where(line.waits.after >= 0, line.waits.after + first, -1))
        first += len(line.start)
    return Waits(tuple(kinds.known), np.concatenate(kind), np.concatenate(after))


def _own_spans(
    launches: Sequence[Run],
    lines: Sequence[Timeline],
    times: tuple[Sequence[int], Sequence[int]],
    names: "Numbered[str]",
    sites: "Numbered[SourceLocation]",
) -> dict[str, Ints]:
    """A span for each launch, at its first source location; `times` are starts and lengths."""
    start, length = (np.array(part, np.int64) for part in times)
    locations = [line.sites[0] if line.sites else SourceLocation("<launch>", 0) for line in lines]
    return {
        "lane": np.zeros(len(lines), np.int64),
        "name": names.of([kernel_of(launch) for launch in launches]),
        "site": sites.of(locations),
        "start": start,
        "finish": start + length,
        "flows": np.empty((0, 2), np.int64),
    }


class Numbered(Generic[Thing]):
    """Numbers distinct values, in the order of first use."""

    def __init__(self, known: Iterable[Thing]):
        self.known = list(dict.fromkeys(known))
        self._numbers = {one: number for number, one in enumerate(self.known)}

    def of(self, things: Iterable[Thing]) -> Ints:
        """The numbers of values; new values are added."""
        found = []
        for one in things:
            if one not in self._numbers:
                self._numbers[one] = len(self.known)
                self.known.append(one)
            found.append(self._numbers[one])
        return np.array(found or [0], np.int64)


def _begins(times: Iterable[int]) -> list[int]:
    """When each launch begins."""
    return [0, *accumulate(times)][:-1]


def _counters(lines: Sequence[Timeline], begins: Sequence[int]) -> dict[str, tuple[Ints, Any]]:
    found: dict[str, tuple[Ints, object]] = {}
    for line, begin in zip(lines, begins, strict=True):
        for name, (times, values) in line.counters.items():
            if name in found:
                before = found[name]
                found[name] = (np.concatenate([before[0], times + begin]), np.concatenate([before[1], values]))
            else:
                found[name] = (times + begin, values)
    return found


# Views

_LISTS = ("printf", "acknowledged", "hints")


def _listed(launches: Sequence[Run]) -> dict[str, object]:
    """Views that are lists, concatenated."""
    lists = {key: [row for launch in launches for row in launch.views.get(key, [])] for key in _LISTS}
    return {key: rows for key, rows in lists.items() if rows}
