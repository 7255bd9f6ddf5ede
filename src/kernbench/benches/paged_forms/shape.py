"""The shape of a paged attention problem on the npu: the work of each block, its steps, and tile sizes."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from kernbench.common.errors import BenchError
from kernbench.npu import KernelCore, Tensor

# sizes of the smallest chip's memories, in bytes; keys and values of a step share L0B
_L0A, _L0B, _L0C, _UB = (n * 1024 for n in (64, 64, 128, 192))
_ALIGNED = 16
MOST_TILE = 64


def padded(count: int, to: int) -> int:
    """Rounded up to a multiple."""
    return -(-count // to) * to


@dataclass(frozen=True)
class Shape:
    """B sequences, H query heads that share KV heads in groups, D elements of a head, pages of `page` keys, at most
    `pages` of them; query tiles of at most `tile` heads. A page is processed in steps of at most `step` keys. Scores go
    from cube to vector cores as `scores`, f32 or f16.
    """

    B: int
    H: int
    kv_heads: int
    D: int
    page: int
    pages: int
    tile: int
    scale: float
    scores: str = "f32"

    def __post_init__(self) -> None:
        if self.H % self.kv_heads:
            raise BenchError(f"H = {self.H} must be a multiple of kv_heads = {self.kv_heads}")
        if self.D % 16 or not 16 <= self.D <= 256:
            raise BenchError(f"D = {self.D}: head sizes are multiples of 16, from 16 to 256")
        if not 1 <= self.tile <= MOST_TILE:
            raise BenchError(f"tile = {self.tile}: query tiles have 1 to {MOST_TILE} rows")

    @cached_property
    def group(self) -> int:
        """Query heads of one KV head."""
        return self.H // self.kv_heads

    @cached_property
    def tiles(self) -> int:
        """Query tiles of one KV head."""
        return -(-self.group // self.tile)

    @cached_property
    def items(self) -> int:
        """Query tiles of all sequences and KV heads."""
        return self.B * self.kv_heads * self.tiles

    @cached_property
    def step(self) -> int:
        """Keys of a full step: as many as fit into every memory of a core."""
        rows = padded(self.rows, _ALIGNED)
        room = (_L0B // (4 * self.D), _L0A // (2 * rows) - self.D, _L0C // (4 * rows) - self.D)
        # S in f32, and what goes through the FIFOs
        vector = (_UB - self.vector_bytes) // ((4 + self.passing_bytes) * self.lane_rows)
        return min(self.page, min(*room, vector) // _ALIGNED * _ALIGNED)

    @cached_property
    def vector_bytes(self) -> int:
        """What a vector core holds besides S and P: O three times, and at most ten columns."""
        return 12 * self.lane_rows * self.D + 10 * 4 * padded(self.lane_rows, 8)

    @cached_property
    def passing_bytes(self) -> int:
        """Bytes of a score besides S in f32: P in bf16, and the received S if that is f16."""
        return 2 if self.scores == "f32" else 4

    @cached_property
    def score_bytes(self) -> int:
        """The rest of a vector core's memory, for S of several waiting steps."""
        return _UB - self.vector_bytes - self.passing_bytes * self.lane_rows * padded(self.step, _ALIGNED)

    @cached_property
    def steps_per_page(self) -> int:
        """Steps of a page."""
        return -(-self.page // self.step)

    @cached_property
    def rows(self) -> int:
        """Rows of a full query tile."""
        return min(self.tile, self.group)

    @cached_property
    def lane_rows(self) -> int:
        """Rows of a full query tile in one of two vector lanes."""
        return -(-self.rows // 2)

    def item(self, number: int) -> "Item":
        """The work of one item."""
        rest, tile = divmod(number, self.tiles)
        batch, head = divmod(rest, self.kv_heads)
        first = tile * self.tile
        rows = min(self.tile, self.group - first)
        return Item(number, batch, head, head * self.group + first, rows)


class Item(NamedTuple):
    """One query tile: its sequence, KV head, first query head and rows."""

    number: int
    batch: int
    head: int
    first: int
    rows: int

    def lane(self, which: int, lane_rows: int) -> tuple[int, int]:
        """First row and number of rows of a vector lane."""
        first = min(which * lane_rows, self.rows)
        return first, min(lane_rows, self.rows - first)


class Step(NamedTuple):
    """Keys of one step: their page in the sequence, their offset in it, and how many are inside the context."""

    page: int
    start: int
    keys: int


def step_of(shape: Shape, number: int, context: int) -> Step:
    """Step `number` of a sequence with `context` keys; without keys past the context."""
    page, part = divmod(number, shape.steps_per_page)
    start = part * shape.step
    here = min(shape.step, shape.page - start, context - page * shape.page - start)
    return Step(page, start, max(0, here))


def steps_of(shape: Shape, context: int) -> list[Step]:
    """All steps inside the context."""
    count = -(-context // shape.page) * shape.steps_per_page
    return [step for step in (step_of(shape, n, context) for n in range(count)) if step.keys]


@dataclass(frozen=True)
class Group:
    """Steps of an item that share one maximum; whether they are its first and its last."""

    item: Item
    steps: list[Step]
    is_first: bool
    is_last: bool


def groups_of(core: KernelCore, shape: Shape, lens: Tensor, size: int) -> list[Group]:
    """All groups of `size` steps of this block, item after item. An item without keys has none."""
    found = []
    for number in range(core.block_idx, shape.items, core.block_num):
        item = shape.item(number)
        steps = steps_of(shape, core.read(lens, item.batch))
        for first in range(0, len(steps), size):
            found.append(Group(item, steps[first : first + size], first == 0, first + size >= len(steps)))
    return found


def in_turn(groups: list[Group]) -> Iterator[tuple[Group | None, Group | None]]:
    """Each group with the one before it; two are in flight."""
    return zip([*groups, None], [None, *groups], strict=True)


def keys_of(core: KernelCore, cache: Tensor, table: Tensor, item: Item, step: Step) -> Tensor:
    """The keys or values of one step, [keys, D]."""
    page = core.read(table, item.batch, step.page)
    return cache[page, step.start : step.start + step.keys, item.head]
