"""The recording of a launch: one row for each tile operation, flag and barrier, in the order of execution, and the
tables the rows refer to.

Blocks of tasks follow each other; the rows of a block belong to its lanes (AIC, AIV0, AIV1), in an order in which the
block can really run. Most rows of a loop are equal, so rows are stored as shared byte strings.
"""

from dataclasses import dataclass, field
from struct import Struct
from sys import byteorder

import numpy as np
from numpy.typing import NDArray

from kernbench.common.dtypes import Array
from kernbench.npu.isa.operations import AWAIT, CLASSES, POST, TABLE
from kernbench.result.finding import SourceLocation

Ints = NDArray[np.int64]
NONE = -1
# rows that are converted to an array at once
_AT_ONCE = 1 << 13

ROW = Struct("=hbbiiiiiqi")
# a row in two parts: up to b, and from c on
# most rows of one iteration of a loop that is searched for
_LONGEST_LOOP = 1024
HEAD, TAIL = Struct("=hbbiiii"), Struct("=iqi")
ROW_TYPE = np.dtype(
    [
        ("op", "i2"),
        ("lane", "i1"),
        ("pipe", "i1"),
        ("site", "i4"),
        ("w", "i4"),
        ("a", "i4"),
        ("b", "i4"),
        ("c", "i4"),
        ("x", "i8"),
        ("y", "i4"),
    ]
)
"""
| column | meaning |
|---|---|
| op | row of `operations.OPERATIONS` |
| lane, pipe | who executes it |
| site | the kernel line |
| w | tile written |
| a, b, c | tiles read. Flags: source pipe, target pipe, event. GM transfers: c is the buffer. FIFOs: c is the FIFO |
| x, y | GM transfers: byte offset in the buffer, row of `patterns`. FIFOs: number of the message, bytes of an element.
Posts and waits between cores: x is the number of the post or of the wait |
"""

# x of messages, which are fewer than 2^31: its lower half, as x itself is not aligned
_MESSAGE = np.dtype(
    {
        "names": ["message"],
        "formats": ["i4"],
        "offsets": [24 if byteorder == "little" else 28],
        "itemsize": ROW_TYPE.itemsize,
    }
)


@dataclass(frozen=True)
class TileShape:
    """One row of the tile table: the memory and offset of a tile, and its valid part."""

    space: str
    offset: int
    shape: tuple[int, int]
    dtype: str
    layout: str
    valid: tuple[int, int]
    root: int


# identity of a tile: space, offset, shape, element type, layout, valid part
TileKey = tuple[str, int, tuple[int, int], str, str, tuple[int, int]]


def _tile_shape(key: TileKey, root: int) -> TileShape:
    space, offset, shape, dtype, layout, valid = key
    return TileShape(space, offset, shape, dtype, layout, valid, root)


@dataclass(frozen=True)
class Pattern:
    """The elements a GM transfer touches, relative to its first: sizes and strides in elements."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    itemsize: int


@dataclass
class Tables:
    """The tables that rows refer to by number."""

    sites: list[SourceLocation] = field(default_factory=list)
    tiles: list[TileShape] = field(default_factory=list)
    tile_names: list[str] = field(default_factory=list)
    tile_numbers: dict[object, int] = field(default_factory=dict)
    # contiguous tiles: one inside another is a view of it
    nesting: set[int] = field(default_factory=set)
    patterns: list[Pattern] = field(default_factory=list)
    pattern_numbers: dict[object, int] = field(default_factory=dict)

    def tile(self, key: TileKey, root: int, name: str) -> int:
        """The number of a tile; a root of -1 makes it its own. Two names are two tiles, even at the same offset."""
        found = self.tile_numbers.get((*key, root, name))
        if found is None:
            found = self.tile_numbers[(*key, root, name)] = len(self.tiles)
            self.tiles.append(_tile_shape(key, found if root == NONE else root))
            self.tile_names.append(name)
        return found

    def pattern(self, shape: tuple[int, ...], strides: tuple[int, ...], itemsize: int) -> int:
        """The number of an access pattern."""
        key = (shape, strides, itemsize)
        found = self.pattern_numbers.get(key)
        if found is None:
            found = self.pattern_numbers[key] = len(self.patterns)
            self.patterns.append(Pattern(*key))
        return found


@dataclass(frozen=True)
class FifoRecord:
    """One FIFO of a task, the same in each of its blocks: who pushes, who pops, slots, and bytes of one message."""

    name: str
    producers: tuple[int, ...]
    consumers: tuple[int, ...]
    depth: int
    nbytes: int


@dataclass
class TaskRecord:
    """One task: its dependences with their reasons, where it was submitted, and its slots in the rings. `holds` are the
    tasks that made tensors it uses: their memory is not released before it is done.
    """

    number: int
    name: str
    lanes: tuple[int, ...]
    blocks: int
    site: int
    dependences: dict[int, str]
    ring: int
    scope: int
    created_bytes: int
    sync_start: bool
    fifos: tuple[FifoRecord, ...] = ()
    skipped: bool = False
    filled_bytes: int = 0
    early: bool = False
    predicated: bool = False
    holds: tuple[int, ...] = ()


@dataclass(frozen=True)
class Command:
    """One command of the orchestrator: submit, open, close, read or write; `target` is the task, scope or buffer,
    `waits` the tasks it had to wait for.
    """

    verb: str
    target: int
    site: int
    waits: tuple[int, ...] = ()

    @property
    def makes_task(self) -> bool:
        """Whether it takes a slot of a ring, and a submit's time."""
        return self.verb in ("submit", "tensor")


@dataclass
class NpuRecording:
    """Rows of all blocks, block by block, and the commands of the orchestrator."""

    tables: Tables = field(default_factory=Tables)
    _rows: list[bytes] = field(default_factory=list)
    block_first: list[int] = field(default_factory=list)
    block_task: list[int] = field(default_factory=list)
    block_index: list[int] = field(default_factory=list)
    tasks: list[TaskRecord] = field(default_factory=list)
    commands: list[Command] = field(default_factory=list)
    # for each wait between cores the posts that it depends on
    rests_on: list[tuple[int, ...]] = field(default_factory=list)
    # operations by which a kernel may observe the order of blocks: polled signals, rounded sums of floats
    observers: set[str] = field(default_factory=set)
    # cached result of `time.costs.cases`
    cases: tuple[Array, tuple[Array, NDArray[np.int32], Ints]] | None = field(default=None, repr=False, compare=False)
    _array: Array | None = None
    # whether the array has all rows, and the list none of them
    _is_taken: bool = field(default=False, repr=False, compare=False)
    # lists of blocks as arrays: their first rows, if finished, and their tasks
    _firsts: Ints | None = field(default=None, init=False, repr=False, compare=False)
    _owners: Ints | None = field(default=None, init=False, repr=False, compare=False)

    def __repr__(self) -> str:
        return f"<NpuRecording of {self.count:,} rows in {len(self.block_task):,} blocks of {len(self.tasks)} tasks>"

    def __setstate__(self, state: dict[str, object]) -> None:
        """Recordings pickled when rows were always a list have it under its old name."""
        vars(self).update(state)
        if "rows" in state:
            vars(self)["_rows"] = vars(self).pop("rows")

    @property
    def rows(self) -> list[bytes]:
        """All rows, each as its bytes, to which a launch appends."""
        if self._is_taken:
            assert self._array is not None
            self._rows[:] = self._array.view(f"V{ROW_TYPE.itemsize}").tolist()
            self._is_taken = False
        return self._rows

    @property
    def count(self) -> int:
        """The number of rows."""
        return len(self._array) if self._is_taken and self._array is not None else len(self._rows)

    def begin_blocks(self, task: int, indices: list[int]) -> None:
        """The next rows are of the last of these blocks; those before it have none."""
        self.block_first += [len(self._rows)] * len(indices)
        self.block_task += [task] * len(indices)
        self.block_index += indices

    def array(self) -> Array:
        """All rows as one array with named fields."""
        if self._array is None or len(self._array) != self.count:
            self._array = _put_together(self._rows)
        return self._array

    def operations(self) -> Ints:
        """How many rows each operation has."""
        op, counts = self.array()["op"] if self.count else np.empty(0, np.int16), np.zeros(len(TABLE), np.int64)
        # bincount widens its input: chunks of some thousand rows stay in the cache
        for start in range(0, len(op), _AT_ONCE):
            counts += np.bincount(op[start : start + _AT_ONCE], minlength=len(TABLE))
        return counts

    def columns(self, *names: str) -> tuple[Array, ...]:
        """Columns of all rows as views, for compiled loops; `message` is x of pushes and pops."""
        rows = self.array()
        if not rows["c"].flags.aligned:
            self._array = rows = rows.copy()
        return tuple(rows.view(_MESSAGE)[name] if name == "message" else rows[name] for name in names)

    def finish(self) -> None:
        """Nothing more is recorded: rows become one array, since Python's collector visits each entry of a list."""
        if self._rows:
            self.take(self.array())

    def take(self, rows: Array) -> None:
        """Replace the rows recorded so far by these; nothing more is recorded."""
        self._rows.clear()
        self._array, self._is_taken, self._firsts = rows, True, None

    def settle(self, turns: list[tuple[int, int]]) -> Ints | None:
        """Make the rows of each block contiguous after blocks ran in turns; `turns` are (block, its first row) in the
        order of execution. Returns each row's old position, or None if all were contiguous.
        """
        blocks = np.array([block for block, _ in turns], np.int64)
        starts = np.array([first for _, first in turns], np.int64)
        if not (np.diff(blocks) < 0).any():
            return None
        owner = np.repeat(blocks, np.diff([*starts.tolist(), len(self.rows)]))
        order: Ints = np.argsort(owner, kind="stable").astype(np.int64)
        self.rows[:] = [self.rows[i] for i in order]
        self.block_first[:] = np.searchsorted(owner[order], np.arange(len(self.block_task))).tolist()
        self._array = None
        return order

    def post_edges(self) -> tuple[Ints, Ints]:
        """Rows of posts and the rows of waits that depend on them."""
        if not self.rests_on:
            return np.empty(0, np.int64), np.empty(0, np.int64)
        posts, waits = self.numbered(POST), self.numbered(AWAIT)
        pairs = [(posts[p], waits[w]) for w, found in enumerate(self.rests_on) if w in waits for p in found]
        columns = np.array(pairs, np.int64).reshape(-1, 2)
        return columns[:, 0], columns[:, 1]

    def numbered(self, kind: int) -> dict[int, int]:
        """The row of each post, or of each wait, by its number."""
        rows = self.array()
        op, number = rows["op"], rows["x"]
        here = np.flatnonzero(CLASSES[op] == kind)
        return dict(zip(number[here].tolist(), here.tolist(), strict=True))

    def fifo_table(self) -> Ints:
        """For each block and FIFO of its task: depth, bits of the lanes that push, bits of those that pop."""
        most = max((len(t.fifos) for t in self.tasks), default=0) or 1
        by_task = np.zeros((max(1, len(self.tasks)), most, 3), np.int64)
        for task in self.tasks:
            for number, fifo in enumerate(task.fifos):
                by_task[task.number, number] = fifo.depth, _bits(fifo.producers), _bits(fifo.consumers)
        return by_task[self.owners()]

    def firsts(self) -> Ints:
        """The first row of each block, and one past the last."""
        found = self._firsts if self._is_taken else None
        if found is None or len(found) <= len(self.block_first):
            self._firsts = found = np.array([*self.block_first, self.count], np.int64)
        return found

    def owners(self) -> Ints:
        """The task of each block."""
        if self._owners is None or len(self._owners) != len(self.block_task):
            self._owners = np.array(self.block_task, np.int64)
        return self._owners


def _put_together(rows: list[bytes]) -> Array:
    """Rows as one array, some thousands at a time: joining them takes 80 bytes for each."""
    found = np.empty(len(rows), ROW_TYPE)
    plain = found.view(np.uint8)
    for start in range(0, len(rows), _AT_ONCE):
        joined = b"".join(rows[start : start + _AT_ONCE])
        begin = start * ROW_TYPE.itemsize
        plain[begin : begin + len(joined)] = np.frombuffer(joined, np.uint8)
    found.flags.writeable = False
    return found


def _bits(lanes: tuple[int, ...]) -> int:
    return sum(1 << lane for lane in lanes)


def repeated(rows: list[bytes], count: int) -> int:
    """How many rows repeat, if the last `count` rows are the same few again and again; else 0."""
    tail = rows[-count:]
    if len(tail) < count:
        return 0
    for period in range(1, min(_LONGEST_LOOP, count // 4) + 1):
        if tail[-1] == tail[-1 - period] and tail[period:] == tail[:-period]:
            return period
    return 0
