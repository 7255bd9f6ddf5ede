"""Keys and values of 8 bits (e4m3), multiplied as f16.

No element changes its lane. `ldmatrix` moves pairs of bytes like one element, so that a lane has four
neighbours of a key where a product of 16-bit elements needs two, and two that are eight further on. A sum over them
does not depend on their order: the queries are loaded in the order of the keys. Of the values a lane has pairs
of neighbouring columns; even and odd columns become two products, and the sums are interleaved when written.
"""

from kernbench.kernels.decode.softmax import DEPTH, PIECE_BYTES, Softmax
from kernbench.ptx.builder import Pointer, Predicate, Register

# two of four halves of two registers: the low ones, and the high ones
_LOW, _HIGH = 0x5410, 0x7632
# elements in two pieces of 16 bytes
_PAIR = 2 * PIECE_BYTES


class NarrowSoftmax(Softmax):
    """One warp's state, as for 16-bit elements; sums of even and odd columns of 16 alternate."""

    def _load_queries(self, row: Register, there: Predicate, half: int) -> None:
        """A lane's elements of a query: four neighbours of every 16, as f16."""
        ctx, dtype = self.ctx, self.shape.dtype
        source = self.queries + ctx.mad(row, self.shape.head_size, self.column * 2) // 2
        for step in range(self.shape.head_size // DEPTH):
            words = ctx.load(source[step * DEPTH // 2], vec=2, mask=there, other=(0, 0))
            for part, word in enumerate(words):
                if dtype != "f16":
                    low, high = (one.to("f32") for one in ctx.unpack(word, dtype))
                    word = ctx.cvt_pack("f16x2", high, low).bits("b32")
                self.fragments[4 * step + 2 * part + half].set(word)

    def _scores(self, stage: Pointer) -> list[Register]:
        """Scores of 16 keys, times log2(e) and the scale."""
        ctx = self.ctx
        scores = [[ctx.const(0.0, "f32") for _ in range(4)] for _ in range(2)]
        lanes = self._turned(stage, self.key_lane)
        for pair in range(self.shape.head_size // _PAIR):
            keys = ctx.ldmatrix(self._piece(lanes, pair), 4)
            for piece in range(2):
                queries = self.fragments[4 * (2 * pair + piece) : 4 * (2 * pair + piece) + 4]
                for half, sums in enumerate(scores):
                    wide = self._widened(keys[2 * half + piece])
                    ctx.mma("m16n8k16", queries, wide, sums, types=self.types, out=tuple(sums))
        return [score * self.scale for sums in scores for score in sums]

    def _widened(self, word: Register) -> list[Register]:
        """Convert four 8-bit elements to two registers of f16."""
        return [two.to("f16x2").bits("b32") for two in self.ctx.unpack(word, "e4m3x2")]

    def _add_values(self, stage: Pointer, weights: list[Register], keys: Register | None) -> None:
        """Add the values of 16 more keys to the sums; missing keys count as zeros."""
        ctx = self.ctx
        lanes = self._turned(stage.shifted(self.shape.tile_bytes), self.value_lane)
        present = None if keys is None else self._present(keys)
        for pair in range(self.shape.head_size // _PAIR):
            values = list(ctx.ldmatrix(self._piece(lanes, pair), 4, trans=True))
            if present is not None:
                values = [value & present[i % 2] for i, value in enumerate(values)]
            # for each: two columns of a key, and of the next
            wide = [self._widened(value) for value in values]
            for piece in range(2):
                mine = wide[2 * piece : 2 * piece + 2]
                for odd, chosen in enumerate((_LOW, _HIGH)):
                    sums = self.sums[2 * (2 * pair + piece) + odd]
                    right = [ctx.prmt(first, second, chosen) for first, second in mine]
                    ctx.mma("m16n8k16", weights, right, sums, types=self.types, out=tuple(sums))

    def _leave_sums(self, row: Pointer, half: int) -> None:
        target = row + self.column * 2
        for piece in range(self.shape.head_size // PIECE_BYTES):
            even, odd = (self.sums[2 * piece + i][2 * half : 2 * half + 2] for i in range(2))
            self.ctx.store(target[piece * PIECE_BYTES], (even[0], odd[0], even[1], odd[1]))
