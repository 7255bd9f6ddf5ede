"""The rows of all lanes of two launches and the commands of their orchestrators, in comparable form.

Blocks are recorded as they run, and lanes of a block take turns: the rows of each lane are collected. Numbers of posts
and waits depend on the order and do not count.
"""

import numpy as np

from kernbench.common.dtypes import Array
from kernbench.npu.isa.operations import AWAIT, BARRIER, CLASSES, LOAD, PLAIN, POST, SCALAR, SET, STORE, TABLE, WAIT
from kernbench.npu.isa.units import LANES
from kernbench.npu.recording.record import NONE, NpuRecording, TileShape
from kernbench.targets.work import Ints, Work, joint_numbers

# operations that read values: with sums rounded in another order such a value may differ legally
_READS = np.isin([op.name for op in TABLE], ["read", "get"])
# the value that a poll reads depends on the order
_LOOKS = "poll"
_COLUMNS = 8
# bits of the block number and of the lane, below the number of the task
_BLOCK, _LANE = 32, 2


def compared_works(first: NpuRecording, second: NpuRecording) -> tuple[Work, Work]:
    """The work of two launches, with the same numbers for the same tiles and patterns."""
    tiles = joint_numbers(*(map(_tile, one.tables.tiles) for one in (first, second)))
    patterns = joint_numbers(first.tables.patterns, second.tables.patterns)
    verbs = joint_numbers(*([command.verb for command in one.commands] for one in (first, second)))
    return _work(first, tiles[0], patterns[0], verbs[0]), _work(second, tiles[1], patterns[1], verbs[1])


def _tile(tile: TileShape) -> tuple[object, ...]:
    """The identity of a tile, without its name and root."""
    return tile.space, tile.offset, tile.shape, tile.dtype, tile.layout, tile.valid


def _work(recording: NpuRecording, tiles: Ints, patterns: Ints, verbs: Ints) -> Work:
    rows = recording.array()
    programs = _programs(recording, rows)
    order = np.argsort(programs, kind="stable")
    commands, done = _commands(recording, verbs), _rows(rows[order], tiles, patterns)

    def describe(row: int) -> str:
        if row < len(commands):
            return f"{recording.commands[row].verb} {recording.commands[row].target}"
        return _described(recording, rows[order[row - len(commands)]])

    return Work(
        np.concatenate([np.full(len(commands), NONE, np.int64), programs[order]]),
        np.concatenate([commands, done]),
        np.concatenate([np.array([c.site for c in recording.commands], np.int64), rows["site"][order]]).astype(
            np.int64
        ),
        recording.tables.sites,
        lambda program: _name(recording, program),
        describe,
        _observers(recording, rows),
    )


def _programs(recording: NpuRecording, rows: Array) -> Ints:
    """The lane that each row belongs to: its task, its block and its core."""
    sizes = np.diff(recording.firsts())
    task, index = (np.array(column, np.int64) for column in (recording.block_task, recording.block_index))
    blocks: Ints = np.repeat((task << _BLOCK) | (index << _LANE), sizes)
    return blocks | rows["lane"].astype(np.int64)


def _commands(recording: NpuRecording, verbs: Ints) -> Ints:
    """The commands of the orchestrator as rows of a program before all lanes, without their waits."""
    found = np.full((len(recording.commands), _COLUMNS), NONE, np.int64)
    found[:, 0] = verbs[:-1]
    found[:, 1] = [command.target for command in recording.commands]
    tasks = {task.number: task for task in recording.tasks}
    for row, command in zip(found, recording.commands, strict=True):
        task = tasks.get(command.target) if command.makes_task else None
        if task is not None:
            row[2:5] = task.blocks, sum(1 << lane for lane in task.lanes), task.skipped
    return found


def _rows(rows: Array, tiles: Ints, patterns: Ints) -> Ints:
    """Operation, pipe, tiles or flags, buffer, offset and pattern of each row."""
    kinds = CLASSES[rows["op"]]
    numbered = np.isin(kinds, (SET, WAIT, BARRIER))
    columns = [np.where(numbered, rows[name], tiles[np.where(numbered, NONE, rows[name])]) for name in "wab"]
    plain = kinds == PLAIN
    columns.append(np.where(plain, tiles[np.where(plain, rows["c"], NONE)], rows["c"]))
    moves = np.isin(kinds, (LOAD, STORE, SCALAR)) & (rows["c"] >= 0)
    columns.append(np.where(np.isin(kinds, (POST, AWAIT)), NONE, rows["x"]))
    columns.append(np.where(moves, patterns[np.where(moves, rows["y"], NONE)], rows["y"]))
    return np.column_stack([rows["op"], rows["pipe"], *columns]).astype(np.int64)


def _observers(recording: NpuRecording, rows: Array) -> list[str]:
    """Operations that may make a program behave differently under another order."""
    looks = _LOOKS in recording.observers
    reads = bool(_READS[rows["op"]].any()) or any(c.verb == "read" for c in recording.commands)
    reads = reads or any(task.predicated for task in recording.tasks)
    return sorted(recording.observers) if looks or reads else []


def _name(recording: NpuRecording, program: int) -> str:
    if program < 0:
        return "the orchestrator"
    task, lane = program >> _BLOCK, program & (1 << _LANE) - 1
    block = (program & (1 << _BLOCK) - 1) >> _LANE
    named = recording.tasks[task].name if task < len(recording.tasks) else ""
    return f"{LANES[lane]} in block {block} of task {task}{f' ({named})' if named else ''}"


def _described(recording: NpuRecording, row: Array) -> str:
    """A row in a few words: 'tadd on UB 16x64 f32'."""
    op = TABLE[row["op"]]
    number = next((int(row[c]) for c in "wa" if row[c] >= 0), NONE)
    if CLASSES[op.code] in (SET, WAIT, BARRIER) or number < 0:
        return op.name
    tile = recording.tables.tiles[number]
    return f"{op.name} of {tile.valid[0]}x{tile.valid[1]} {tile.dtype} in {tile.space}"
