"""Predicts the points on a machine without a GPU: `python -m benchmarks.truth.predict OUT.jsonl [--only ID ...]`.

Each point is recorded on the emulator (without checks: all kernels were checked at small sizes), joined to its machine
code, and timed for the GPU. A grid of more clusters than `--ctas` is not run whole: `sampling` says which of them are,
and which stand for the others. What they touch for the first time others touched before them, if all of it is more than
the launch's arrays have, or than it moves: of these, as much comes from L2 as it holds of what was touched that long
ago.
"""

import argparse
import json
import pickle
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from kernbench import ptx
from kernbench.ptx.machine import load
from kernbench.ptx.recording.recording import SECTOR, LaunchRecording
from kernbench.ptx.sass.join.making import streams_of
from kernbench.ptx.sass.streams import Streams
from kernbench.ptx.time.launch import time_launch

from .emulated import made
from .frozen import Launch, launch
from .measure import _BENCHES, _inputs
from .points import Point, points
from .problems import Input, Output, Work
from .registry import PROBLEMS
from .sampling import Sample, Way, extended, sample, uneven, work

CTAS = 4096
# the decision (docs/adr) that changed times last: the page says which rows are older; 80.9 is a part of 81, of which
# the rest was made after the eighth look
MODEL = 87


@dataclass(frozen=True)
class Taken:
    """A launch that was recorded, as one of its whole grid; `ran` says which of its CTAs were run, empty: all."""

    recording: LaunchRecording
    ran: dict[str, Any]
    moved: int = 0


class SamplingDevice(ptx.EmulatedDevice):
    """An emulator that runs some clusters of a grid only, where there are more than `most`, and records them."""

    def __init__(self, arch: str, most: int, way: Way):
        super().__init__(arch)
        self.most, self.way = most, way
        self.sample: Sample | None = None

    def _setting(self, *given: Any) -> Any:
        setting = super()._setting(*given)
        size = int(np.prod(setting.cluster))
        count = int(np.prod(setting.grid)) // size
        self.sample = None if count <= self.most else sample(self.way, count, self.most, size)
        return setting if self.sample is None else replace(setting, clusters=self.sample.chosen)

    def recorded(self, kernel: Any, grid: Any, block: Any, given: list[Any], shared: int) -> tuple[Any, "Part"]:
        """A launch without checks, and what was recorded of it."""
        run = self.launch(kernel, grid, block, given, shared, checks=False, record=True)
        return run, Part(getattr(run, "recording", None), self.sample)


@dataclass(frozen=True)
class Part:
    """What was recorded of some clusters of a grid; nothing where they did not come to an end."""

    recording: LaunchRecording | None
    sample: Sample | None
    moved: int = 0

    def whole(self, way: Way) -> Taken:
        """As a recording of the whole grid."""
        if self.recording is None:
            raise RuntimeError("a launch did not come to an end")
        if self.sample is None:
            return Taken(self.recording, {}, self.moved)
        ran = {"clusters": len(self.sample.chosen), "of": len(self.sample.stands), "way": str(way)}
        return Taken(within(extended(self.recording, self.sample), self.moved), ran, self.moved)

    def differs(self, other: "Part") -> bool:
        """Whether other clusters of the same grid do more or less."""
        if self.sample is None or other.sample is None or self.recording is None or other.recording is None:
            return False
        return uneven(work(self.recording, self.sample), work(other.recording, other.sample))


def within(whole: LaunchRecording, moved: int) -> LaunchRecording:
    """The recording with at most so many bytes touched for the first time."""
    recording, classes, events = whole, whole.cta_class, whole.events
    counts = np.zeros(len(recording.traces), np.float64)
    np.add.at(counts, recording.class_trace, np.bincount(classes, minlength=recording.classes)[:, None])
    lengths = np.diff(recording.traces.first_event[recording.traces.start])
    every = events.first * np.repeat(counts, lengths) * SECTOR
    total = float(every.sum())
    if not moved or total <= moved:
        return whole
    # what nobody touched twice is read once, and no part of it was there before
    once = events.other <= 0
    left = moved - float(every[once].sum())
    if left <= 0:
        once, left = np.zeros_like(once), float(moved)
    share = left / max(float(every[~once].sum()), 1.0)
    kept = np.where(once, events.first, events.first * min(share, 1.0)).astype(np.float32)
    again = events.first - kept
    other = np.maximum(events.other + again, np.float32(1e-9))
    distance = (events.other * events.other_distance + again * np.float32(np.log2(moved))) / other
    return replace(whole, events=replace(events, first=kept, other=other, other_distance=distance.astype(np.float32)))


def recorded(parts_of: Callable[[Way], list[Part]]) -> list[Taken]:
    """Launches, of which `parts_of` gives what was recorded of some clusters, as those of whole grids.

    The first clusters stand for the others, or some from all over the grid where these do more or less, if those come
    to an end without the ones before them.
    """
    first = parts_of(Way.FIRST)
    whole = [part.whole(Way.FIRST) for part in first]
    if not any(part.sample for part in first):
        return whole
    probed = parts_of(Way.PROBE)
    if len(probed) != len(first) or not any(one.differs(two) for one, two in zip(first, probed, strict=True)):
        return whole
    spread = parts_of(Way.SPREAD)
    return whole if any(part.recording is None for part in spread) else [part.whole(Way.SPREAD) for part in spread]


def parts(point: Point, most: int, way: Way) -> list[Part]:
    """What was recorded of each launch of a point."""
    device = SamplingDevice("sm_90a", most, way)
    if point.set == "ours":
        return _ours(device, point)
    if point.set == "kernels":
        of = launch(point.id)
        given, _ = of.made(device)
        return [_recorded(device, of, given, of.nbytes)]
    work_of = PROBLEMS[point.problem](**point.parameters)
    given, _, _ = made(device, work_of)
    return [_recorded(device, work_of, given, work_of.moved)]


def _recorded(device: SamplingDevice, of: Launch | Work, given: list[Any], moved: int) -> Part:
    kernel = ptx.parse(of.text).kernels[of.entry]
    _, part = device.recorded(kernel, of.grid, of.block, given, of.shared)
    return replace(part, moved=moved)


class RecordingHost(ptx.Host):
    """The host that benches launch on, which keeps the recordings."""

    device: SamplingDevice

    def __init__(self, device: SamplingDevice):
        super().__init__("emulator")
        self.device = device
        self.parts: list[Part] = []

    def launch(
        self, kernel: Any, grid: Any, block: Any, args: Any = (), shared_bytes: int = 0, *, outputs: Any = None,
        **options: Any,
    ) -> Any:  # fmt: skip
        """A launch that is recorded."""
        run, part = self.device.recorded(kernel, grid, block, list(args), shared_bytes)
        self.parts.append(part)
        if outputs is not None:
            run.outputs = {array.name: array.numpy() for array in outputs}
        return run


def _ours(device: SamplingDevice, point: Point) -> list[Part]:
    bench = _BENCHES[point.problem]
    settings = {key: tuple(value) if isinstance(value, list) else value for key, value in point.parameters.items()}
    p = bench.Parameters(**settings)
    host = RecordingHost(device)
    bench.launch(p, _inputs(bench, p), torch=host)
    return host.parts


def footprint(point: Point) -> int:
    """Bytes of the arrays that a launch is given; 0 where that is not known."""
    if point.set == "ours":
        return 0
    if point.set == "kernels":
        return launch(point.id).nbytes
    arrays = [one for one in PROBLEMS[point.problem](**point.parameters).arguments if isinstance(one, Input | Output)]
    return sum(int(np.prod(one.shape)) * np.dtype(one.dtype).itemsize for one in arrays)


def kept(point: Point, most: int, folder: Path | None) -> list[tuple[Taken, Streams]]:
    """Recordings with their streams; of a folder where they were kept before."""
    file = folder / f"{point.id}-{most}.pickle" if folder is not None else None
    if file is not None and file.exists():
        found: list[tuple[Taken, Streams]] = pickle.loads(file.read_bytes())
        return found
    made_now = [(one, streams_of(one.recording, "sm_90a")) for one in recorded(partial(parts, point, most))]
    if file is not None:
        file.write_bytes(pickle.dumps(made_now))
    return made_now


def expanded(taken: list[tuple[Taken, Streams]]) -> list[tuple[Taken, Streams]]:
    """Recordings with the streams that they have without an assembler."""
    return [(one, streams_of(one.recording, "sm_90a", use_tools=False)) for one, _ in taken]


def row(point: Point, gpu: Any, taken: list[tuple[Taken, Streams]], began: float) -> dict[str, Any]:
    """A point's row, of recordings and their streams: nanoseconds of each launch, what bounds it, and how it came
    about; `began` is the CPU time when they were begun.
    """
    given = [(within(one.recording, footprint(point)) if one.ran else one.recording, streams) for one, streams in taken]
    after = time.process_time()
    launches = [time_launch(recording, streams, gpu) for recording, streams in given]
    longest = max(launches, key=lambda one: one.seconds)
    busy = {unit.name.lower(): round(share, 3) for unit, share in longest.busy.items() if share > 0.02}
    reasons = {why.name.lower(): round(cycles) for why, cycles in longest.stalls.by_reason().items() if cycles}
    return {
        "id": point.id,
        "split": point.split,
        "time_ns": sum(one.seconds for one in launches) * 1e9,
        "launches_ns": [one.seconds * 1e9 for one in launches],
        "cycles": sum(one.cycles for one in launches),
        "bound": longest.bound.name.lower() if longest.bound is not None else "latency",
        "busy": busy,
        "stalls": reasons,
        "occupancy": [longest.occupancy.ctas, longest.occupancy.limit],
        "hbm_bytes": sum(one.traffic.hbm_read + one.traffic.hbm_written for one in launches),
        "model": MODEL,
        "source": longest.source,
        "joined": round(longest.joined, 4),
        "sampled": [one.ran for one, _ in taken if one.ran],
        "notes": list(longest.notes),
        "seconds": [round(after - began, 1), round(time.process_time() - after, 1)],
    }


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.truth.predict", description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--only", nargs="*", default=[])
    parser.add_argument("--split", default="")
    parser.add_argument("--gpu", default="h200")
    parser.add_argument("--keep", type=Path, help="a folder of one's own where recordings are kept for the next time")
    parser.add_argument("--expansion", action="store_true", help="as without an assembler, by the expansion of PTX")
    parser.add_argument("--ctas", type=int, default=CTAS, help="how many clusters of a grid are run at most")
    given = parser.parse_args()
    gpu = load(given.gpu)
    with given.out.open("a", encoding="utf-8") as file:
        for point in points():
            if (given.only and point.id not in given.only) or (given.split and point.split != given.split):
                continue
            try:
                began, taken = time.process_time(), kept(point, given.ctas, given.keep)
                found = row(point, gpu, expanded(taken) if given.expansion else taken, began)
            except Exception as error:
                found = {"id": point.id, "split": point.split, "error": f"{type(error).__name__}: {error}"[:300]}
            file.write(json.dumps(found) + "\n")
            file.flush()
            sys.stdout.write(f"{point.id}: {found.get('time_ns', found.get('error'))}\n")
            sys.stdout.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main())
