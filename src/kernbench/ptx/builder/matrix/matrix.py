"""Matrix instructions of one warp. Fragments are tuples of registers."""

from collections.abc import Mapping, Sequence
from typing import Unpack

from kernbench.ptx.builder.issuing.issue import Issuer
from kernbench.ptx.builder.values.options import Computing, Fragments, Multiplying, Registers, Value, Values, Where
from kernbench.ptx.builder.values.pointer import location_of
from kernbench.ptx.builder.values.values import Register

__kernbench_internal__ = True

Fragment = tuple[Register, ...]


def _tuple(registers: Value | Sequence[Value]) -> tuple[Value, ...]:
    return tuple(registers) if isinstance(registers, Sequence) else (registers,)


class Matrix(Issuer):
    """mma, wmma, ldmatrix, stmatrix, movmatrix."""

    def ldmatrix(self, where: Where, num: int = 4, *, trans: bool = False, **how: Unpack[Fragments]) -> Fragment:
        """Load `num` 8 x 8 matrices of 16-bit elements from shared memory; each lane gives the address of one row."""
        slots = {"shape": "m8n8", "num": f"x{num}", "trans": trans, "type": "b16"}
        return self._fragment(self._matrix("ldmatrix", slots, where, (), how))

    def stmatrix(
        self, where: Where, values: Sequence[Register], *, trans: bool = False, **how: Unpack[Fragments]
    ) -> None:
        """Store 8 x 8 matrices of 16-bit elements to shared memory, one for each register of `values`."""
        slots = {"shape": "m8n8", "num": f"x{len(_tuple(values))}", "trans": trans, "type": "b16"}
        for value in _tuple(values):
            self.needs_register("stmatrix", value)
        self._matrix("stmatrix", slots, where, (_tuple(values),), how)

    def _matrix(
        self,
        opcode: str,
        slots: Mapping[str, object],
        where: Where,
        values: tuple[Values, ...],
        how: Fragments | Computing,
    ) -> Registers:
        location = location_of(where)
        space = {"space": (location.space or None) if location is not None else None}
        return self.issue(opcode, {"sync": True, "aligned": True, **slots, **space, **how}, (where, *values))

    def _fragment(self, result: Registers) -> Fragment:
        """A fragment of one register is a tuple, too."""
        return result if isinstance(result, tuple) else (result,)

    def movmatrix(self, value: Register, **how: Unpack[Computing]) -> Register:
        """An 8 x 8 matrix of 16-bit elements, transposed across the warp."""
        slots = {**how, "sync": True, "aligned": True, "shape": "m8n8", "trans": True, "type": "b16"}
        self.needs_register("movmatrix", value)
        return self.issue("movmatrix", slots, (value,), keep=value.type)  # type: ignore[no-any-return]

    def mma(
        self,
        shape: str,
        a: Sequence[Register],
        b: Sequence[Register],
        c: Sequence[Value],
        *,
        types: str,
        layouts: str = "row.col",
        **how: Unpack[Multiplying],
    ) -> Fragment:
        """D = A B + C; `types` are those of D, A, B and C: "f32.f16.f16.f32". `out=c` accumulates in place."""
        kinds = dict(zip(("dtype", "atype", "btype", "ctype"), self._four(types), strict=True))
        alayout, blayout = layouts.split(".")
        slots = {"sync": True, "aligned": True, "shape": shape, "alayout": alayout, "blayout": blayout, **kinds, **how}
        return self._fragment(self.issue("mma", slots, (_tuple(a), _tuple(b), _tuple(c))))

    def _four(self, types: str) -> list[str]:
        names = str(types).split(".")
        if len(names) != 4:
            raise self.error(f"types={types!r}: four types are wanted, those of D, A, B and C: 'f32.f16.f16.f32'")
        return names

    def wmma_load(
        self,
        matrix: str,
        shape: str,
        where: Where,
        type: str,
        stride: Value | None = None,
        *,
        layout: str = "row",
        **how: Unpack[Computing],
    ) -> Fragment:
        """Load fragment "a", "b" or "c" from memory, with rows (or columns) `stride` elements apart."""
        slots = {"load": True, "matrix": matrix, "layout": layout, "shape": shape, "type": type}
        return self._fragment(self._matrix("wmma", slots, where, () if stride is None else (stride,), how))

    def wmma_store(
        self,
        shape: str,
        where: Where,
        values: Sequence[Register],
        type: str,
        stride: Value | None = None,
        *,
        layout: str = "row",
        **how: Unpack[Computing],
    ) -> None:
        """Store fragment D to memory, with rows (or columns) `stride` elements apart."""
        slots = {"store": True, "matrix": "d", "layout": layout, "shape": shape, "type": type}
        self._matrix("wmma", slots, where, (_tuple(values), *(() if stride is None else (stride,))), how)

    def wmma_mma(
        self,
        shape: str,
        a: Sequence[Register],
        b: Sequence[Register],
        c: Sequence[Register],
        *,
        types: str,
        layouts: str = "row.col",
        **how: Unpack[Multiplying],
    ) -> Fragment:
        """D = A B + C of wmma fragments; `types` are those of D and C for f16 ("f32.f32"), else of D, A, B and C."""
        names = str(types).split(".")
        keys = ("dtype", "ctype") if len(names) == 2 else ("dtype", "atype", "btype", "ctype")
        if len(names) != len(keys):
            raise self.error(f"types={types!r}: the types of D and C, or of D, A, B and C, are wanted")
        alayout, blayout = layouts.split(".")
        slots = {
            "mma": True,
            "sync": True,
            "aligned": True,
            "alayout": alayout,
            "blayout": blayout,
            "shape": shape,
            **how,
        }
        slots |= dict(zip(keys, names, strict=True))
        return self._fragment(self.issue("wmma", slots, (_tuple(a), _tuple(b), _tuple(c))))
