"""How far apart empty kernels run: in a stream whose queue is full, in a graph, and with events around each."""

import ctypes
from collections.abc import Iterator
from statistics import median
from typing import Any

from kernbench import ptx
from kernbench.ptx.devices.cuda_driver import Driver

from .families.launches import CLUSTERS, EMPTY, GRIDS

KERNELS, ROUNDS = 200, 9
FLUSHED = 256 << 20
# keeps the GPU busy while the queue behind it fills
_BUSY = """.version 8.3
.target sm_90a
.address_size 64
.visible .entry busy()
{
.reg .pred %p0;
.reg .b64 %d<4>;
mov.u64 %d0, %globaltimer;
more:
mov.u64 %d1, %globaltimer;
sub.u64 %d2, %d1, %d0;
setp.lt.u64 %p0, %d2, 4000000;
@%p0 bra more;
ret;
}
"""
# begins before the kernel before it has ended, and lets the next one do so
_EARLY = """.version 8.3
.target sm_90
.address_size 64
.visible .entry early()
{
griddepcontrol.launch_dependents;
griddepcontrol.wait;
ret;
}
"""


class Queue:
    """A stream of its own on the current context, with the two kernels."""

    def __init__(self, driver: Driver):
        self.driver = driver
        self.stream = driver.call("cuStreamCreate", 1)
        self.busy, self.empty = self.function("busy", _BUSY), self.function("empty", EMPTY)

    def function(self, name: str, text: str) -> Any:
        """A kernel of a text."""
        image = ctypes.create_string_buffer(text.encode())
        module = self.driver.call("cuModuleLoadData", ctypes.addressof(image))
        return self.driver.call("cuModuleGetFunction", module, name.encode())

    def launch(self, function: Any, grid: int, block: int, shared: int = 0) -> None:
        """Queue a kernel without parameters, with so many bytes of shared memory for each CTA."""
        self.driver.call("cuLaunchKernel", function, grid, 1, 1, block, 1, 1, shared, self.stream, 0, 0)

    def event(self) -> Any:
        """An event after all that is queued."""
        made = self.driver.call("cuEventCreate", 0)
        self.driver.call("cuEventRecord", made, self.stream)
        return made

    def elapsed_ns(self, first: Any, last: Any) -> float:
        """Nanoseconds between two events, which are given back."""
        self.driver.call("cuEventSynchronize", last)
        found = float(self.driver.call("cuEventElapsedTime", first, last)) * 1e6
        for event in (first, last):
            self.driver.call("cuEventDestroy", event)
        return found

    def stream_gap(self, grid: int, block: int) -> float:
        """Nanoseconds from one kernel to the next, all queued before the first runs."""
        self.launch(self.busy, 1, 32)
        first = self.event()
        for _ in range(KERNELS):
            self.launch(self.empty, grid, block)
        return self.elapsed_ns(first, self.event()) / KERNELS

    def dependent_gap(self, function: Any, grid: int, block: int) -> float:
        """The same where each kernel may begin before the one before it has ended."""
        api = self.driver.api
        attribute = api.CUlaunchAttribute()
        attribute.id = api.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION
        value = api.CUlaunchAttributeValue()
        value.programmaticStreamSerializationAllowed = 1
        attribute.value = value
        config = api.CUlaunchConfig()
        config.gridDimX, config.gridDimY, config.gridDimZ = grid, 1, 1
        config.blockDimX, config.blockDimY, config.blockDimZ = block, 1, 1
        config.hStream, config.attrs, config.numAttrs = self.stream, [attribute], 1
        self.launch(self.busy, 1, 32)
        first = self.event()
        for _ in range(KERNELS):
            self.driver.call("cuLaunchKernelEx", config, function, 0, 0)
        return self.elapsed_ns(first, self.event()) / KERNELS

    def cold(self, flushed: Any, grid: int, block: int, shared: int = 0) -> float:
        """Nanoseconds between events around an empty kernel right after L2 was flushed, as kernels are measured."""
        self.driver.call("cuMemsetD8Async", flushed, 1, FLUSHED, self.stream)
        first = self.event()
        self.launch(self.empty, grid, block, shared)
        return self.elapsed_ns(first, self.event())

    def graph(self, grid: int, block: int) -> Any:
        """A graph of as many kernels, one after the other."""
        mode = self.driver.api.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_THREAD_LOCAL
        self.driver.call("cuStreamBeginCapture", self.stream, mode)
        for _ in range(KERNELS):
            self.launch(self.empty, grid, block)
        return self.driver.call("cuGraphInstantiate", self.driver.call("cuStreamEndCapture", self.stream), 0)

    def graph_gap(self, graph: Any) -> float:
        """Nanoseconds from one kernel of a graph to the next."""
        self.launch(self.busy, 1, 32)
        first = self.event()
        self.driver.call("cuGraphLaunch", graph, self.stream)
        return self.elapsed_ns(first, self.event()) / KERNELS


def launch_gaps(device: Any) -> Iterator[dict[str, Any]]:
    """Rows for the results: gaps by grid, and by cluster, in nanoseconds."""
    queue = Queue(Driver())
    for grid in GRIDS:
        for block in (32, 256):
            queue.stream_gap(grid, block)
            gaps = [queue.stream_gap(grid, block) for _ in range(ROUNDS)]
            yield _row("launch.gap", {"in": "stream", "grid": grid, "block": block}, median(gaps))
    for grid in (1, 132):
        made = queue.graph(grid, 32)
        queue.graph_gap(made)
        yield _row("launch.gap", {"in": "graph", "grid": grid, "block": 32},
                   median(queue.graph_gap(made) for _ in range(ROUNDS)))  # fmt: skip
    begun_early = queue.function("early", _EARLY)
    for grid in (1, 132):
        queue.dependent_gap(begun_early, grid, 32)
        gaps = [queue.dependent_gap(begun_early, grid, 32) for _ in range(ROUNDS)]
        yield _row("launch.gap", {"in": "dependent", "grid": grid, "block": 32}, median(gaps))
    kernel = ptx.parse(EMPTY).kernels["empty"]
    for cluster in CLUSTERS:
        given = None if cluster == 1 else cluster
        device.launch(kernel, 128, 32, [], cluster=given, repetitions=20)
        run = device.launch(kernel, 128, 32, [], cluster=given, repetitions=100)
        yield _row("launch.empty", {"cluster": cluster}, float(run.metrics["gpu_time_ns"]))
    flushed = queue.driver.call("cuMemAlloc", FLUSHED)
    for grid in (1, 132, 1056, 4224, 16896):
        times = [queue.cold(flushed, grid, 128) for _ in range(30)]
        yield _row("launch.cold", {"grid": grid, "block": 128}, median(times[5:]))
    # what flushes L2 has no shared memory: SMs may have to share theirs out anew
    for shared in (1 << 10, 16 << 10, 48 << 10):
        times = [queue.cold(flushed, 132, 128, shared) for _ in range(30)]
        yield _row("launch.shared", {"bytes": shared}, median(times[5:]))
    yield from turnovers(queue, flushed)
    queue.driver.call("cuMemFree", flushed)


def turnovers(queue: Queue, flushed: Any) -> Iterator[dict[str, Any]]:
    """Empty CTAs of which an SM holds few, many one after the other: nothing but their places being taken again."""
    for block, shared in ((1024, 0), (512, 0), (256, 0), (128, 48 << 10)):
        for each in (16, 128):
            times = [queue.cold(flushed, 132 * each, block, shared) for _ in range(20)]
            varied = {"block": block, "shared": shared, "ctas": each}
            yield _row("launch.turnover", varied, median(times[5:]))


def _row(benchmark: str, parameters: dict[str, Any], nanoseconds: float) -> dict[str, Any]:
    return {"benchmark": benchmark, "parameters": parameters, "unit": "ns", "ns": nanoseconds}
