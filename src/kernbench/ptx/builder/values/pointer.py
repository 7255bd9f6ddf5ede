"""Addresses: pointers to elements of a type in a state space, and locations within them."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, NoReturn

from kernbench.ptx.builder.values.banks import scalar
from kernbench.ptx.builder.values.errors import PtxBuildError
from kernbench.ptx.builder.values.numbers import is_number
from kernbench.ptx.builder.values.values import Register

if TYPE_CHECKING:
    from kernbench.ptx.builder.values.options import Value, Values

__kernbench_internal__ = True


@dataclass(frozen=True, eq=False)
class Location:
    """`[base + offset]` in bytes, and further operands in the brackets (coordinates of a tensor copy).

    `type` and `space` are those of the memory, `name` is its variable, as far as they are known.
    """

    base: Register | str
    offset: int = 0
    more: "tuple[Values, ...]" = ()
    type: str = ""
    space: str = ""
    name: str = ""


@dataclass(frozen=True, eq=False)
class Pointer:
    """Elements of `type` in `space` from address `base` on, plus a constant number of bytes.

    `p[i]` is a location to load from or store to, `p + i` a pointer to element i; both take numbers and registers.
    """

    base: Register
    type: str
    space: str
    offset: int = 0
    name: str = ""

    def __repr__(self) -> str:
        return f"<pointer to {self.type} in {self.space or 'generic memory'} at {self.base.name}+{self.offset}>"

    @property
    def element_bytes(self) -> int:
        """Bytes from one element to the next."""
        return scalar(self.type).nbytes

    @property
    def location(self) -> Location:
        """The location of its first element."""
        return Location(self.base, self.offset, (), self.type, self.space, self.name)

    def __getitem__(self, index: "Value") -> Location:
        pointer: Pointer = self + index
        return pointer.location

    def __iter__(self) -> NoReturn:
        raise PtxBuildError(f"{self!r} has no end to iterate to: load elements with ctx.load(p, i)")

    def __add__(self, index: "Value") -> "Pointer":
        if is_number(index):
            if isinstance(index, float):
                raise PtxBuildError(f"element {index!r} of {self!r}: an index is a whole number")
            return self.shifted(int(index) * self.element_bytes)
        if not isinstance(index, Register) or index.kind not in "us":
            raise PtxBuildError(f"element {index!r} of {self!r}: an index is an integer register or a whole number")
        return self._at(self.base.context.element_address(self.base, index, self.element_bytes))

    def shifted(self, nbytes: int) -> "Pointer":
        """The pointer plus a constant number of bytes."""
        offset = self.offset + nbytes
        if not -(1 << 31) <= offset < 1 << 31:
            raise PtxBuildError(
                f"{self!r} moved by {nbytes} bytes: a constant offset has 32 bits; add it in a register"
            )
        return Pointer(self.base, self.type, self.space, offset, self.name)

    def retyped(self, type: str) -> "Pointer":
        """The same address as a pointer to another element type."""
        scalar(type)
        return Pointer(self.base, type, self.space, self.offset, self.name)

    def _at(self, base: Register) -> "Pointer":
        return Pointer(base, self.type, self.space, self.offset, self.name)

    @property
    def address(self) -> Register:
        """The address in a new register, for arithmetic."""
        return self.base + self.offset if self.offset else self.base.copy()

    def advance(self, count: "Value") -> None:
        """Advance this pointer itself by `count` elements, by changing its register."""
        context = self.base.context
        if isinstance(count, Register):
            context.element_address(self.base, count, self.element_bytes, out=self.base)
        elif count < 0:
            context.sub(self.base, -count * self.element_bytes, out=self.base)
        else:
            context.add(self.base, count * self.element_bytes, out=self.base)


def location_of(value: object) -> Location | None:
    """A location from anything that denotes one, or None."""
    if isinstance(value, Location):
        return value
    if isinstance(value, Pointer):
        return value.location
    if isinstance(value, Register) and value.type != "pred":
        return Location(value)
    return None
