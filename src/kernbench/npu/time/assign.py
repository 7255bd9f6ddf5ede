"""Assigns blocks to cores in order: a list scheduler over the tasks of a recording, like the runtime's schedulers.

The orchestrator submits in order, waiting for full rings and values it reads. Ready blocks wait in three queues; mixed
tasks with a cube core go first, then cube, then vector tasks; within a queue the oldest goes first. A scheduler thread
starts one block at a time on the first free cores. If nothing is ready, tasks whose producers are all on
their cores and allow it are staged: their blocks take free cores and begin when the producers are done. Block
durations are given; only the order and the cores are kept from this pass, the timing engine computes the times.
Compiled.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kernbench.common.compiled import part
from kernbench.common.deferred import deferred
from kernbench.npu.isa.model import ChipModel
from kernbench.npu.isa.units import AIC, AIV0, AIV1, LANES
from kernbench.npu.recording.record import NpuRecording, TaskRecord
from kernbench.npu.time.blocked import no_cores
from kernbench.npu.time.costs import Ints, submit_time
from kernbench.npu.time.launches import may_stage
from kernbench.npu.time.reclaim import Waits

_NONE = -1
# columns of the table of tasks: constants ...
_LANES, _QUEUE, _SYNC, _BLOCKS, _FOLLOWERS, _HOLDERS, _NEXT_SLOT = range(7)
# ... and variables: blocks that have not started, blocks that have not ended, tasks it still waits for, and whether
# it is submitted and done
_WAITING, _LEFT, _MISSING, _SUBMITTED, _DONE = range(7, 12)
# for staging: whether a task allows it to its consumers, whether it may be staged itself, where its list of producers
# begins; whether it is queued for it, and whether it is ready
_ALLOWS, _STAGES, _PRODUCERS, _QUEUED, _READY = range(12, 17)
# columns of the table of commands
_TARGET, _COST, _WAITS, _SLOT, _RING = range(5)
_BLOCK, _COMMAND = 0, 1


@dataclass
class Assignment:
    """For each block its cluster, the blocks that used its cores before it, the scheduler thread and the block that
    thread started before; -1 for none. `first_lane` is the AIV that a task of one vector lane runs on. `staged` blocks
    were on their cores before the tasks they wait for were done.
    """

    cluster: Ints
    first_lane: Ints
    before: Ints
    thread: Ints
    previous: Ints
    staged: NDArray[np.bool_]

    def is_like(self, other: "Assignment") -> bool:
        """Whether all blocks are on the same cores, in the same order."""
        return all(np.array_equal(own, vars(other)[name]) for name, own in vars(self).items())


def assign(recording: NpuRecording, chip: ChipModel, times: Ints, waits: Waits) -> Assignment:
    """Assign all blocks; `times` are their durations. A chip without cores for one of them is an error."""
    tasks, followers, holders, producers = _tasks(recording, waits)
    commands, values = _commands(recording, chip, waits)
    owner = recording.owners()
    blocks = np.lexsort((np.array(recording.block_index, np.int64), owner))
    # cluster, first lane, thread, previous block of that thread, previous blocks of its cores
    assigned = np.full((len(owner), 4 + len(LANES)), _NONE, np.int64)
    # for each block when it was staged, and whether it was
    staged = np.zeros((len(owner), 2), np.int64)
    cores = np.full((len(LANES), chip.clusters.count), _NONE, np.int64)
    threads = np.full((chip.tasks.schedulers, 2), _NONE, np.int64)
    threads[:, 0] = 0
    oldest = np.array(waits.ring_first, np.int64)
    lists = (followers, holders, values, blocks, owner, producers, staged)
    events, queues = np.empty((cores.size + 2, 3), np.int64), np.empty((6, len(tasks), 3), np.int64)
    room = (
        (np.ones(cores.shape, np.bool_), events, np.zeros(1, np.int64)),
        (queues, np.zeros((6, 1), np.int64), np.empty(len(tasks), np.int64)),
    )
    fixed = np.asarray(times, np.int64), chip.tasks.dispatch_ps
    _play(tasks, commands, lists, fixed, assigned, cores, threads, oldest, room)
    if len(assigned) and assigned[:, 0].min() < 0:
        # of the waiting tasks, the first depends on no other
        raise no_cores(recording, chip, int(owner[assigned[:, 0] < 0].min()))
    return Assignment(assigned[:, 0], assigned[:, 1], assigned[:, 4:], assigned[:, 2], assigned[:, 3], staged[:, 1] > 0)


def _tasks(recording: NpuRecording, waits: Waits) -> tuple[Ints, Ints, Ints, Ints]:
    """The table of tasks with one more row; all followers, all holders of slots and all producers, task after task."""
    count = len(recording.tasks)
    later: list[list[int]] = [[] for _ in range(count)]
    for task in recording.tasks:
        for earlier in task.dependences:
            later[earlier].append(task.number)
    table = np.zeros((count + 1, 17), np.int64)
    for task in recording.tasks:
        lanes = sum(1 << lane for lane in task.lanes)
        table[task.number, [_LANES, _QUEUE, _SYNC]] = lanes, _queue(task), task.sync_start
        table[task.number, _MISSING] = len(task.dependences)
        table[task.number, [_ALLOWS, _STAGES]] = task.early, may_stage(recording, task)
    table[:count, _NEXT_SLOT] = waits.ring_after
    sizes = np.bincount(recording.owners(), minlength=count)
    table[:count, _LEFT] = table[:count, _WAITING] = sizes
    table[1:, _BLOCKS] = np.cumsum(sizes)
    table[:, _FOLLOWERS], followers = _joined(later)
    table[:, _HOLDERS], holders = _joined(waits.holders)
    table[:, _PRODUCERS], producers = _joined([sorted(task.dependences) for task in recording.tasks])
    return table, followers, holders, producers


def _commands(recording: NpuRecording, chip: ChipModel, waits: Waits) -> tuple[Ints, Ints]:
    """The table of commands with one more row; and the tasks they wait for, command after command."""
    table = np.full((len(recording.commands) + 1, 5), _NONE, np.int64)
    for number, (command, slot) in enumerate(zip(recording.commands, waits.slot_of, strict=True)):
        makes_task = command.makes_task
        table[number, _TARGET] = command.target if makes_task else _NONE
        table[number, _COST] = submit_time(recording, chip, command)
        table[number, [_SLOT, _RING]] = slot, waits.ring_of[slot] if slot >= 0 else 0
    table[:, _WAITS], values = _joined([c.waits for c in recording.commands])
    return table, values


def _joined(lists: Iterable[Iterable[int]]) -> tuple[Ints, Ints]:
    """Concatenated lists: the begin of each, and the end; and all entries."""
    parts = [list(one) for one in lists]
    first = np.concatenate([[0], np.cumsum([len(part) for part in parts], dtype=np.int64)]).astype(np.int64)
    return first, np.array([n for part in parts for n in part], np.int64)


def _queue(task: TaskRecord) -> int:
    """Mixed with the cube, cube alone, vector."""
    return 2 if AIC not in task.lanes else int(len(task.lanes) == 1)


@part
def _is_less(heap, i, j):  # type: ignore[no-untyped-def]
    """Whether entry i of a heap, (time, kind, number), comes before entry j."""
    for column in range(3):
        if heap[i, column] != heap[j, column]:
            return heap[i, column] < heap[j, column]
    return False


@part
def _swap(heap, i, j):  # type: ignore[no-untyped-def]
    for column in range(3):
        heap[i, column], heap[j, column] = heap[j, column], heap[i, column]


@part
def _push(heap, size, time, kind, number):  # type: ignore[no-untyped-def]
    """Add an entry to a heap of `size[0]` entries; the least is first."""
    at = size[0]
    heap[at, 0], heap[at, 1], heap[at, 2] = time, kind, number
    size[0] += 1
    while at and _is_less(heap, at, (at - 1) // 2):
        _swap(heap, at, (at - 1) // 2)
        at = (at - 1) // 2


@part
def _pop(heap, size):  # type: ignore[no-untyped-def]
    """Take the first entry off a heap; it is left behind the last one, where it can still be read."""
    size[0] -= 1
    last = size[0]
    _swap(heap, 0, last)
    at = 0
    while True:
        least = at
        for down in range(2 * at + 1, min(2 * at + 3, last)):
            if _is_less(heap, down, least):
                least = down
        if least == at:
            return
        _swap(heap, at, least)
        at = least


@deferred(lambda tasks, commands, lists, *_: 50 * (len(tasks) + len(commands) + len(lists[4])))
def _play(tasks, commands, lists, fixed, assigned, cores, threads, oldest, room):  # type: ignore[no-untyped-def]
    """Process events until there are none left. An event is the end of a block or a command; queues hold tasks: three
    for ready tasks, three for those that may be staged.
    """
    owner, (times, dispatch_ps) = lists[4], fixed
    (free, events, size), (queues, lengths, _) = room
    command, now = 0, 0
    # a command is being executed: the orchestrator takes no other
    is_busy = False
    while True:
        if not is_busy and command + 1 < len(commands) and not _is_held(command, tasks, commands, lists, oldest):
            _push(events, size, now + commands[command, _COST], _COMMAND, command)
            is_busy = True
            command += 1
        if not size[0]:
            return
        _pop(events, size)
        now, number = events[size[0], 0], events[size[0], 2]
        if events[size[0], 1] == _BLOCK:
            task = owner[number]
            _take(tasks[task, _LANES], assigned[number, 1], assigned[number, 0], free, True)
            tasks[task, _LEFT] -= 1
            if tasks[task, _LEFT] == 0:
                _complete(task, tasks, lists, times, room, now)
        else:
            is_busy, task = False, commands[number, _TARGET]
            if task >= 0:
                tasks[task, _SUBMITTED] = 1
                if tasks[task, _MISSING] == 0:
                    _ready(task, tasks, lists, times, room, now)
                else:
                    _may_queue(task, tasks, lists, queues, lengths, now)
        for q in range(6):
            if q >= 3 and lengths[0, 0] + lengths[1, 0] + lengths[2, 0]:
                # ready tasks come before those that may be staged
                break
            while lengths[q, 0]:
                task = queues[q, 0, 2]
                # a task queued for staging may have become ready since
                block = -1
                if q < 3 or not tasks[task, _READY]:
                    block = _dispatch(task, tasks, lists, free, cores, assigned)
                    if block < 0:
                        break
                if block < 0 or tasks[task, _WAITING] == 0:
                    _pop(queues[q], lengths[q])
                if block < 0:
                    continue
                ready = _thread(block, threads, assigned, now) + dispatch_ps
                threads[assigned[block, 2], 0] = ready
                if q < 3:
                    _push(events, size, ready + times[block], _BLOCK, block)
                else:
                    lists[6][block, 0], lists[6][block, 1] = ready, 1
                if tasks[task, _WAITING] == 0:
                    _publish(task, tasks, lists, queues, lengths, now)


@part
def _is_published(task, tasks):  # type: ignore[no-untyped-def]
    """Whether all blocks of a task are on cores and its own producers are done."""
    return tasks[task, _ALLOWS] and (tasks[task, _DONE] or (tasks[task, _READY] and tasks[task, _WAITING] == 0))


@part
def _may_queue(task, tasks, lists, queues, lengths, now):  # type: ignore[no-untyped-def]
    """Queue a task to be staged, once all its producers are published."""
    if not tasks[task, _STAGES] or tasks[task, _QUEUED] or tasks[task, _READY] or not tasks[task, _SUBMITTED]:
        return
    for k in range(tasks[task, _PRODUCERS], tasks[task + 1, _PRODUCERS]):
        if not _is_published(lists[5][k], tasks):
            return
    tasks[task, _QUEUED] = 1
    if tasks[task, _LEFT]:
        q = 3 + tasks[task, _QUEUE]
        _push(queues[q], lengths[q], now, 0, task)


@part
def _publish(task, tasks, lists, queues, lengths, now):  # type: ignore[no-untyped-def]
    """A task that allows staging is on its cores: its consumers may be staged."""
    if _is_published(task, tasks):
        for k in range(tasks[task, _FOLLOWERS], tasks[task + 1, _FOLLOWERS]):
            _may_queue(lists[0][k], tasks, lists, queues, lengths, now)


@part
def _is_held(number, tasks, commands, lists, oldest):  # type: ignore[no-untyped-def]
    """Whether a command waits for a value, or for slots of a ring; slots are reclaimed in order, each once."""
    for k in range(commands[number, _WAITS], commands[number + 1, _WAITS]):
        if not tasks[lists[2][k], _DONE]:
            return True
    ring = commands[number, _RING]
    while 0 <= oldest[ring] <= commands[number, _SLOT]:
        slot = oldest[ring]
        for k in range(tasks[slot, _HOLDERS], tasks[slot + 1, _HOLDERS]):
            if not tasks[lists[1][k], _DONE]:
                return True
        oldest[ring] = tasks[slot, _NEXT_SLOT]
    return False


@part
def _start(task, tasks, lists, times, room, now):  # type: ignore[no-untyped-def]
    """A task with blocks waits for no other any more: staged blocks begin, the others are queued."""
    (_, events, size), (queues, lengths, _) = room
    tasks[task, _READY] = 1
    for k in range(tasks[task, _BLOCKS], tasks[task + 1, _BLOCKS]):
        block = lists[3][k]
        if lists[6][block, 1]:
            _push(events, size, max(now, lists[6][block, 0]) + times[block], _BLOCK, block)
    if tasks[task, _WAITING]:
        q = tasks[task, _QUEUE]
        _push(queues[q], lengths[q], now, 0, task)
    else:
        _publish(task, tasks, lists, queues, lengths, now)


@part
def _ready(task, tasks, lists, times, room, now):  # type: ignore[no-untyped-def]
    """A task waits for no other any more: it starts; without blocks it is done."""
    if tasks[task, _LEFT]:
        _start(task, tasks, lists, times, room, now)
    else:
        _complete(task, tasks, lists, times, room, now)


@part
def _complete(task, tasks, lists, times, room, now):  # type: ignore[no-untyped-def]
    """A task is done, and so are its consumers without blocks. `over` has room for all tasks."""
    queues, lengths, over = room[1]
    over[0], count = task, 1
    while count:
        count -= 1
        ended = over[count]
        tasks[ended, _DONE] = 1
        for k in range(tasks[ended, _FOLLOWERS], tasks[ended + 1, _FOLLOWERS]):
            other = lists[0][k]
            tasks[other, _MISSING] -= 1
            if tasks[other, _MISSING] == 0 and tasks[other, _SUBMITTED]:
                if tasks[other, _LEFT]:
                    _start(other, tasks, lists, times, room, now)
                else:
                    over[count] = other
                    count += 1
            else:
                _may_queue(other, tasks, lists, queues, lengths, now)


@part
def _dispatch(task, tasks, lists, free, cores, assigned):  # type: ignore[no-untyped-def]
    """Assign the next block of a task to the first free cores; -1 if there are none."""
    lanes, blocks = tasks[task, _LANES], tasks[task + 1, _BLOCKS] - tasks[task, _BLOCKS]
    if tasks[task, _SYNC] and tasks[task, _WAITING] == blocks:
        there = 0
        for cluster in range(free.shape[1]):
            there += _room(lanes, free, cluster)
        if there < blocks:
            return -1
    cluster, first_lane = _first_free(lanes, free)
    if cluster < 0:
        return -1
    block = lists[3][tasks[task + 1, _BLOCKS] - tasks[task, _WAITING]]
    tasks[task, _WAITING] -= 1
    assigned[block, 0], assigned[block, 1] = cluster, first_lane
    _take(lanes, first_lane, cluster, free, False)
    count = 0
    for lane in range(3):
        if _has(lanes, first_lane, lane):
            other = cores[lane, cluster]
            cores[lane, cluster] = block
            count = _insert(other, assigned[block, 4:], count)
    return block


@part
def _insert(other, before, count):  # type: ignore[no-untyped-def]
    """Insert a block into an ascending list, unless it is there or none."""
    for k in range(count):
        if before[k] == other:
            return count
    if other < 0:
        return count
    at = count
    while at > 0 and before[at - 1] > other:
        before[at] = before[at - 1]
        at -= 1
    before[at] = other
    return count + 1


@part
def _thread(block, threads, assigned, now):  # type: ignore[no-untyped-def]
    """The first free scheduler thread starts a block; returns when it begins to."""
    first = 0
    for thread in range(1, len(threads)):
        if threads[thread, 0] < threads[first, 0]:
            first = thread
    assigned[block, 2], assigned[block, 3] = first, threads[first, 1]
    threads[first, 1] = block
    return max(now, threads[first, 0])


@part
def _is_single(lanes):  # type: ignore[no-untyped-def]
    """Whether a task has one vector lane and no other: it may run on either."""
    return lanes == 1 << AIV0 or lanes == 1 << AIV1


@part
def _has(lanes, first_lane, lane):  # type: ignore[no-untyped-def]
    """Whether a task uses a lane."""
    return lane == first_lane if _is_single(lanes) else lanes >> lane & 1 == 1


@part
def _room(lanes, free, cluster):  # type: ignore[no-untyped-def]
    """How many blocks of a task a cluster has free cores for; one of one vector lane takes either AIV."""
    if _is_single(lanes):
        return int(free[AIV0, cluster]) + int(free[AIV1, cluster])
    return int(_are_free(lanes, free, cluster))


@part
def _are_free(lanes, free, cluster):  # type: ignore[no-untyped-def]
    missing = 0
    for lane in range(3):
        missing += lanes >> lane & 1 and not free[lane, cluster]
    return missing == 0


@part
def _first_free(lanes, free):  # type: ignore[no-untyped-def]
    """The first cluster with the cores a task needs, and the AIV for a task of one vector lane; -1 if there is none."""
    for cluster in range(free.shape[1]):
        if not _is_single(lanes):
            if _are_free(lanes, free, cluster):
                return cluster, AIV0
        elif free[AIV0, cluster]:
            return cluster, AIV0
        elif free[AIV1, cluster]:
            return cluster, AIV1
    return -1, AIV0


@part
def _take(lanes, first_lane, cluster, free, value):  # type: ignore[no-untyped-def]
    for lane in range(3):
        if _has(lanes, first_lane, lane):
            free[lane, cluster] = value
