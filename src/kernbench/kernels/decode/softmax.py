"""The softmax state of one warp: 16 rows of query heads, over the keys processed so far.

Products are `mma.m16n8k16`: scores have query heads as rows and 8 keys as columns, and their registers have the
layout of the left operand of the product with the values. A lane has two rows, eight apart, and two columns of every
eight. Scores are scaled by log2(e), so that ex2 computes exp.
"""

from kernbench.kernels.attention import LOWEST, ROW_BYTES
from kernbench.kernels.decode.shape import TILE, WARP_KEYS, DecodeShape
from kernbench.kernels.decode.walk import Segment
from kernbench.ptx.builder import FULL_MASK, Context, Pointer, Predicate, Register

# depth of a product, columns of one, and distance of the two rows of a lane
DEPTH, OCTET = 16, 8
PIECE_BYTES = 16


class Softmax:
    """One warp's maxima, totals and sums."""

    def __init__(self, ctx: Context, shape: DecodeShape, warp: Register, lane: Register):
        self.ctx, self.shape, self.warp, self.lane = ctx, shape, warp, lane
        # operand type; 8-bit elements are converted to f16
        self.multiplied = "f16" if shape.narrow else shape.dtype
        self.types = f"f32.{self.multiplied}.{self.multiplied}.f32"
        self.queries = ctx.pointer("q_ptr", "b32")
        self.scale = ctx.param("scale_log2")
        self.row, self.column = lane // 4, lane % 4 * 2
        self.first_key = warp * WARP_KEYS
        self.key_lane, self.value_lane = self._lane_offsets()
        self.fragments = [ctx.const(0, "b32") for _ in range(shape.head_size // 4)]
        self.largest = [ctx.const(LOWEST, "f32") for _ in range(2)]
        self.total = [ctx.const(0.0, "f32") for _ in range(2)]
        self.sums = [[ctx.const(0.0, "f32") for _ in range(4)] for _ in range(shape.head_size // OCTET)]

    def _lane_offsets(self) -> tuple[Register, Register]:
        """Byte offsets from a tile's begin to the row that this lane passes to ldmatrix, for keys and for values.

        Four matrices of 8 rows of 16 bytes: of keys, two pieces of 8 keys, then of the next 8 keys; of values, a piece
        of 16 keys, then the next piece. In a row of 128 bytes, piece p of 16 is at p ^ (row % 8), in one of 64 at
        p ^ (row / 2 % 4).
        """
        rows, row_bytes = self.shape.box_rows, self.shape.row_bytes
        box = self.first_key // rows * (rows * (self.shape.tile_bytes // TILE))
        start = box + self.first_key % rows * row_bytes
        lane, line = self.lane, self.lane & 7
        turned = line if row_bytes == ROW_BYTES else line >> 1
        key = (lane >> 4) * OCTET + line
        of_keys = start + key * row_bytes + (((lane >> 3) & 1) ^ turned) * PIECE_BYTES
        of_values = start + (lane & 15) * row_bytes + ((lane >> 4) ^ turned) * PIECE_BYTES
        return of_keys, of_values

    def begin(self, segment: Segment) -> None:
        """Reset the state, and load the queries of a segment's heads."""
        ctx, shape = self.ctx, self.shape
        for half in range(2):
            self.largest[half].set(LOWEST)
            self.total[half].set(0.0)
        for registers in self.sums:
            for register in registers:
                register.set(0.0)
        head = ctx.mad(segment.sequence, shape.heads, segment.head * shape.group)
        for half in range(2 if shape.group > OCTET else 1):
            row = self.row + half * OCTET
            self._load_queries(head + row, row < shape.group, half)

    def _load_queries(self, row: Register, there: Predicate, half: int) -> None:
        """A lane's elements of a query; registers of a product: rows, rows + 8, then the same for 8 more columns."""
        ctx = self.ctx
        source = self.queries + ctx.mad(row, self.shape.head_size, self.column) // 2
        for i in range(half, len(self.fragments), 2):
            ctx.load(source[i // 2 * (OCTET // 2)], mask=there, other=0, out=self.fragments[i])

    def add(self, stage: Pointer, tile: Register, segment: Segment) -> None:
        """Add a tile that has arrived: keys past the sequence's end are masked, whatever their memory holds."""
        ctx = self.ctx
        scores = self._scores(stage)
        left = segment.length - tile * TILE
        with ctx.if_(segment.length >= (tile + 1) * TILE):
            self._update(stage, scores, None)
        with ctx.else_():
            self._update(stage, scores, ctx.min(left, TILE))

    def _scores(self, stage: Pointer) -> list[Register]:
        """Scores of 16 keys, times log2(e) and the scale."""
        ctx = self.ctx
        scores = [[ctx.const(0.0, "f32") for _ in range(4)] for _ in range(2)]
        lanes = self._turned(stage, self.key_lane)
        for depth in range(self.shape.head_size // DEPTH):
            keys = ctx.ldmatrix(self._piece(lanes, depth), 4)
            queries = self.fragments[4 * depth : 4 * depth + 4]
            for half, sums in enumerate(scores):
                ctx.mma("m16n8k16", queries, keys[2 * half : 2 * half + 2], sums, types=self.types, out=tuple(sums))
        return [score * self.scale for sums in scores for score in sums]

    def _turned(self, stage: Pointer, lane: Register) -> list[Pointer]:
        """The lane's row, at each pair of pieces of a row (the swizzle)."""
        first = stage + lane
        pairs = self.shape.row_bytes // (2 * PIECE_BYTES)
        return [first] + [
            Pointer(self.ctx.xor(first.base, i * 2 * PIECE_BYTES), first.type, first.space, first.offset, first.name)
            for i in range(1, pairs)
        ]

    def _piece(self, lanes: list[Pointer], number: int) -> Pointer:
        """Pair `number` of a key's pieces: rows of all keys of a box, then the next rows of all."""
        span, pair = divmod(number, len(lanes))
        return lanes[pair].shifted(span * self.shape.box_rows * self.shape.row_bytes)

    def _update(self, stage: Pointer, scores: list[Register], keys: Register | None) -> None:
        """Update maxima, totals and sums with 16 more keys; with `keys`, only that many of the tile exist."""
        ctx = self.ctx
        if keys is not None:
            scores = self._masked(scores, keys)
        weights: list[Register] = [scores[0]] * 8
        for half in range(2):
            mine = [i for i in range(8) if i // 2 % 2 == half]
            new = ctx.max(scores[mine[0]], scores[mine[1]])
            for i in mine[2:]:
                ctx.max_(new, scores[i])
            for step in (1, 2):
                ctx.max_(new, ctx.shfl_bfly(new, step, mask=FULL_MASK))
            ctx.max_(new, self.largest[half])
            correction = ctx.ex2(self.largest[half] - new, ftz=True)
            self.largest[half].set(new)
            for i in mine:
                weights[i] = ctx.ex2(scores[i] - new, ftz=True)
            part = (weights[mine[0]] + weights[mine[1]]) + (weights[mine[2]] + weights[mine[3]])
            ctx.fma(self.total[half], correction, part, out=self.total[half])
            for registers in self.sums:
                for i in (2 * half, 2 * half + 1):
                    registers[i] *= correction
        packed = [ctx.cvt_pack(f"{self.multiplied}x2", weights[i + 1], weights[i]).bits("b32") for i in range(0, 8, 2)]
        self._add_values(stage, packed, keys)

    def _masked(self, scores: list[Register], keys: Register) -> list[Register]:
        """Scores of missing keys become minus infinity."""
        ctx = self.ctx
        left = keys.to("s32") - (self.first_key + self.column).to("s32")
        return [ctx.selp(score, float("-inf"), left > i // 4 * OCTET + i % 2) for i, score in enumerate(scores)]

    def _add_values(self, stage: Pointer, weights: list[Register], keys: Register | None) -> None:
        """Add the values of 16 more keys to the sums; missing ones are set to zero, since 0 times NaN is NaN."""
        ctx = self.ctx
        lanes = self._turned(stage.shifted(self.shape.tile_bytes), self.value_lane)
        present = None if keys is None else self._present(keys)
        for depth in range(self.shape.head_size // DEPTH):
            values = list(ctx.ldmatrix(self._piece(lanes, depth), 4, trans=True))
            if present is not None:
                values = [value & present[i % 2] for i, value in enumerate(values)]
            for half in range(2):
                sums = self.sums[2 * depth + half]
                ctx.mma("m16n8k16", weights, values[2 * half : 2 * half + 2], sums, types=self.types, out=tuple(sums))

    def _present(self, keys: Register) -> list[Register]:
        """Masks of a register with two keys' values, for eight keys and the next eight: ones where a key exists."""
        ctx = self.ctx
        found = []
        for octet in range(2):
            left = keys.to("s32") - (self.first_key + self.column).to("s32") - octet * OCTET
            both, one = ctx.const(0xFFFFFFFF, "b32"), ctx.const(0xFFFF, "b32")
            found.append(ctx.selp(both, ctx.selp(one, ctx.const(0, "b32"), left > 0), left > 1))
        return found

    def leave(self, sums: Pointer, states: Pointer) -> None:
        """Write the state to shared memory: sums [warp, group, size], states [warp, group, 2]."""
        ctx, shape = self.ctx, self.shape
        for half in range(2 if shape.group > OCTET else 1):
            total = self.total[half]
            for step in (1, 2):
                total += ctx.shfl_bfly(total, step, mask=FULL_MASK)
            row = self.row + half * OCTET
            mine = ctx.mad(self.warp, shape.group, row)
            with ctx.if_(row < shape.group):
                self._leave_sums(sums + mine * shape.head_size, half)
                with ctx.if_(self.column == 0):
                    ctx.store(states, (self.largest[half], total), mine * 2)

    def _leave_sums(self, row: Pointer, half: int) -> None:
        target = row + self.column
        for number, registers in enumerate(self.sums):
            self.ctx.store(target[number * OCTET], (registers[2 * half], registers[2 * half + 1]))
