"""Making values and computing with them: each call one command, named and ordered as in Triton."""

from collections.abc import Callable

import numpy as np

from kernbench.common.dtypes import DTYPES, FLOATS, Array, cast, promote
from kernbench.common.pe_commands import TensorHandle
from kernbench.result.recording import NONE
from kernbench.triton_emu.engine.core import Core, Shape
from kernbench.triton_emu.engine.part import Part
from kernbench.triton_emu.engine.written import ElementType, Number, Operand, Sizes
from kernbench.triton_emu.operations import numerics
from kernbench.triton_emu.operations.arithmetic import Arithmetic, Plan
from kernbench.triton_emu.operations.views import Views
from kernbench.triton_emu.repeating.affine import ends
from kernbench.triton_emu.stacking.forms import Along, Elementwise, Product

__kernbench_internal__ = True

_Out = TensorHandle | None
# an element, or the element and where it is
_Picked = TensorHandle | tuple[TensorHandle, TensorHandle]


class PropagateNan:
    """Whether `maximum`, `minimum` and `clamp` give NaN where an operand is NaN. Here they do unless given NONE."""

    NONE = "none"
    ALL = "all"


def _extreme(op: str, which: str) -> Callable[..., _Picked]:
    """The method that finds the largest or smallest element."""

    def method(
        self: "Computing",
        input: TensorHandle,
        axis: int | None = None,
        return_indices: bool = False,
        return_indices_tie_break_left: bool = True,
        keep_dims: bool = True,
    ) -> _Picked:
        found = self._reduce(op, input, axis, keep_dims)
        return (found, self._reduce(f"arg{op}", input, axis, keep_dims)) if return_indices else found

    method.__name__, method.__qualname__ = op, f"tl.{op}"
    method.__doc__ = (
        f"{which} element along `axis` (all axes for None); with `return_indices` also where the first of them is."
    )
    return method


class Computing(Part):
    """Values, products, reductions, elementwise operations."""

    def __init__(self, core: Core, arithmetic: Arithmetic, views: Views):
        super().__init__(core)
        self._provenance = core._provenance
        self._plans, self._operand, self._meet = arithmetic._plans, arithmetic._operand, arithmetic._meet
        self._broadcast, self._convert, self._fma = arithmetic._broadcast, arithmetic._convert, arithmetic._fma
        self._unary, self._binary, self._reduce = arithmetic._unary, arithmetic._binary, arithmetic._reduce
        self._bitcast, self._broadcast_to = views._bitcast, views.broadcast_to

    def full(self, shape: Sizes, value: Operand, dtype: ElementType = "f32") -> TensorHandle:
        """`shape` elements, all `value`: a number, or the one element of a handle (then a view)."""
        site = self._sites.here()
        if type(value) is TensorHandle:
            if value.size != 1:
                self._fail(
                    "shape", f"full of a handle of shape {value.shape}", "one number, or a handle of one element"
                )
            return self._convert(self._broadcast_to(value.reshape(()), self._shape(shape)), self._dtype(dtype), None)
        sizes, kind, number = self._shape(shape), self._dtype(dtype), self._scalar(value)
        self._fit(number, kind)
        made, data = self._kind(sizes, kind), None
        if self._core._port.carries_data:
            wide = np.full(sizes, number, np.float32 if DTYPES[kind].kind == "float" else np.int64)
            data = cast(wide, kind)
            self._core._traced(self._core.steps, lambda: data)
        return self._emit("full", site, made, data)

    def zeros(self, shape: Sizes, dtype: ElementType = "f32") -> TensorHandle:
        """`shape` zeros."""
        return self.full(shape, 0, dtype)

    def zeros_like(self, input: TensorHandle) -> TensorHandle:
        """Zeros of the same shape and type."""
        handle = self._handle("zeros_like", input)
        return self.full(handle.shape, 0, handle.dtype)

    def arange(self, start: int, end: int | None = None) -> TensorHandle:
        """The whole numbers from `start` to `end`, without `end`, as i32."""
        site = self._sites.here()
        first, last = (0, start) if end is None else (start, end)
        first, last = ends(first, last) or self._whole_numbers((first, last))
        if last < first:
            self._fail("shape", f"arange from {first} to {last}: the end lies before the start")
        self._fit(first, "i32")
        self._fit(max(first, last - 1), "i32")
        kind = self._kind((last - first,), "i32")
        data = np.arange(first, last, dtype=np.int32) if self._core._port.carries_data else None
        self._core._traced(self._core.steps, lambda: data)
        return self._emit("arange", site, kind, data)

    def dot(
        self,
        input: TensorHandle,
        other: TensorHandle,
        acc: TensorHandle | None = None,
        input_precision: object = None,
        allow_tf32: object = None,
        max_num_imprecise_acc: object = None,
        out_dtype: ElementType = None,
        *,
        out: _Out = None,
    ) -> TensorHandle:
        """input @ other (+ acc): one GEMM command. Accumulates in f32 (i8 operands: i32).

        The precision arguments are Triton's and change nothing here: products are exact.
        """
        site = self._sites.here()
        x = input.data if type(input) is TensorHandle else None
        if x is None or input.block.live_in is not self._scratch:
            x = self._read("dot", input)
        y = other.data if type(other) is TensorHandle else None
        if y is None or other.block.live_in is not self._scratch:
            y = self._read("dot", other)
        if acc is None:
            z, acc_type, acc_number = None, NONE, NONE
        else:
            z, acc_type, acc_number = self._read("dot", acc), acc.type, acc.number
        key = ("dot", input.type, other.type, acc_type, out_dtype)
        plan = self._plans.get(key) or self._plan_dot(key, input, other, acc, out_dtype)
        core, compute, data = self._core, plan.compute, None
        if x is not None and y is not None and (acc is None or z is not None):
            data = compute(x, y) if acc is None else compute(x, y, z)
        if core.trace is not None:
            numbers = (input.number, None), (other.number, None)
            core.trace.append((core.steps, compute, numbers if acc is None else (*numbers, (acc_number, None))))
        return core._emit("dot", site, plan.kind, data, input.number, other.number, acc_number, 0, 0, out)

    def _plan_dot(
        self,
        key: tuple[object, ...],
        a: TensorHandle,
        b: TensorHandle,
        acc: TensorHandle | None,
        out_dtype: ElementType,
    ) -> Plan:
        result = self._dot_type(a, b, out_dtype)
        kind = self._kind(self._dot_shape(a, b, acc), result)
        # products copy views that lie apart
        self._require_room(max(a.nbytes, b.nbytes))
        operands = (a, b) if acc is None else (a, b, acc)
        if result == "f32" and all(h.dtype == "f32" for h in operands):
            plan = Plan(kind, np.matmul if acc is None else Product(numerics.dot_f32))
        else:
            plan = Plan(kind, Product(numerics.dot, dtype=result))
        self._plans[key] = plan
        return plan

    def _dot_type(self, a: TensorHandle, b: TensorHandle, out_dtype: ElementType) -> str:
        if a.dtype in FLOATS and b.dtype in FLOATS:
            return "f32" if out_dtype is None else self._dtype(out_dtype)
        if a.dtype == b.dtype == "i8" and (out_dtype is None or self._dtype(out_dtype) == "i32"):
            return "i32"
        self._fail(
            "dtype",
            f"dot of {a.dtype} and {b.dtype}",
            "operands are both floats of any kind, or both i8 (which give i32)",
        )

    def _dot_shape(self, a: TensorHandle, b: TensorHandle, acc: TensorHandle | None) -> Shape:
        left, right = a.shape, b.shape
        if len(left) not in (2, 3) or len(left) != len(right) or left[:-2] != right[:-2]:
            self._fail(
                "shape", f"dot of shapes {left} and {right}: both [m, k] @ [k, n], or both with one equal batch axis"
            )
        if left[-1] != right[-2]:
            hint = "transpose it with tl.trans" if left[-1] == right[-1] else "the inner sizes must be equal"
            self._fail("shape", f"dot of shapes {left} and {right}: {left[-1]} columns meet {right[-2]} rows", hint)
        shape = (*left[:-1], right[-1])
        if acc is not None and acc.shape != shape:
            self._fail("shape", f"dot gives {shape}, but acc has shape {acc.shape}")
        if acc is not None and (acc.dtype in FLOATS) != (a.dtype in FLOATS):
            self._fail("dtype", f"dot of {a.dtype} and {b.dtype} cannot add to acc of {acc.dtype}", "cast acc first")
        return shape

    def softmax(
        self, input: TensorHandle, axis: int = -1, *, dim: int | None = None, ieee_rounding: object = None
    ) -> TensorHandle:
        """exp(x - max) / sum along `axis` (`dim` in Triton; here the last one by default): one command."""
        site = self._sites.here()
        handle = self._handle("softmax", input)
        axis = self._axis("softmax", handle, axis if dim is None else dim)
        if handle.shape[axis] == 0:
            self._fail("shape", f"softmax over an empty axis of a handle of shape {handle.shape}")
        kind = handle.dtype if handle.dtype in FLOATS else "f32"
        x, made = self._data(handle), self._kind(handle.shape, kind)
        data = None if x is None else numerics.softmax(x, axis, kind)
        self._core._traced(self._core.steps, Along(numerics.softmax, axis=axis, dtype=kind), handle)
        return self._emit("softmax", site, made, data, handle.number, x=axis)

    max = _extreme("max", "Largest")
    min = _extreme("min", "Smallest")

    def sum(
        self, input: TensorHandle, axis: int | None = None, keep_dims: bool = True, dtype: ElementType = None
    ) -> TensorHandle:
        """Sum along `axis` (all axes for None), accumulated in f32 or i32."""
        return self._reduce("sum", input, axis, keep_dims, None if dtype is None else self._dtype(dtype))

    def argmax(
        self, input: TensorHandle, axis: int | None, tie_break_left: bool = True, keep_dims: bool = True
    ) -> TensorHandle:
        """Where the largest element along `axis` is, as i32; the first of equals."""
        return self._reduce("argmax", input, axis, keep_dims)

    def argmin(
        self, input: TensorHandle, axis: int | None, tie_break_left: bool = True, keep_dims: bool = True
    ) -> TensorHandle:
        """Where the smallest element along `axis` is, as i32; the first of equals."""
        return self._reduce("argmin", input, axis, keep_dims)

    def where(self, condition: Operand, x: Operand, y: Operand, *, out: _Out = None) -> TensorHandle:
        """`x` where the mask holds, else `y`; either may be a number, and so may the condition."""
        site = self._sites.here()
        if type(condition) in (bool, int):
            condition = self.full((), bool(condition), "i1")
        mask = self._handle("where", condition)
        if mask.dtype in FLOATS:
            self._fail("dtype", f"where: the condition is {mask.dtype}", "compare it with something first")
        x_handle, a = self._operand(x)
        y_handle, b = self._operand(y)
        shape = mask.shape
        for handle in (x_handle, y_handle):
            if handle is not None and handle.shape != shape:
                shape = self._broadcast("where", shape, handle.shape)
        kind = self._where_type(x_handle, a, y_handle, b)
        for handle, number in ((x_handle, a), (y_handle, b)):
            if handle is None:
                self._fit(number, kind)
        m, made = self._data(mask), self._kind(shape, kind)
        data = None
        if m is not None and a is not None and b is not None:
            data = _chosen(m, a, b, kind)
        if self._core.trace is not None:
            given = (a if x_handle is None else x_handle, b if y_handle is None else y_handle)
            self._core._traced(self._core.steps, Elementwise(_chosen, kind=kind), mask, *given)
        x_number, y_number = (NONE if h is None else h.number for h in (x_handle, y_handle))
        return self._emit("where", site, made, data, mask.number, x_number, y_number, out=out)

    def _where_type(self, x_handle: _Out, a: Operand, y_handle: _Out, b: Operand) -> str:
        if x_handle is not None and y_handle is not None:
            return promote(x_handle.dtype, y_handle.dtype)
        if x_handle is not None:
            return self._meet("where", x_handle, b)
        if y_handle is not None:
            return self._meet("where", a, y_handle)
        return "f32" if isinstance(a, float) or isinstance(b, float) else "i32"

    def cast(
        self,
        input: TensorHandle,
        dtype: ElementType,
        fp_downcast_rounding: str | None = None,
        bitcast: bool = False,
        *,
        out: _Out = None,
    ) -> TensorHandle:
        """Rounded to `dtype` (to nearest, ties to even): one command, none if it has that type already.

        With `bitcast` the same bits under another type of the same size: a view.
        """
        handle, kind = self._handle("cast", input), self._dtype(dtype)
        if bitcast:
            return self._bitcast(handle, kind)
        if fp_downcast_rounding not in (None, "rtne"):
            self._fail(
                "misuse", f"fp_downcast_rounding {fp_downcast_rounding!r}: the machine rounds to nearest ('rtne')"
            )
        return self._convert(handle, kind, out)

    def fma(self, x: Operand, y: Operand, z: Operand, *, out: _Out = None) -> TensorHandle:
        """x * y + z: one command; at least one is a handle, the others may be numbers."""
        return self._fma((x, y, z), out)

    def value_of(self, input: TensorHandle) -> float | int | bool:
        """The one element of `input`, read back by the PE's CPU to branch on or to use as a number."""
        site = self._sites.here()
        handle = self._handle("reading a value", input)
        if handle.size != 1:
            self._fail(
                "shape",
                f"a handle of shape {handle.shape} has no single value",
                "reduce it to one element first; combine masks with & | ~ (not and, or, not, a < b < c), and take the "
                "larger of two handles with tl.maximum (not max)",
            )
        data = self._data(handle)
        if data is None:
            self._fail(
                "value-needed",
                f"the kernel needs a number, but this run carries no data: {self._provenance(handle)}",
                "run with data, or make it an argument; integer tensors keep their values in shapes-only launches",
            )
        self._record("read_value", site, handle.number, 0, 0)
        return data.item()  # type: ignore[no-any-return]

    def maximum(self, x: Operand, y: Operand, propagate_nan: str = PropagateNan.ALL, *, out: _Out = None) -> Operand:
        """The larger of x and y: one command. NaN if one is, unless `propagate_nan` is tl.PropagateNan.NONE."""
        op = "maximum" if propagate_nan == "all" else self._with_nan("maximum", propagate_nan)
        return self._binary(op, x, y, out)

    def minimum(self, x: Operand, y: Operand, propagate_nan: str = PropagateNan.ALL, *, out: _Out = None) -> Operand:
        """The smaller of x and y: one command. NaN if one is, unless `propagate_nan` is tl.PropagateNan.NONE."""
        op = "minimum" if propagate_nan == "all" else self._with_nan("minimum", propagate_nan)
        return self._binary(op, x, y, out)

    def umulhi(self, x: Operand, y: Operand) -> Operand:
        """The upper half of the product of two i32, taken as unsigned: one command."""
        return self._binary("umulhi", x, y)

    def clamp(self, x: Operand, min: Operand, max: Operand, propagate_nan: str = PropagateNan.ALL) -> Operand:
        """`x`, not below `min` and not above `max`: two commands."""
        above = self._binary(self._with_nan("maximum", propagate_nan), x, min)
        return self._binary(self._with_nan("minimum", propagate_nan), above, max)

    def _with_nan(self, op: str, propagate: object) -> str:
        name = str(getattr(propagate, "name", propagate)).lower()
        if name not in ("all", "none"):
            self._fail("misuse", f"propagate_nan {propagate!r}: tl.PropagateNan.ALL or tl.PropagateNan.NONE")
        return op if name == "all" else f"{op}_number"


def _chosen(mask: Array, a: Array | Number, b: Array | Number, kind: str) -> Array:
    """`a` where the mask holds, else `b`, as elements of `kind`."""
    target = DTYPES[kind].numpy
    a, b = (cast(np.asarray(v), kind) if np.asarray(v).dtype != target else v for v in (a, b))
    found: Array = np.where(mask, a, b)
    return found


def _elementwise(name: str, op: str, operands: int, meaning: str) -> Callable[..., Operand]:
    """The method for one elementwise row of the table."""
    if operands == 1:

        def unary(self: Computing, x: Operand, *, out: _Out = None) -> Operand:
            return self._unary(op, x, out)

        method: Callable[..., Operand] = unary
    else:

        def binary(self: Computing, x: Operand, y: Operand, *, out: _Out = None) -> Operand:
            return self._binary(op, x, y, out)

        method = binary
    method.__name__, method.__qualname__ = name, f"tl.{name}"
    method.__doc__ = f"{meaning}: one command; `out` may be a handle whose space the result takes over."
    return method


ELEMENTWISE: dict[str, tuple[str, int, str]] = {
    "exp": ("exp", 1, "e to the x"),
    "exp2": ("exp2", 1, "2 to the x"),
    "log": ("log", 1, "Natural logarithm"),
    "log2": ("log2", 1, "Logarithm to base 2"),
    "sqrt": ("sqrt", 1, "Square root"),
    "sqrt_rn": ("sqrt", 1, "Square root"),
    "rsqrt": ("rsqrt", 1, "One over the square root"),
    "sigmoid": ("sigmoid", 1, "1 / (1 + exp(-x))"),
    "sin": ("sin", 1, "Sine of x in radians"),
    "cos": ("cos", 1, "Cosine of x in radians"),
    "erf": ("erf", 1, "Error function"),
    "tanh": ("tanh", 1, "Hyperbolic tangent"),
    "abs": ("abs", 1, "Magnitude"),
    "floor": ("floor", 1, "Largest whole number not above x"),
    "ceil": ("ceil", 1, "Smallest whole number not below x"),
    "neg": ("neg", 1, "-x"),
    "add": ("add", 2, "x + y"),
    "sub": ("sub", 2, "x - y"),
    "mul": ("mul", 2, "x * y"),
    "div": ("div", 2, "x / y"),
    "fdiv": ("div", 2, "x / y"),
    "div_rn": ("div", 2, "x / y"),
}

for _name, _row in ELEMENTWISE.items():
    setattr(Computing, _name, _elementwise(_name, *_row))
