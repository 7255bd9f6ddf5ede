"""What a group of four warps of the forward kernel does: 64 rows of the state, and 64 columns of all else."""

from collections.abc import Sequence
from dataclasses import dataclass

from kernbench.kernels.attention import LOG2_E, ROW_BYTES, SPAN, first_element
from kernbench.kernels.gated_delta_rule.shape import CHUNK, ForwardShape
from kernbench.ptx.builder import Context, Pointer, Predicate, Register
from kernbench.ptx.builder.matrix.tiles import MatrixDescriptor
from kernbench.ptx.builder.matrix.tiles import Tile as Matrix

WARP, GROUP = 32, 128
DEPTH, OCTET = 16, 8
PIECE_BYTES = 16
# bytes of 64 rows of 128: a panel of every operand, and all of a tile with 64 columns
PANEL_BYTES = CHUNK * ROW_BYTES
# the barrier of all groups; those of each come behind it
_ALL = 1


@dataclass(frozen=True)
class Operands:
    """The ring: shared memory for q, k, v and the inverse of so many stages, by name."""

    tiles: dict[str, Matrix]

    @staticmethod
    def nbytes(shape: ForwardShape, names: Sequence[str]) -> int:
        """Bytes of one stage."""
        return sum(_depth(shape, name) // SPAN for name in names) * PANEL_BYTES

    @classmethod
    def at(cls, ctx: Context, start: Pointer, shape: ForwardShape, stages: int, names: Sequence[str]) -> "Operands":
        """One operand behind the other."""
        tiles = {}
        for name in names:
            depth = _depth(shape, name)
            tiles[name] = ctx.shared_tile(shape.dtype, CHUNK, depth, stages=stages, at=start)
            start = start.shifted(stages * tiles[name].nbytes)
        return cls(tiles)


def _depth(shape: ForwardShape, name: str) -> int:
    """Elements of an operand's row."""
    return {"q": shape.key_size, "k": shape.key_size, "v": shape.value_size, "inverses": CHUNK}[name]


class Memory:
    """Shared memory of a group's own: its rows of the state, and three tiles of 64 tokens and 64 columns.

    `change` is Y, and then the output; `new` is V', `late` V' as it is at the chunk's end.
    """

    def __init__(self, ctx: Context, start: Pointer, shape: ForwardShape, groups: int):
        number = ctx.tid_x // GROUP
        mine = start + number * (Memory.nbytes(shape) - 2 * CHUNK * 4)
        self.state = ctx.shared_tile(shape.dtype, CHUNK, shape.key_size, at=mine)
        after = [mine.shifted((shape.spans + i) * PANEL_BYTES) for i in range(3)]
        self.change, self.new, self.late = after
        gates = start.shifted(groups * (Memory.nbytes(shape) - 2 * CHUNK * 4)).retyped("f32")
        self.gates = gates + number * (2 * CHUNK)

    @staticmethod
    def nbytes(shape: ForwardShape) -> int:
        """Bytes of one group, with the gates of a chunk and of the one before."""
        return (shape.spans + 3) * PANEL_BYTES + 2 * CHUNK * 4


class Group:
    """A lane has two columns of every eight, in two rows eight apart."""

    def __init__(self, ctx: Context, shape: ForwardShape, ring: Operands, own: Pointer, groups: int):
        self.ctx, self.shape, self.ring, self.groups = ctx, shape, ring, groups
        self.memory = Memory(ctx, own, shape, groups)
        self.number, self.thread, self.lane = ctx.tid_x // GROUP, ctx.tid_x % GROUP, ctx.tid_x % WARP
        self.row, self.column = first_element(ctx, self.thread)
        self.types = f"f32.{shape.dtype}.{shape.dtype}"
        tiles = ring.tiles
        self.k, self.inverse = (ctx.wgmma_descriptor(tiles[name]) for name in ("k", "inverses"))
        # with queries there is an output; without values, what a state becomes of itself alone
        self.q = ctx.wgmma_descriptor(tiles["q"]) if "q" in tiles else None
        # keys once more, as the right side of a product over tokens
        over = ctx.shared_tile(
            shape.dtype, shape.key_size, CHUNK, major="MN", stages=tiles["k"].stages, at=tiles["k"].pointer
        )
        self.k_over_tokens = ctx.wgmma_descriptor(over)
        self.state_before = ctx.wgmma_descriptor(self.memory.state)
        self.change, self.new, self.late = (
            ctx.wgmma_descriptor(ctx.shared_tile(shape.dtype, CHUNK, CHUNK, major="MN", at=pointer))
            for pointer in (self.memory.change, self.memory.new, self.memory.late)
        )
        self.state = list(ctx.wgmma_accumulator(shape.key_size))
        self.gate = ctx.const(0.0, "f32")

    def meet(self) -> None:
        """A barrier of the group."""
        self.ctx.bar_sync(self.number + (_ALL + 1), GROUP)

    # The state

    def begin(self, item: Register | None) -> None:
        """The initial state; without a number, zeros, or, where no values come, the identity."""
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
        self.keep_state()

    def end(self, item: Register, wanted: Predicate) -> None:
        """The final state, where it is asked for, when the last output has been read."""
        ctx = self.ctx
        with ctx.if_(wanted):
            for i, where in self._state_elements(ctx.pointer("final_ptr", "f32"), item):
                ctx.store(where, (self.state[i], self.state[i + 1]))
        if self.q is not None:
            ctx.bulk_wait(0, read=True, pred=self.thread == 0)

    def _state_elements(self, states: Pointer, item: Register) -> list[tuple[int, Pointer]]:
        """Pairs of this thread's elements, and where they lie."""
        ctx, shape = self.ctx, self.shape
        mine = states + item.to("u64") * (self.groups * CHUNK * shape.key_size)
        row = ctx.mad(self.number, CHUNK, self.row)
        start = mine + ctx.mad(row, shape.key_size, self.column)
        return [
            (i, start + (i // 2 % 2 * OCTET * shape.key_size + i // 4 * OCTET)) for i in range(0, len(self.state), 2)
        ]

    def keep_state(self) -> None:
        """The state, rounded, to where the next chunk's products read it."""
        self._to_shared(self.memory.state.pointer.retyped("b8"), self._packed(self.state))
        self.ctx.fence_proxy_async()
        self.meet()

    # Gates

    def look(self, start: Register, length: Register) -> None:
        """Ask for G of a chunk's rows: row number `thread`, behind the end that of the last; nothing for no rows."""
        ctx = self.ctx
        last = ctx.min(self.thread, length - 1)
        where = ctx.mad(start + last, self.shape.v_heads, ctx.ctaid_x)
        wanted = (self.thread < CHUNK) & (length > 0)
        ctx.load(ctx.pointer("gates_ptr", "f32"), where, mask=wanted, out=self.gate)

    def share_gates(self, start: Register, length: Register) -> None:
        """What was asked for in shared memory, beside the gates of the chunk before, which may still be read."""
        ctx, gates = self.ctx, self.memory.gates
        self.start, self.length = start, length
        ctx.xor(gates.base, CHUNK * 4, out=gates.base)
        ctx.store(gates, self.gate, self.thread, mask=self.thread < CHUNK)
        self.meet()
        rows = gates + self.row
        self.own = [ctx.load(rows[half * OCTET]) for half in range(2)]
        self.last = ctx.load(gates[CHUNK - 1])
        self.decay = [ctx.ex2(gate * LOG2_E) for gate in self.own]

    # A chunk

    def multiply(self, stage: Register) -> None:
        """Everything that a chunk needs; when it returns, the stage is no longer read, and the state has moved on."""
        ctx = self.ctx
        self._clear_tail(stage)
        state, k = self.state_before, self.k.at(stage=stage)
        recalled, scores, sums = (list(ctx.wgmma_accumulator(CHUNK)) for _ in range(3))
        ctx.wgmma_fence()
        self._product(recalled, k, state, self.shape.key_size, fresh=True)
        if self.q is not None:
            q = self.q.at(stage=stage)
            self._product(scores, q, k, self.shape.key_size, fresh=True)
            self._product(sums, q, state, self.shape.key_size, fresh=True)
        ctx.wgmma_wait(2 if self.q is not None else 0)
        self._make_change(recalled, stage)
        new = list(ctx.wgmma_accumulator(CHUNK))
        ctx.wgmma_fence()
        self._product(new, self.inverse.at(stage=stage), self.change, CHUNK, fresh=True)
        weights: list[Register] = []
        if self.q is not None:
            # the scores are there; what is carried and V' are still under way
            ctx.wgmma_wait(2)
            weights = self._weights(scores)
        ctx.wgmma_wait(0)
        if self.q is not None:
            for i, register in enumerate(sums):
                register *= self.decay[i // 2 % 2]
        self._keep_new(new)
        self._outputs_and_state(sums, weights, stage)

    def _outputs_and_state(self, sums: list[Register], weights: list[Register], stage: Register) -> None:
        """Both products with V'; the output leaves while the state is multiplied."""
        ctx = self.ctx
        if self.q is not None:
            ctx.wgmma_fence()
            for depth in range(0, CHUNK, DEPTH):
                left = weights[depth // 4 : depth // 4 + 4]
                ctx.wgmma(f"m64n{CHUNK}k{DEPTH}", sums, left, self.new.at(k=depth), types=self.types)
            ctx.wgmma_commit()
        whole = ctx.ex2(self.last * LOG2_E)
        for register in self.state:
            register *= whole
        ctx.wgmma_fence()
        self._product(self.state, self.late, self.k_over_tokens.at(stage=stage), CHUNK)
        if self.q is not None:
            ctx.wgmma_wait(1)
            self._store(sums)
        ctx.wgmma_wait(0)

    def _product(
        self, sums: list[Register], a: MatrixDescriptor, b: MatrixDescriptor, depths: int, fresh: bool = False
    ) -> None:
        """Begin a product, a group of its own."""
        for depth in range(0, depths, DEPTH):
            shape, more = f"m64n{2 * len(sums)}k{DEPTH}", depth > 0 or not fresh
            self.ctx.wgmma(shape, sums, a.at(k=depth), b.at(k=depth), types=self.types, accumulate=more)
        self.ctx.wgmma_commit()

    def _clear_tail(self, stage: Register) -> None:
        """Zeros for keys that are another sequence's: zero times NaN would be NaN. All groups, some rows each."""
        ctx, threads = self.ctx, ROW_BYTES // PIECE_BYTES
        with ctx.if_(self.length < CHUNK):
            keys, zero = self.ring.tiles["k"].stage(stage).pointer.retyped("u32"), ctx.const(0, "u32")
            with ctx.loop(self.length + (ctx.tid_x >> 3), CHUNK, self.groups * GROUP // threads) as row:
                piece = keys + ctx.mad(row, ROW_BYTES // 4, (ctx.tid_x & threads - 1) * (PIECE_BYTES // 4))
                for span in range(self.shape.spans):
                    ctx.store(piece.shifted(span * PANEL_BYTES), (zero,) * (PIECE_BYTES // 4))
            ctx.fence_proxy_async()
            ctx.bar_sync(_ALL, self.groups * GROUP)

    def _make_change(self, recalled: list[Register], stage: Register) -> None:
        """Y = v - e^G (k S^T), rounded; zeros behind the end, whatever lies there."""
        ctx = self.ctx
        there = [self.row + half * OCTET < self.length for half in range(2)]
        values = self._values(stage)
        changes = []
        for i, one in enumerate(recalled):
            half = i // 2 % 2
            value = ctx.fma(-self.decay[half], one, values[i]) if values else -(self.decay[half] * one)
            changes.append(ctx.selp(value, 0.0, there[half]))
        if self.q is not None:
            # the last output has left
            ctx.bulk_wait(0, read=True, pred=self.thread == 0)
            self.meet()
        self._to_shared(self.memory.change, self._packed(changes))
        ctx.fence_proxy_async()
        self.meet()

    def _values(self, stage: Register) -> list[Register]:
        """This thread's values of a chunk, as an accumulator has them; none where none come."""
        ctx = self.ctx
        if "v" not in self.ring.tiles:
            return []
        panel = self.ring.tiles["v"].stage(stage).pointer.retyped("b8") + self.number * PANEL_BYTES
        words = [word for octet in range(0, CHUNK // OCTET, 2) for word in ctx.ldmatrix(self._piece(panel, octet), 4)]
        return [one.to("f32") for word in words for one in ctx.unpack(word, self.shape.dtype)]

    def _weights(self, scores: list[Register]) -> list[Register]:
        """lower(scores * e^(G[i] - G[j])), two columns a register."""
        ctx, gates = self.ctx, self.memory.gates + self.column
        below = self.row.to("s32") - self.column.to("s32")
        packed = []
        for octet in range(0, CHUNK, OCTET):
            columns = ctx.load(gates[octet], vec=2)
            for half in range(2):
                pair = []
                for j, column in enumerate(columns):
                    # above the diagonal the exponential may overflow
                    weight = scores[octet // 2 + 2 * half + j] * ctx.ex2((self.own[half] - column) * LOG2_E)
                    pair.append(ctx.selp(weight, 0.0, below >= octet + j - half * OCTET))
                packed.append(ctx.cvt_pack(f"{self.shape.dtype}x2", pair[1], pair[0]).bits("b32"))
        return packed

    def _keep_new(self, new: list[Register]) -> None:
        """V', and V' as it is at the chunk's end, rounded, to where the products over tokens read them."""
        ctx = self.ctx
        if self.q is not None:
            self._to_shared(self.memory.new, self._packed(new))
        late = [ctx.ex2((self.last - own) * LOG2_E) for own in self.own]
        self._to_shared(self.memory.late, self._packed([value * late[i // 2 % 2] for i, value in enumerate(new)]))
        ctx.fence_proxy_async()
        self.meet()

    # Shared memory, and the output

    def _packed(self, values: list[Register]) -> list[Register]:
        """Two columns a register."""
        form = f"{self.shape.dtype}x2"
        return [self.ctx.cvt_pack(form, values[i + 1], values[i]).bits("b32") for i in range(0, len(values), 2)]

    def _piece(self, panel: Pointer, octet: int) -> Pointer:
        """What this lane names of two octets of columns of its warp's 16 rows, as the swizzle lays them."""
        row = ((self.thread >> 5) << 4) + (self.lane & 15)
        piece = ((self.lane >> 4) ^ (self.lane & 7)) * PIECE_BYTES
        found: Pointer = panel + row * ROW_BYTES + (piece ^ octet * PIECE_BYTES)
        return found

    def _to_shared(self, panel: Pointer, packed: list[Register]) -> None:
        """A group's rows, of one panel or of several."""
        for i in range(0, len(packed), 4):
            span, octet = divmod(i // 2, SPAN // OCTET)
            self.ctx.stmatrix(self._piece(panel.shifted(span * PANEL_BYTES), octet), packed[i : i + 4])

    def _store(self, sums: list[Register]) -> None:
        """scale times the sums: a whole chunk by a bulk store, the rows of a tail one by one."""
        ctx = self.ctx
        scale = ctx.param("scale")
        packed = self._packed([value * scale for value in sums])
        with ctx.if_(self.length == CHUNK):
            self._to_shared(self.memory.change, packed)
            ctx.fence_proxy_async()
            self.meet()
            with ctx.if_(self.thread == 0):
                ctx.tma_store(ctx.tensor_map("out_map"), (0, self.start, self.number, ctx.ctaid_x), self.memory.change)
                ctx.bulk_commit()
        with ctx.else_():
            self._store_rows(packed)

    def _store_rows(self, packed: list[Register]) -> None:
        ctx, shape = self.ctx, self.shape
        out = ctx.pointer("out_ptr", "b32")
        column = ctx.mad(self.number, CHUNK, self.column)
        for half in range(2):
            row = self.row + half * OCTET
            line = ctx.mad(self.start + row, shape.v_heads, ctx.ctaid_x).to("u64") * (shape.value_size // 2)
            target = out + line + column // 2
            for i in range(half, len(packed), 2):
                ctx.store(target[i // 2 * (OCTET // 2)], packed[i], mask=row < self.length)
