"""The swimlane of a timed run: orchestrator, schedulers, every core with its blocks, and every pipe; with arrows."""

from dataclasses import dataclass

import numpy as np

from kernbench.npu.isa.operations import CLASSES, NAMES, POP, PUSH
from kernbench.npu.isa.units import AIC, LANES, PIPE_NUMBER, PIPES, S
from kernbench.npu.recording.record import NpuRecording
from kernbench.npu.time import edges as e
from kernbench.npu.time.clock import Timing
from kernbench.npu.time.costs import Ints
from kernbench.npu.time.waiting import span_waits
from kernbench.result.finding import Place
from kernbench.result.timeline import Lane, Step, Timeline, Waits
from kernbench.safety.processes.threads import both

_PER_CORE = len(PIPES) + 1
# rows from which on what is made of them is worth threads
_LONG = 200_000


def is_long(recording: NpuRecording) -> bool:
    """Whether steps over all rows of a recording are worth a thread of their own."""
    return recording.count >= _LONG


def _first_core(timing: Timing) -> int:
    """Lanes before those of the cores: the orchestrator and the schedulers."""
    return 1 + timing.chip.tasks.schedulers


def all_lanes(timing: Timing) -> list[Lane]:
    """Orchestrator, schedulers, then for each core of each cluster the core itself and its pipes."""
    lanes = [Lane("runtime", "orchestrator")]
    lanes += [Lane("runtime", f"scheduler {i}") for i in range(timing.chip.tasks.schedulers)]
    for cluster in range(timing.chip.clusters.count):
        for core in LANES:
            lanes.append(Lane(f"cluster {cluster}", core))
            lanes += [Lane(f"cluster {cluster}", f"{core} {pipe}") for pipe in PIPES]
    return lanes


def _core_lanes(timing: Timing) -> Ints:
    """For each block and lane of its task the number of the core's lane."""
    assignment, recording = timing.assignment, timing.lowered.recording
    is_single = np.array([len(t.lanes) == 1 and t.lanes[0] != AIC for t in recording.tasks], np.bool_)
    single = is_single[np.array(recording.block_task, np.int64)][:, None]
    core = np.where(single, assignment.first_lane[:, None], np.arange(len(LANES))[None, :])
    numbers: Ints = _first_core(timing) + (assignment.cluster[:, None] * len(LANES) + core) * _PER_CORE
    return numbers


def lane_numbers(timing: Timing) -> Ints:
    """The lane of each row."""
    recording = timing.lowered.recording
    rows = recording.array()
    block = np.repeat(np.arange(len(recording.block_task)), np.diff(recording.firsts()))
    numbers: Ints = _core_lanes(timing)[block, rows["lane"]] + 1 + rows["pipe"]
    return numbers


@dataclass(frozen=True)
class Swimlane:
    """Spans as columns, and what each node of the graph is to a person."""

    timing: Timing
    lanes: list[Lane]
    names: list[str]
    lane: Ints
    name: Ints
    site: Ints
    start: Ints
    finish: Ints
    flows: Ints
    waits: Waits
    row_lanes: Ints

    def timeline(self, path: list[Step]) -> Timeline:
        """As reports take it."""
        sites = self.timing.lowered.recording.tables.sites
        columns = (self.lane, self.name, self.site, self.start, self.finish, self.flows)
        return Timeline("ps", self.lanes, self.names, sites, *columns, path, waits=self.waits)

    def describe(self, node: int) -> tuple[Lane, str, Place | None]:
        """Lane, name and kernel line of a node."""
        nodes, recording = self.timing.lowered.nodes, self.timing.lowered.recording
        sites = recording.tables.sites
        if node >= nodes.issue:
            row = node - nodes.issue
            rows = recording.array()
            pipes, lines = rows["pipe"], rows["site"]
            pipe = int(pipes[row]) - PIPE_NUMBER[S]
            return self.lanes[self.row_lanes[row] - pipe], "issue", sites[lines[row]]
        if node >= nodes.command:
            command = recording.commands[node - nodes.command]
            return self.lanes[0], command.verb, sites[command.site]
        if nodes.dispatch <= node < nodes.end:
            block = node - nodes.dispatch
            task = recording.tasks[recording.block_task[block]]
            return self.lanes[1 + self.timing.assignment.thread[block]], f"dispatch {task.name}", sites[task.site]
        if nodes.begin <= node < nodes.dispatch:
            node = int(self.timing.lowered.transfers[(node - nodes.begin) % max(1, len(self.timing.lowered.transfers))])
        row = recording.array()[node]
        return self.lanes[self.row_lanes[node]], NAMES[row["op"]], sites[row["site"]]


def swimlane(timing: Timing) -> Swimlane:
    """All spans that take time, blocks on their cores, and arrows: each dependence and each FIFO message once."""
    row_lanes, names = lane_numbers(timing), list(NAMES)
    numbers = {name: i for i, name in enumerate(names)}
    rows, shown = _rows(timing, row_lanes)
    commands, spoken = _commands(timing, names, numbers)
    dispatches = _dispatches(timing, names, numbers)
    blocks, owner = _blocks(timing, names, numbers)
    spans = (rows, commands, dispatches, blocks)
    firsts = np.cumsum([0, *(len(part[0]) for part in spans)])
    position = np.full(timing.lowered.nodes.rows, -1, np.int64)
    position[shown] = np.arange(len(shown))
    waits, messages = both(
        lambda: _waits(timing, (shown, spoken, owner), firsts),
        lambda: _messages(timing, position),
        is_long(timing.lowered.recording),
    )
    flows = np.concatenate([_dependences(timing, owner, int(firsts[3])), messages])
    lane, name, site, begin, end = (np.concatenate(parts).astype(np.int64) for parts in zip(*spans, strict=True))
    return Swimlane(timing, all_lanes(timing), names, lane, name, site, begin, end, flows, waits, row_lanes)


def _rows(timing: Timing, row_lanes: Ints) -> tuple[tuple[Ints, ...], Ints]:
    """A span for each row that takes time, a transfer's from where it begins; and the row of each span."""
    rows = timing.lowered.recording.array()
    start, finish = timing.times.start[_entries(timing)], timing.times.finish[: len(rows)]
    shown = np.flatnonzero(finish > start)
    return _columns(row_lanes[shown], rows["op"][shown], rows["site"][shown], start[shown], finish[shown]), shown


def _entries(timing: Timing) -> Ints:
    """The node where each row begins."""
    nodes, transfers = timing.lowered.nodes, timing.lowered.transfers
    entries = np.arange(nodes.rows)
    entries[transfers] = nodes.begin + np.arange(len(transfers))
    return entries


def _waits(timing: Timing, shown: tuple[Ints, Ints, Ints], firsts: Ints) -> Waits:
    """What rows, commands and dispatches waited for; blocks on their cores waited for their dispatch."""
    nodes, (rows, commands, owner) = timing.lowered.nodes, shown
    blocks = np.arange(len(timing.lowered.recording.block_task))
    span_of = np.full(nodes.total, -1, np.int64)
    span_of[rows] = np.arange(len(rows))
    span_of[nodes.command + commands] = firsts[1] + np.arange(len(commands))
    span_of[nodes.dispatch + blocks] = firsts[2] + blocks
    span_of[nodes.end + owner] = firsts[3] + np.arange(len(owner))
    begins = np.concatenate([_entries(timing)[rows], nodes.command + commands, nodes.dispatch + blocks])
    found = span_waits(timing, begins, span_of)
    kind = np.concatenate([found.kind, np.full(len(owner), e.DISPATCHED, np.int64)])
    return Waits(found.kinds, kind, np.concatenate([found.after, firsts[2] + owner]))


def _columns(*columns: Ints) -> tuple[Ints, ...]:
    return tuple(np.asarray(c, np.int64) for c in columns)


def _named(text: str, names: list[str], numbers: dict[str, int]) -> int:
    if text not in numbers:
        numbers[text] = len(names)
        names.append(text)
    return numbers[text]


def _commands(timing: Timing, names: list[str], numbers: dict[str, int]) -> tuple[tuple[Ints, ...], Ints]:
    """A span for each command of the orchestrator that takes time; and the command of each span."""
    recording, first, times = timing.lowered.recording, timing.lowered.nodes.command, timing.times
    found = []
    for number, command in enumerate(recording.commands):
        start, finish = times.start[first + number], times.finish[first + number]
        if finish > start:
            title = f"{command.verb} {recording.tasks[command.target].name}"
            found.append((0, _named(title, names, numbers), command.site, start, finish, number))
    columns = np.array(found, np.int64).reshape(-1, 6).T
    return _columns(*columns[:5]), columns[5]


def _dispatches(timing: Timing, names: list[str], numbers: dict[str, int]) -> tuple[Ints, ...]:
    recording, first, times = timing.lowered.recording, timing.lowered.nodes.dispatch, timing.times
    owner = np.array(recording.block_task, np.int64)
    titles = [_named(f"dispatch {t.name}", names, numbers) if t.lanes else 0 for t in recording.tasks]
    when = slice(first, first + len(owner))
    sites = np.array([t.site for t in recording.tasks], np.int64)[owner]
    lane = 1 + timing.assignment.thread
    return _columns(lane, np.array(titles, np.int64)[owner], sites, times.start[when], times.finish[when])


def _blocks(timing: Timing, names: list[str], numbers: dict[str, int]) -> tuple[tuple[Ints, ...], Ints]:
    """A span for each block on each of its cores; and the block of each span."""
    recording, nodes, times = timing.lowered.recording, timing.lowered.nodes, timing.times
    task = np.array(recording.block_task, np.int64)
    taken = np.array([[lane in t.lanes for lane in range(len(LANES))] for t in recording.tasks], np.bool_)
    titles = np.array([_named(t.name, names, numbers) if t.lanes else 0 for t in recording.tasks], np.int64)
    sites = np.array([t.site for t in recording.tasks], np.int64)
    owner, lane = np.nonzero(taken[task])
    columns = (
        _core_lanes(timing)[owner, lane],
        titles[task[owner]],
        sites[task[owner]],
        times.finish[nodes.dispatch + owner],
        times.finish[nodes.end + owner],
    )
    return _columns(*columns), owner


def _dependences(timing: Timing, owner: Ints, before: int) -> Ints:
    """An arrow for each dependence between tasks: from the block that ended last to the one that started first."""
    recording, nodes, times = timing.lowered.recording, timing.lowered.nodes, timing.times
    count = len(recording.block_task)
    first_span = np.full(count, -1, np.int64)
    first_span[owner[::-1]] = before + np.arange(len(owner))[::-1]
    last = first_of_task(recording.block_task, -times.finish[nodes.end : nodes.end + count])
    early = first_of_task(recording.block_task, times.finish[nodes.dispatch : nodes.dispatch + count])
    pairs = [
        (first_span[last[d]], first_span[early[t.number]])
        for t in recording.tasks
        for d in t.dependences
        if d in last and t.number in early
    ]
    return np.array(pairs, np.int64).reshape(-1, 2)


def first_of_task(block_task: list[int], times: Ints) -> dict[int, int]:
    """For each task that has blocks the one with the least time; of equals the first."""
    owner = np.array(block_task, np.int64)
    order = np.lexsort((times, owner))
    tasks, first = np.unique(owner[order], return_index=True)
    return dict(zip(tasks.tolist(), order[first].tolist(), strict=True))


def _messages(timing: Timing, position: Ints) -> Ints:
    """An arrow for each message of a FIFO, from each push to each pop."""
    recording = timing.lowered.recording
    rows = recording.array()
    op, queue, message = rows["op"], rows["c"], rows["x"]
    kinds = CLASSES[op]
    block = np.repeat(np.arange(len(recording.block_task)), np.diff(recording.firsts()))
    pushes, pops = np.flatnonzero(kinds == PUSH), np.flatnonzero(kinds == POP)
    # one number for each message of each FIFO of a block: a push comes before the pops of its message
    most = [int(column.max(initial=0)) + 1 for column in (queue[pops], queue[pushes], message[pops], message[pushes])]
    fifos, messages = max(most[:2]), max(most[2:])
    key = (block * fifos + queue) * messages + message
    pushes = pushes[np.argsort(key[pushes], kind="stable")]
    first, last = (np.searchsorted(key[pushes], key[pops], side) for side in ("left", "right"))
    counts = last - first
    behind = np.arange(int(counts.sum())) - np.repeat(np.cumsum(counts) - counts, counts)
    found = np.column_stack([position[pushes[np.repeat(first, counts) + behind]], position[np.repeat(pops, counts)]])
    return found[(found >= 0).all(axis=1)]
