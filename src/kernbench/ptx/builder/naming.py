"""Checkpoints: `ctx.checkpoint` names values after intermediates of the golden, without adding instructions."""

from collections.abc import Iterable, Sequence
from typing import TypedDict

from kernbench.common.errors import MisuseError
from kernbench.ptx.builder.issuing.issue import Issuer
from kernbench.ptx.builder.matrix.tcgen05 import TensorMemory
from kernbench.ptx.builder.values.numbers import is_number
from kernbench.ptx.builder.values.pointer import Pointer
from kernbench.ptx.builder.values.values import Register
from kernbench.ptx.text.checkpoints import PtxCheckpoint

__kernbench_internal__ = True

Index = int | str | Register


class Held(TypedDict, total=False):
    """The location of a checkpoint's values."""

    space: str
    base: str
    columns: int
    registers: tuple[str, ...]


class Naming(Issuer):
    """Checkpoints of intermediate values."""

    def checkpoint(
        self,
        name: str,
        value: object,
        at: Index | Sequence[Index] = (),
        *,
        type: str = "",
        when: Index | None = None,
        count: int | Sequence[int] = 0,
        address: Index | None = None,
        lanes: int = 128,
        **keys: Index,
    ) -> None:
        """Name values after one of the golden's intermediates, with which they are compared at this point.

        `value` are registers of each thread (one, or lists of them), a pointer to shared or global memory with the
        `count` of elements there, or tensor memory of so many `lanes`. `at` is the index in the golden's array of
        element `i`, for each axis a number, a register, or an expression over them: f"{row} + 8 * (i / 2 % 2)". `when`
        selects threads and elements, `address` is the byte offset of element `i` in memory, `type` the element type in
        untyped registers; other keys are passed to the golden's function. No instruction is added: machine code is the
        same with and without it.
        """
        axes = at if isinstance(at, Sequence) and not isinstance(at, str) else (at,)
        try:
            point = PtxCheckpoint(
                name,
                type=type or _type_of(value),
                count=_product(count),
                lanes=lanes,
                at=tuple(self._index_text(axis) for axis in axes),
                when="" if when is None else self._index_text(when),
                address="" if address is None else self._index_text(address),
                keys={key: self._index_text(each) for key, each in keys.items()},
                **self._named_value(name, value),
            )
        except MisuseError as error:
            raise self.error(str(error)) from None
        self.body.append(point.directive(), point.registered)

    def _named_value(self, name: str, value: object) -> Held:
        if isinstance(value, Pointer):
            space = value.space or "global"
            if space not in ("shared", "global"):
                raise self.error(f"checkpoint {name!r}: {space} memory is of one thread: load what you want to name")
            return {"space": space, "base": _address(value)}
        if isinstance(value, TensorMemory):
            return {"space": "tensor", "base": _address(value), "columns": value.columns}
        registers = list(_flat(value))
        names = tuple(each.name for each in registers if isinstance(each, Register))
        if not registers or len(names) != len(registers):
            raise self.error(
                f"checkpoint {name!r}: {value!r}: registers, a pointer with count=, or tensor memory are wanted"
            )
        return {"registers": names}

    def _index_text(self, value: object) -> str:
        if isinstance(value, Register):
            return value.name
        if isinstance(value, str):
            return value
        if not is_number(value) or isinstance(value, float):
            raise self.error(
                f"{value!r} is no index: a whole number, a register, or a text such as 'tid.x / 4 + 8 * i'"
            )
        return str(int(value))


def _address(value: Pointer | TensorMemory) -> str:
    return f"{value.base.name} + {value.offset}" if value.offset else value.base.name


def _flat(value: object) -> Iterable[object]:
    if isinstance(value, (list, tuple)):
        for each in value:
            yield from _flat(each)
    else:
        yield value


def _product(count: int | Sequence[int]) -> int:
    total = 1
    for size in count if isinstance(count, Sequence) else (count,):
        total *= size
    return total


def _type_of(value: object) -> str:
    """The element type that follows from a value itself."""
    if isinstance(value, Pointer):
        return value.type if value.type[:1] != "b" or value.type.startswith("bf") else ""
    if isinstance(value, TensorMemory):
        return "f32"
    kinds = {each.type for each in _flat(value) if isinstance(each, Register)}
    return kinds.pop() if len(kinds) == 1 and not any(k[:1] == "b" and k[1:].isdecimal() for k in kinds) else ""
