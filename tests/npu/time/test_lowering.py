"""From recordings to graphs: how large they may become, and that stretches of blocks can be lowered apart."""

import numpy as np
import pytest
from tests import sampled
from tests.npu import random_kernels as kernels
from tests.npu.time.test_early_resolve import chain

from kernbench.bench import find, run_bench
from kernbench.common.errors import KernbenchError
from kernbench.npu.isa.model import load
from kernbench.npu.recording.record import ROW_TYPE, NpuRecording
from kernbench.npu.time import lower
from kernbench.npu.time.clock import time_recording
from kernbench.npu.time.costs import Transfers
from kernbench.npu.time.lower import Lowered, _number, join
from kernbench.npu.time.measure import retime
from kernbench.npu.time.reclaim import Waits
from kernbench.safety.jobs import VARIABLE
from kernbench.timing import graph


def test_a_recording_of_more_nodes_than_numbers_of_the_graph_is_refused():
    assert _number(NpuRecording(), 2**31 - 1, 0, 0).total == 2**31 - 1
    with pytest.raises(KernbenchError, match=r"2,147,483,649 nodes of its graph are too many.* 2,147,483,647"):
        _number(NpuRecording(), 2**31 - 2, 1, 0)


def test_more_edges_than_numbers_of_the_graph_are_refused():
    nodes = _number(NpuRecording(), 2, 0, 0)
    none = np.empty(0, np.int64)
    one = tuple(np.array([number]) for number in (0, 1, 3))
    lowered = Lowered(NpuRecording(), nodes, Transfers(none, none, 0, none), [], one, Waits())
    assert join(lowered, (none, none, none)).targets.tolist() == [1]
    # as many as there cannot be, which take no memory
    many = tuple(np.broadcast_to(np.int64(0), 2**31 - 1) for _ in range(3))
    with pytest.raises(KernbenchError, match=r"2,147,483,648 edges of its graph are too many"):
        join(lowered, many)


@pytest.mark.parametrize("form", ["staged", "fused", "grouped"])
def test_a_recording_that_is_timed_by_several_threads_takes_the_same_time(monkeypatch, form):
    run = run_bench(find("paged_attention"), "contexts_33_64_48_15", {"form": form}, timed=False)
    _is_the_same_on_threads(monkeypatch, run, load("a2a3"))


@pytest.mark.parametrize("seed", sampled.some(range(30), 10))
def test_random_programs_are_timed_by_several_threads_as_by_one(monkeypatch, seed):
    """On few clusters, so that blocks wait for cores, and with issue timed for some."""
    changes = {"clusters.count": 2, "clusters.issue": 4 * (seed % 2)}
    _is_the_same_on_threads(monkeypatch, kernels.launch(kernels.make(seed)), load("a2a3").override(changes))


def test_staged_blocks_are_timed_by_several_threads_as_by_one(monkeypatch):
    run = chain(True, blocks=2, second=2)
    assert time_recording(run.recording, load("a2a3")).assignment.staged.any()
    _is_the_same_on_threads(monkeypatch, run, load("a2a3"))


def _is_the_same_on_threads(monkeypatch, run, chip):
    assert run.safe, run.findings
    alone = retime(run, chip)
    monkeypatch.setattr(lower, "_LONG", 1)
    monkeypatch.setattr(graph, "_AT_ONCE", 100)
    monkeypatch.setenv(VARIABLE, "3")
    assert len(lower.stretches(run.recording)) > 1 or len(run.recording.block_task) == 1
    run.recording.cases = None
    together = retime(run, chip)
    assert together.metrics == alone.metrics
    assert together.views == alone.views
    assert together.timeline.critical_path == alone.timeline.critical_path
    for name in ("lane", "name", "site", "start", "finish", "flows"):
        assert getattr(together.timeline, name).tolist() == getattr(alone.timeline, name).tolist()
    for name in ("kind", "after"):
        assert getattr(together.timeline.waits, name).tolist() == getattr(alone.timeline.waits, name).tolist()


def test_stretches_have_all_blocks_once(monkeypatch):
    monkeypatch.setattr(lower, "_LONG", 1)
    rng = np.random.default_rng(0)
    for jobs in (1, 2, 5, 8):
        monkeypatch.setenv(VARIABLE, str(jobs))
        for blocks in (1, 2, 7, 40):
            sizes = rng.integers(0, 30, blocks)
            firsts = np.concatenate([[0], np.cumsum(sizes)[:-1]]).tolist()
            recording = NpuRecording(block_first=firsts, block_task=[0] * blocks)
            recording.take(np.zeros(max(1, int(sizes.sum())), ROW_TYPE))
            found = lower.stretches(recording)
            assert [block for begin, end in found for block in range(begin, end)] == list(range(blocks))
            assert len(found) <= jobs
