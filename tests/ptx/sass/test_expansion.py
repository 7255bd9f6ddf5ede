"""The expansion of PTX beside machine code: as many instructions of each unit, within a factor."""

from pathlib import Path

import numpy as np
import pytest
from tests.ptx.sass.tools import needs_tools
from tests.ptx.sass.tracing import record

from kernbench.bench import find, run_bench
from kernbench.ptx.devices.assembler import KernelResources
from kernbench.ptx.recording.recording import LaunchRecording
from kernbench.ptx.sass.flow import flow
from kernbench.ptx.sass.join import making
from kernbench.ptx.sass.lines import one_a_line
from kernbench.ptx.sass.reading import read
from kernbench.ptx.sass.streams import Pipe, Streams
from kernbench.ptx.sass.tools import Code

DATA = Path(__file__).parent / "data"
# units whose instructions follow from PTX one by one, or nearly so
CLOSE = {
    "fma": (Pipe.FMA,),
    "mufu": (Pipe.MUFU,),
    "memory": (Pipe.GLOBAL, Pipe.SHARED, Pipe.LDMATRIX, Pipe.STMATRIX, Pipe.CP_ASYNC, Pipe.BULK),
    "products": (Pipe.MMA, Pipe.WGMMA),
    "shuffles": (Pipe.SHUFFLE,),
    "barriers": (Pipe.BARRIER, Pipe.MBARRIER),
}
# how far they may be apart, and all instructions together
FACTOR, FACTOR_OF_ALL = 1.5, 2.0


def issued(streams: Streams, recording: LaunchRecording) -> np.ndarray:
    """Instructions of each unit that all warps of the traces issue."""
    paths = [streams.of_trace(trace)[0] for trace in range(len(recording.traces))]
    return np.bincount(streams.ops.pipe[np.concatenate(paths)], minlength=len(Pipe))


def compare(recording: LaunchRecording, joined: Streams) -> None:
    expanded = making.streams_of(recording, use_tools=False)
    mine, machine = issued(expanded, recording), issued(joined, recording)
    assert machine.sum() / FACTOR_OF_ALL <= mine.sum() <= machine.sum() * FACTOR_OF_ALL
    for name, pipes in CLOSE.items():
        own, there = (int(counts[list(pipes)].sum()) for counts in (mine, machine))
        # a few more or less are address arithmetic, or what a compiler folds
        assert there / FACTOR - 8 <= own <= there * FACTOR + 8, name


@pytest.mark.parametrize("name", ["control", "random27", "random99"])
def test_instructions_by_unit_are_those_of_machine_code_that_was_kept(monkeypatch, name):
    text, listing = (DATA / f"{name}.ptx").read_text(), read((DATA / f"{name}.sass").read_text())
    entry = next(iter(listing.sections))
    code = Code(listing, flow(listing, entry), one_a_line(text), KernelResources(registers=22), "13.0.88")
    monkeypatch.setattr(making, "machine_code", lambda text, entry, arch: code)
    given = {"p_count": 20, "p_step": 4, "p_data": 64, "p_a": 7, "p_b": 3}
    recording = record(text, arguments=given)
    compare(recording, making.streams_of(recording))


@needs_tools
@pytest.mark.parametrize(("kernel", "dtype"), [("one_warp", "f32"), ("multi_warp", "f16"), ("shared_kv", "f16")])
def test_instructions_by_unit_are_those_of_machine_code_of_bundled_kernels(kernel, dtype):
    settings = {"users": 1, "context": 32, "lengths": (), "h_q": 2, "h_kv": 2, "kernel": kernel, "d_head": 64}
    settings["dtype"] = dtype
    run = run_bench(find("batched_incremental_attention"), None, settings, timed=True, drawn=False)
    joined = making.streams_of(run.recording, "sm_90a")
    if joined.source == making.EXPANSION:
        pytest.skip(f"no machine code: {joined.unjoined[0].reason[:80]}")
    compare(run.recording, joined)
