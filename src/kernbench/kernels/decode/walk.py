"""Iteration of a CTA over its segments, in the registers of every warp."""

from collections.abc import Iterator
from dataclasses import dataclass

from kernbench.kernels.decode.plan import BEGIN
from kernbench.kernels.decode.shape import DecodeShape
from kernbench.ptx.builder import Context, Register


@dataclass(frozen=True)
class Segment:
    """A CTA's part of one KV head of a sequence: `count` of its `tiles`, from number `tile` on.

    The sequence has `length` keys, the first in `row` of a dense cache; its tiles begin at `start`, counted for a head.
    """

    sequence: Register
    head: Register
    tile: Register
    count: Register
    start: Register
    tiles: Register
    length: Register
    row: Register


class Walk:
    """Iterates from a CTA's first tile: one load of 48 bytes, then one of 16 for each sequence.

    All that depends on the lengths is loaded from memory: a captured launch can be replayed for other lengths.
    """

    def __init__(self, ctx: Context, shape: DecodeShape):
        self.ctx, self.shape = ctx, shape
        begin = ctx.pointer("begins_ptr", "u32") + ctx.ctaid_x * BEGIN
        self.sequence, self.head, self.tile, self.position = ctx.load(begin, vec=4)
        self.record = list(ctx.load(begin[4], vec=4))
        self.records = ctx.pointer("records_ptr", "u32")
        self.end, self.total, self.working, _ = ctx.load(begin[8], vec=4)

    def segments(self) -> Iterator[Segment]:
        """Each segment of the CTA: the body of the loop is built once."""
        ctx = self.ctx
        start, tiles, length, row = self.record
        with ctx.while_(lambda: self.position < self.end):
            count = ctx.min(tiles - self.tile, self.end - self.position)
            yield Segment(self.sequence, self.head, self.tile, count, start, tiles, length, row)
            self.position += count
            self.tile.set(0)
            self.head += 1
            with ctx.if_((self.head == self.shape.kv_heads) & (self.position < self.end)):
                self.sequence += 1
                self.head.set(0)
                ctx.load(self.records + self.sequence * 4, vec=4, out=tuple(self.record))

    def owners(self, segment: Segment) -> tuple[Register, Register]:
        """The first CTA with tiles of a segment's head, and the number of such CTAs."""
        begin = self.ctx.mad(segment.head, segment.tiles, segment.start * self.shape.kv_heads)
        first, last = self._owner(begin), self._owner(begin + segment.tiles - 1)
        return first, last - first + 1

    def _owner(self, tile: Register) -> Register:
        """The last CTA that begins at a tile or before it."""
        owner: Register = ((tile + 1) * self.working - 1) // self.total
        return owner
