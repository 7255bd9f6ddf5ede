"""The swimlane of a timed run: orchestrator, schedulers, every core with its blocks, and every pipe; with arrows."""

from dataclasses import dataclass

import numpy as np

from kernbench.common.deferred import deferred
from kernbench.npu.isa.operations import NAMES, POP
from kernbench.npu.isa.units import AIC, LANES, PIPE_NUMBER, PIPES, S
from kernbench.npu.time import edges as e
from kernbench.npu.time.clock import Timing
from kernbench.npu.time.costs import Ints, Small
from kernbench.npu.time.lower import is_long
from kernbench.npu.time.waiting import span_waits
from kernbench.result.finding import Place
from kernbench.result.timeline import Lane, Step, Timeline, Waits
from kernbench.safety.processes.threads import both

_PER_CORE = len(PIPES) + 1


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
    single = is_single[recording.owners()][:, None]
    core = np.where(single, assignment.first_lane[:, None], np.arange(len(LANES))[None, :])
    numbers: Ints = _first_core(timing) + (assignment.cluster[:, None] * len(LANES) + core) * _PER_CORE
    return numbers


def lane_numbers(timing: Timing) -> Small:
    """The lane of each row."""
    recording = timing.lowered.recording
    numbers = np.empty(recording.count, np.int32)
    _number_lanes(recording.firsts(), *recording.columns("lane", "pipe"), _core_lanes(timing), numbers)
    return numbers


@deferred(lambda firsts, lane, *_: len(lane))
def _number_lanes(firsts, lane, pipe, cores, numbers):  # type: ignore[no-untyped-def]
    """The lane of each row: behind that of its core."""
    for block in range(len(firsts) - 1):
        for i in range(firsts[block], firsts[block + 1]):
            numbers[i] = cores[block, lane[i]] + 1 + pipe[i]


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
    row_lanes: Small

    def timeline(self, path: list[Step]) -> Timeline:
        """As reports take it."""
        sites = self.timing.lowered.recording.tables.sites
        columns = (self.lane, self.name, self.site, self.start, self.finish, self.flows)
        return Timeline("ps", self.lanes, self.names, sites, *columns, path, waits=self.waits)

    def describe(self, found: Ints) -> list[tuple[Lane, str, Place | None]]:
        """Lane, name and kernel line of each of some nodes that take time."""
        nodes, recording = self.timing.lowered.nodes, self.timing.lowered.recording
        transfers, rows = self.timing.lowered.transfers, found.copy()
        moving = (nodes.begin <= found) & (found < nodes.dispatch)
        rows[moving] = transfers[(found[moving] - nodes.begin) % max(1, len(transfers))]
        rows[(found >= nodes.dispatch) & (found < nodes.issue)] = 0
        is_issue = found >= nodes.issue
        rows[is_issue] -= nodes.issue
        op, site, pipe = (column[rows] for column in recording.columns("op", "site", "pipe"))
        # a core hands out its rows by its scalar pipe
        lane = self.row_lanes[rows] - np.where(is_issue, pipe - PIPE_NUMBER[S], 0)
        names, sites = np.where(is_issue, -1, op).tolist(), recording.tables.sites
        described = [
            (self.lanes[number], NAMES[name] if name >= 0 else "issue", sites[line])
            for number, name, line in zip(lane.tolist(), names, site.tolist(), strict=True)
        ]
        # commands and dispatches were taken for the first row
        for index in np.flatnonzero((found >= nodes.command) & ~is_issue).tolist():
            command = recording.commands[found[index] - nodes.command]
            described[index] = (self.lanes[0], command.verb, sites[command.site])
        indices = np.flatnonzero((found >= nodes.dispatch) & (found < nodes.end))
        blocks = found[indices] - nodes.dispatch
        titles = [(f"dispatch {task.name}", sites[task.site]) for task in recording.tasks]
        threads, tasks = self.timing.assignment.thread[blocks].tolist(), recording.owners()[blocks].tolist()
        for index, thread, task in zip(indices.tolist(), threads, tasks, strict=True):
            described[index] = (self.lanes[1 + thread], *titles[task])
        return described


def swimlane(timing: Timing) -> Swimlane:
    """All spans that take time, blocks on their cores, and arrows: each dependence and each FIFO message once."""
    row_lanes, names = lane_numbers(timing), list(NAMES)
    numbers = {name: i for i, name in enumerate(names)}
    rows, entries, span_of = _rows(timing, row_lanes)
    commands, spoken = _commands(timing, names, numbers)
    dispatches = _dispatches(timing, names, numbers)
    blocks, owner = _blocks(timing, names, numbers)
    spans = (rows, commands, dispatches, blocks)
    firsts = np.cumsum([0, *(len(part[0]) for part in spans)])
    # blocks on their cores and commands are no rows: messages are between the spans that are there already
    waits, messages = both(
        lambda: _waits(timing, (entries, spoken, owner), firsts, span_of),
        lambda: _messages(timing, span_of),
        is_long(timing.lowered.recording),
    )
    flows = np.concatenate([_dependences(timing, owner, int(firsts[3])), messages])
    lane, name, site, begin, end = (np.concatenate(parts) for parts in zip(*spans, strict=True))
    return Swimlane(timing, all_lanes(timing), names, lane, name, site, begin, end, flows, waits, row_lanes)


def _rows(timing: Timing, row_lanes: Small) -> tuple[tuple[Ints, ...], Small, Small]:
    """A span for each row that takes time, a transfer's from where it begins; the node where each span begins, and the
    span of each node, or -1."""
    nodes, recording, times = timing.lowered.nodes, timing.lowered.recording, timing.times
    span_of, entries = np.full(nodes.total, -1, np.int32), np.empty(nodes.rows, np.int32)
    out = tuple(np.empty(nodes.rows, np.int64) for _ in range(5))
    transfers = (timing.lowered.transfers, nodes.begin)
    given = (row_lanes, *recording.columns("op", "site"), times.start, times.finish)
    count = _write_rows(given, transfers, span_of, entries, out)
    # what is left is memory that was never touched
    return tuple(column[:count] for column in out), entries[:count], span_of


@deferred(lambda given, *_: 2 * len(given[0]))
def _write_rows(given, transfers, span_of, entries, out):  # type: ignore[no-untyped-def]
    """Write spans of rows that take time, and give how many there are."""
    lane, op, site, start, finish = given
    moving, begin = transfers
    n, moved = 0, 0
    for i in range(len(lane)):
        node = i
        if moved < len(moving) and moving[moved] == i:
            node = begin + moved
            moved += 1
        if finish[i] > start[node]:
            out[0][n], out[1][n], out[2][n], out[3][n], out[4][n] = lane[i], op[i], site[i], start[node], finish[i]
            span_of[i], entries[n] = n, node
            n += 1
    return n


def _waits(timing: Timing, shown: tuple[Small, Ints, Ints], firsts: Ints, rows: Small) -> Waits:
    """What rows, commands and dispatches waited for; blocks on their cores waited for their dispatch."""
    nodes, (entries, commands, owner) = timing.lowered.nodes, shown
    blocks = np.arange(len(timing.lowered.recording.block_task))
    span_of = rows.copy()
    span_of[nodes.command + commands] = firsts[1] + np.arange(len(commands))
    span_of[nodes.dispatch + blocks] = firsts[2] + blocks
    span_of[nodes.end + owner] = firsts[3] + np.arange(len(owner))
    begins = np.concatenate([entries, nodes.command + commands, nodes.dispatch + blocks])
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
    owner = recording.owners()
    titles = [_named(f"dispatch {t.name}", names, numbers) if t.lanes else 0 for t in recording.tasks]
    when = slice(first, first + len(owner))
    sites = np.array([t.site for t in recording.tasks], np.int64)[owner]
    lane = 1 + timing.assignment.thread
    return _columns(lane, np.array(titles, np.int64)[owner], sites, times.start[when], times.finish[when])


def _blocks(timing: Timing, names: list[str], numbers: dict[str, int]) -> tuple[tuple[Ints, ...], Ints]:
    """A span for each block on each of its cores; and the block of each span."""
    recording, nodes, times = timing.lowered.recording, timing.lowered.nodes, timing.times
    task = recording.owners()
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
    last = first_of_task(recording.owners(), -times.finish[nodes.end : nodes.end + count])
    early = first_of_task(recording.owners(), times.finish[nodes.dispatch : nodes.dispatch + count])
    pairs = [
        (first_span[last[d]], first_span[early[t.number]])
        for t in recording.tasks
        for d in t.dependences
        if d in last and t.number in early
    ]
    return np.array(pairs, np.int64).reshape(-1, 2)


def first_of_task(owner: Ints, times: Ints) -> dict[int, int]:
    """For each task that has blocks the one with the least time; of equals the first. `owner` is each block's task."""
    order = np.lexsort((times, owner))
    tasks, first = np.unique(owner[order], return_index=True)
    return dict(zip(tasks.tolist(), order[first].tolist(), strict=True))


def _messages(timing: Timing, span_of: Small) -> Ints:
    """An arrow for each message of a FIFO, from each push to each pop."""
    recording = timing.lowered.recording
    columns = recording.columns("op", "lane", "c", "message")
    pops = int(timing.lowered.found.counts[POP])
    return e.arrows(recording.firsts(), recording.fifo_table(), columns, span_of, pops)
