"""What a processing element (PE) works on and executes: tensor handles, the table of operations, the commands.

A handle names a value in scratch or HBM; it is not an array. Operators on handles call the context of the running
kernel, found through `running_context`. It is the only context variable of the project, so that handles which a kernel
builds itself work like those made by `tl`.
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from math import prod
from operator import index
from typing import Any, NoReturn, Protocol, TypeAlias

import numpy as np

from kernbench.common.dtypes import ITEMSIZE, dtype_name
from kernbench.common.errors import KernelError

# frames of this module are never taken for the kernel's own line
__kernbench_internal__ = True

running_context: ContextVar[Any] = ContextVar("kernbench_running_context", default=None)
_running = running_context.get

# the other operand of an operator on a handle
Operand: TypeAlias = "TensorHandle | float | np.number | np.bool_"

SCRATCH = "scratch"
HBM = "hbm"


def _checked_dtype(dtype: object) -> str:
    """The element type's name; inside a kernel an unknown one is reported at the kernel's line."""
    context = running_context.get()
    return dtype_name(dtype) if context is None else str(context._dtype(dtype))


class Operators(Protocol):
    """The part of a context that operators and methods of handles call."""

    def _binary(self, op: str, a: object, b: object) -> TensorHandle: ...

    def _unary(self, op: str, value: object) -> TensorHandle: ...

    def index(self, input: TensorHandle, items: object) -> TensorHandle:
        """A view of a part of a value."""
        ...

    def value_of(self, input: TensorHandle) -> float | int | bool:
        """The value of a one-element handle, read back."""
        ...

    def cast(self, input: TensorHandle, dtype: object, rounding: str | None, bitcast: bool) -> TensorHandle:
        """Round to another type or, with `bitcast`, reinterpret the bits."""
        ...

    def reshape(self, input: TensorHandle, *shape: object) -> TensorHandle:
        """The same elements under another shape."""
        ...

    def trans(self, input: TensorHandle, *dims: object) -> TensorHandle:
        """Permute the axes."""
        ...

    def _fail(self, kind: str, message: str, hint: str) -> NoReturn: ...


def _context(handle: TensorHandle) -> Operators:
    """The context of an operator: that of the running kernel, else the one that made the handle."""
    context: Operators | None = running_context.get()
    if context is None and handle.block.pool is not None:
        context = handle.block.pool.context
    if context is None:
        raise KernelError(
            "misuse",
            "an operator was used on a TensorHandle while no kernel is running",
            "start the kernel with run_kernel(kernel, tl, ...) or a launch, or call the method on `tl` itself",
        )
    return context


class NoBlock:
    """Null object for the scratch allocation of a handle that has none; never released."""

    def __init__(self) -> None:
        self.pool = None
        self.live_in = None
        self.users = 1 << 62
        self.replaced = False
        self.sends: tuple[object, ...] = ()


NO_BLOCK = NoBlock()


@dataclass(init=False, eq=False, repr=False)
class TensorHandle:
    """A value of `shape` and `dtype` at byte address `addr` of `space`; `data` is its array if the run carries data.

    Kernels may build their own handles, as views of memory that another handle occupies: the view aliases the bytes at
    `addr`, keeps that memory alive, and costs no command. `pinned` memory is never freed before the kernel returns.
    """

    id: object
    addr: int
    shape: tuple[int, ...]
    dtype: str
    nbytes: int
    data: Any
    space: str
    pinned: bool

    # block: the scratch allocation of the handle; number and type: its rows in the recording's tables; strides: in
    # elements, None when row-major and contiguous
    __slots__ = (
        "addr", "block", "data", "dtype", "id", "nbytes", "number", "pinned", "shape", "space", "strides", "type",
    )  # fmt: skip

    def __init__(
        self,
        id: object = None,
        addr: int = 0,
        shape: Any = (),
        dtype: object = "f16",
        nbytes: int | None = None,
        data: object = None,
        space: str = SCRATCH,
        pinned: bool = False,
    ):
        self.block: Any = NO_BLOCK
        self.number = -1
        self.type = -1
        self.strides: tuple[int, ...] | None = None
        self.id = id
        self.addr = int(addr)
        self.shape = tuple(index(n) for n in ((shape,) if hasattr(shape, "__index__") else shape))
        self.dtype = _checked_dtype(dtype)
        self.nbytes = prod(self.shape) * ITEMSIZE[self.dtype] if nbytes is None else int(nbytes)
        self.data = data
        self.space = space
        self.pinned = pinned
        context = running_context.get()
        if context is not None:
            context.adopt(self)

    def __del__(self) -> None:
        block = self.block
        users = block.users
        if users == 1:
            block.pool.release(block)
        else:
            block.users = users - 1

    def __copy__(self) -> TensorHandle:
        """Another handle on the same memory."""
        return replace(self)

    def __deepcopy__(self, memo: dict[int, object]) -> TensorHandle:
        """Another handle on the same memory, so that dataclasses with handles can be copied (`dataclasses.asdict`)."""
        return replace(self)

    def __repr__(self) -> str:
        return f"TensorHandle(id={self.id!r}, addr={self.addr:#x}, shape={self.shape}, dtype={self.dtype!r})"

    @property
    def where(self) -> Any:
        """The `SourceLocation` of the command that made this value, None for a handle nobody computed."""
        pool = self.block.pool
        return None if pool is None else pool.location_of(self)

    @property
    def ndim(self) -> int:
        """Number of dimensions."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """Number of elements."""
        return prod(self.shape)

    def numel(self) -> int:
        """Number of elements."""
        return prod(self.shape)

    # Operators: each is one row of OPERATIONS, executed by the running context.
    def __add__(self, other: Operand) -> TensorHandle:
        return (_running() or _context(self))._binary("add", self, other)

    def __radd__(self, other: Operand) -> TensorHandle:
        return (_running() or _context(self))._binary("add", other, self)

    def __sub__(self, other: Operand) -> TensorHandle:
        return (_running() or _context(self))._binary("sub", self, other)

    def __rsub__(self, other: Operand) -> TensorHandle:
        return (_running() or _context(self))._binary("sub", other, self)

    def __mul__(self, other: Operand) -> TensorHandle:
        return (_running() or _context(self))._binary("mul", self, other)

    def __rmul__(self, other: Operand) -> TensorHandle:
        return (_running() or _context(self))._binary("mul", other, self)

    def __truediv__(self, other: Operand) -> TensorHandle:
        return (_running() or _context(self))._binary("div", self, other)

    def __rtruediv__(self, other: Operand) -> TensorHandle:
        return (_running() or _context(self))._binary("div", other, self)

    def __floordiv__(self, other: Operand) -> TensorHandle:
        return (_running() or _context(self))._binary("floordiv", self, other)

    def __rfloordiv__(self, other: Operand) -> TensorHandle:
        return (_running() or _context(self))._binary("floordiv", other, self)

    def __mod__(self, other: Operand) -> TensorHandle:
        return (_running() or _context(self))._binary("mod", self, other)

    def __rmod__(self, other: Operand) -> TensorHandle:
        return (_running() or _context(self))._binary("mod", other, self)

    def __and__(self, other: Operand) -> TensorHandle:
        return (_running() or _context(self))._binary("and", self, other)

    def __rand__(self, other: Operand) -> TensorHandle:
        return (_running() or _context(self))._binary("and", other, self)

    def __or__(self, other: Operand) -> TensorHandle:
        return (_running() or _context(self))._binary("or", self, other)

    def __ror__(self, other: Operand) -> TensorHandle:
        return (_running() or _context(self))._binary("or", other, self)

    def __xor__(self, other: Operand) -> TensorHandle:
        return (_running() or _context(self))._binary("xor", self, other)

    def __rxor__(self, other: Operand) -> TensorHandle:
        return (_running() or _context(self))._binary("xor", other, self)

    def __lshift__(self, other: Operand) -> TensorHandle:
        return (_running() or _context(self))._binary("shl", self, other)

    def __rlshift__(self, other: Operand) -> TensorHandle:
        return (_running() or _context(self))._binary("shl", other, self)

    def __rshift__(self, other: Operand) -> TensorHandle:
        return (_running() or _context(self))._binary("shr", self, other)

    def __rrshift__(self, other: Operand) -> TensorHandle:
        return (_running() or _context(self))._binary("shr", other, self)

    def __lt__(self, other: Operand) -> TensorHandle:
        return (_running() or _context(self))._binary("lt", self, other)

    def __le__(self, other: Operand) -> TensorHandle:
        return (_running() or _context(self))._binary("le", self, other)

    def __gt__(self, other: Operand) -> TensorHandle:
        return (_running() or _context(self))._binary("gt", self, other)

    def __ge__(self, other: Operand) -> TensorHandle:
        return (_running() or _context(self))._binary("ge", self, other)

    def __eq__(self, other: object) -> TensorHandle:  # type: ignore[override]
        return (_running() or _context(self))._binary("eq", self, other)

    def __ne__(self, other: object) -> TensorHandle:  # type: ignore[override]
        return (_running() or _context(self))._binary("ne", self, other)

    def __hash__(self) -> int:
        return object.__hash__(self)

    def __neg__(self) -> TensorHandle:
        return (_running() or _context(self))._unary("neg", self)

    def __abs__(self) -> TensorHandle:
        return (_running() or _context(self))._unary("abs", self)

    def __invert__(self) -> TensorHandle:
        return (_running() or _context(self))._unary("not", self)

    def __getitem__(self, index: object) -> TensorHandle:
        return _context(self).index(self, index)

    def __bool__(self) -> bool:
        return bool(_context(self).value_of(self))

    def __int__(self) -> int:
        return int(_context(self).value_of(self))

    def __index__(self) -> int:
        return int(_context(self).value_of(self))

    def __float__(self) -> float:
        return float(_context(self).value_of(self))

    def item(self) -> float | int | bool:
        """The value of a one-element handle, read back by the PE's CPU."""
        return _context(self).value_of(self)

    def to(self, dtype: object, fp_downcast_rounding: str | None = None, bitcast: bool = False) -> TensorHandle:
        """Rounded to `dtype`; with `bitcast`, the same bits reinterpreted."""
        return _context(self).cast(self, dtype, fp_downcast_rounding, bitcast)

    def reshape(self, *shape: object) -> TensorHandle:
        """The same elements under another shape; no command."""
        return _context(self).reshape(self, *shape)

    def trans(self, *dims: object) -> TensorHandle:
        """The last two axes swapped, or the axes in the order of `dims`; no command."""
        return _context(self).trans(self, *dims)

    @property
    def T(self) -> TensorHandle:  # noqa: N802 - the name NumPy and Triton use
        """The last two axes swapped; no command."""
        return _context(self).trans(self)

    # with a NumPy scalar on the left, NumPy must defer to __radd__ and its kin
    __array_ufunc__ = None


# operations of `tl` that are also methods of their first operand, as in Triton
METHODS = (
    "abs", "argmax", "argmin", "associative_scan", "broadcast_to", "cast", "cdiv", "ceil", "cos", "cumprod", "cumsum",
    "erf", "exp", "exp2", "expand_dims", "fdiv", "flip", "floor", "gather", "histogram", "log", "log2", "max", "min",
    "permute", "ravel", "reduce", "reduce_or", "rsqrt", "sigmoid", "sin", "softmax", "sort", "split", "sqrt", "sqrt_rn",
    "squeeze", "sum", "tanh", "topk", "unsqueeze", "view", "xor_sum",
)  # fmt: skip

_NOT_OPERATORS = {
    "__iter__": ("looped over or unpacked", "index it, or loop over range(handle.shape[0])"),
    "__len__": ("measured with len", "handle.shape[0], or handle.size"),
    "__setitem__": ("written into", "make a new value with tl.where or tl.cat; tl.store writes to memory"),
    "__pow__": ("raised with **", "multiply, or tl.exp2(y * tl.log2(x))"),
    "__rpow__": ("used as a power with **", "tl.exp2(x * log2 of the base)"),
    "__matmul__": ("multiplied with @", "tl.dot(a, b)"),
    "__round__": ("rounded with round", "tl.floor(x + 0.5)"),
    "__divmod__": ("given to divmod", "x // y and x % y"),
}  # fmt: skip


def _method(name: str) -> Callable[..., TensorHandle]:
    def method(self: TensorHandle, *args: object, **kwargs: object) -> TensorHandle:
        result: TensorHandle = getattr(_context(self), name)(self, *args, **kwargs)
        return result

    method.__name__, method.__qualname__ = name, f"TensorHandle.{name}"
    method.__doc__ = f"The same as `tl.{name}(handle, ...)`."
    return method


def _refusal(what: str, instead: str) -> Callable[..., NoReturn]:
    def method(self: TensorHandle, *args: object) -> NoReturn:
        _context(self)._fail("misuse", f"{self!r} cannot be {what}", instead)

    return method


for _name in METHODS:
    setattr(TensorHandle, _name, _method(_name))
for _name, (_what, _instead) in _NOT_OPERATORS.items():
    setattr(TensorHandle, _name, _refusal(_what, _instead))


def bare_handle(number: int, address: int, shape: tuple[int, ...], dtype: str, space: str) -> TensorHandle:
    """A handle that only describes a value of a recording; it has no memory and no context."""
    handle = object.__new__(TensorHandle)
    handle.block, handle.data, handle.strides, handle.pinned = NO_BLOCK, None, None, False
    handle.id = handle.number = number
    handle.type = -1
    handle.addr, handle.shape, handle.dtype, handle.space = address, shape, dtype, space
    handle.nbytes = prod(shape) * ITEMSIZE[dtype]
    return handle


@dataclass(frozen=True)
class Operation:
    """A row of the operation table: the engine that executes it, and the unit in which its work is counted."""

    name: str
    engine: str
    cost: str
    code: int = field(compare=False)


def _table() -> dict[str, Operation]:
    rows = {
        ("dma", "bytes"): ("load", "store"),
        ("gemm", "macs"): ("dot",),
        ("ipcq", "bytes"): ("send", "recv", "send_async", "recv_async", "wait"),
        ("cpu", "none"): ("read_value",),
        ("math", "simple"): (
            "add", "sub", "mul", "floordiv", "mod", "and", "or", "xor", "not", "lt", "le", "gt", "ge", "eq", "ne",
            "neg", "abs", "maximum", "minimum", "floor", "ceil", "where", "fma", "cast", "copy", "full", "arange",
            "broadcast", "cat", "shl", "shr", "umulhi", "maximum_number", "minimum_number", "gather",
        ),
        ("math", "reduce"): ("max", "min", "sum", "argmax", "argmin", "xor_sum", "reduce_or", "histogram"),
        ("math", "twice"): ("cumsum", "cumprod", "sort_pass"),
        ("math", "philox"): ("philox",),
        ("math", "exp"): ("exp", "exp2", "sigmoid", "tanh", "sin", "cos", "erf"),
        ("math", "log"): ("log", "log2"),
        ("math", "sqrt"): ("sqrt", "rsqrt"),
        ("math", "div"): ("div",),
        ("math", "softmax"): ("softmax",),
    }  # fmt: skip
    flat = [(name, engine, cost) for (engine, cost), names in rows.items() for name in names]
    return {name: Operation(name, engine, cost, code) for code, (name, engine, cost) in enumerate(flat)}


OPERATIONS: dict[str, Operation] = _table()
OPERATION_NAMES: tuple[str, ...] = tuple(OPERATIONS)


@dataclass(frozen=True, eq=False)
class PeCommand:
    """A command that a PE dispatched; `where` is the kernel line that issued it."""

    op: str
    where: Any

    @property
    def engine(self) -> str:
        """The engine that executes it."""
        return OPERATIONS[self.op].engine


@dataclass(frozen=True, eq=False)
class DmaReadCmd(PeCommand):
    """HBM to scratch: `nbytes` from `addr` become `out`."""

    addr: int
    nbytes: int
    out: TensorHandle


@dataclass(frozen=True, eq=False)
class DmaWriteCmd(PeCommand):
    """Scratch to HBM: `src` goes to `addr`, `nbytes` in the tensor's own type."""

    addr: int
    nbytes: int
    src: TensorHandle


@dataclass(frozen=True, eq=False)
class GemmCmd(PeCommand):
    """out[.., m, n] = a[.., m, k] @ b[.., k, n] (+ acc), accumulated in f32 (i32 for integers)."""

    a: TensorHandle
    b: TensorHandle
    out: TensorHandle
    acc: TensorHandle | None = None

    @property
    def m(self) -> int:
        """Rows of the result."""
        return self.a.shape[-2]

    @property
    def k(self) -> int:
        """Length of the reduction."""
        return self.a.shape[-1]

    @property
    def n(self) -> int:
        """Columns of the result."""
        return self.b.shape[-1]


@dataclass(frozen=True, eq=False)
class MathCmd(PeCommand):
    """One pass of the MATH engine over `operands`; scalars are not listed. `axis` is the reduced axis, if any."""

    operands: tuple[TensorHandle, ...]
    out: TensorHandle
    axis: int | None = None


@dataclass(frozen=True, eq=False)
class ReadValueCmd(PeCommand):
    """The CPU reads a one-element value back, to branch on it or use it as a number."""

    src: TensorHandle


@dataclass(frozen=True, eq=False)
class WaitCmd(PeCommand):
    """Wait for the asynchronous send or receive with number `request` of this PE."""

    request: int
