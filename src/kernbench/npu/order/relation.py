"""The happens-before relation of a launch as a digest: equal digests mean the same accesses in the same order.

Used to compare two launches of which one lacks a flag, a barrier or a dependence: if the checker finds nothing and the
digest is the same, the missing part was redundant.
"""

from hashlib import sha256

import numpy as np

from kernbench.common.dtypes import Array
from kernbench.npu.isa.model import ChipModel
from kernbench.npu.isa.operations import AWAIT, BARRIER, CLASSES, LOAD, POP, POST, PUSH, SCALAR, SET, STORE, WAIT
from kernbench.npu.order.checks import inspect, posts_table
from kernbench.npu.recording.record import NpuRecording

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_SHIFT = np.uint64(29)


def order_digest(recording: NpuRecording, chip: ChipModel) -> str:
    """Sixteen hex digits for the order of all accesses: inside blocks by pipes, between blocks by tasks and posts."""
    tasks = task_order(recording)
    content = repr([(t.number, t.name, t.blocks, t.skipped, tasks[t.number]) for t in recording.tasks])
    if not recording.count:
        return sha256(f"{0:016x} {content}".encode()).hexdigest()[:16]
    posts = posts_table(recording)
    inner = inspect(recording, chip, buffer_count(recording), _identity(recording), posts)[1]
    # between blocks: the clock of each post, and the posts of each wait
    across = f" {recording.rests_on} {sha256(posts.carried.tobytes()).hexdigest()}" if recording.rests_on else ""
    return sha256(f"{inner:016x} {content}{across}".encode()).hexdigest()[:16]


def buffer_count(recording: NpuRecording) -> int:
    """One past the highest number of a buffer that rows touch."""
    rows = recording.array()
    here = np.isin(CLASSES[rows["op"]], (LOAD, STORE, SCALAR))
    return int(rows["c"][here].max(initial=-1)) + 1


def task_order(recording: NpuRecording) -> list[tuple[int, ...]]:
    """For each task the tasks with blocks that must be done when it begins, in ascending order."""
    has_blocks = set(recording.block_task)
    ancestors = [0] * len(recording.tasks)
    known = 0
    for command in recording.commands:
        if command.verb in ("read", "write"):
            for task in command.waits:
                known |= ancestors[task] | 1 << task
        elif command.makes_task:
            mine = known
            for task in recording.tasks[command.target].dependences:
                mine |= ancestors[task] | 1 << task
            ancestors[command.target] = mine
    return [tuple(t for t in range(n) if bits >> t & 1 and t in has_blocks) for n, bits in enumerate(ancestors)]


def _identity(recording: NpuRecording) -> Array:
    """A number for each row that identifies its access and its block; lines of the kernel do not count."""
    rows = recording.array()
    op, start, pattern, buffer = rows["op"], rows["x"], rows["y"], rows["c"]
    kinds = CLASSES[op]
    tiles = np.array([_number(t.space, t.offset, t.shape, t.dtype, t.layout, t.valid) for t in recording.tables.tiles])
    patterns = np.array([_number(p.shape, p.strides, p.itemsize) for p in recording.tables.patterns])
    sizes = np.diff(recording.firsts())
    blocks = np.array([_number(*b) for b in zip(recording.block_task, recording.block_index, strict=True)], np.uint64)
    value = _mixed(np.repeat(blocks, sizes), op)
    # flags have pipes in the columns of tiles
    is_access = ~np.isin(kinds, (SET, WAIT, BARRIER, POST, AWAIT))
    for name in ("w", "a", "b"):
        tile = rows[name]
        value = _mixed(value, _looked_up(tiles, np.where(is_access, tile, -1)))
    plain = kinds < LOAD
    by_tile = _looked_up(tiles, np.where(plain, buffer, -1))
    value = _mixed(value, np.where(plain, by_tile, buffer.astype(np.uint64)))
    moves = np.isin(kinds, (LOAD, STORE, SCALAR, PUSH, POP))
    value = _mixed(value, np.where(moves, start, 0))
    accessed = np.where(np.isin(kinds, (LOAD, STORE)), pattern, -1)
    return _mixed(value, _looked_up(patterns, accessed))


def _number(*parts: object) -> int:
    return int.from_bytes(sha256(repr(parts).encode()).digest()[:8], "little")


def _looked_up(numbers: Array, at: Array) -> Array:
    """The number at each index; 0 for -1."""
    table = np.concatenate([numbers.astype(np.uint64), np.zeros(1, np.uint64)])
    return table[at]


def _mixed(value: Array, more: Array) -> Array:
    value = (value ^ np.asarray(more).astype(np.uint64)) * _GOLDEN
    mixed: Array = value ^ (value >> _SHIFT)
    return mixed
