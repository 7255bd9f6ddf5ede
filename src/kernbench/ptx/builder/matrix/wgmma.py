"""Matrix products of a warpgroup (sm_90a): accumulators in registers, operands in shared memory or registers.

```python
d = ctx.wgmma_accumulator(128)
a, b = ctx.wgmma_descriptor(a_tile), ctx.wgmma_descriptor(b_tile)
ctx.wgmma_fence()
for k in range(0, 64, 16):
    ctx.wgmma("m64n128k16", d, a.at(k=k), b.at(k=k), types="f32.bf16.bf16")
ctx.wgmma_commit()
ctx.wgmma_wait()
```
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Unpack

from kernbench.ptx.builder.matrix.tiles import MatrixDescriptor, Tiles
from kernbench.ptx.builder.values.options import Condition, Warpgroup
from kernbench.ptx.builder.values.values import Register

__kernbench_internal__ = True

# an operand in shared memory: its descriptor, or the 64 bits of one
Factor = MatrixDescriptor | Register

_SYNC = {"sync": True, "aligned": True}
_ROWS = 64
# types of A that allow scales, and those that also allow transposition
_SCALED = frozenset(("f16", "bf16", "tf32", "e4m3", "e5m2"))
_TRANSPOSED = frozenset(("f16", "bf16"))


@dataclass(frozen=True, eq=False)
class AccumulatorPlace:
    """The positions of a thread's accumulator elements in D: element i is at `row(i)` and `column(i)`.

    Elements are numbered in register order, two for each register of f16; `first_row` and `first_column` are those of
    element 0.
    """

    first_row: Register
    first_column: Register

    @staticmethod
    def offset(i: int) -> tuple[int, int]:
        """Rows and columns from element 0 to element i."""
        return 8 * (i // 2 & 1), 8 * (i // 4) + (i & 1)

    def row(self, i: int) -> Register:
        """The row of element i, 0 to 63."""
        rows, _ = self.offset(i)
        return self.first_row + rows if rows else self.first_row

    def column(self, i: int) -> Register:
        """The column of element i."""
        _, columns = self.offset(i)
        return self.first_column + columns if columns else self.first_column


class Wgmma(Tiles):
    """wgmma.mma_async and its synchronisation; all threads of the warpgroup execute these."""

    def wgmma_accumulator(self, n: int, type: str = "f32") -> tuple[Register, ...]:
        """Registers of D for n columns, set to zero: n/2 of f32 or s32, n/4 pairs of f16."""
        if not isinstance(n, int) or not 8 <= n <= 256 or n % 8:
            raise self.error(f"wgmma has a multiple of 8 columns from 8 to 256, not {n!r}")
        if type not in ("f32", "s32", "f16"):
            raise self.error(f"wgmma accumulates in f32, f16 or s32, not {type!r}")
        held, count = ("b32", n // 4) if type == "f16" else (type, n // 2)
        return tuple(self.const(0, held) for _ in range(count))

    def wgmma_place(self, thread: Register | None = None) -> AccumulatorPlace:
        """The positions of this thread's accumulator elements; `thread` is its number in the warpgroup, else %tid.x."""
        context: Any = self
        number = context.tid_x if thread is None else thread
        lane = number & 31
        return AccumulatorPlace(((number >> 5) & 3) * 16 + (lane >> 2), (lane & 3) * 2)

    def wgmma_fence(self) -> None:
        """Order registers and earlier products before the products that follow."""
        self.issue("wgmma", {"op": "fence", **_SYNC}, ())

    def wgmma_commit(self) -> None:
        """Put the products started since the last commit into a group."""
        self.issue("wgmma", {"op": "commit_group", **_SYNC}, ())

    def wgmma_wait(self, groups: int = 0) -> None:
        """Wait until at most `groups` groups are in flight; then the accumulators of the others may be read."""
        self.issue("wgmma", {"op": "wait_group", **_SYNC}, (groups,))

    def wgmma(
        self,
        shape: str,
        d: Sequence[Register],
        a: Factor | Sequence[Register],
        b: Factor,
        *,
        types: str,
        accumulate: bool | Condition = True,
        negate_a: bool = False,
        negate_b: bool = False,
        trans_a: bool | None = None,
        trans_b: bool | None = None,
        sparse: tuple[Register, int] | None = None,
        **how: Unpack[Warpgroup],
    ) -> None:
        """Start D = A B + D (or A B): `types` are those of D, A and B, "f32.bf16.bf16".

        A is a descriptor or four registers, B a descriptor. Descriptors of tiles include whether they are MN-major; for
        64-bit registers `trans_a` and `trans_b` do. `sparse` are the metadata and the selector of a sparse A.
        """
        named = str(types).split(".")
        if len(named) != 3:
            raise self.error(f"types={types!r}: three types are wanted, those of D, A and B: 'f32.bf16.bf16'")
        slots = {"mma_async": True, **_SYNC, "shape": shape, "sp": sparse is not None, **how}
        slots |= dict(zip(("dtype", "atype", "btype"), named, strict=True))
        if named[1] == "b1":
            slots |= {"op": "and", "popc": True}
        n, k = self._extents(shape)
        held = k if sparse is None else k // 2
        in_registers = isinstance(a, (tuple, list))
        left: object = a
        transposed_a = False
        if not in_registers:
            left, transposed_a = self._operand("A", a, _ROWS, held, named[1], trans_a)
        right, transposed_b = self._operand("B", b, n, k, named[2], trans_b)
        transposes = (transposed_b,) if in_registers else (transposed_a, transposed_b)
        tail = self._tail(named[1], (negate_a, negate_b), transposes)
        given = (tuple(d), left, right, *(sparse or ()), self.enabled(accumulate), *tail)
        self.issue("wgmma", slots, given)

    def _extents(self, shape: str) -> tuple[int, int]:
        columns, _, depth = str(shape).removeprefix("m64n").partition("k")
        if not (str(shape).startswith("m64n") and columns.isdecimal() and depth.isdecimal()):
            raise self.error(f"{shape!r} is no shape of wgmma; write it like m64n128k16")
        return int(columns), int(depth)

    def _operand(
        self, which: str, value: object, rows: int, k: int, type: str, trans: bool | None, unit: str = "wgmma"
    ) -> tuple[Register, bool]:
        """The register of a descriptor, and whether it is MN-major; checked against its tile, if that is known."""
        if isinstance(value, Register):
            return value, bool(trans)
        if not isinstance(value, MatrixDescriptor) or value.unit != unit:
            raise self.error(f"{unit}: {which} is {value!r}, and a descriptor of ctx.{unit}_descriptor(tile) is wanted")
        tile = value.tile
        if tile.type != type:
            raise self.error(f"{unit}: the tile of {which} holds {tile.type}, and the instruction multiplies {type}")
        if value.row + rows > tile.rows or value.k + k > tile.depth:
            raise self.error(
                f"{unit} reads {rows} rows and depth {k} of {which} from ({value.row}, {value.k}) on, and the tile has "
                f"{tile.rows} rows and depth {tile.depth}"
            )
        if trans is not None and trans != (tile.major == "MN"):
            raise self.error(f"{unit}: trans of {which} is {trans}, and its tile is {tile.major}-major: leave it out")
        return value.register, tile.major == "MN"

    def _tail(self, type: str, negate: tuple[bool, bool], transposes: tuple[bool, ...]) -> tuple[int, ...]:
        if type not in _SCALED and any(negate):
            raise self.error(f"wgmma of {type} cannot negate an operand")
        if type not in _TRANSPOSED and any(transposes):
            raise self.error(f"wgmma of {type} reads K-major tiles only; f16 and bf16 may be MN-major")
        scales = tuple(-1 if negated else 1 for negated in negate) if type in _SCALED else ()
        return (*scales, *(map(int, transposes) if type in _TRANSPOSED else ()))

    def enabled(self, accumulate: bool | Condition) -> Register | Condition:
        """A predicate for a Python truth value, or the given one."""
        if isinstance(accumulate, (bool, int)):
            return self.const(int(bool(accumulate)), "pred")
        return accumulate
