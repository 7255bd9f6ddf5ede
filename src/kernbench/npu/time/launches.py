"""When the rows of a block may begin after its dispatch: blocks that start together, and staged blocks.

All blocks of a `sync_start` task begin when the last of them is dispatched. A task whose producers all allow early
resolve may be staged: its blocks are dispatched to free cores once all blocks of all producers are, and begin when the
producers are done.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from kernbench.npu.isa.units import PER_LANE, THREADS
from kernbench.npu.recording.record import NpuRecording, TaskRecord
from kernbench.npu.time import edges as e
from kernbench.npu.time.costs import Ints

if TYPE_CHECKING:
    from kernbench.npu.time.assign import Assignment
    from kernbench.npu.time.lower import Lowered

Edges = tuple[Ints, Ints, Ints]


def may_stage(recording: NpuRecording, task: TaskRecord) -> bool:
    """Whether a task may be on its cores before the tasks it waits for are done."""
    return bool(task.dependences) and not task.predicated and all(recording.tasks[d].early for d in task.dependences)


def firsts_of_pipes(recording: NpuRecording) -> tuple[Ints, Ints]:
    """The first row of each pipe of each block, and its block."""
    rows = recording.array()
    block = np.repeat(np.arange(len(recording.block_task)), np.diff(recording.firsts()))
    lane, pipe = rows["lane"], rows["pipe"]
    key = block * THREADS + lane.astype(np.int64) * PER_LANE + pipe
    _, first = np.unique(key, return_index=True)
    return first.astype(np.int64), block[first].astype(np.int64)


def launch_edges(lowered: "Lowered", assignment: "Assignment", entries: Callable[[], Ints]) -> Edges:
    """Edges for staged blocks, and blocks that start together; `entries` gives the node where each row begins."""
    recording = lowered.recording
    owner = recording.owners()
    found: list[tuple[Any, object, int]] = []
    first, first_block, entry = (np.empty(0, np.int64),) * 3
    if assignment.staged.any() or any(task.sync_start for task in recording.tasks):
        (first, first_block), entry = firsts_of_pipes(recording), entries()
    for task in recording.tasks:
        blocks = np.flatnonzero(owner == task.number) if task.sync_start or may_stage(recording, task) else owner[:0]
        if not len(blocks):
            continue
        begins = np.concatenate([entry[first[np.isin(first_block, blocks)]], lowered.nodes.end + blocks])
        if task.sync_start:
            found.append(_pairs(lowered.nodes.dispatch + blocks, begins, e.DISPATCHED))
        if may_stage(recording, task):
            found += _stage_edges(lowered, assignment, task, blocks, begins)
    if not found:
        return np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0, np.int64)
    source, target = (np.concatenate([part[k] for part in found]) for k in (0, 1))
    return source, target, np.concatenate([np.full(len(part[0]), part[2]) for part in found])


def _stage_edges(
    lowered: "Lowered", assignment: "Assignment", task: TaskRecord, blocks: Ints, begins: Ints
) -> list[tuple[Ints, Ints, int]]:
    """Staged blocks follow the submit and the dispatch of all producers; the others are dispatched when ready."""
    nodes, recording = lowered.nodes, lowered.recording
    staged, late = blocks[assignment.staged[blocks]], blocks[~assignment.staged[blocks]]
    ready = np.array([nodes.ready + task.number])
    found = [_pairs(ready, nodes.dispatch + late, e.READY)]
    if len(staged):
        submit = next(i for i, c in enumerate(recording.commands) if c.makes_task and c.target == task.number)
        found.append(_pairs(np.array([nodes.command + submit]), nodes.dispatch + staged, e.SUBMITTED))
        published = np.concatenate([_published(lowered, assignment, d) for d in task.dependences])
        found.append(_pairs(published, nodes.dispatch + staged, e.PUBLISHED))
        found.append(_pairs(ready, begins, e.DEPENDENCE))
    return found


def _published(lowered: "Lowered", assignment: "Assignment", producer: int) -> Ints:
    """The nodes at which all blocks of a producer are on their cores: the last dispatch on each scheduler thread."""
    nodes, owner = lowered.nodes, lowered.recording.owners()
    blocks = np.flatnonzero(owner == producer)
    if not len(blocks):
        return np.array([nodes.done + producer])
    # a thread starts one block after the other: the last is the one that no other block of the producer follows
    followed = np.isin(blocks, assignment.previous[blocks])
    # if another task's block was started in between, both are kept
    kept = blocks[~followed]
    extra = np.array([nodes.ready + producer]) if assignment.staged[blocks].any() else kept[:0]
    return np.concatenate([nodes.dispatch + kept, extra])


def _pairs(sources: Ints, targets: Ints, kind: int) -> tuple[Ints, Ints, int]:
    """An edge from each source to each target."""
    return np.repeat(sources, len(targets)), np.tile(targets, len(sources)), kind
