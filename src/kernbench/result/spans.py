"""A timeline as plain data and back: spans sorted by lane and start, as differences, which compress well."""

import numpy as np
from numpy.typing import NDArray

from kernbench.common.dtypes import Array
from kernbench.common.errors import MisuseError
from kernbench.result.columns import pack, unpack
from kernbench.result.finding import SourceLocation, location_dict, read_location
from kernbench.result.reading import Data, Reader
from kernbench.result.timeline import Lane, Step, Timeline, Waits

Ints = NDArray[np.int64]
UNITS = ("ps", "order")
# the largest integer that a double represents exactly, for JavaScript: two and a half hours in picoseconds
LATEST = 2**53


def timeline_dict(timeline: Timeline) -> Data:
    """Plain data for JSON; docs/report.md has the schema."""
    order = np.lexsort((timeline.finish, timeline.start, timeline.lane))
    lanes = {lane: number for number, lane in enumerate(timeline.lanes)}
    sites = {site: number for number, site in reversed([*enumerate(timeline.sites)])}
    path = _path_dict(timeline, lanes, sites)
    per_lane = np.bincount(timeline.lane, minlength=len(timeline.lanes))
    position_of = np.empty_like(order)
    position_of[order] = np.arange(len(order))
    flows = position_of[timeline.flows.reshape(-1, 2)]
    return {
        "unit": timeline.unit,
        "lanes": [[lane.group, lane.name] for lane in lanes],
        "names": list(timeline.names),
        "sites": [location_dict(location) for location in [*timeline.sites, *list(sites)[len(set(timeline.sites)) :]]],
        "per_lane": pack(np.pad(per_lane, (0, len(lanes) - len(per_lane)))),
        "name": pack(timeline.name[order]),
        "site": pack(timeline.site[order]),
        "start": pack(_differences(timeline.start[order], timeline.lane[order])),
        "length": pack((timeline.finish - timeline.start)[order]),
        "flows": {"source": pack(flows[:, 0]), "target": pack(flows[:, 1])},
        "path": path,
        "counters": [
            {"name": name, "times": pack(_differences(times)), "values": pack(values)}
            for name, (times, values) in timeline.counters.items()
        ],
        **_waits_dict(timeline.waits, order, position_of),
    }


def _waits_dict(waits: Waits | None, order: Ints, position_of: Ints) -> dict[str, object]:
    """What each span waited for, as its distance backwards, which often repeats; 0 is none."""
    if waits is None:
        return {}
    after = waits.after[order]
    distance = np.where(after >= 0, np.arange(len(order)) - position_of[after], 0)
    return {"waits": {"kinds": list(waits.kinds), "kind": pack(waits.kind[order]), "after": pack(distance)}}


def _path_dict(timeline: Timeline, lanes: dict[Lane, int], sites: dict[SourceLocation, int]) -> dict[str, object]:
    """The critical path as columns; lanes and sites that occur only in it are added."""
    names: dict[str, int] = {}
    waits: dict[str, int] = {}
    first_new = len(timeline.sites)
    rows = []
    for step in timeline.critical_path:
        site = -1
        if step.where is not None:
            site = sites.setdefault(step.where, first_new)
            first_new += site == first_new
        rows.append(
            (
                lanes.setdefault(step.lane, len(lanes)),
                names.setdefault(step.name, len(names)),
                site,
                waits.setdefault(step.waited_for, len(waits)),
                step.lag,
                step.start,
                step.finish - step.start,
            )
        )
    columns = np.array(rows, np.int64).reshape(-1, 7).T
    keys = ("lane", "name", "site", "waited_for", "lag", "start", "length")
    return {
        "names": list(names),
        "waits": list(waits),
        **{key: pack(column) for key, column in zip(keys, columns, strict=True)},
    }


def _differences(values: Array, lane: Ints | None = None) -> Array:
    """The difference of each value to the one before it; the first of each lane as it is."""
    steps = np.diff(values, prepend=0)
    if lane is not None and len(lane):
        first = np.flatnonzero(np.diff(lane, prepend=-1))
        steps[first] = values[first]
    return steps


def read_timeline(data: Reader) -> Timeline:
    """Read what `timeline_dict` wrote; inconsistent data is refused."""
    unit = data["unit"].of(str)
    if unit not in UNITS:
        raise data["unit"].refuse(f"{' or '.join(UNITS)} is wanted")
    lanes = [_lane(one) for one in data["lanes"]]
    names = list(data["names"].texts())
    sites = [read_location(one) for one in data["sites"]]
    per_lane = _column(data["per_lane"], most=None, count=len(lanes))
    spans = int(per_lane.sum())
    lane = np.repeat(np.arange(len(lanes)), per_lane)
    name = _column(data["name"], len(names), spans)
    site = _column(data["site"], len(sites), spans)
    steps = _column(data["start"], None, spans)
    start = _sums(steps, per_lane)
    finish = start + _column(data["length"], None, spans)
    if spans and (int(start.min()) < 0 or bool((finish < start).any()) or int(finish.max()) > LATEST):
        raise MisuseError(f"{data.path}: spans lie between 0 and {LATEST}")
    flows = np.stack([_column(data["flows"][key], spans) for key in ("source", "target")], axis=1)
    path = _read_path(data["path"], lanes, sites)
    counters = {one["name"].of(str): _counter(one) for one in data["counters"]}
    waits = _read_waits(data["waits"], spans) if "waits" in data.of(dict) else None
    return Timeline(unit, lanes, names, sites, lane, name, site, start, finish, flows, path, counters, waits)


def _read_waits(data: Reader, spans: int) -> Waits:
    kinds = data["kinds"].texts()
    distance = _column(data["after"], spans, spans, least=1 - spans)
    after = np.arange(spans) - distance
    if spans and (int(after.min()) < 0 or int(after.max()) >= spans):
        raise MisuseError(f"{data.path}.after: a span waits for another of the {spans}")
    return Waits(tuple(kinds), _column(data["kind"], len(kinds), spans), np.where(distance == 0, -1, after))


def _lane(data: Reader) -> Lane:
    held = data.texts()
    if len(held) != 2:
        raise data.refuse("a lane is its group and its name")
    return Lane(*held)


def _column(data: Reader, most: int | None, count: int | None = None, least: int = 0) -> Ints:
    values = unpack(data.value, data.path)
    if values.dtype.kind not in "iu" or values.ndim != 1 or (count is not None and len(values) != count):
        raise MisuseError(f"{data.path}: {'any number of' if count is None else count} whole numbers are wanted")
    if len(values) and (int(values.min()) < least or (most is not None and int(values.max()) >= most)):
        limit = "" if most is None else f" and below {most}"
        raise MisuseError(f"{data.path}: numbers from {least} on{limit} are wanted")
    return values.astype(np.int64)


def _sums(steps: Ints, per_lane: Ints) -> Ints:
    """Start times from their differences, lane by lane."""
    running = np.cumsum(steps)
    firsts = (np.cumsum(per_lane) - per_lane)[per_lane > 0]
    before = running[firsts] - steps[firsts]
    sums: Ints = running - np.repeat(before, per_lane[per_lane > 0])
    return sums


def _read_path(data: Reader, lanes: list[Lane], sites: list[SourceLocation]) -> list[Step]:
    names, waits = data["names"].texts(), data["waits"].texts()
    count = len(_column(data["start"], None))
    limits = {"lane": len(lanes), "name": len(names), "site": len(sites), "waited_for": len(waits)}
    columns = [_column(data[key], most, count, least=-1 * (key == "site")).tolist() for key, most in limits.items()]
    columns += [_column(data[key], None, count).tolist() for key in ("lag", "start", "length")]
    return [
        Step(lanes[lane], names[name], sites[site] if site >= 0 else None, waits[wait], lag, start, start + length)
        for lane, name, site, wait, lag, start, length in zip(*columns, strict=True)
    ]


def _counter(data: Reader) -> tuple[Ints, Array]:
    times = np.cumsum(_column(data["times"], None))
    values = unpack(data["values"].value, data["values"].path)
    if values.shape != times.shape:
        raise MisuseError(f"{data.path}: {len(times)} times and {values.size} values")
    return times, values
