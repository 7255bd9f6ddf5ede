"""The swimlane of a timed run: orchestrator, schedulers, every core with its blocks, and every pipe; with arrows."""

from dataclasses import dataclass
from functools import partial
from itertools import pairwise

import numpy as np

from kernbench.common.deferred import deferred
from kernbench.npu.isa.operations import NAMES, POP
from kernbench.npu.isa.units import AIC, LANES, PIPE_NUMBER, PIPES, S
from kernbench.npu.time import edges as e
from kernbench.npu.time.clock import Timing
from kernbench.npu.time.costs import Ints, Small
from kernbench.npu.time.lower import is_long, stretches
from kernbench.npu.time.waiting import span_waits
from kernbench.result.finding import SourceLocation
from kernbench.result.timeline import Lane, Step, Timeline, Waits
from kernbench.safety.processes.threads import both, in_stretches, together

_PER_CORE = len(PIPES) + 1


def _first_core(timing: Timing) -> int:
    """Number of lanes before those of the cores: the orchestrator and the schedulers."""
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
    given = recording.firsts(), *recording.columns("lane", "pipe"), _core_lanes(timing), numbers
    together(partial(_number_lanes, begin, end, *given) for begin, end in stretches(recording))
    return numbers


@deferred(lambda begin, end, firsts, *_: firsts[end] - firsts[begin])
def _number_lanes(begin, end, firsts, lane, pipe, cores, numbers):  # type: ignore[no-untyped-def]
    """The lane of each row of blocks from `begin` up to `end`: after that of its core."""
    for block in range(begin, end):
        for i in range(firsts[block], firsts[block + 1]):
            numbers[i] = cores[block, lane[i]] + 1 + pipe[i]


@dataclass(frozen=True)
class Swimlane:
    """Spans as columns, and the span of each node of the graph."""

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

    def timeline(self, path: list[Step]) -> Timeline:
        """In the form that reports take."""
        sites = self.timing.lowered.recording.tables.sites
        columns = (self.lane, self.name, self.site, self.start, self.finish, self.flows)
        return Timeline("ps", self.lanes, self.names, sites, *columns, path, waits=self.waits)


def describe(timing: Timing, found: Ints) -> list[tuple[Lane, str, SourceLocation | None]]:
    """Lane, name and kernel line of each of some nodes that take time."""
    nodes, recording, lanes = timing.lowered.nodes, timing.lowered.recording, all_lanes(timing)
    transfers, rows = timing.lowered.transfers, found.copy()
    moving = (nodes.begin <= found) & (found < nodes.dispatch)
    rows[moving] = transfers[(found[moving] - nodes.begin) % max(1, len(transfers))]
    rows[(found >= nodes.dispatch) & (found < nodes.issue)] = 0
    is_issue = found >= nodes.issue
    rows[is_issue] -= nodes.issue
    op, site, core, pipe = (column[rows] for column in recording.columns("op", "site", "lane", "pipe"))
    block = recording.firsts().searchsorted(rows, side="right") - 1
    # a core issues its rows by its scalar pipe
    lane = _core_lanes(timing)[block, core] + 1 + np.where(is_issue, PIPE_NUMBER[S], pipe)
    names, sites = np.where(is_issue, -1, op).tolist(), recording.tables.sites
    described = [
        (lanes[number], NAMES[name] if name >= 0 else "issue", sites[line])
        for number, name, line in zip(lane.tolist(), names, site.tolist(), strict=True)
    ]
    # commands and dispatches have the values of the first row so far
    for index in np.flatnonzero((found >= nodes.command) & ~is_issue).tolist():
        command = recording.commands[found[index] - nodes.command]
        described[index] = (lanes[0], command.verb, sites[command.site])
    indices = np.flatnonzero((found >= nodes.dispatch) & (found < nodes.end))
    blocks = found[indices] - nodes.dispatch
    titles = [(f"dispatch {task.name}", sites[task.site]) for task in recording.tasks]
    threads, tasks = timing.assignment.thread[blocks].tolist(), recording.owners()[blocks].tolist()
    for index, thread, task in zip(indices.tolist(), threads, tasks, strict=True):
        described[index] = (lanes[1 + thread], *titles[task])
    return described


def swimlane(timing: Timing) -> Swimlane:
    """All spans that take time, blocks on their cores, and arrows: each dependence and each FIFO message once."""
    names = list(NAMES)
    numbers = {name: i for i, name in enumerate(names)}
    commands, spoken = _commands(timing, names, numbers)
    dispatches = _dispatches(timing, names, numbers)
    blocks, owner = _blocks(timing, names, numbers)
    others = (commands, dispatches, blocks)
    columns, begins, span_of, count = _rows(timing, [len(part[0]) for part in others])
    firsts = (count + np.cumsum([0, *(len(part[0]) for part in others)])).tolist()
    for part, (begin, end) in zip(others, pairwise(firsts), strict=True):
        for into, column in zip(columns, part, strict=True):
            into[begin:end] = column
    # blocks on their cores and commands are no rows: messages are between rows alone
    waits, messages = both(
        lambda: _waits(timing, (begins, spoken, owner), firsts, span_of),
        lambda: _messages(timing, span_of),
        is_long(timing.lowered.recording),
    )
    flows = np.concatenate([_dependences(timing, owner, firsts[2]), messages])
    lane, name, site, start, finish = columns
    return Swimlane(timing, all_lanes(timing), names, lane, name, site, start, finish, flows, waits)


def _rows(timing: Timing, more: list[int]) -> tuple[tuple[Ints, ...], Small, Small, int]:
    """A span for each row that takes time, a transfer's from its begin, as columns with room for the spans added later:
    `more` are the numbers of commands, dispatches, and blocks on their cores. The node where each span begins, with
    room for commands and dispatches; the span of each node, or -1; and how many rows take time.
    """
    nodes, recording, times = timing.lowered.nodes, timing.lowered.recording, timing.times
    firsts, transfers, parts = recording.firsts(), timing.lowered.transfers, stretches(recording)
    moved = np.searchsorted(transfers, firsts[[begin for begin, _ in parts]]).tolist()
    where = {part: (int(firsts[part[0]]), int(firsts[part[1]]), at) for part, at in zip(parts, moved, strict=True)}
    passed = times.start, times.finish, transfers, nodes.begin
    counts = in_stretches(lambda begin, end: int(_count_rows(*where[begin, end], *passed)), parts)
    spans = np.cumsum([0, *counts]).tolist()
    columns = tuple(np.empty(spans[-1] + sum(more), np.int64) for _ in range(5))
    begins, span_of = np.empty(spans[-1] + more[0] + more[1], np.int32), np.empty(nodes.total, np.int32)
    given = (lane_numbers(timing), *recording.columns("op", "site"))
    works = [
        partial(_write_rows, *where[part], first, given, passed, span_of, begins, columns)
        for part, first in zip(parts, spans[:-1], strict=True)
    ]
    together([*works, partial(span_of[nodes.rows :].fill, -1)])
    return columns, begins, span_of, spans[-1]


@deferred(lambda first, end, *_: end - first)
def _count_rows(first, end, moved, start, finish, moving, begin):  # type: ignore[no-untyped-def]
    """How many rows from `first` up to `end` take time; `moved` is the first transfer that is not before them."""
    count = 0
    for i in range(first, end):
        node = i
        if moved < len(moving) and moving[moved] == i:
            node = begin + moved
            moved += 1
        if finish[i] > start[node]:
            count += 1
    return count


@deferred(lambda first, end, *_: 2 * (end - first))
def _write_rows(first, end, moved, n, given, passed, span_of, begins, out):  # type: ignore[no-untyped-def]
    """Write spans of rows from `first` up to `end` that take time, from number `n` on."""
    lane, op, site = given
    start, finish, moving, begin = passed
    for i in range(first, end):
        node = i
        if moved < len(moving) and moving[moved] == i:
            node = begin + moved
            moved += 1
        span_of[i] = -1
        if finish[i] > start[node]:
            out[0][n], out[1][n], out[2][n], out[3][n], out[4][n] = lane[i], op[i], site[i], start[node], finish[i]
            span_of[i], begins[n] = n, node
            n += 1


def _waits(timing: Timing, shown: tuple[Small, Ints, Ints], firsts: list[int], span_of: Small) -> Waits:
    """The waits of rows, commands and dispatches; blocks on their cores waited for their dispatch. The begins and spans
    of rows are given; those of the others are added to them.
    """
    nodes, (begins, commands, owner) = timing.lowered.nodes, shown
    blocks = np.arange(len(timing.lowered.recording.block_task))
    span_of[nodes.command + commands] = firsts[0] + np.arange(len(commands))
    span_of[nodes.dispatch + blocks] = firsts[1] + blocks
    span_of[nodes.end + owner] = firsts[2] + np.arange(len(owner))
    begins[firsts[0] :] = np.concatenate([nodes.command + commands, nodes.dispatch + blocks])
    found = span_waits(timing, begins, span_of, len(owner))
    found.kind[len(begins) :], found.after[len(begins) :] = e.DISPATCHED, firsts[1] + owner
    return found


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
    """For each task that has blocks the first one with the least time. `owner` is each block's task."""
    order = np.lexsort((times, owner))
    tasks, first = np.unique(owner[order], return_index=True)
    return dict(zip(tasks.tolist(), order[first].tolist(), strict=True))


def _messages(timing: Timing, span_of: Small) -> Ints:
    """An arrow for each message of a FIFO, from each push to each pop."""
    recording = timing.lowered.recording
    columns = recording.columns("op", "lane", "c", "message")
    pops = int(timing.lowered.found.counts[POP])
    return e.arrows(recording.firsts(), recording.fifo_table(), columns, span_of, pops)
