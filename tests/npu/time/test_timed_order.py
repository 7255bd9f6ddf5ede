"""Time agrees with the result: whatever is called safe keeps the order of all accesses to common bytes."""

import numpy as np
import pytest
from tests import sampled
from tests.npu import random_kernels as kernels
from tests.npu.small import flag

from kernbench import npu
from kernbench.npu.recording.work import compared_works
from kernbench.npu.time import clock, edges, lower
from kernbench.targets.work import first_parting
from kernbench.timing import graph


@pytest.mark.parametrize("seed", sampled.some(range(15), 5))
def test_no_access_is_timed_against_the_order_of_the_result(seed):
    program = kernels.make(seed)
    results, runs = [], []
    for schedule in (*kernels.SCHEDULES, seed):
        run = kernels.launch(program, schedule)
        assert run.safe is True, run.findings
        found, total = kernels.contradictions(run, program)
        assert not found, str(found[0])
        results.append((kernels.outputs(run), total))
        runs.append(run)
    assert results[0] == results[1] == results[2]
    assert not any(first_parting(*compared_works(runs[0].recording, run.recording)) for run in runs[1:])


@pytest.mark.parametrize("bug", sorted(kernels.PLANTED))
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_what_is_planted_is_found(bug, seed):
    run = kernels.launch(kernels.make(seed, bug))
    assert {finding.kind for finding in run.findings} & kernels.PLANTED[bug]


@pytest.mark.parametrize("seed", range(20))
def test_what_nothing_orders_is_found_and_the_rest_is_timed_in_order(seed):
    program = kernels.make(seed, *kernels.DOUBTFUL)
    run = kernels.launch(program)
    assert run.safe is not True or not kernels.contradictions(run, program)[0]


KINDS = (edges.FLAG, edges.SLOT, edges.MESSAGE, edges.DEPENDENCE, edges.CORE, edges.ISSUE)


@pytest.mark.parametrize("kind", KINDS, ids=edges.KIND_NAMES.__getitem__)
def test_each_kind_of_edge_is_missed_when_it_is_left_out(kind, monkeypatch):
    """The check is not blind: without one kind of edges, times contradict results."""
    made, again = lower.graph_of, lower.with_other_edges

    def left(parts):
        return [graph.Unlagged(*(column[part.kinds != kind] for column in part)) for part in parts]

    monkeypatch.setattr(lower, "graph_of", lambda nodes, *parts: made(nodes, *map(left, parts[:2]), parts[2]))
    monkeypatch.setattr(lower, "with_other_edges", lambda whole, first, parts: again(whole, first, left(parts)))
    programs = [kernels.make(seed) for seed in range(25)]
    assert any(kernels.contradictions(kernels.launch(program), program)[0] for program in programs)


@pytest.mark.parametrize("makes", ["a task", "the runtime"])
def test_memory_of_the_heap_is_not_used_again_before_its_last_user_is_done(makes):
    """The heap holds one tensor. The task that uses it last does not wait for the one that made it, but for another."""

    def make(core, part):
        core.tstore(part, filled(core))
        core.pipe_sync()

    def both(core, part):
        tile = filled(core)
        flag(core, "MTE3", "MTE2")
        core.tload(tile, part)
        flag(core, "MTE2", "MTE3", 1)
        core.tstore(part, tile)
        core.pipe_sync()

    def use(core, part, out):
        tile = core.alloc("UB", (8, 64))
        core.tload(tile, part)
        flag(core, "MTE2", "MTE3", 1)
        core.tstore(out, tile)
        core.pipe_sync()

    def filled(core):
        tile = core.alloc("UB", (8, 64))
        core.texpands(tile, 1.0)
        flag(core, "V", "MTE3")
        return tile

    def orchestrate(rt, out):
        for i in range(3):
            with rt.scope():
                if makes == "a task":
                    (part,) = rt.submit(aiv0=make, args=[npu.CREATE((8, 64), "f32")]).outputs
                else:
                    part = rt.tensor((8, 64), "f32")
                    rt.submit(aiv0=make, args=[npu.OUT(part)])
                rt.submit(aiv0=both, args=[npu.INOUT(part)])
                rt.submit(aiv0=use, args=[npu.IN(part), npu.OUT(out[8 * i : 8 * i + 8])])

    chip = npu.Chip("a2a3", {"tasks.heap": 8 * 64 * 4, "tasks.submit": 0, "paths.ub_gm": 0.1})
    run = chip.launch(orchestrate, np.zeros((24, 64), np.float32))
    assert run.safe is True, run.findings
    timing = clock.time_recording(run.recording, chip.machine)
    nodes, times = timing.lowered.nodes, timing.times
    makers = [task.number for task in run.recording.tasks if task.created_bytes]
    users = [task.number for task in run.recording.tasks if task.name == "use"]
    submit = {c.target: i for i, c in enumerate(run.recording.commands) if c.verb in ("submit", "tensor")}
    for user, maker in zip(users, makers[1:], strict=False):
        assert times.finish[nodes.done + user] <= times.start[nodes.command + submit[maker]]
