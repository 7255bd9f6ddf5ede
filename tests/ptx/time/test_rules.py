"""Rules that no time may break, over kernels of nvcc, of Triton and of this project, on GPUs whose rates are random.

Floors are those of units and of memory. Recordings are made once; what was issued is the expansion of PTX, so that no
assembler is needed, and no digit depends on one.
"""

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from benchmarks.truth.emulated import made
from benchmarks.truth.problems import Work, flash, histogram, matmul, reduction, saxpy, softmax, transpose
from hypothesis import given, settings
from hypothesis import strategies as st
from tests import sampled

from kernbench import ptx
from kernbench.bench import find, run_bench
from kernbench.common.errors import MachineError
from kernbench.ptx.machine.model import Gpu, bundled, load
from kernbench.ptx.recording.recording import LaunchRecording
from kernbench.ptx.sass.join.making import streams_of
from kernbench.ptx.sass.streams import Streams
from kernbench.ptx.target import TARGET
from kernbench.ptx.time.launch import time_launch
from kernbench.ptx.time.result import LaunchTime
from kernbench.result.finding import Finding
from kernbench.result.run import Run, Status

H200 = load("h200")
COMPILED = {
    "nvcc, saxpy": lambda: saxpy(4096),
    "nvcc, transpose": lambda: transpose(64, "naive"),
    "nvcc, transpose with conflicts": lambda: transpose(64, "conflicts"),
    "nvcc, histogram": lambda: histogram(2048, "shared", "bytes"),
    "nvcc, atomics": lambda: histogram(1024, "global", "bytes"),
    "nvcc, sum": lambda: reduction(8192, "shuffle"),
    "triton, softmax": lambda: softmax(4, 1024),
    "triton, matmul": lambda: matmul(64, 128, 64, "64x64"),
    "triton, attention": lambda: flash(1, 128, 64),
}
DECODE = {"users": 1, "context": 32, "lengths": (), "h_q": 2, "h_kv": 2, "kernel": "multi_warp", "d_head": 64}
CHUNKS = {"lengths": (64,), "heads": 1, "value_heads": 1, "key_size": 64, "value_size": 64, "sms": 1}
OWN = {
    "decode": ("batched_incremental_attention", None, DECODE),
    "chunk output": ("gated_delta_rule_chunk_output", "sm_90a_whole_chunks", CHUNKS),
}
KERNELS = (*COMPILED, *OWN)
# CTAs that add to the same words: further ones change no further lines, as they do where a recording is made longer
ATOMICS = ("nvcc, histogram", "nvcc, atomics")
# products that only GPUs of sm_90a have
WGMMA = ("triton, matmul", "triton, attention", "chunk output")
# of the time that another order of warps may cost
APART = 0.01
# instructions that a simulation may have
BUDGET = 100_000
# rates: more of the first is better, less of the second
MORE = ("bytes/cycle", "lines/cycle", "flop/cycle", "GB/s")
LESS = ("cycles", "ns")
# How far answers lie apart is no rate: of loads that are waited for one by one, half are answered earlier by it. The
# way to L2 is a part of that to memory: less of it alone is more of the rest.
NO_RATES = ("l2.spread", "l2.far", "hbm.spread", "l2.latency")
RATES = {name: key.unit for name, key, _ in H200.entries() if key.role == "rate" and key.unit in MORE + LESS}
KEYS = sorted(name for name in RATES if float(H200.figures()[name]) and name not in NO_RATES)


@cache
def launched(name: str) -> tuple[LaunchRecording, Streams]:
    """The recording of a kernel with what its warps issued."""
    if name in OWN:
        bench, mode, parameters = OWN[name]
        recording = run_bench(find(bench), mode, parameters, timed=True, drawn=False).recording
    else:
        work: Work = COMPILED[name]()
        device = ptx.EmulatedDevice("sm_90a")
        kernel = ptx.parse(work.text).kernels[work.entry]
        given_now, _, _ = made(device, work)
        recording = device.launch(kernel, work.grid, work.block, given_now, work.shared, record=True).recording
    return recording, streams_of(recording, use_tools=False)


def of_ctas(recording: LaunchRecording, ctas: int) -> LaunchRecording:
    """The same kernel with so many CTAs, each of which does what one of the recording does, in turn."""
    return replace(recording, cta_class=np.resize(recording.cta_class, ctas), grid=(ctas, 1, 1))


def timed(recording: LaunchRecording, streams: Streams, gpu: Gpu) -> LaunchTime:
    """The time, by a simulation of few SMs that stand for the others."""
    return time_launch(recording, streams, gpu, BUDGET)


def changed(factors: dict[str, float], gpu: Gpu = H200) -> Gpu:
    figures = gpu.figures()
    return gpu.override({name: round(float(figures[name]) * factor, 9) for name, factor in factors.items()})


FACTORS = st.dictionaries(st.sampled_from(KEYS), st.floats(0.5, 2.0), max_size=12)


@settings(max_examples=sampled.examples(10, 20), deadline=None, derandomize=True)
@given(st.sampled_from(KERNELS), st.sampled_from([1, 7, 132, 300]), FACTORS)
def test_no_time_is_below_a_floor(name, ctas, factors):
    recording, streams = launched(name)
    time = timed(of_ctas(recording, ctas), streams, changed(factors))
    assert time.seconds >= time.floor_seconds
    assert all(0 <= share <= 1 + 1e-9 for share in time.busy.values())
    # the simulation itself is not below them, up to what a last store is behind the last CTA
    ended = float(time.spans.end.max()) + float(changed(factors).hbm.latency)
    assert ended >= time.floor_seconds * time.clock_mhz * 1e6


@cache
def alone(name: str) -> tuple[LaunchRecording, Streams]:
    """One warp of the kernel that has the GPU for itself, and waits for nobody."""
    recording, streams = launched(name)
    return replace(of_ctas(recording, 1), class_trace=recording.class_trace[:, :1], block=(32, 1, 1)), streams


@settings(max_examples=sampled.examples(15, 30), deadline=None, derandomize=True)
@given(st.sampled_from(KERNELS), st.sampled_from(KEYS), st.floats(1.001, 4.0), FACTORS)
def test_a_warp_that_shares_nothing_is_never_slower_with_more_of_a_rate(name, key, factor, factors):
    recording, streams = alone(name)
    gpu = changed(factors)
    better = changed({key: factor if RATES[key] in MORE else 1 / factor}, gpu)
    before, after = (timed(recording, streams, one).seconds for one in (gpu, better))
    assert after <= before * (1 + 1e-6)


@settings(max_examples=sampled.examples(10, 20), deadline=None, derandomize=True)
@given(
    st.sampled_from(KERNELS),
    st.sampled_from([1, 132, 300]),
    st.sampled_from(["hbm.bandwidth", "l2.bytes_per_cycle", "l2.sm_bytes_per_cycle", "l2.write_bytes_per_cycle"]),
    st.floats(1.01, 4.0),
)
def test_more_bandwidth_does_not_make_a_launch_slower(name, ctas, key, factor):
    """Warps share schedulers here, and another order of theirs may cost a bit: APART of the time."""
    recording, streams = launched(name)
    given_ctas = of_ctas(recording, ctas)
    before, after = (timed(given_ctas, streams, gpu).seconds for gpu in (H200, changed({key: factor})))
    assert after <= before * (1 + APART)


@pytest.mark.parametrize("name", sampled.some([name for name in KERNELS if name not in ATOMICS], 3))
def test_twice_the_work_in_steady_state_takes_twice_as_long(name):
    """Waves of CTAs: what further ones add is in proportion to them, launch and first wave aside.

    What an L2 of this size held before has soon left it, and what is stored leaves it as fast as it comes.
    """
    recording, streams = launched(name)
    steady = H200.override({"l2.turnover": "1048576 B", "l2.dirty": 0})
    held = timed(of_ctas(recording, 132 * 64), streams, steady).occupancy.ctas
    waves = [timed(of_ctas(recording, 132 * held * n), streams, steady).cycles for n in (4, 8, 16)]
    assert (waves[2] - waves[1]) / (waves[1] - waves[0]) == pytest.approx(2, rel=0.05)


@pytest.mark.parametrize("name", sampled.some(list(KERNELS), 6))
def test_half_of_every_rate_takes_twice_as_long(name):
    """Clocks and memory have half their rate, and launches take twice their time: as many cycles, twice as long."""
    recording, streams = launched(name)
    figures = H200.figures()
    slow = {one: 0.5 for one, key, _ in H200.entries() if one in figures and key.unit in ("MHz", "GB/s")}
    slow |= {one: 2.0 for one, unit in RATES.items() if unit == "ns"}
    times = [timed(of_ctas(recording, 200), streams, gpu).seconds for gpu in (H200, changed(slow))]
    assert times[1] == pytest.approx(2 * times[0], rel=1e-4)


# GPUs that run what is written for an H200
ALIKE = {gpu for gpu in bundled() if load(gpu).arch == H200.arch}


@pytest.mark.sampled(12)
@pytest.mark.parametrize(
    ("name", "gpu"),
    [(name, gpu) for gpu in bundled() for name in KERNELS if gpu != "h200" and (name not in WGMMA or gpu in ALIKE)],
)
def test_times_of_gpus_that_nobody_measured_say_so(name, gpu):
    recording, streams = launched(name)
    time = timed(recording, streams, load(gpu))
    assert time.predictions == "not validated"
    assert any("not validated" in note for note in time.notes)


@cache
def ran(name: str) -> Run:
    """A recorded run of a bench without its time, and with a comparison that it passed."""
    bench, mode, parameters = OWN[name]
    return replace(run_bench(find(bench), mode, parameters, timed=True, drawn=False), metrics={})


@settings(max_examples=sampled.examples(10, 20), deadline=None, derandomize=True)
@given(st.sampled_from(sorted(OWN)), st.sampled_from(Status), st.booleans(), st.booleans())
def test_what_is_wrong_or_unsafe_or_did_not_end_has_no_time(name, status, right, safe):
    run = ran(name)
    comparison = [one if right else replace(one, passed=False) for one in run.comparison or ()]
    findings = [] if safe else [Finding("race", "two accesses")]
    found = TARGET.retime(replace(run, status=status, comparison=comparison, findings=findings), H200, False).metrics
    has_time = status is Status.FINISHED and right and safe
    assert ("time_ps" in found) == has_time
    assert bool(found.get("no_time")) != has_time


def test_a_gpu_without_reserved_shared_memory_holds_ctas_that_use_none():
    """As GPUs before sm_80 do; a launch divided by 0."""
    recording, streams = launched("nvcc, saxpy")
    held = timed(recording, streams, H200.override({"sm.shared_reserved": "0 B"})).occupancy
    assert held == timed(recording, streams, H200).occupancy


@pytest.mark.parametrize(
    ("name", "key", "what"),
    [
        ("triton, matmul", "tensor.wgmma", "wgmma"),
        ("chunk output", "copies.bulk_bytes_per_cycle", "bulk copies"),
    ],
)
def test_a_launch_that_uses_what_a_gpu_does_not_have_is_refused_with_the_key(name, key, what):
    recording, streams = launched(name)
    with pytest.raises(MachineError, match=f"h200 has no {what}, which this launch uses: {key} is 0 in its file"):
        timed(recording, streams, H200.override({key: 0}))


def test_what_memory_writes_after_the_end_is_no_share_of_the_time():
    """And the smallest L2 there can be is one."""
    recording, streams = launched("nvcc, saxpy")
    slow = H200.override({"hbm.bandwidth": "4 GB/s", "l2.turnover": "1 B"})
    assert max(timed(recording, streams, slow).busy.values()) <= 1
