"""From a bench to its time: what is recorded, timed for a GPU, refused with a reason, and swept."""

from dataclasses import replace

import numpy as np
import pytest

from kernbench import ptx
from kernbench.bench import find, run_bench
from kernbench.ptx.machine.model import load, unfit
from kernbench.ptx.target import TARGET
from kernbench.result.finding import Finding

BENCH = "batched_incremental_attention"
SMALL = {
    "users": 1,
    "context": 16,
    "lengths": (),
    "h_q": 2,
    "h_kv": 2,
    "kernel": "one_warp",
    "dtype": "f32",
    "d_head": 32,
}


@pytest.fixture(scope="module")
def timed():
    return run_bench(find(BENCH), None, SMALL, timed=True)


def test_a_bench_gets_its_time(timed):
    metrics = timed.metrics
    assert (timed.right, timed.safe) == (True, True)
    assert metrics["time_ps"] >= max(metrics["floors_ps"].values())
    assert metrics["floors_ps"][metrics["bound"]] + sum(metrics["gap_ps"].values()) == metrics["time_ps"]
    assert "predicted for h200" in metrics["time_note"]
    assert timed.timeline.total == pytest.approx(metrics["time_ps"], rel=1e-6)
    assert set(metrics["gap_ps"]) <= set(TARGET.measured().causes)


def test_the_same_to_the_last_digit(timed):
    assert run_bench(find(BENCH), None, SMALL, timed=True).metrics["time_ps"] == timed.metrics["time_ps"]


def test_recorded_once_and_timed_for_others(timed):
    first = TARGET.time_recording(timed.recording, load("h200"))
    assert TARGET.summary(first)["time_ps"] == timed.metrics["time_ps"]
    other = TARGET.summary(first.again(load("a100")))
    assert other["time_ps"] >= max(other["floors_ps"].values())
    assert "not validated" in other["time_note"]


def test_what_is_not_timed_says_why(timed):
    for_another = replace(timed, recording=replace(timed.recording, arch="sm_90a"))
    assert "is sm_80: choose another GPU" in TARGET.retime(for_another, load("a100")).metrics["no_time"]
    unrecorded = run_bench(find(BENCH), None, SMALL)
    assert "nothing was recorded" in TARGET.retime(unrecorded, load("h200")).metrics["no_time"]
    unsafe = TARGET.retime(replace(timed, findings=[Finding("race", "two accesses")]), load("h200"))
    assert unsafe.metrics["no_time"] == "it is not safe"


@pytest.mark.parametrize(
    ("arch", "gpu", "fits"),
    [
        ("sm_90a", "h200", True), ("sm_80", "h200", True), ("sm_90", "h200", True), ("sm_100a", "h200", False),
        ("sm_90a", "b200", False), ("sm_100f", "b200", True), ("sm_90", "a100", False), ("odd", "h200", False),
    ],
)  # fmt: skip
def test_code_for_an_architecture_runs_where_it_can(arch, gpu, fits):
    assert (unfit(arch, load(gpu)) == "") == fits


def test_a_launch_is_not_recorded_unless_its_time_is_wanted():
    host = ptx.Host()
    kernel = ptx.parse(
        ".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry k(.param .u64 p)\n{\n"
        ".reg .b64 %d<2>;\n.reg .b32 %r<2>;\n"
        "ld.param.u64 %d0, [p];\nmov.u32 %r0, 1;\nst.global.u32 [%d0], %r0;\nret;\n}\n"
    ).kernels["k"]
    for records in (False, True):
        host.records = records
        out = host.empty((1,), np.uint32, "out")
        assert (host.launch(kernel, 1, 1, [out]).recording is not None) == records
