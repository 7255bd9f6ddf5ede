"""From recorded rows to findings: runs the compiled check over pipes and reports its violations."""

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from kernbench.common.dtypes import ITEMSIZE, Array
from kernbench.npu.core.tiles import describe
from kernbench.npu.isa.model import ChipModel
from kernbench.npu.isa.operations import CLASSES, NAMES, POST
from kernbench.npu.isa.units import LANES, OUTPUT, PER_LANE, PIPE_NUMBER, PIPES, THREADS, S, capacities, memory_of
from kernbench.npu.order import clocks, happens_before, stretches
from kernbench.npu.order.cells import lay_out
from kernbench.npu.recording.record import NpuRecording
from kernbench.npu.tasks.task import Context, called_from
from kernbench.npu.tasks.tensors import extent
from kernbench.result.finding import Finding, Other, SourceLocation

if TYPE_CHECKING:
    from kernbench.npu.recording.record import Pattern

_CANNOT_RUN = (happens_before.NEVER_SET,)
_OF_TILES = (happens_before.RACE, happens_before.UNINITIALISED, happens_before.OVERLAP)
_AT_THE_END = (happens_before.NEVER_SET, happens_before.NEVER_WAITED, happens_before.UNDRAINED)
NOTHING = np.empty(0, np.uint64)


def check_order(context: Context, buffers: int, ended: bool) -> bool:
    """Check all rows that were recorded; False if a pipe would wait for ever.

    With `ended` False the last block stopped half-way: its remaining flags are not reported.
    """
    recording = context.recording
    if not recording.count:
        return True
    rows = recording.array()
    posts = posts_table(recording)
    found, _ = inspect(recording, context.chip, buffers, posts=posts)
    found = _but_awaited(recording, posts, found)
    if not ended:
        found = found[~(np.isin(found[:, 0], _AT_THE_END) & (found[:, 1] >= recording.block_first[-1]))]
    folded = _folded(rows["site"], found, _alike(recording))
    # a wait that never ends is reported before the races that follow from it
    for key, (violation, count) in sorted(folded.items(), key=lambda item: item[1][0][0] not in _CANNOT_RUN):
        finding = _FINDINGS[violation[0]](context, rows, *violation[1:])
        if finding is not None:
            others = (*finding.others, *_calls(context, rows, finding, *violation[1:3]))
            context.log.add(replace(finding, count=count, others=others), key[:3])
    return not np.isin(found[:, 0], _CANNOT_RUN).any()


def inspect(
    recording: NpuRecording, chip: ChipModel, buffers: int, identity: Array = NOTHING, posts: clocks.Posts | None = None
) -> tuple[Array, int]:
    """Violations among the rows, and the digest of their order if `identity` has a number for each row."""
    rows = recording.array()
    return stretches.check(
        recording.firsts(),
        clocks.Rows(**{name: rows[name] for name in clocks.Rows._fields}),
        CLASSES,
        lay_out(recording.tables.tiles, capacities(chip.spaces), recording.tables.nesting),
        np.array([_reach(p) for p in recording.tables.patterns] or [0], np.int64),
        max(1, buffers),
        recording.fifo_table(),
        identity,
        posts_table(recording) if posts is None else posts,
        chip.isa.vector == "order",
    )


def posts_table(recording: NpuRecording, watched: list[int] | None = None) -> clocks.Posts:
    """The posts and waits between cores as input of `stretches.check`; it returns the clocks of `watched` rows in
    it.
    """
    rows = recording.array()
    op = rows["op"]
    count = int((CLASSES[op] == POST).sum())
    wanted = np.empty(0, np.int64) if watched is None else np.asarray(watched, np.int64)
    starts = np.concatenate([[0], np.cumsum([len(found) for found in recording.rests_on], dtype=np.int64)])
    sources = np.array([post for found in recording.rests_on for post in found], np.int64)
    carried = np.zeros((count, THREADS), np.int64)
    room = np.zeros((len(wanted), THREADS), np.int64)
    rows_of = np.full(count, -1, np.int64)
    return clocks.Posts(starts.astype(np.int64), sources, carried, rows_of, wanted, room)


def _but_awaited(recording: NpuRecording, posts: clocks.Posts, found: Array) -> Array:
    """All violations but last stores of blocks for which the program of another block of the task waits: a task ends
    with all its blocks.
    """
    ends = np.flatnonzero(found[:, 0] == happens_before.UNDRAINED)
    if not len(ends) or not recording.rests_on:
        return found
    rows, task = recording.array(), recording.block_task
    thread = rows["lane"].astype(np.int64) * PER_LANE + rows["pipe"]
    # by the block that posts: the posts that other blocks of its task wait for
    awaited: dict[int, set[int]] = {}
    for post, wait in zip(*recording.post_edges(), strict=True):
        one, other = _block_of(recording, post), _block_of(recording, wait)
        if one != other and task[one] == task[other]:
            awaited.setdefault(one, set()).add(int(rows["x"][post]))
    kept = np.ones(len(found), np.bool_)
    for end in ends:
        row = int(found[end, 1])
        block = _block_of(recording, row)
        earlier = int((thread[recording.block_first[block] : row] == thread[row]).sum())
        kept[end] = not any(posts.carried[post][thread[row]] > earlier for post in awaited.get(block, ()))
    return found[kept]


def _block_of(recording: NpuRecording, row: int) -> int:
    return int(np.searchsorted(recording.firsts(), row, side="right")) - 1


def _alike(recording: NpuRecording) -> list[int]:
    """For each tile the first with its name and offset: the last iteration of a loop may use it with another valid
    part.
    """
    first: dict[tuple[object, ...], int] = {}
    named = zip(recording.tables.tile_names, recording.tables.tiles, strict=True)
    keys = [(name, t.space, t.offset, t.shape, t.dtype, t.layout) for name, t in named]
    return [first.setdefault(key, number) for number, key in enumerate(keys)]


def _folded(sites: Array, found: Array, alike: list[int]) -> dict[tuple[int, ...], tuple[list[int], int]]:
    """The first violations of each kind at a pair of lines and tile, and their number; only few are kept in full."""
    folded: dict[tuple[int, ...], tuple[list[int], int]] = {}
    for violation in found.tolist():
        kind, row, other, tile = violation
        subject = (alike[tile] if kind in _OF_TILES else tile) * len(_FINDINGS) + kind
        key: tuple[int, ...] = (int(sites[row]), int(sites[other]) if other >= 0 else -1, subject)
        # accesses to device memory differ in their elements, so they are not folded
        key = (*key, row, other) if kind == happens_before.GM_RACE else key
        first, count = folded.get(key, (violation, 0))
        folded[key] = (first, count + 1)
    return folded


def _reach(pattern: "Pattern") -> int:
    low, high = extent(0, pattern.shape, pattern.strides)
    return int((high - low) * pattern.itemsize)


# Reporting


def _who(context: Context, row: int) -> str:
    recording = context.recording
    block = _block_of(recording, row)
    task = context.tasks[recording.block_task[block]]
    return f"{task.describe()}, block {recording.block_index[block]}"


def _tile(context: Context, number: int) -> str:
    tables = context.recording.tables
    tile = tables.tiles[number]
    return describe(tables.tile_names[number], tile.space, tile.offset, tile.shape, tile.dtype, tile.valid)


def _act(context: Context, rows: Array, row: int) -> str:
    """An operation in words: its name, pipe and lane."""
    r = rows[row]
    return f"{NAMES[r['op']]} on pipe {PIPES[r['pipe']]} of {LANES[r['lane']]}"


def _value(rows: Array, column: str, row: int) -> int:
    return int(rows[column][row])


def _location(context: Context, rows: Array, row: int) -> SourceLocation:
    where: SourceLocation = context.recording.tables.sites[_value(rows, "site", row)]
    return where


def _calls(context: Context, rows: Array, finding: Finding, row: int, other: int) -> tuple[Other, ...]:
    """The calls of helpers that led to the row of a finding, and to the other row if they differ."""
    mine = context.calls_to(_value(rows, "lane", row), row)
    found = called_from(_location(context, rows, row), mine)
    if other >= 0 and finding.others:
        theirs = context.calls_to(_value(rows, "lane", other), other)
        role = f"{finding.others[0].role}: called from"
        found += called_from(_location(context, rows, other), theirs, role) if theirs != mine else ()
    return found


def _does(rows: Array, row: int, tile: int, context: Context) -> str:
    """Whether a row writes or reads the bytes of a tile, as a verb."""
    written = _value(rows, "w", row)
    return "writes" if written >= 0 and _meets(context, written, tile) else "reads"


def _meets(context: Context, one: int, two: int) -> bool:
    a, b = (context.recording.tables.tiles[n] for n in (one, two))
    ends = [t.offset + t.shape[0] * t.shape[1] * ITEMSIZE[t.dtype] for t in (a, b)]
    return memory_of(a.space) == memory_of(b.space) and a.offset < ends[1] and b.offset < ends[0]


def _race(context: Context, rows: Array, row: int, other: int, tile: int) -> Finding:
    verb, earlier = _does(rows, row, tile, context), _does(rows, other, tile, context)
    pipe, before = _value(rows, "pipe", row), _value(rows, "pipe", other)
    one_core = _value(rows, "lane", row) == _value(rows, "lane", other)
    same = pipe == before and one_core
    source, target = PIPES[before], PIPES[pipe]
    touched = _touched(context, rows, other, tile)
    message = (
        f"{_act(context, rows, row)} {verb} {_tile(context, tile)}, and {_act(context, rows, other)} before it "
        f"{earlier} {touched}; nothing makes the later one wait [{_who(context, row)}]"
    )
    between = f"{source}, {target}, event"
    hint = f"put set_flag({between}) after the earlier one and wait_flag({between}) before the later one"
    if same:
        hint = f"put pipe_barrier({target}) between them"
    elif not one_core:
        after, later = f"set_intra_block({source}, flag)", f"wait_intra_block({target}, flag)"
        hint = f"they are on two cores: put {after} after the earlier one and {later} before the later one"
    others = (Other(f"the earlier operation {earlier} it", _location(context, rows, other)),)
    return Finding("missing-barrier" if same else "race", message, _location(context, rows, row), others, hint)


def _touched(context: Context, rows: Array, row: int, tile: int) -> str:
    """The tile by which a row accessed another tile's bytes."""
    for column in ("w", "a", "b", "c"):
        number = _value(rows, column, row)
        plain = column != "c" or CLASSES[_value(rows, "op", row)] == 0
        if plain and number >= 0 and _meets(context, number, tile):
            return "it" if number == tile else _tile(context, number)
    return "it"


def _uninitialised(context: Context, rows: Array, row: int, other: int, tile: int) -> Finding:
    return Finding(
        "uninitialised-read",
        f"{_act(context, rows, row)} reads {_tile(context, tile)}, of which this block has not written all "
        f"[{_who(context, row)}]",
        _location(context, rows, row),
        (),
        "load or fill the tile first, or narrow its valid part to what was written",
    )


def _overlap(context: Context, rows: Array, row: int, other: int, tile: int) -> Finding:
    by = _touched(context, rows, other, tile)
    return Finding(
        "tile-overlap",
        f"{_act(context, rows, row)} reads {_tile(context, tile)}, but what lies there was written as {by} "
        f"[{_who(context, row)}]",
        _location(context, rows, row),
        (Other("written as another tile", _location(context, rows, other)),),
        "place tiles that are live together apart; for another view of the same tile use tile.view, reshape or rows",
    )


def _flag(rows: Array, row: int) -> str:
    r = rows[row]
    return f"{PIPES[r['a']]} -> {PIPES[r['b']]}, event {r['c']}"


def _set_twice(context: Context, rows: Array, row: int, other: int, tile: int) -> Finding:
    waited = NAMES[_value(rows, "op", other)] == "wait_flag"
    why = (
        "the wait for the set before it may not have happened yet: nothing signals to the setting pipe that it has"
        if waited
        else "it was set before and not waited for in between"
    )
    return Finding(
        "flag-misuse",
        f"flag ({_flag(rows, row)}) is set again while {why} [{_who(context, row)}]",
        _location(context, rows, row),
        (Other("the wait before it" if waited else "the set before it", _location(context, rows, other)),),
        "use another event, or order them: a flag back from the waiting pipe before the next set",
    )


def _never_set(context: Context, rows: Array, row: int, other: int, tile: int) -> Finding:
    pipe, lane = PIPES[_value(rows, "pipe", row)], LANES[_value(rows, "lane", row)]
    return Finding(
        "deadlock",
        f"pipe {pipe} of {lane} waits for ever: flag ({_flag(rows, row)}) is never set for this wait "
        f"[{_who(context, row)}]",
        _location(context, rows, row),
        (),
        "set the flag once for each wait, with the same pipes and event, before the wait",
    )


def _never_waited(context: Context, rows: Array, row: int, other: int, tile: int) -> Finding:
    return Finding(
        "flag-misuse",
        f"flag ({_flag(rows, row)}) is set and nobody waits for it; it stays up for the next kernel on this core "
        f"[{_who(context, row)}]",
        _location(context, rows, row),
        (),
        "wait for every flag that is set, also after the last round of a loop",
    )


def _set_late(context: Context, rows: Array, row: int, other: int, tile: int) -> Finding:
    return Finding(
        "flag-misuse",
        f"the wait for flag ({_flag(rows, row)}) comes before its set in the program [{_who(context, row)}]",
        _location(context, rows, row),
        (Other("the set", _location(context, rows, other)),),
        "set before waiting; for the first round of a loop set the flag once before it",
    )


def _gm_race(context: Context, rows: Array, row: int, other: int, tile: int) -> Finding | None:
    if not memory_meets(context.recording, rows[row], rows[other]):
        return None
    buffer = context.buffers[_value(rows, "c", row)]
    return Finding(
        "race",
        f"{_act(context, rows, row)} and, before it, {_act(context, rows, other)} touch the same elements of "
        f"{buffer.describe()}; nothing makes the later one wait [{_who(context, row)}]",
        _location(context, rows, row),
        (Other("the earlier operation", _location(context, rows, other)),),
        _order_in_memory(rows, row, other),
    )


def _order_in_memory(rows: Array, row: int, other: int) -> str:
    """The advice on how to order two transfers of one block."""
    if _value(rows, "lane", row) == _value(rows, "lane", other):
        source, target = PIPES[_value(rows, "pipe", other)], PIPES[_value(rows, "pipe", row)]
        return f"order the pipes by set_flag({source}, {target}, event) and wait_flag"
    if _value(rows, "site", row) == _value(rows, "site", other):
        return (
            "both vector cores run this kernel (aiv=): give each its part by core.sub_block_id, or submit it for one "
            "(aiv0=)"
        )
    return "flags order the pipes of one core: hand what the other core needs over by a FIFO, or make it a later task"


def _undrained(context: Context, rows: Array, row: int, other: int, tile: int) -> Finding:
    pipe, is_result = PIPES[_value(rows, "pipe", row)], OUTPUT[_value(rows, "lane", row)]
    buffer = context.buffers[_value(rows, "c", row)]
    message = (
        f"{_act(context, rows, row)} to {buffer.describe()} may still be under way when its kernel has ended: no "
        f"program waits for {pipe} after it, so later tasks may find what was there before [{_who(context, row)}]"
    )
    drain = "pipe_sync()" if pipe == is_result else f"set_flag({pipe}, S, event) and wait_flag({pipe}, S, event)"
    hint = f"end the kernel with {drain} or pipe_barrier(ALL), on each path to its end and after its last store"
    return Finding("undrained-store", message, _location(context, rows, row), _useless(context, rows, row), hint)


def _useless(context: Context, rows: Array, row: int) -> tuple[Other, ...]:
    """What looks as if it waited for a store at the end of a kernel, and does not."""
    firsts = context.recording.firsts()
    block = _block_of(context.recording, row)
    op, lane, pipe, a, b = (rows[name] for name in ("op", "lane", "pipe", "a", "b"))
    here = np.arange(len(rows))
    here = (here >= firsts[block]) & (here < firsts[block + 1]) & (lane == lane[row])
    barrier, wait = NAMES.index("pipe_barrier"), NAMES.index("wait_flag")
    program = PIPE_NUMBER[S]
    drains = ((op == wait) & (a == pipe[row]) & (b == program)) | ((op == barrier) & (a < 0))
    early = np.flatnonzero(here & drains)[-1:]
    own = np.flatnonzero(here & (op == barrier) & (a == pipe[row]))[-1:]
    found = [Other("the program waits here, before this store", _location(context, rows, at)) for at in early]
    role = f"this barrier makes later operations of {PIPES[int(pipe[row])]} wait, and not the program"
    return (*found, *(Other(role, _location(context, rows, at)) for at in own if at > row))


def memory_meets(recording: NpuRecording, one: np.void, two: np.void) -> bool:
    """Whether two transfers share an element."""
    sets = []
    for row in (one, two):
        pattern = recording.tables.patterns[row["y"]]
        elements = np.array([int(row["x"]) // pattern.itemsize])
        for size, stride in zip(pattern.shape, pattern.strides, strict=True):
            elements = (elements[:, None] + np.arange(size) * stride).reshape(-1)
        sets.append(elements)
    return bool(np.isin(sets[0], sets[1]).any())


_FINDINGS = {
    happens_before.RACE: _race,
    happens_before.UNINITIALISED: _uninitialised,
    happens_before.OVERLAP: _overlap,
    happens_before.SET_TWICE: _set_twice,
    happens_before.NEVER_SET: _never_set,
    happens_before.NEVER_WAITED: _never_waited,
    happens_before.SET_LATE: _set_late,
    happens_before.GM_RACE: _gm_race,
    happens_before.UNDRAINED: _undrained,
}
