"""Tasks that are staged on free cores before those they wait for are done."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.npu.small import flag

from kernbench import npu
from kernbench.npu.time.clock import time_recording

X = np.ones((8, 256), np.float32)


def work(core, source, target, rounds=1):
    tile = core.alloc("UB", (1, 256))
    core.tload(tile, source[0:1])
    flag(core, "MTE2", "V")
    for _ in range(rounds):
        core.texp(tile, tile)
        core.pipe_barrier("V")
    flag(core, "V", "MTE3")
    core.tstore(target[core.block_idx : core.block_idx + 1], tile)
    core.pipe_sync()


def chain(early, blocks=1, second=1, predicate=None, rounds=3000, **options):
    def orchestrate(rt, x, y, z):
        rt.submit(
            aiv0=work, args=[npu.IN(x), npu.INOUT(y), rounds], block_num=blocks, allow_early_resolve=early, name="first"
        )
        condition = npu.PREDICATE(rt.tensor((1,), "i32", initial_value=1)[0]) if predicate else None
        rt.submit(
            aiv0=work, args=[npu.IN(y), npu.INOUT(z)], block_num=second, predicate=condition, name="second", **options
        )

    shape = (max(blocks, second, 8), 256)
    arrays = [np.zeros(shape, np.float32) for _ in range(3)]
    run = npu.Chip("a2a3").launch(orchestrate, *arrays)
    assert run.findings == []
    return run


def starts(run, **changes):
    timed = npu.Chip("a2a3").retime(run, changes)
    return timed.metrics["time_ps"], {t["name"]: t for t in timed.views["tasks"]}


def test_a_staged_task_begins_when_its_producer_is_done():
    late, waits = starts(chain(False))
    early, staged = starts(chain(True))
    assert late - early == 500 * 10**3
    assert waits["second"]["start_ps"] == waits["first"]["finish_ps"] + 500 * 10**3
    assert staged["second"]["start_ps"] == staged["first"]["finish_ps"]


def test_a_task_with_a_predicate_is_never_staged():
    assert starts(chain(True, predicate=True))[0] == starts(chain(False, predicate=True))[0]


def test_producers_must_all_be_on_their_cores_first():
    # 60 blocks on 48 AIVs: the last 12 must find cores before anybody is staged, and then none is free
    run = chain(True, blocks=60, second=48, rounds=3)
    timing = time_recording(run.recording, npu.load("a2a3"))
    block_task = np.array(run.recording.block_task)
    staged = timing.assignment.staged
    assert not staged[block_task == 0].any()
    dispatch = timing.lowered.nodes.dispatch
    last = timing.times.finish[dispatch : dispatch + len(block_task)][block_task == 0].max()
    first = timing.times.start[dispatch : dispatch + len(block_task)][block_task == 1].min()
    assert not staged.any() or first >= last


def test_staged_blocks_of_a_task_that_starts_together_begin_together():
    run = chain(True, second=8, sync_start=True)
    timing = time_recording(run.recording, npu.load("a2a3"))
    block_task = np.array(run.recording.block_task)
    assert timing.assignment.staged[block_task == 1].all()
    firsts = run.recording.firsts()[:-1][block_task == 1]
    entry = {int(row): i for i, row in enumerate(timing.lowered.transfers)}
    begin = {int(timing.times.start[timing.lowered.nodes.begin + entry[int(row)]]) for row in firsts}
    assert len(begin) == 1


@settings(max_examples=12, deadline=None, derandomize=True)
@given(
    st.lists(
        st.tuples(st.booleans(), st.integers(1, 60), st.integers(1, 40), st.integers(0, 7), st.booleans()),
        min_size=1,
        max_size=8,
    )
)
def test_any_graph_keeps_its_order_and_its_cores(tasks):
    """No block begins before all that its task waits for has ended, and no core has two blocks at a time."""

    def orchestrate(rt, x, y):
        made = []
        with rt.scope(manual=True):
            for number, (early, blocks, rounds, back, together) in enumerate(tasks):
                made.append(
                    rt.submit(
                        aiv0=work,
                        args=[npu.IN(x), npu.INOUT(y[number]), rounds],
                        block_num=min(blocks, 48) if together else blocks,
                        deps=made[max(0, number - back) :],
                        allow_early_resolve=early,
                        sync_start=together,
                    )
                )

    run = npu.Chip("a2a3").launch(orchestrate, X, np.zeros((8, 60, 256), np.float32))
    assert run.findings == []
    timing = time_recording(run.recording, npu.load("a2a3"))
    nodes, finish, start = timing.lowered.nodes, timing.times.finish, timing.times.start
    recording, firsts = run.recording, run.recording.firsts()
    entry = np.arange(nodes.rows)
    entry[timing.lowered.transfers] = nodes.begin + np.arange(len(timing.lowered.transfers))
    spans = {}
    for block, task in enumerate(recording.block_task):
        begin = min(int(start[entry[r]]) for r in range(firsts[block], firsts[block + 1]))
        for earlier in recording.tasks[task].dependences:
            assert begin >= finish[nodes.done + earlier]
        core = (int(timing.assignment.cluster[block]), int(timing.assignment.first_lane[block]))
        spans.setdefault(core, []).append((int(start[nodes.dispatch + block]), int(finish[nodes.end + block])))
    for held in spans.values():
        ordered = sorted(held)
        assert all(one[1] <= two[0] for one, two in itertools.pairwise(ordered))


@pytest.mark.parametrize("early", [True, False])
def test_nothing_else_changes(early):
    assert (chain(early).outputs["z"][0] == chain(False).outputs["z"][0]).all()
