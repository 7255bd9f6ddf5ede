"""Kernels for sm_100a: recorded and timed for a B200, with the words that nobody held such times to one."""

import numpy as np
import pytest
from tests.ptx.time import made
from tests.ptx.time.made import Act, Kind, Op, Pipe

from kernbench.bench import find, run_bench
from kernbench.ptx.machine.model import load
from kernbench.ptx.time.launch import time_launch

SMALL = {"lengths": (64,), "heads": 1, "value_heads": 1, "key_size": 64, "value_size": 64, "sms": 1}


@pytest.fixture(scope="module")
def timed():
    return run_bench(find("gated_delta_rule_chunk_output"), "sm_100a_whole_chunks", SMALL, timed=True)


def test_the_chunk_output_kernel_for_sm_100a_is_recorded_and_timed(timed):
    assert (timed.right, timed.safe) == (True, True)
    events = timed.recording.events
    kinds = set(events.kind.tolist())
    assert {Kind.TENSOR_MMA, Kind.TENSOR_COMMIT, Kind.TENSOR_LOAD, Kind.BULK_LOAD} <= kinds
    metrics = timed.metrics
    assert metrics["time_ps"] >= max(metrics["floors_ps"].values())
    assert "; not validated" in metrics["time_note"]
    assert metrics["predictions"] == "not validated"


def test_its_products_are_on_the_timeline_and_take_the_tensor_core(timed):
    assert timed.metrics["utilisation"]["tensor"] > 0
    assert timed.metrics["floors_ps"]["tensor"] > 0
    line = timed.timeline
    lanes = [number for number, lane in enumerate(line.lanes) if lane.name == "tensor core"]
    begun = np.flatnonzero(np.isin(line.lane, lanes))
    # twelve products, one after the other
    assert {line.names[number] for number in line.name[begun]} == {"product"}
    assert len(begun) == 12
    order = begun[np.argsort(line.start[begun], kind="stable")]
    assert (line.start[order[1:]] >= line.finish[order[:-1]]).all()


def test_commits_of_products_name_the_phase_that_they_complete(timed):
    events = timed.recording.events
    commits = events.kind == Kind.TENSOR_COMMIT
    waits = events.kind == Kind.MBARRIER_WAIT
    assert (events.object[commits] >= 0).all()
    assert (events.phase[commits] >= 0).all()
    committed = set(zip(events.object[commits].tolist(), events.phase[commits].tolist(), strict=True))
    waited = set(zip(events.object[waits].tolist(), events.phase[waits].tolist(), strict=True))
    assert committed & waited


def test_who_waits_for_products_goes_on_after_their_commit():
    gpu = load("b200")
    barrier = {"object": 64, "phase": 0}
    wait = Op(Pipe.MBARRIER, kind=Kind.MBARRIER_WAIT, act=Act.WAIT, write=0, event={**barrier, "lanes": 32})
    commit = Op(Pipe.TCGEN05, kind=Kind.TENSOR_COMMIT, act=Act.COMMIT, event={**barrier, "lanes": 1})
    late = [*[Op(Pipe.FMA, stall=15)] * 100, commit]
    recording, streams = made.launch([[wait, Op(Pipe.FMA, wait=1)], late])
    followed = time_launch(recording, streams, gpu).followed
    committed = followed.issued[np.flatnonzero(followed.warp == 1)[-1]]
    assert followed.issued[np.flatnonzero(followed.warp == 0)[-1]] > committed
