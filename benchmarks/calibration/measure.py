"""Runs cases on a GPU and writes what was measured, a line of JSON for each case as it comes.

Every case is launched with two counts of turns, each many times; a sample keeps the medians, and how far the middle
half of the launches lay apart. Beside each stands the clock that the SM had: its cycles by the GPU's timer.
"""

import json
import time
from collections.abc import Iterable, Mapping
from statistics import median, quantiles
from typing import Any, TextIO

import numpy as np
from numpy.typing import NDArray

from kernbench import ptx
from kernbench.result.run import Run
from kernbench.safety.budget import Budget

from .case import Case, Data
from .families.launches import probe
from .source import RECORD_WORDS

LAUNCHES, WARM_UPS, SECONDS_A_CASE, SECONDS_A_LAUNCH = 30, 2, 0.6, 5.0
# below this the timer's own steps would show in the clock
LEAST_NS_FOR_CLOCK = 8_000
_FILL = """.version 8.3
.target sm_90
.address_size 64
.visible .entry fill(
.param .u64 p_data, .param .u64 p_count, .param .u64 p_step, .param .u64 p_stride, .param .u32 p_kind)
{
.reg .pred %p<4>;
.reg .b32 %r<8>;
.reg .b64 %d<16>;
ld.param.u64 %d0, [p_data];
cvta.to.global.u64 %d0, %d0;
ld.param.u64 %d1, [p_count];
ld.param.u64 %d2, [p_step];
ld.param.u64 %d3, [p_stride];
ld.param.u32 %r0, [p_kind];
mov.u32 %r1, %ctaid.x;
mov.u32 %r2, %ntid.x;
mov.u32 %r3, %tid.x;
mov.u32 %r4, %nctaid.x;
mad.lo.u32 %r5, %r1, %r2, %r3;
mul.lo.u32 %r6, %r4, %r2;
cvt.u64.u32 %d4, %r5;
cvt.u64.u32 %d5, %r6;
setp.eq.u32 %p1, %r0, 1;
setp.ge.u64 %p0, %d4, %d1;
@%p0 bra out;
more:
add.u64 %d6, %d4, %d2;
rem.u64 %d6, %d6, %d1;
mul.lo.u64 %d6, %d6, %d3;
mul.lo.u64 %d7, %d4, 2654435761;
selp.u64 %d8, %d6, %d7, %p1;
cvt.u32.u64 %r7, %d8;
mad.lo.u64 %d9, %d4, %d3, %d0;
st.global.u32 [%d9], %r7;
add.u64 %d4, %d4, %d5;
setp.lt.u64 %p0, %d4, %d1;
@%p0 bra more;
out:
ret;
}
"""


class LostGpuError(Exception):
    """A launch failed, and nothing runs on the GPU in this process any more."""


class Bench:
    """A GPU with the memory that cases share: `data` is filled anew only where a case wants something else."""

    def __init__(self, device: Any, sms: int):
        self.device = device
        self.sms = sms
        self.kernels: dict[str, Any] = {}
        self._data: Any = None
        self._filled: Data | None = None

    def data(self, wanted: Data) -> Any:
        """Memory that holds `wanted`."""
        if self._filled != wanted:
            self._data = None
            words = max(1, wanted.nbytes // 4)
            self._data = self.device.empty((words,), np.uint32)
            # an input: nothing is to be copied back after each launch
            self._data.fresh = False
            self._fill(wanted, words)
            self._filled = wanted
        return self._data

    def _fill(self, wanted: Data, words: int) -> None:
        if wanted.content in ("ones", "zeros") or wanted.nbytes < 1 << 16:
            self._data = self.device.array(wanted.words())
            return
        chase = wanted.content == "chase"
        count, step, stride = (wanted.places, wanted.step, wanted.stride) if chase else (words, 0, 4)
        kernel = self.kernel("fill", _FILL)
        self._done(self.device.launch(kernel, 528, 256, [self._data, count, step, stride, int(chase)]))

    def kernel(self, name: str, text: str) -> Any:
        """The kernel of a text, parsed once."""
        if text not in self.kernels:
            self.kernels[text] = ptx.parse(text).kernels[name]
        return self.kernels[text]

    def launch(self, case: Case, turns: int, sink: Any) -> tuple[NDArray[np.uint64], float]:
        """Records of the warps, by CTA, and the nanoseconds between events."""
        grid, warps = case.ctas(self.sms), -(-case.block // 32)
        out = self.device.empty((grid, warps, RECORD_WORDS), np.uint64, "out")
        run = self.device.launch(
            self.kernel(case.source.name, case.source.text), grid, case.block,
            [out, sink, self.data(case.data), turns], case.shared_bytes, budget=Budget(seconds=SECONDS_A_LAUNCH),
        )  # fmt: skip
        self._done(run)
        return run.outputs["out"], float(run.metrics["gpu_time_ns"])

    def _done(self, run: Run) -> None:
        if run.findings:
            raise LostGpuError(run.findings[0].message)


def clock_mhz(records: NDArray[np.uint64]) -> float | None:
    """Cycles by the timer's nanoseconds, of the warp that ran longest; None where it ran too briefly."""
    flat = records.reshape(-1, RECORD_WORDS).astype(np.float64)
    elapsed = flat[:, 2] - flat[:, 1]
    longest = int(elapsed.argmax())
    return float(flat[longest, 0] / elapsed[longest] * 1e3) if elapsed[longest] >= LEAST_NS_FOR_CLOCK else None


def cycles_of(records: NDArray[np.uint64]) -> float:
    """Cycles of the CTA that took longest, from its first warp's start to its last one's end.

    A scheduler may let one warp begin long after another: the longest warp alone would be too short.
    """
    begin = records[..., 4].astype(np.int64)
    end = begin + records[..., 0].astype(np.int64)
    return float((end.max(axis=1) - begin.min(axis=1)).max())


def spread(values: list[float]) -> float:
    """How far the middle half of the values lies apart, of their median."""
    if len(values) < 4 or not median(values):
        return 0.0
    low, _, high = quantiles(values, n=4)
    return (high - low) / median(values)


def sample(bench: Bench, case: Case, turns: int, sink: Any) -> dict[str, Any]:
    """Medians over launches of `turns` turns."""
    began = time.monotonic()
    for _ in range(WARM_UPS):
        bench.launch(case, turns, sink)
    longest: list[float] = []
    events: list[float] = []
    clocks: list[float] = []
    by_warp: list[NDArray[np.uint64]] = []
    while len(longest) < LAUNCHES and (len(longest) < 3 or time.monotonic() - began < SECONDS_A_CASE):
        records, event = bench.launch(case, turns, sink)
        longest.append(cycles_of(records))
        events.append(event)
        by_warp.append(records[0, :, 0])
        clock = clock_mhz(records)
        clocks += [clock] if clock is not None else []
    return {
        "turns": turns,
        "launches": len(longest),
        "cycles": median(longest),
        "cycles_spread": round(spread(longest), 5),
        "event_ns": median(events),
        "event_spread": round(spread(events), 5),
        "clock_mhz": round(median(clocks), 1) if clocks else None,
        "by_warp": [float(cycles) for cycles in np.median(np.array(by_warp), axis=0)],
    }


def starts(records: NDArray[np.uint64]) -> dict[str, Any]:
    """From records of CTAs that take long: the order of the first wave, and how soon a place is taken again."""
    first = records[:, 0, :].astype(np.int64)
    begin, end, sm = first[:, 1], first[:, 2], first[:, 3]
    gaps: list[int] = []
    resident = 0
    for one in np.unique(sm):
        on = np.flatnonzero(sm == one)
        starts_here, ends_here = np.sort(begin[on]), np.sort(end[on])
        at_once = int((starts_here < ends_here[0]).sum())
        resident = max(resident, at_once)
        # the place that a CTA takes is that of one that ended last before it
        before = np.searchsorted(ends_here, starts_here[at_once:], side="right") - 1
        gaps += [int(gap) for gap in starts_here[at_once:] - ends_here[before.clip(0)]]
    wave = np.sort(begin)[: resident * len(np.unique(sm))]
    return {
        "resident": resident,
        "reuse_ns": median(gaps) if gaps else None,
        "wave_ns": int(wave[-1] - wave[0]),
        "first_sms": [int(value) for value in sm[:300]],
        "timer_step_ns": int(np.diff(np.unique(np.concatenate((begin, end)))).min()),
    }


def measure(bench: Bench, case: Case) -> dict[str, Any]:
    """A case: samples for its two counts of turns, and the clock of a warp alone right after."""
    words = case.ctas(bench.sms) * max(case.block, case.sink_words)
    sink = bench.device.array(np.zeros(words, np.uint32))
    row: dict[str, Any] = {
        "benchmark": case.benchmark,
        "parameters": dict(case.parameters),
        "work": case.work,
        "unit": case.unit,
        "ctas": case.ctas(bench.sms),
        "by_time": case.by_time,
        "samples": [sample(bench, case, turns, sink) for turns in dict.fromkeys(case.turns)],
    }
    if case.benchmark == "latency.l2_map":
        records, _ = bench.launch(case, case.turns[1], sink)
        row["map"] = {
            "sms": [int(sm) for sm in records[:, 0, 3]],
            "cycles": sink.numpy().reshape(-1, case.sink_words)[: case.ctas(bench.sms)].tolist(),
        }
    if case.benchmark == "launch.starts":
        row["starts"] = starts(bench.launch(case, case.turns[0], sink)[0])
    ticking = probe()
    row["clock_after_mhz"] = clock_mhz(bench.launch(ticking, 1, bench.device.array(np.zeros(32, np.uint32)))[0])
    return row


def measure_all(bench: Bench, cases: Iterable[Case], file: TextIO, deadline: float) -> None:
    """Every case until the deadline; what goes wrong with one is written in its place."""
    for case in cases:
        if time.monotonic() > deadline:
            write(file, {"benchmark": case.benchmark, "parameters": dict(case.parameters), "error": "no time left"})
            continue
        try:
            write(file, measure(bench, case))
        except LostGpuError as error:
            write(file, {"benchmark": case.benchmark, "parameters": dict(case.parameters), "error": str(error)})
            return
        except Exception as error:
            why = f"{type(error).__name__}: {error}"[:300]
            write(file, {"benchmark": case.benchmark, "parameters": dict(case.parameters), "error": why})


def write(file: TextIO, row: Mapping[str, object]) -> None:
    """One line, at once."""
    file.write(json.dumps(row) + "\n")
    file.flush()
