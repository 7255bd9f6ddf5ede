"""A computing group of four warps of the forward kernel: 64 rows of the state, and of all that has as many."""

from collections.abc import Sequence
from dataclasses import dataclass

from kernbench.kernels.attention import ROW_BYTES, SPAN, first_element
from kernbench.kernels.gated_delta_rule.shape import CHUNK, ForwardShape
from kernbench.ptx.builder import Context, Pointer, Predicate, Register
from kernbench.ptx.builder.matrix.tiles import MatrixDescriptor
from kernbench.ptx.builder.matrix.tiles import Tile as Matrix

WARP, GROUP = 32, 128
DEPTH, OCTET = 16, 8
PIECE_BYTES = 16
# bytes of 64 rows of 128: a panel of every operand, and all of a tile with 64 columns
PANEL_BYTES = CHUNK * ROW_BYTES
# chunks whose weights and gates are in shared memory
AHEAD = 2
# barrier of the group that computes weights; those of the others follow
WEIGHTS_BARRIER = 1


@dataclass(frozen=True)
class Operands:
    """The ring: shared memory of all stages for q, k, v and the inverse, by name."""

    tiles: dict[str, Matrix]

    @staticmethod
    def depth(shape: ForwardShape, name: str, groups: int) -> int:
        """Elements of an operand's row; of v those of the CTA's groups."""
        return {"v": groups * CHUNK, "inverses": CHUNK}.get(name, shape.key_size)

    @classmethod
    def nbytes(cls, shape: ForwardShape, names: Sequence[str], groups: int) -> int:
        """Bytes of one stage."""
        return sum(cls.depth(shape, name, groups) // SPAN for name in names) * PANEL_BYTES

    @classmethod
    def at(
        cls, ctx: Context, start: Pointer, shape: ForwardShape, stages: int, names: Sequence[str], groups: int
    ) -> "Operands":
        """Allocate the operands one after the other."""
        tiles = {}
        for name in names:
            depth = cls.depth(shape, name, groups)
            tiles[name] = ctx.shared_tile(shape.dtype, CHUNK, depth, stages=stages, at=start)
            start = start.shifted(stages * tiles[name].nbytes)
        return cls(tiles)


class Between:
    """Results of the group that computes weights, for two chunks: weights, and powers of the gates.

    `decay` are e^G, `carried` the same times the scale, `late` e^(G[last] - G), 64 each. With queries, each
    group has a tile for its output.
    """

    def __init__(self, ctx: Context, start: Pointer, shape: ForwardShape):
        self.weights = ctx.shared_tile(shape.dtype, CHUNK, CHUNK, stages=AHEAD, at=start)
        self.outputs = start.shifted(AHEAD * PANEL_BYTES)
        names = ("decay", "carried", "late")
        self.decay, self.carried, self.late = (ctx.shared("f32", AHEAD * CHUNK, name=name) for name in names)
        self.ready, self.free = (ctx.mbarriers(AHEAD, name=name) for name in ("ready", "free"))

    @staticmethod
    def nbytes(groups: int, queries: bool) -> int:
        """Bytes of dynamic shared memory."""
        return (AHEAD + groups) * PANEL_BYTES if queries else 0


class Group:
    """A lane has two columns of every eight, in two rows eight apart: rows are those of the state, columns tokens."""

    def __init__(
        self, ctx: Context, shape: ForwardShape, ring: Operands, between: Between, head: Register, first: Register
    ):
        self.ctx, self.shape, self.ring, self.between, self.head = ctx, shape, ring, between, head
        self.local, self.thread, self.lane = ctx.tid_x // GROUP, ctx.tid_x % GROUP, ctx.tid_x % WARP
        # index of this group's 64 rows of the state, among those of all CTAs
        self.number = self.local + first
        self.row, self.column = first_element(ctx, self.thread)
        self.types = f"f32.{shape.dtype}.{shape.dtype}"
        tiles = ring.tiles
        self.k, self.inverse = (ctx.wgmma_descriptor(tiles[name]) for name in ("k", "inverses"))
        # queries are for the output; without values only the matrix of a segment is computed
        self.q = ctx.wgmma_descriptor(tiles["q"]) if "q" in tiles else None
        # keys again, as the right operand of a product over tokens
        over = ctx.shared_tile(
            shape.dtype, shape.key_size, CHUNK, major="MN", stages=tiles["k"].stages, at=tiles["k"].pointer
        )
        self.k_over_tokens = ctx.wgmma_descriptor(over)
        self.weights = ctx.wgmma_descriptor(between.weights) if self.q is not None else None
        self.state = list(ctx.wgmma_accumulator(shape.key_size))
        # the state as operand of products, and the output of the chunk before
        self.rounded, self.leaving = (
            [ctx.const(0, "b32") for _ in range(size // 4)] for size in (shape.key_size, CHUNK)
        )
        self.recalled, self.sums, self.new = (list(ctx.wgmma_accumulator(CHUNK)) for _ in range(3))

    def meet(self) -> None:
        """A barrier of the group."""
        self.ctx.bar_sync(self.local + (WEIGHTS_BARRIER + 1), GROUP)

    # The state

    def begin(self, item: Register | None) -> None:
        """Load the initial state; without an index zeros, or, without values, the identity."""
        ctx = self.ctx
        if item is not None:
            source = ctx.pointer("initial_ptr", "f32")
            with ctx.if_(source.base != 0):
                for i, where in self._state_elements(source, item):
                    ctx.load(where, vec=2, out=(self.state[i], self.state[i + 1]))
        elif "v" not in self.ring.tiles:
            beyond = ctx.mad(self.number, CHUNK, self.row).to("s32") - self.column.to("s32")
            for i, register in enumerate(self.state):
                row, column = i // 2 % 2 * OCTET, i // 4 * OCTET + i % 2
                register.set(ctx.selp(ctx.const(1.0, "f32"), 0.0, beyond == column - row))
        self._round(self.rounded, self.state)

    def end(self, item: Register, wanted: Predicate) -> None:
        """Store the final state, if wanted, when the last output has been read."""
        ctx = self.ctx
        with ctx.if_(wanted):
            for i, where in self._state_elements(ctx.pointer("final_ptr", "f32"), item):
                ctx.store(where, (self.state[i], self.state[i + 1]))
        if self.q is not None:
            ctx.bulk_wait(0, read=True, pred=self.thread == 0)

    def _state_elements(self, states: Pointer, item: Register) -> list[tuple[int, Pointer]]:
        """Pairs of this thread's elements, and their addresses."""
        ctx, shape = self.ctx, self.shape
        rows = shape.value_size if "v" in self.ring.tiles else shape.key_size
        mine = states + item.to("u64") * (rows * shape.key_size)
        row = ctx.mad(self.number, CHUNK, self.row)
        start = mine + ctx.mad(row, shape.key_size, self.column)
        return [
            (i, start + (i // 2 % 2 * OCTET * shape.key_size + i // 4 * OCTET)) for i in range(0, len(self.state), 2)
        ]

    # A chunk

    def recall(self, stage: Register) -> None:
        """Begin S k^T; the left operand is the rounded state in registers."""
        self.ctx.wgmma_fence()
        self._product(self.recalled, self.rounded, self.k.at(stage=stage), fresh=True)

    def _round(self, rounded: list[Register], values: list[Register]) -> None:
        for register, value in zip(rounded, self._packed(values), strict=True):
            register.set(value)

    def carry(self, stage: Register) -> None:
        """Begin S q^T."""
        assert self.q is not None
        self.ctx.wgmma_fence()
        self._product(self.sums, self.rounded, self.q.at(stage=stage), fresh=True)

    def change(self, stage: Register, buffer: Register) -> None:
        """Compute V', the output, and the state after the chunk; V' and the state are also rounded."""
        ctx = self.ctx
        ctx.wgmma_wait(1 if self.q is not None else 0)
        left = self._packed(self._changes(stage, self._columns(self.between.decay, buffer)))
        ctx.wgmma_fence()
        self._product(self.new, left, self.inverse.at(stage=stage), fresh=True)
        if self.q is not None:
            # S q^T is done, V' in flight
            ctx.wgmma_wait(1)
            carried = self._columns(self.between.carried, buffer)
            for i, register in enumerate(self.sums):
                register *= carried[i // 4 * 2 + i % 2]
        ctx.wgmma_wait(0)
        if self.weights is not None:
            right = self._packed(self.new)
            ctx.wgmma_fence()
            self._product(self.sums, right, self.weights.at(stage=buffer))
        whole = ctx.load(self.between.decay + ctx.mad(buffer, CHUNK, CHUNK - 1))
        for register in self.state:
            register *= whole
        late = self._columns(self.between.late, buffer)
        last = self._packed([value * late[i // 4 * 2 + i % 2] for i, value in enumerate(self.new)])
        ctx.wgmma_fence()
        self._product(self.state, last, self.k_over_tokens.at(stage=stage))
        if self.q is not None:
            ctx.wgmma_wait(1)
            self._round(self.leaving, self.sums)
        ctx.wgmma_wait(0)
        self._round(self.rounded, self.state)

    def _changes(self, stage: Register, decay: list[Register]) -> list[Register]:
        """Y = v^T - e^G (S k^T)."""
        ctx, values = self.ctx, self._values(stage)
        changes = []
        for i, one in enumerate(self.recalled):
            factor = decay[i // 4 * 2 + i % 2]
            changes.append(ctx.fma(-factor, one, values[i]) if values else -(factor * one))
        return changes

    def _product(self, sums: list[Register], a: list[Register], b: MatrixDescriptor, fresh: bool = False) -> None:
        """Begin a product as a group of its own."""
        for depth in range(0, 4 * len(a), DEPTH):
            left, more = a[depth // 4 : depth // 4 + 4], depth > 0 or not fresh
            shape = f"m64n{2 * len(sums)}k{DEPTH}"
            self.ctx.wgmma(shape, sums, left, b.at(k=depth), types=self.types, accumulate=more)
        self.ctx.wgmma_commit()

    def _columns(self, source: Pointer, buffer: Register) -> list[Register]:
        """Values of a chunk's tokens for this lane's columns."""
        ctx = self.ctx
        start = source + ctx.mad(buffer, CHUNK, self.column)
        return [one for octet in range(0, CHUNK, OCTET) for one in ctx.load(start[octet], vec=2)]

    def _values(self, stage: Register) -> list[Register]:
        """This thread's values of a chunk, in the accumulator's layout; zeros without values."""
        ctx = self.ctx
        if "v" not in self.ring.tiles:
            return []
        panel = self.ring.tiles["v"].stage(stage).pointer.retyped("b8") + self.local * PANEL_BYTES
        start = self._turned(panel)
        words = [
            word
            for octet in range(0, CHUNK // OCTET, 2)
            for word in ctx.ldmatrix(start.shifted(octet * OCTET * ROW_BYTES), 4, trans=True)
        ]
        return [one.to("f32") for word in words for one in ctx.unpack(word, self.shape.dtype)]

    def _packed(self, values: list[Register]) -> list[Register]:
        """Two columns per register."""
        form = f"{self.shape.dtype}x2"
        return [self.ctx.cvt_pack(form, values[i + 1], values[i]).bits("b32") for i in range(0, len(values), 2)]

    def _turned(self, panel: Pointer) -> Pointer:
        """The address that this lane passes to stmatrix for 16 tokens of a panel, in its warp's 16 columns,
        swizzled.
        """
        token = ((self.lane >> 4) << 3) + (self.lane & 7)
        piece = (((self.thread >> 5) << 1) + ((self.lane >> 3) & 1)) ^ (self.lane & 7)
        found: Pointer = panel + (token * ROW_BYTES + piece * PIECE_BYTES)
        return found

    # The output

    def store(self, row: Register) -> None:
        """Store the output of a whole chunk, from its first row on, by a bulk store."""
        ctx = self.ctx
        tile = self._stage_output()
        ctx.fence_proxy_async()
        self.meet()
        with ctx.if_(self.thread == 0):
            ctx.tma_store(ctx.tensor_map("out_map"), (0, row, self.number, self.head), tile)
            ctx.bulk_commit()

    def store_rows(self, row: Register, length: Register) -> None:
        """Store the output of the rows of a ragged chunk, piece by piece."""
        ctx, shape, threads = self.ctx, self.shape, ROW_BYTES // PIECE_BYTES
        tile = self._stage_output().retyped("b32")
        self.meet()
        out, part = ctx.pointer("out_ptr", "b32"), self.thread % threads
        with ctx.loop(self.thread // threads, length, GROUP // threads) as line:
            piece = (part ^ (line & 7)) * (PIECE_BYTES // 4)
            words = ctx.load(tile + ctx.mad(line, ROW_BYTES // 4, piece), vec=4)
            first = ctx.mad(row + line, shape.v_heads, self.head).to("u64") * (shape.value_size // 2)
            column = ctx.mad(self.number, CHUNK // 2, part * (PIECE_BYTES // 4))
            ctx.store(out + (first + column.to("u64")), words)

    def _stage_output(self) -> Pointer:
        """Write the rounded output to shared memory, when the one before has been read."""
        ctx = self.ctx
        tile: Pointer = self.between.outputs + self.local * PANEL_BYTES
        ctx.bulk_wait(0, read=True, pred=self.thread == 0)
        self.meet()
        start = self._turned(tile)
        for i in range(0, len(self.leaving), 4):
            ctx.stmatrix(start.shifted(i // 2 * OCTET * ROW_BYTES), self.leaving[i : i + 4], trans=True)
        return tile
