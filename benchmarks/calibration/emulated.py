"""A case at a small size on the emulator: is its kernel right and safe?"""

from typing import Any

import numpy as np

from kernbench import ptx
from kernbench.result.run import Run

from .case import Case, Words
from .source import RECORD_WORDS

# more than this is not set up on the host
LARGE = 1 << 20


def emulate(case: Case, arch: str = "sm_90a", sms: int = 0) -> tuple[Run, Words]:
    """The run of a few turns, and what is in `sink` after it; `out` is among the run's outputs.

    With `sms`, the whole grid of a GPU with so many SMs, for as few turns as there can be.
    """
    device = ptx.EmulatedDevice(arch)
    source = case.source if sms and case.data.nbytes <= LARGE else case.small_source or case.source
    kernel = ptx.parse(source.text).kernels[source.name]
    grid = case.ctas(sms) if sms else case.small_grid
    warps = -(-case.block // 32)
    out = device.empty((grid * warps, RECORD_WORDS), np.uint64, "out")
    sink = device.array(np.zeros(grid * max(case.block, case.sink_words), np.uint32))
    real = sms and case.data.nbytes <= LARGE
    data = case.data if real else case.small_data or case.data
    arguments: list[Any] = [out, sink, device.array(data.words()), 1 if sms else case.small]
    run = device.launch(kernel, grid, case.block, arguments, shared_bytes=case.shared_bytes)
    return run, sink.numpy()


def problem(case: Case) -> str:
    """What is wrong with a case on the emulator; empty where nothing is."""
    run, sink = emulate(case)
    if not run.safe:
        return str(run.findings[0].message if run.findings else run.status)
    if case.expected is not None and not np.array_equal(sink, case.expected):
        return f"sink is {sink[:4]}, expected {case.expected[:4]}"
    return "" if (run.outputs["out"][:, 0] > 0).all() else "no cycles were recorded"
