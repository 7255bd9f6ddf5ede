"""What the computing warps of the sm_90a chunk-output kernel do with a tile: gates, products, mask, store."""

from dataclasses import dataclass
from typing import Any

from kernbench.benches._chunk_output_layout import (
    ATOM_BYTES,
    CHUNK,
    ELEMENT_BYTES,
    ROW_BYTES,
    SPAN,
    Layout,
    Stage,
    Tile,
)
from kernbench.ptx.builder import Context, Pointer, Register

WARP, GROUP = 32, 128
LOG2_E = 1.4426950408889634
# depth of a product, and the columns after which its registers begin again
DEPTH, OCTET = 16, 8
# bytes that a thread clears or a lane names at once
PIECE = 16
COLUMN_BYTES = CHUNK * ROW_BYTES
_SWIZZLE_128B = 1 << 62
_TYPES = "f32.bf16.bf16"


@dataclass(frozen=True)
class Memory:
    """Shared memory of a group's own: an output tile, and the gates of its rows."""

    output: Pointer
    gates: Pointer

    @staticmethod
    def nbytes(layout: Layout) -> int:
        """Bytes of one group."""
        return layout.value_bytes + CHUNK * 4

    @classmethod
    def of(cls, ctx: Context, start: Pointer, layout: Layout, groups: int) -> "Memory":
        """The part of this thread's group: all outputs, then all gates."""
        number = ctx.tid_x // GROUP
        gates = start.shifted(groups * layout.value_bytes).retyped("f32")
        return cls(start + number * layout.value_bytes, gates + number * CHUNK)


class Group:
    """Four warps with 16 rows of a tile each: a lane has two columns of every eight, in two rows eight apart."""

    def __init__(self, ctx: Context, layout: Layout, stage: Stage, memory: Memory):
        self.ctx, self.layout, self.stage, self.memory = ctx, layout, stage, memory
        self.number, self.thread, self.lane = ctx.tid_x // GROUP, ctx.tid_x % GROUP, ctx.tid_x % WARP
        self.warp_row = self.thread // WARP * DEPTH
        self.row, self.column = self.warp_row + self.lane // 4, self.lane % 4 * 2
        self.output_map, self.scale = ctx.tensor_map("o_map"), ctx.param("scale")
        self.gates, self.out = ctx.pointer("g_ptr", "f32"), ctx.pointer("o_ptr", "b32")
        self.never, self.always = (ctx.const(value, "u32") != 0 for value in (0, 1))

    def meet(self) -> None:
        """A barrier of the group."""
        self.ctx.bar_sync(self.number + 1, GROUP)

    def share_gates(self, tile: Tile) -> None:
        """The gates of the tile's rows in shared memory, when nobody reads those of the tile before, or its output."""
        ctx = self.ctx
        mine = ctx.mad(tile.start + self.thread, self.layout.value_heads, ctx.ctaid_y)
        gate = ctx.load(self.gates, mine, mask=self.thread < tile.length, other=0.0)
        self.finish()
        self.meet()
        ctx.store(self.memory.gates, gate, self.thread, mask=self.thread < CHUNK)
        self.meet()

    def finish(self) -> None:
        """Wait until the store of the last output has read it."""
        self.ctx.bulk_wait(0, read=True, pred=self.thread == 0)

    # Products

    def multiply(self, tile: Tile, memory: Pointer) -> list[Register]:
        """e^G * (q H^T) + P V' of a stage that is filled; when it returns, the stage is no longer read."""
        ctx = self.ctx
        q, k, h = (self._descriptor(memory, offset) for offset in (self.stage.q, self.stage.k, self.stage.h))
        scores, carried = (self._zeros(columns) for columns in (CHUNK, self.layout.value_size))
        self._fence()
        self._product(scores, q, k)
        self._product(carried, q, h)
        self._clear_tail(tile, memory)
        self._wait(1)
        p = self._masked(scores)
        self._wait(0)
        for half, gate in enumerate(self._row_gates()):
            decay = ctx.ex2(gate * LOG2_E)
            for i in _of_half(carried, half):
                carried[i] *= decay
        self._fence()
        self._add_product(carried, p, self._descriptor(memory, self.stage.v, COLUMN_BYTES))
        self._wait(0)
        return carried

    def _descriptor(self, memory: Pointer, offset: int, leading: int = PIECE) -> Register:
        """What the tensor core is told of a tile `offset` bytes into a stage: swizzled, atoms behind each other."""
        address = ((memory.shifted(offset).address >> 4) & 0x3FFF).to("u64")
        return self.ctx.or_(address, _SWIZZLE_128B | ATOM_BYTES >> 4 << 32 | leading >> 4 << 16)

    def _zeros(self, columns: int) -> list[Register]:
        """Registers for the sums of so many columns."""
        return [self.ctx.const(0.0, "f32") for _ in range(columns // 2)]

    def _product(self, sums: list[Register], a: Register, b: Register) -> None:
        """Begin a b^T, both K-major, as a group of its own."""
        for step in range(self.layout.key_size // DEPTH):
            column, inside = divmod(step * DEPTH * ELEMENT_BYTES, ROW_BYTES)
            at = [column * rows * ROW_BYTES + inside >> 4 for rows in (CHUNK, 2 * len(sums))]
            self._wgmma(sums, a + at[0], b + at[1], 0, 0, first=step == 0)
        self._commit()

    def _add_product(self, sums: list[Register], p: list[Register], v: Register) -> None:
        """Add P V', with P from registers and V' N-major."""
        for step in range(CHUNK // DEPTH):
            a = tuple(p[4 * step : 4 * step + 4])
            self._wgmma(sums, a, v + (step * DEPTH * ROW_BYTES >> 4), 1)
        self._commit()

    def _wgmma(self, sums: list[Register], a: Any, b: Register, *transposed: int, first: bool = False) -> None:
        name = f"wgmma.mma_async.sync.aligned.m64n{2 * len(sums)}k{DEPTH}.{_TYPES}"
        self.ctx.op(name, tuple(sums), a, b, self.never if first else self.always, 1, 1, *transposed)

    def _fence(self) -> None:
        self.ctx.op("wgmma.fence.sync.aligned")

    def _commit(self) -> None:
        self.ctx.op("wgmma.commit_group.sync.aligned")

    def _wait(self, groups: int) -> None:
        self.ctx.op("wgmma.wait_group.sync.aligned", groups)

    # Between the products

    def _clear_tail(self, tile: Tile, memory: Pointer) -> None:
        """Zeros for the rows of V' that are another sequence's: zero times NaN would be NaN."""
        ctx = self.ctx
        with ctx.if_(tile.length < CHUNK):
            values, zero = memory.shifted(self.stage.v).retyped("u32"), ctx.const(0, "u32")
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
        """P = lower((q k^T) * Gamma) in bf16, two columns a register: A of the products with V'."""
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
        """score e^exponent where `kept`, else zero, whatever they are: above the diagonal e^exponent overflows."""
        return self.ctx.selp(score * self.ctx.ex2(exponent * LOG2_E), 0.0, kept)

    # The output

    def store(self, tile: Tile, sums: list[Register]) -> None:
        """scale times the sums: a whole tile by a bulk store, the rows of a tail one by one."""
        ctx = self.ctx
        scaled = [value * self.scale for value in sums]
        packed = [ctx.cvt_pack("bf16x2", scaled[i + 1], scaled[i]) for i in range(0, len(scaled), 2)]
        with ctx.if_(tile.length == CHUNK):
            self._store_whole(tile, packed)
        with ctx.else_():
            self._store_rows(tile, packed)

    def _store_whole(self, tile: Tile, packed: list[Register]) -> None:
        """Four 8 x 8 matrices at once to where the swizzle wants them, then one thread stores the tile."""
        ctx = self.ctx
        row = self.warp_row + (self.lane & 15)
        start = self.memory.output + row * ROW_BYTES
        piece = ((self.lane >> 4) ^ (self.lane & 7)) * PIECE
        for i in range(0, len(packed), 4):
            column, octet = divmod(i // 2, SPAN // OCTET)
            place = start + (piece ^ octet * PIECE)
            ctx.stmatrix(place.shifted(column * COLUMN_BYTES), packed[i : i + 4])
        ctx.fence_proxy_async()
        self.meet()
        with ctx.if_(self.thread == 0):
            ctx.tma_store(self.output_map, (0, tile.start, 0, ctx.ctaid_y), self.memory.output)
            ctx.bulk_commit()

    def _store_rows(self, tile: Tile, packed: list[Register]) -> None:
        ctx, layout = self.ctx, self.layout
        for half in range(2):
            row = self.row + half * OCTET
            element = ctx.mad(tile.start + row, layout.value_heads, ctx.ctaid_y) * (layout.value_size // 2)
            place = self.out + (element + self.column // 2)
            for i in range(half, len(packed), 2):
                ctx.store(place[i // 2 * (OCTET // 2)], packed[i], mask=row < tile.length)


def _of_half(sums: list[Register], half: int) -> list[int]:
    """The registers of the first or the second row."""
    return [i for i in range(len(sums)) if i // 2 % 2 == half]
