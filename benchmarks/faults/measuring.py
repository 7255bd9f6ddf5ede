"""A pair: both kernels recorded on the emulator and timed, and what the first advice on the faulty one says."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray

from kernbench import ptx
from kernbench.ptx.advice.advice import advise
from kernbench.ptx.machine import Gpu
from kernbench.ptx.machine.model import load
from kernbench.ptx.recording.recording import LaunchRecording
from kernbench.ptx.text.module import Kernel
from kernbench.ptx.time.changes import Again
from kernbench.ptx.time.retiming import time_recording
from kernbench.result.reading import Data

from .pairs import SAME, TEXT, Case, Input, Output, Pair

GPU = "h200"
# how near the saving must be, as a share of the predicted time of the mended kernel
NEAR = 0.25


@dataclass(frozen=True)
class Row:
    """A row of the table; times in microseconds."""

    fault: str
    predicted: float
    mended: float
    advice: str
    line: str
    sure: str
    saving: float
    wanted: str
    alike: bool

    @property
    def ok(self) -> bool:
        """Whether the first advice names the fault, and its saving leads to the time of the mended kernel."""
        near = abs(self.predicted - self.saving - self.mended) <= NEAR * self.mended
        return self.advice == self.wanted and near and self.alike


@cache
def _kernel(entry: str) -> Kernel:
    return ptx.parse(TEXT.read_text(encoding="utf-8")).kernels[entry]


def _made(given: Input, rng: np.random.Generator) -> NDArray[np.generic]:
    dtype = np.dtype(given.dtype)
    if given.same:
        return np.full(given.shape, SAME, dtype)
    if dtype.kind in "ui":
        return rng.integers(0, np.iinfo(dtype).max, given.shape, dtype)
    return rng.standard_normal(given.shape, np.float32).astype(dtype)


def recorded(case: Case) -> tuple[LaunchRecording, NDArray[np.generic]]:
    """What a launch did, and what it wrote."""
    device, rng = ptx.EmulatedDevice("sm_90a"), np.random.default_rng(0)
    given: list[object] = []
    out = None
    for argument in case.arguments:
        if isinstance(argument, Input):
            given.append(device.array(_made(argument, rng)))
        elif isinstance(argument, Output):
            out = device.array(np.zeros(argument.shape, argument.dtype))
            given.append(out)
        else:
            given.append(argument)
    run = device.launch(_kernel(case.entry), case.grid, case.block, given, case.shared, checks=False, record=True)
    assert out is not None
    return run.recording, out.numpy()


def again(recording: LaunchRecording, gpu: Gpu) -> Again:
    """The launch timed."""
    timing = time_recording(recording, gpu)
    return Again(timing.recording, timing.streams, gpu, timing.time)


def row(pair: Pair, timed: Callable[[LaunchRecording, Gpu], Again] = again) -> Row:
    """What the first advice says of a pair."""
    gpu = load(GPU)
    (first, wrote), (second, expected) = recorded(pair.faulty), recorded(pair.mended)
    faulty, mended = timed(first, gpu), timed(second, gpu)
    alike = not pair.alike or np.allclose(wrote.reshape(-1), expected.reshape(-1), atol=1e-3)
    advice = advise(faulty)
    kind, line, sure, saving = _first(advice[0]) if advice else ("none", "", "", 0.0)
    times = faulty.time.seconds * 1e6, mended.time.seconds * 1e6
    return Row(pair.fault, *times, kind, line, sure, saving, pair.kind, alike)


def _first(told: Data) -> tuple[str, str, str, float]:
    """Kind, source line, certainty and microseconds of an advice."""
    source = told.get("source") or {"file": "", "line": ""}
    return told["kind"], f"{source['file']}:{source['line']}".strip(":"), told["sure"], told["cost_ps"] / 1e6
