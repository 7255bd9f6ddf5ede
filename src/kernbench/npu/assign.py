"""Who runs where and in which order: a list scheduler over the tasks of a recording, as the runtime's schedulers do it.

The orchestrator submits in order, waiting for full rings and values it reads. Ready blocks wait in three queues; mixed
tasks with a cube core go first, then cube, then vector tasks; within a queue the oldest goes first. A scheduler thread
starts one block at a time on the first cores that are free. How long blocks take is given; only the order and the
places this pass decides are kept, and the timing engine works out the times.
"""

import heapq
from dataclasses import dataclass, field

from kernbench.npu.model import ChipModel
from kernbench.npu.places import AIC, AIV0, AIV1, LANES
from kernbench.npu.reclaim import Waits
from kernbench.npu.record import NpuRecording, TaskRecord

_BLOCK, _COMMAND = 0, 1


@dataclass
class Assignment:
    """For each block its cluster, the blocks it waits for to leave its cores, the scheduler thread and the block that
    thread started before; -1 for none. `first_lane` is the AIV that a task of one vector lane runs on.
    """

    cluster: list[int]
    first_lane: list[int]
    before: list[tuple[int, ...]]
    thread: list[int]
    previous: list[int]


@dataclass
class _State:
    """Free cores and threads, queues, and what is done. `free` has for each lane a bit for each cluster."""

    free: list[int]
    threads: list[tuple[int, int]]
    queues: list[list[tuple[int, int, int, int]]] = field(default_factory=lambda: [[], [], []])
    on_core: dict[tuple[int, int], int] = field(default_factory=dict)
    on_thread: dict[int, int] = field(default_factory=dict)


def assign(recording: NpuRecording, chip: ChipModel, times: list[int], waits: Waits) -> Assignment:
    """Place all blocks; `times` is how long each takes."""
    return _Scheduler(recording, chip, times, waits).run()


class _Scheduler:
    def __init__(self, recording: NpuRecording, chip: ChipModel, times: list[int], waits: Waits):
        self.recording, self.chip, self.times, self.waits = recording, chip, times, waits
        count = len(recording.block_task)
        self.result = Assignment([-1] * count, [AIV0] * count, [()] * count, [-1] * count, [-1] * count)
        clusters = chip.clusters.count
        self.state = _State([(1 << clusters) - 1] * len(LANES), [(0, i) for i in range(chip.tasks.schedulers)])
        self.submit_ps, self.dispatch_ps = chip.tasks.submit_ps, chip.tasks.dispatch_ps
        self.blocks_of: dict[int, list[int]] = {}
        for block, task in enumerate(recording.block_task):
            self.blocks_of.setdefault(task, []).append(block)
        for blocks in self.blocks_of.values():
            blocks.sort(key=lambda b: recording.block_index[b])
        self.left = {t.number: len(self.blocks_of.get(t.number, ())) for t in recording.tasks}
        self.missing = {t.number: len(t.dependences) for t in recording.tasks}
        self.followers: dict[int, list[int]] = {}
        for record in recording.tasks:
            for earlier in record.dependences:
                self.followers.setdefault(earlier, []).append(record.number)
        self.submitted: set[int] = set()
        self.started: set[int] = set()
        self.done: set[int] = set()
        self.events: list[tuple[int, int, int]] = []
        self.at = 0
        self.blocked: tuple[int, ...] = ()

    def run(self) -> Assignment:
        """Play events until nothing is left."""
        now = 0
        self._orchestrate(now)
        while self.events:
            now, kind, number = heapq.heappop(self.events)
            if kind == _BLOCK:
                self._end_block(number, now)
            else:
                self._end_command(number, now)
            self._dispatch(now)
        return self.result

    def _orchestrate(self, now: int) -> None:
        """Begin the next command that can begin."""
        commands = self.recording.commands
        if self.at == len(commands) or self.blocked:
            return
        wanted = tuple(t for t in self.waits.of_command(self.at) if t not in self.done)
        if wanted:
            self.blocked = wanted
            return
        cost = self.submit_ps if commands[self.at].verb in ("submit", "tensor") else 0
        heapq.heappush(self.events, (now + cost, _COMMAND, self.at))
        self.at += 1

    def _end_command(self, number: int, now: int) -> None:
        command = self.recording.commands[number]
        if command.verb in ("submit", "tensor"):
            self.submitted.add(command.target)
            if not self.missing[command.target]:
                self._ready(command.target, now)
        self._orchestrate(now)

    def _ready(self, task: int, now: int) -> None:
        blocks = self.blocks_of.get(task, ())
        if not blocks:
            self._complete(task, now)
            return
        queue = _queue(self.recording.tasks[task])
        for block in blocks:
            heapq.heappush(self.state.queues[queue], (now, task, self.recording.block_index[block], block))

    def _complete(self, task: int, now: int) -> None:
        self.done.add(task)
        for follower in self.followers.get(task, ()):
            self.missing[follower] -= 1
            if not self.missing[follower] and follower in self.submitted:
                self._ready(follower, now)
        if self.blocked:
            self.blocked = tuple(t for t in self.blocked if t not in self.done)
            if not self.blocked:
                self._orchestrate(now)

    def _end_block(self, block: int, now: int) -> None:
        task = self.recording.block_task[block]
        for lane in self._lanes(block):
            self.state.free[lane] |= 1 << self.result.cluster[block]
        self.left[task] -= 1
        if not self.left[task]:
            self._complete(task, now)

    def _lanes(self, block: int) -> tuple[int, ...]:
        lanes = self.recording.tasks[self.recording.block_task[block]].lanes
        return (self.result.first_lane[block],) if len(lanes) == 1 and lanes[0] != AIC else lanes

    def _dispatch(self, now: int) -> None:
        for queue in self.state.queues:
            while queue:
                task = self.recording.tasks[queue[0][1]]
                waits = task.sync_start and task.number not in self.started
                if waits and self._clusters_for(task) < len(self.blocks_of[task.number]):
                    break
                place = self._place(task)
                if place is None:
                    break
                self.started.add(task.number)
                self._start(heapq.heappop(queue)[3], place, now)

    def _clusters_for(self, task: TaskRecord) -> int:
        return self._free_for(task).bit_count()

    def _free_for(self, task: TaskRecord) -> int:
        """A bit for each cluster in which all cores of a task are free."""
        found = -1
        for lane in task.lanes:
            found &= self.state.free[lane]
        return found

    def _place(self, task: TaskRecord) -> tuple[int, int] | None:
        """The first cluster with the cores a task needs, and the AIV for a task of one vector lane."""
        single = len(task.lanes) == 1 and task.lanes[0] != AIC
        free = self.state.free[AIV0] | self.state.free[AIV1] if single else self._free_for(task)
        if not free:
            return None
        first = free & -free
        return first.bit_length() - 1, AIV1 if single and not self.state.free[AIV0] & first else AIV0

    def _start(self, block: int, place: tuple[int, int], now: int) -> None:
        cluster, first_lane = place
        result, state = self.result, self.state
        result.cluster[block], result.first_lane[block] = cluster, first_lane
        lanes = self._lanes(block)
        for lane in lanes:
            state.free[lane] &= ~(1 << cluster)
        before = {state.on_core[cluster, lane] for lane in lanes if (cluster, lane) in state.on_core}
        result.before[block] = tuple(sorted(before))
        for lane in lanes:
            state.on_core[cluster, lane] = block
        since, thread = heapq.heappop(state.threads)
        ready = max(now, since) + self.dispatch_ps
        heapq.heappush(state.threads, (ready, thread))
        result.thread[block], result.previous[block] = thread, state.on_thread.get(thread, -1)
        state.on_thread[thread] = block
        heapq.heappush(self.events, (ready + self.times[block], _BLOCK, block))


def _queue(task: TaskRecord) -> int:
    """Mixed with the cube, cube alone, vector."""
    return 2 if AIC not in task.lanes else int(len(task.lanes) == 1)
