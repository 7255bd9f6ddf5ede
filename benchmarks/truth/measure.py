"""Measures the points on a GPU: cold L2, 20 launches to warm up, the median of 100, and the clock right after.

`python -m benchmarks.truth OUT.jsonl` writes a line for each point as it comes.
"""

import argparse
import json
import os
import sys
import time
from pathlib import Path
from statistics import median, quantiles
from typing import Any

import numpy as np

from kernbench import ptx
from kernbench.benches import batched_incremental_attention, gated_delta_rule_chunk_output
from kernbench.ptx.devices.cuda_device import CudaDevice
from kernbench.result.run import Run
from kernbench.safety.budget import Budget

from .emulated import difference, made
from .frozen import launch
from .points import Point, points
from .problems import Input
from .registry import PROBLEMS

WARM_UPS, LAUNCHES, LEAST_LAUNCHES, SECONDS = 20, 100, 10, 2.0
FLUSH_BYTES = 256 << 20
# what the host computes in a few seconds; all kernels were compared at small sizes on the emulator
MOST_FLOPS_COMPARED, MOST_BYTES_COMPARED = 3 * 10**9, 128 << 20
_PROBE_CYCLES = 200_000
_PROBE = f""".version 8.3
.target sm_90
.address_size 64
.visible .entry probe(.param .u64 p_out)
{{
.reg .pred %p0;
.reg .b64 %d<8>;
ld.param.u64 %d0, [p_out];
cvta.to.global.u64 %d0, %d0;
mov.u64 %d1, %globaltimer;
mov.u64 %d2, %clock64;
more:
mov.u64 %d3, %clock64;
sub.u64 %d4, %d3, %d2;
setp.lt.u64 %p0, %d4, {_PROBE_CYCLES};
@%p0 bra more;
mov.u64 %d5, %globaltimer;
sub.u64 %d6, %d5, %d1;
st.global.u64 [%d0], %d4;
st.global.u64 [%d0+8], %d6;
ret;
}}
"""


class ColdDevice(CudaDevice):
    """A GPU whose timed launches each find an L2 that holds none of their data; `times` has all of the last launch."""

    times: list[float]

    def __init__(self) -> None:
        super().__init__(0)
        self.times = []
        self._flushed = self._call("cuMemAlloc", FLUSH_BYTES)

    def _submit(self, function: Any, config: Any, packed: list[bytes], repetitions: int) -> list[Any]:
        """Events around each launch alone; what flushes L2 lies before the first of each pair."""
        events: list[Any] = []
        for _ in range(repetitions):
            self._call("cuMemsetD8Async", self._flushed, len(events) % 256, FLUSH_BYTES, self.stream)
            events += super()._submit(function, config, packed, 1)
        return events

    def _timing(self, events: list[Any]) -> dict[str, Any]:
        pairs = zip(events[::2], events[1::2], strict=True)
        self.times = [float(self._call("cuEventElapsedTime", *pair)) * 1e6 for pair in pairs]
        for event in events:
            self._call("cuEventDestroy", event)
        return {"gpu_time_ns": round(median(self.times)), "repetitions": len(self.times)}

    def clock_mhz(self) -> float:
        """The clock of an SM now: cycles by the GPU's timer."""
        out = self.empty((2,), np.uint64, "out")
        run = super().launch(ptx.parse(_PROBE).kernels["probe"], 1, 1, [out])
        cycles, nanoseconds = (float(value) for value in run.outputs["out"])
        return cycles / nanoseconds * 1e3


def repeated(device: ColdDevice, kernel: Any, grid: Any, block: Any, given: list[Any], shared: int) -> Run:
    """Warm-ups, then as many launches as time allows, 100 at most."""
    budget = Budget(seconds=20.0)
    first = device.launch(kernel, grid, block, given, shared, repetitions=WARM_UPS, budget=budget)
    if first.findings:
        return first
    each = max(median(device.times), 100_000.0) / 1e9
    count = int(min(LAUNCHES, max(LEAST_LAUNCHES, SECONDS / each)))
    return device.launch(kernel, grid, block, given, shared, repetitions=count, budget=budget)


class TruthHost(ptx.Host):
    """The host that benches launch on, with timing as for all points; the times of each launch are kept."""

    def __init__(self, device: ColdDevice):
        super().__init__("emulator")
        self.device = device
        self.kind = "cuda"
        self.timed: list[list[float]] = []

    def launch(
        self, kernel: Any, grid: Any, block: Any, args: Any = (), shared_bytes: int = 0, *, outputs: Any = None,
        **options: Any,
    ) -> Run:  # fmt: skip
        """A launch with its warm-ups and repetitions."""
        run = repeated(self.device, kernel, grid, block, list(args), shared_bytes)
        self.timed.append(self.device.times)
        if outputs is not None and not run.findings:
            run.outputs = {array.name: array.numpy() for array in outputs}
        return run


_BENCHES: dict[str, Any] = {"decode": batched_incremental_attention, "chunk_output": gated_delta_rule_chunk_output}


def ours(device: ColdDevice, point: Point) -> dict[str, Any]:
    """A bench of kernbench's own; several launches are added up."""
    bench = _BENCHES[point.problem]
    settings = {key: tuple(value) if isinstance(value, list) else value for key, value in point.parameters.items()}
    p = bench.Parameters(**settings)
    host = TruthHost(device)
    run = bench.launch(p, _inputs(bench, p), torch=host)
    if run.findings:
        raise RuntimeError(run.findings[0].message)
    finite = all(np.isfinite(array.astype(np.float32)).all() for array in run.outputs.values())
    return {"finite": bool(finite), **_times([sum(parts) for parts in zip(*host.timed, strict=False)]),
            "launches_ns": [median(one) for one in host.timed]}  # fmt: skip


def _inputs(bench: Any, p: Any) -> Any:
    """Inputs of the bench; those of large decodes repeat a block instead of being drawn one by one."""
    rng = np.random.default_rng(0)
    if bench is not batched_incremental_attention:
        return bench.inputs(p, rng)
    from kernbench.ptx.launching.element_types import storage_type

    q, cache = (p.users, p.h_q, p.d_head), (p.users, p.h_kv, p.context, p.d_head)
    return {
        name: Input(shape, storage_type(p.dtype)).made(rng) for name, shape in (("q", q), ("k", cache), ("v", cache))
    }


def compiled(device: ColdDevice, point: Point) -> dict[str, Any]:
    """A kernel of `ptx/`; compared with what is expected where that takes the host no minutes."""
    work = PROBLEMS[point.problem](**point.parameters)
    given, inputs, out = made(device, work)
    for argument in given:
        if hasattr(argument, "fresh"):
            # nothing is copied back after each launch
            argument.fresh = False
    kernel = ptx.parse(work.text).kernels[work.entry]
    once = CudaDevice.launch(device, kernel, work.grid, work.block, given, work.shared)
    if once.findings:
        raise RuntimeError(once.findings[0].message)
    compared = work.flops <= MOST_FLOPS_COMPARED and work.moved <= MOST_BYTES_COMPARED
    wrong = difference(work, inputs, out.numpy()) if compared else ""
    if wrong:
        raise RuntimeError(wrong)
    run = repeated(device, kernel, work.grid, work.block, given, work.shared)
    if run.findings:
        raise RuntimeError(run.findings[0].message)
    return {"compared": compared, "moved": work.moved, "flops": work.flops, **_times(device.times)}


def frozen(device: ColdDevice, point: Point) -> dict[str, Any]:
    """A kernel of ours as it was written down; tests of kernels compare it, here its output must be finite."""
    work = launch(point.id)
    given, out = work.made(device)
    kernel = ptx.parse(work.text).kernels[work.entry]
    once = CudaDevice.launch(device, kernel, work.grid, work.block, given, work.shared)
    if once.findings:
        raise RuntimeError(once.findings[0].message)
    finite = bool(np.isfinite(out.numpy().astype(np.float32)).all())
    for argument in given:
        if hasattr(argument, "fresh"):
            # nothing is copied back after each launch
            argument.fresh = False
    run = repeated(device, kernel, work.grid, work.block, given, work.shared)
    if run.findings:
        raise RuntimeError(run.findings[0].message)
    return {"finite": finite, "moved": work.moved, "flops": work.flops, **_times(device.times)}


# a row of points by the set they are of
_MEASURED = {"ours": ours, "kernels": frozen}


def _times(times: list[float]) -> dict[str, Any]:
    low, _, high = quantiles(times, n=4)
    middle = median(times)
    return {"time_ns": middle, "least_ns": min(times), "spread": (high - low) / middle, "repetitions": len(times)}


def measure(device: ColdDevice, point: Point) -> dict[str, Any]:
    """A point's row."""
    row: dict[str, Any] = {"id": point.id, "split": point.split}
    try:
        found = _MEASURED.get(point.set, compiled)(device, point)
        return {**row, **found, "clock_mhz": device.clock_mhz()}
    except Exception as error:
        return {**row, "error": f"{type(error).__name__}: {error}"[:300]}


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.truth", description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--seconds", type=float, default=300.0)
    parser.add_argument("--only", nargs="*", default=[])
    parser.add_argument("--split", default="")
    given = parser.parse_args()
    device, deadline = ColdDevice(), time.monotonic() + given.seconds
    about = {"gpu": device.name, "cuda_of_driver": int(device._call("cuDriverGetVersion"))}
    with given.out.open("w", encoding="utf-8") as file:
        # the emulator's own driver: no model is held to what it says
        file.write(json.dumps({"machine": {**about, "emulated": "KERNBENCH_DRIVER" in os.environ}}) + "\n")
        for point in points():
            if (given.only and point.id not in given.only) or (given.split and point.split != given.split):
                continue
            late = time.monotonic() > deadline or device.lost
            row = {"id": point.id, "error": "no time left, or the GPU is lost"} if late else measure(device, point)
            file.write(json.dumps(row) + "\n")
            file.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main())
