"""What operations give back for what they are given: a handle for handles, a number where all operands are numbers."""

from typing import Literal, Protocol, overload

from kernbench.common.pe_commands import TensorHandle
from kernbench.triton_emu.engine.written import Number, Operand

__kernbench_internal__ = True

_Out = TensorHandle | None


class Unary(Protocol):
    """An elementwise operation of one operand."""

    @overload
    def __call__(self, x: TensorHandle, *, out: _Out = None) -> TensorHandle: ...

    @overload
    def __call__(self, x: Number, *, out: _Out = None) -> Number: ...


class Binary(Protocol):
    """An elementwise operation of two operands."""

    @overload
    def __call__(self, x: TensorHandle, y: Operand, *, out: _Out = None) -> TensorHandle: ...

    @overload
    def __call__(self, x: Operand, y: TensorHandle, *, out: _Out = None) -> TensorHandle: ...

    @overload
    def __call__(self, x: Number, y: Number, *, out: _Out = None) -> Number: ...


class Product(Protocol):
    """An elementwise operation of two operands whose result takes space of its own."""

    @overload
    def __call__(self, x: TensorHandle, y: Operand) -> TensorHandle: ...

    @overload
    def __call__(self, x: Operand, y: TensorHandle) -> TensorHandle: ...

    @overload
    def __call__(self, x: Number, y: Number) -> Number: ...


class Clamped(Protocol):
    """An operand between two others."""

    @overload
    def __call__(self, x: TensorHandle, min: Operand, max: Operand, propagate_nan: str = ...) -> TensorHandle: ...

    @overload
    def __call__(self, x: Operand, min: TensorHandle, max: Operand, propagate_nan: str = ...) -> TensorHandle: ...

    @overload
    def __call__(self, x: Operand, min: Operand, max: TensorHandle, propagate_nan: str = ...) -> TensorHandle: ...

    @overload
    def __call__(self, x: Number, min: Number, max: Number, propagate_nan: str = ...) -> Number: ...


class Larger(Protocol):
    """The larger or smaller of two operands."""

    @overload
    def __call__(self, x: TensorHandle, y: Operand, propagate_nan: str = ..., *, out: _Out = None) -> TensorHandle: ...

    @overload
    def __call__(self, x: Operand, y: TensorHandle, propagate_nan: str = ..., *, out: _Out = None) -> TensorHandle: ...

    @overload
    def __call__(self, x: Number, y: Number, propagate_nan: str = ..., *, out: _Out = None) -> Number: ...


class Largest(Protocol):
    """The largest or smallest element along an axis; with `return_indices` also where it is."""

    @overload
    def __call__(
        self,
        input: TensorHandle,
        axis: int | None = None,
        return_indices: Literal[False] = False,
        return_indices_tie_break_left: bool = True,
        keep_dims: bool = True,
    ) -> TensorHandle: ...

    @overload
    def __call__(
        self,
        input: TensorHandle,
        axis: int | None,
        return_indices: Literal[True],
        return_indices_tie_break_left: bool = True,
        keep_dims: bool = True,
    ) -> tuple[TensorHandle, TensorHandle]: ...

    @overload
    def __call__(
        self,
        input: TensorHandle,
        axis: int | None = None,
        *,
        return_indices: Literal[True],
        return_indices_tie_break_left: bool = True,
        keep_dims: bool = True,
    ) -> tuple[TensorHandle, TensorHandle]: ...
