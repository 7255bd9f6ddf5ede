"""Predicts the points on a machine without a GPU: `python -m benchmarks.truth.predict OUT.jsonl [--only ID ...]`.

Each point is recorded on the emulator (without checks: all kernels were checked at small sizes), joined to its machine
code, and timed for the GPU. A grid of more CTAs than `--ctas` is not run whole: its first ones are, and stand for the
others in turn. What they touch for the first time others touched before them, if all of it is more than the launch's
arrays have, or than it moves: of these, as much comes from L2 as it holds of what was touched that long ago.
"""

import argparse
import json
import pickle
import sys
import time
from dataclasses import replace
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
from .frozen import launch
from .measure import _BENCHES, _inputs
from .points import Point, points
from .problems import Input, Output, Work
from .registry import PROBLEMS

CTAS = 4096
# the decision (docs/adr) that changed times last: the page says which rows are older
MODEL = 74


class SamplingDevice(ptx.EmulatedDevice):
    """An emulator that runs the first CTAs of a grid only, and records them."""

    most = CTAS

    def _setting(self, *given: Any) -> Any:
        setting = super()._setting(*given)
        count = int(np.prod(setting.grid) // np.prod(setting.cluster))
        return setting if count <= self.most else replace(setting, clusters=tuple(range(self.most)))


def extended(recording: LaunchRecording, ran: int, moved: int) -> LaunchRecording:
    """A recording of the first CTAs as one of the whole grid: they stand for the others in turn.

    Sectors that were touched for the first time are at most `moved` bytes, where that is known. If they are k times as
    many, others touched them before, and if these times lie evenly, a k-th of all that is touched was touched since.
    """
    classes = recording.cta_class
    return within(replace(recording, cta_class=classes[np.arange(len(classes)) % ran]), moved)


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


def recorded(point: Point, most: int) -> list[LaunchRecording]:
    """The launches of a point."""
    device = SamplingDevice("sm_90a")
    device.most = most
    if point.set == "ours":
        return _ours(device, point, most)
    if point.set == "kernels":
        return [_frozen(device, point, most)]
    work = PROBLEMS[point.problem](**point.parameters)
    given, _, _ = made(device, work)
    kernel = ptx.parse(work.text).kernels[work.entry]
    run = device.launch(kernel, work.grid, work.block, given, work.shared, checks=False, record=True)
    return [_whole(run.recording, most, work)]


def _frozen(device: SamplingDevice, point: Point, most: int) -> LaunchRecording:
    work = launch(point.id)
    given, _ = work.made(device)
    kernel = ptx.parse(work.text).kernels[work.entry]
    run = device.launch(kernel, work.grid, work.block, given, work.shared, checks=False, record=True)
    found = run.recording
    return found if found.ctas <= most else extended(found, most, work.nbytes)


def _whole(recording: LaunchRecording, most: int, work: Work | None) -> LaunchRecording:
    if recording.ctas <= most:
        return recording
    return extended(recording, most, work.moved if work is not None else 0)


class RecordingHost(ptx.Host):
    """The host that benches launch on, which keeps the recordings."""

    def __init__(self, device: SamplingDevice):
        super().__init__("emulator")
        self.device = device
        self.recordings: list[LaunchRecording] = []

    def launch(
        self, kernel: Any, grid: Any, block: Any, args: Any = (), shared_bytes: int = 0, *, outputs: Any = None,
        **options: Any,
    ) -> Any:  # fmt: skip
        """A launch that is recorded."""
        run = self.device.launch(kernel, grid, block, list(args), shared_bytes, checks=False, record=True)
        self.recordings.append(run.recording)
        if outputs is not None:
            run.outputs = {array.name: array.numpy() for array in outputs}
        return run


def _ours(device: SamplingDevice, point: Point, most: int) -> list[LaunchRecording]:
    bench = _BENCHES[point.problem]
    settings = {key: tuple(value) if isinstance(value, list) else value for key, value in point.parameters.items()}
    p = bench.Parameters(**settings)
    host = RecordingHost(device)
    bench.launch(p, _inputs(bench, p), torch=host)
    return [_whole(recording, most, None) for recording in host.recordings]


def footprint(point: Point) -> int:
    """Bytes of the arrays that a launch is given; 0 where that is not known."""
    if point.set == "ours":
        return 0
    if point.set == "kernels":
        return launch(point.id).nbytes
    arrays = [one for one in PROBLEMS[point.problem](**point.parameters).arguments if isinstance(one, Input | Output)]
    return sum(int(np.prod(one.shape)) * np.dtype(one.dtype).itemsize for one in arrays)


def kept(point: Point, most: int, folder: Path | None) -> list[tuple[LaunchRecording, Streams]]:
    """Recordings with their streams; of a folder where they were kept before."""
    file = folder / f"{point.id}-{most}.pickle" if folder is not None else None
    if file is not None and file.exists():
        found: list[tuple[LaunchRecording, Streams]] = pickle.loads(file.read_bytes())
        return found
    made_now = [(one, streams_of(one, "sm_90a")) for one in recorded(point, most)]
    if file is not None:
        file.write_bytes(pickle.dumps(made_now))
    return made_now


def predicted(point: Point, gpu: Any, most: int, folder: Path | None = None) -> dict[str, Any]:
    """A point's row: nanoseconds of each launch, what bounds it, and how it came about."""
    began = time.process_time()
    given = [
        (within(recording, footprint(point)) if recording.ctas > most else recording, streams)
        for recording, streams in kept(point, most, folder)
    ]
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
        "sampled": any(recording.ctas > most for recording, _ in given),
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
    parser.add_argument("--ctas", type=int, default=CTAS, help="how many CTAs of a grid are run at most")
    given = parser.parse_args()
    gpu = load(given.gpu)
    with given.out.open("a", encoding="utf-8") as file:
        for point in points():
            if (given.only and point.id not in given.only) or (given.split and point.split != given.split):
                continue
            try:
                row = predicted(point, gpu, given.ctas, given.keep)
            except Exception as error:
                row = {"id": point.id, "split": point.split, "error": f"{type(error).__name__}: {error}"[:300]}
            file.write(json.dumps(row) + "\n")
            file.flush()
            sys.stdout.write(f"{point.id}: {row.get('time_ns', row.get('error'))}\n")
            sys.stdout.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main())
