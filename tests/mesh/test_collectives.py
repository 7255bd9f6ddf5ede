"""Collectives: right and safe on every topology they serve, under several schedules, never below their floor."""

import numpy as np
import pytest
from tests import sampled

from kernbench import machine, mesh
from kernbench.common.errors import MisuseError
from kernbench.mesh.collectives import algorithms, choose
from kernbench.mesh.time import time_recording

CASES = [(a.operation, a.name, t) for a in algorithms() for t in sorted(a.topologies)]
# a grid needs full rows of four
SIZED = [(*case, ranks) for case in CASES for ranks in (1, 2, 4, 8) if case[2] != "grid" or ranks % 4 == 0]
COMBINE = {"sum": np.sum, "max": np.max, "min": np.min}


def fill(t_ptr, columns, *, tl):
    """Rank r holds r * 100 + 0, 1, 2, ..."""
    rank = tl.program_id(0)
    tl.store(t_ptr, tl.arange(rank * 100, rank * 100 + columns))


def prepared(topology, ranks, size, dtype="f32", overrides=None, schedule="canonical"):
    host = mesh.Host(
        machine.load("reference").override(overrides or {}), ranks=ranks, install=topology, schedule=schedule
    )
    tensor = host.workspace((size,), dtype, name="t")
    assert host.launch(fill, tensor, size).safe
    before = np.stack([tensor.part(r, r) for r in range(ranks)]).astype(np.float64)
    return host, tensor, before


def after(tensor, ranks):
    return np.stack([tensor.part(r, r) for r in range(ranks)]).astype(np.float64)


def call(host, operation, name, tensor, op="sum", root=0):
    options = {"all_reduce": {"op": op}, "reduce_scatter": {"op": op}, "broadcast": {"root": root}}.get(operation, {})
    arguments = () if operation == "barrier" else (tensor,)
    return getattr(host.dist, operation)(*arguments, algorithm=name, **options)


def expected(operation, before, op="sum", root=0):
    ranks = len(before)
    if operation == "all_reduce":
        return np.broadcast_to(COMBINE[op](before, axis=0), before.shape)
    if operation == "broadcast":
        return np.broadcast_to(before[root], before.shape)
    if operation == "barrier":
        return before
    parts = before.reshape(ranks, ranks, -1)
    if operation == "all_gather":
        return np.broadcast_to(np.concatenate([parts[r, r] for r in range(ranks)]), before.shape)
    out = parts.copy()
    for r in range(ranks):
        out[r, r] = COMBINE[op](parts[:, r], axis=0)
    return out.reshape(before.shape)


@pytest.mark.sampled(16)
@pytest.mark.parametrize(("operation", "name", "topology", "ranks"), SIZED)
def test_right_and_safe(operation, name, topology, ranks):
    for op in ("sum", "max", "min") if "reduce" in operation else ("sum",):
        for root in {0, ranks // 2, ranks - 1} if operation == "broadcast" else {0}:
            host, tensor, before = prepared(topology, ranks, 5 * ranks)
            run = call(host, operation, name, tensor, op, root)
            assert run.findings == [], run.findings
            np.testing.assert_array_equal(after(tensor, ranks), expected(operation, before, op, root))


@pytest.mark.parametrize(("operation", "name", "topology"), CASES)
def test_many_pieces_odd_sizes_shallow_queues_and_any_schedule(operation, name, topology):
    size = 8 * 37 if operation in ("all_gather", "reduce_scatter") else 301
    for schedule in sampled.some(["canonical", "reversed", 1, 2], 2):
        small = {"ipcq.slot": 64, "ipcq.depth": 2}
        host, tensor, before = prepared(topology, 8, size, overrides=small, schedule=schedule)
        run = call(host, operation, name, tensor)
        assert run.findings == [], run.findings
        np.testing.assert_array_equal(after(tensor, 8), expected(operation, before))


def test_over_cubes():
    host = mesh.Host("reference", ranks=4, rank_axis=1)
    tensor = host.replicate(np.ones((4, 3), np.float16))
    assert host.dist.all_reduce(tensor).safe
    np.testing.assert_array_equal(host.gather(tensor), np.full((4, 3), 4, np.float16))


def test_narrow_floats_are_summed_in_f32():
    host = mesh.Host("reference", ranks=8)
    tensor = host.replicate(np.full(4, 0.1, np.float16))
    host.dist.all_reduce(tensor)
    assert host.gather(tensor)[0] == np.float16(8 * np.float32(np.float16(0.1)))


def test_the_topology_chooses():
    assert choose("all_reduce", "grid").name == "grid"
    assert choose("all_reduce", "ring").name == "ring"
    assert choose("all_reduce", "line").name == "scan"
    assert choose("all_reduce", "grid", "scan").name == "scan"
    with pytest.raises(MisuseError, match="ring"):
        choose("all_reduce", "line", "ring")


def test_copies_differ_after_a_reduce_scatter():
    host = mesh.Host("reference", ranks=4)
    run = host.dist.reduce_scatter(host.replicate(np.ones((8, 3), np.float32)))
    assert run.safe, run.findings


def test_the_grid_needs_fewer_hops():
    times = {}
    for name in ("grid", "scan"):
        host, tensor, _ = prepared("grid", 8, 16)
        times[name] = time_recording(call(host, "all_reduce", name, tensor).recording, host.machine).total_ps
    latency = 20_000
    assert times["grid"] >= (2 + 4 - 2) * latency
    assert times["scan"] >= 7 * latency
    assert times["grid"] < times["scan"]


def test_ring_bytes_reach_their_floor():
    size, ranks = 1 << 16, 8
    host, tensor, _ = prepared("ring", ranks, size)
    run = call(host, "all_reduce", "ring", tensor)
    # 2 (P - 1) / P of the bytes leave every rank
    assert run.metrics["send_bytes"] == ranks * 2 * (ranks - 1) * size * 4 // ranks
    floor = 2 * (ranks - 1) / ranks * size * 4 / 128e9 * 1e12
    assert time_recording(run.recording, host.machine).total_ps >= floor


def test_misuse():
    host = mesh.Host("reference", ranks=8)
    with pytest.raises(MisuseError, match="every rank has whole"):
        host.dist.all_reduce(host.shard(np.ones(8, np.float32)))
    with pytest.raises(MisuseError, match="op 'prod'"):
        host.dist.all_reduce(host.replicate(np.ones(8, np.float32)), op="prod")
    with pytest.raises(MisuseError, match="multiple of the 8 ranks"):
        host.dist.all_gather(host.replicate(np.ones(9, np.float32)))
    with pytest.raises(MisuseError, match="root 8"):
        host.dist.broadcast(host.replicate(np.ones(8, np.float32)), root=8)
    with pytest.raises(MisuseError, match="do not fill whole rows"):
        mesh.Host("reference", ranks=6, install="grid").dist.barrier()
