"""The computing warps of the sm_90a chunk-output kernel, for each tile: gates, products, mask, store."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from kernbench.benches.chunk_output.layout import CHUNK, ROW_BYTES, SPAN, Layout, checkpoint_tile
from kernbench.ptx.builder import Context, Pointer, Register
from kernbench.ptx.builder.matrix.tiles import Tile as Matrix
from kernbench.ptx.builder.matrix.wgmma import Factor

WARP, GROUP = 32, 128
LOG2_E = 1.4426950408889634
# depth of a product, and the columns after which its register layout repeats
DEPTH, OCTET = 16, 8
# bytes that a thread clears or a lane addresses at once
PIECE = 16
COLUMN_BYTES = CHUNK * ROW_BYTES
GATE_BYTES = CHUNK * 4
_TYPES = "f32.bf16.bf16"


@dataclass(frozen=True)
class Operands:
    """The ring: shared memory of all stages for q, k, H and V', by name."""

    tiles: dict[str, Matrix]

    @classmethod
    def at(cls, ctx: Context, start: Pointer, layout: Layout, stages: int) -> "Operands":
        """Allocate the operands one after the other; V' is the right operand, its rows are the depth."""
        shapes = {
            "q": (CHUNK, layout.key_size, "K", layout.key_bytes),
            "k": (CHUNK, layout.key_size, "K", layout.key_bytes),
            "h": (layout.value_size, layout.key_size, "K", layout.state_bytes),
            "v": (layout.value_size, CHUNK, "MN", layout.value_bytes),
        }
        tiles = {}
        for name, (rows, depth, major, nbytes) in shapes.items():
            tiles[name] = ctx.shared_tile("bf16", rows, depth, major=major, stages=stages, at=start)
            start = start.shifted(stages * nbytes)
        return cls(tiles)


@dataclass(frozen=True)
class Memory:
    """A group's own shared memory: an output tile, and the gates of a tile and of the one before."""

    output: Pointer
    gates: Pointer

    @staticmethod
    def nbytes(layout: Layout) -> int:
        """Bytes of one group."""
        return layout.value_bytes + 2 * GATE_BYTES

    @classmethod
    def of(cls, ctx: Context, start: Pointer, layout: Layout, groups: int) -> "Memory":
        """The part of this thread's group: all outputs, then all gates."""
        number = ctx.tid_x // GROUP
        gates = start.shifted(groups * layout.value_bytes).retyped("f32")
        return cls(start + number * layout.value_bytes, gates + number * (2 * CHUNK))


@dataclass(frozen=True)
class Numbers:
    """A tile as a thread sees it: its value head, its first row, its number of rows, and the gate of row `thread`."""

    head: Register
    start: Register
    length: Register
    gate: Register

    def set(self, other: "Numbers") -> None:
        """Become another tile, in the same registers."""
        if self.head is not other.head:
            self.head.set(other.head)
        self.start.set(other.start)
        self.length.set(other.length)
        self.gate.set(other.gate)


class Group:
    """Four warps with 16 rows of a tile each: a lane has two columns of every eight, in two rows eight apart."""

    def __init__(self, ctx: Context, layout: Layout, ring: Operands, memory: Memory):
        self.ctx, self.layout, self.ring, self.memory = ctx, layout, ring, memory
        self.number, self.thread, self.lane = ctx.tid_x // GROUP, ctx.tid_x % GROUP, ctx.tid_x % WARP
        self.warp_row = self.thread // WARP * DEPTH
        position = ctx.wgmma_place(self.thread)
        self.row, self.column = position.first_row, position.first_column
        self.descriptors = {name: ctx.wgmma_descriptor(tile) for name, tile in ring.tiles.items()}
        self.output_map, self.scale = ctx.tensor_map("o_map"), ctx.param("scale")
        self.all_gates, self.out = ctx.pointer("g_ptr", "f32"), ctx.pointer("o_ptr", "b32")

    def meet(self) -> None:
        """A barrier of the group."""
        self.ctx.bar_sync(self.number + 1, GROUP)

    # Gates

    def look(self, chunk: Register, head: Register) -> Numbers:
        """Load the numbers of a tile before its operands have arrived."""
        ctx = self.ctx
        tile = self.layout.tile(ctx, chunk)
        mine = ctx.mad(tile.start + self.thread, self.layout.value_heads, head)
        gate = ctx.load(self.all_gates, mine, mask=self.thread < tile.length, other=0.0)
        return Numbers(head, tile.start, tile.length, gate)

    def share_gates(self, tile: Numbers) -> None:
        """Write the gates of a tile's rows to shared memory, besides those of the tile before, which may still be
        read.
        """
        ctx, gates = self.ctx, self.memory.gates
        ctx.xor(gates.base, GATE_BYTES, out=gates.base)
        ctx.store(gates, tile.gate, self.thread, mask=self.thread < CHUNK)
        self.meet()

    # Products

    def begin(self, stage: Register) -> None:
        """Begin q k^T and q H^T of a stage that is filled, a group of products each."""
        ctx, layout = self.ctx, self.layout
        q, k, h = (self.descriptors[name].at(stage=stage) for name in "qkh")
        self.scores, self.carried = (list(ctx.wgmma_accumulator(n)) for n in (CHUNK, layout.value_size))
        ctx.wgmma_fence()
        for sums, b in ((self.scores, k), (self.carried, h)):
            for depth in range(0, layout.key_size, DEPTH):
                self._product(sums, q.at(k=depth), b.at(k=depth), depth > 0)
            ctx.wgmma_commit()

    def multiply(self, tile: Numbers, stage: Register) -> list[Register]:
        """e^G * (q H^T) + P V', after `begin`; when it returns, the stage is no longer read."""
        ctx, sums = self.ctx, self.carried
        self._clear_tail(tile, stage)
        ctx.wgmma_wait(1)
        self._checkpoint("scores", tile, self.scores, square=True)
        p = self._masked(self.scores)
        self._checkpoint("p", tile, p, square=True)
        ctx.wgmma_wait(0)
        for half, gate in enumerate(self._row_gates()):
            decay = ctx.ex2(gate * LOG2_E)
            for i in _of_half(sums, half):
                sums[i] *= decay
        self._checkpoint("carried", tile, sums)
        v = self.descriptors["v"].at(stage=stage)
        ctx.wgmma_fence()
        for depth in range(0, CHUNK, DEPTH):
            self._product(sums, p[depth // 4 : depth // 4 + 4], v.at(k=depth), True)
        ctx.wgmma_commit()
        ctx.wgmma_wait(0)
        return sums

    def _checkpoint(self, name: str, tile: Numbers, values: list[Register], square: bool = False) -> None:
        checkpoint_tile(self.ctx, name, values, tile, self.row, self.column, square, tile.head)

    def _product(self, sums: list[Register], a: Factor | Sequence[Register], b: Factor, accumulate: bool) -> None:
        self.ctx.wgmma(f"m64n{2 * len(sums)}k{DEPTH}", sums, a, b, types=_TYPES, accumulate=accumulate)

    # Between the products

    def _clear_tail(self, tile: Numbers, stage: Register) -> None:
        """Set the rows of V' of the next sequence to zero: zero times NaN would be NaN."""
        ctx = self.ctx
        with ctx.if_(tile.length < CHUNK):
            values, zero = self.ring.tiles["v"].stage(stage).pointer.retyped("u32"), ctx.const(0, "u32")
            threads = ROW_BYTES // PIECE
            with ctx.loop(tile.length + self.thread // threads, CHUNK, GROUP // threads) as row:
                piece = values + ctx.mad(row, ROW_BYTES // 4, self.thread % threads * (PIECE // 4))
                for column in range(self.layout.value_size // SPAN):
                    ctx.store(piece.shifted(column * COLUMN_BYTES), (zero,) * (PIECE // 4))
            ctx.fence_proxy_async()
            self.meet()

    def _row_gates(self) -> list[Register]:
        """G of this thread's two rows."""
        rows = self.memory.gates + self.row
        return [self.ctx.load(rows[half * OCTET]) for half in range(2)]

    def _masked(self, scores: list[Register]) -> list[Register]:
        """P = lower((q k^T) * Gamma) in bf16, two columns per register: A of the products with V'."""
        ctx, gates = self.ctx, self.memory.gates + self.column
        rows, below = self._row_gates(), self.row.to("s32") - self.column.to("s32")
        packed = []
        for octet in range(0, CHUNK, OCTET):
            columns = ctx.load(gates[octet], vec=2)
            for half in range(2):
                pair = [
                    self._weighed(
                        scores[octet // 2 + 2 * half + j],
                        rows[half] - columns[j],
                        below >= octet + j - half * OCTET,
                    )
                    for j in range(2)
                ]
                packed.append(ctx.cvt_pack("bf16x2", pair[1], pair[0]))
        return packed

    def _weighed(self, score: Register, exponent: Register, kept: Any) -> Register:
        """score e^exponent if `kept`, else zero, whatever the values: above the diagonal e^exponent overflows."""
        return self.ctx.selp(score * self.ctx.ex2(exponent * LOG2_E), 0.0, kept)

    # The output

    def store(self, tile: Numbers, sums: list[Register]) -> None:
        """scale times the sums: a whole tile by a bulk store, the rows of a ragged one one by one."""
        ctx = self.ctx
        scaled = [value * self.scale for value in sums]
        packed = [ctx.cvt_pack("bf16x2", scaled[i + 1], scaled[i]) for i in range(0, len(scaled), 2)]
        with ctx.if_(tile.length == CHUNK):
            self._store_whole(tile, packed)
        with ctx.else_():
            self._store_rows(tile, packed)

    def _store_whole(self, tile: Numbers, packed: list[Register]) -> None:
        """Store four 8 x 8 matrices at once in swizzled order, then one thread stores the tile."""
        ctx = self.ctx
        self.finish()
        self.meet()
        row = self.warp_row + (self.lane & 15)
        start = self.memory.output + row * ROW_BYTES
        piece = ((self.lane >> 4) ^ (self.lane & 7)) * PIECE
        for i in range(0, len(packed), 4):
            column, octet = divmod(i // 2, SPAN // OCTET)
            target = start + (piece ^ octet * PIECE)
            ctx.stmatrix(target.shifted(column * COLUMN_BYTES), packed[i : i + 4])
        ctx.fence_proxy_async()
        self.meet()
        with ctx.if_(self.thread == 0):
            ctx.tma_store(self.output_map, (0, tile.start, 0, tile.head), self.memory.output)
            ctx.bulk_commit()

    def finish(self) -> None:
        """Wait until the last store has read its output tile."""
        self.ctx.bulk_wait(0, read=True, pred=self.thread == 0)

    def _store_rows(self, tile: Numbers, packed: list[Register]) -> None:
        ctx, layout = self.ctx, self.layout
        for half in range(2):
            row = self.row + half * OCTET
            element = ctx.mad(tile.start + row, layout.value_heads, tile.head) * (layout.value_size // 2)
            target = self.out + (element + self.column // 2)
            for i in range(half, len(packed), 2):
                ctx.store(target[i // 2 * (OCTET // 2)], packed[i], mask=row < tile.length)


def _of_half(sums: list[Register], half: int) -> list[int]:
    """The registers of the first or the second row."""
    return [i for i in range(len(sums)) if i // 2 % 2 == half]
