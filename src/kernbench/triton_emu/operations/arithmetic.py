"""Arithmetic on handles: checks that operands fit, computes where there is data, one command each.

What a combination of operand types gives is worked out once and kept as a plan, so that a loop pays for its checks only
the first time round.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from kernbench.common.dtypes import FLOATS, Array, cast, promote
from kernbench.common.pe_commands import TensorHandle
from kernbench.result.recording import NONE, ScratchType
from kernbench.safety.memory import WINDOW
from kernbench.triton_emu.engine.core import Core, Shape
from kernbench.triton_emu.engine.part import Part
from kernbench.triton_emu.engine.written import Number, Operand
from kernbench.triton_emu.operations import numerics
from kernbench.triton_emu.stacking.forms import Along, Elementwise, reshaped, same

__kernbench_internal__ = True


@dataclass(frozen=True, slots=True)
class Plan:
    """What an operation on operands of known types gives, how it is computed, and the axis it works along, if any."""

    kind: ScratchType
    compute: Callable[..., Array]
    axis: int = NONE


class Arithmetic(Part):
    """Elementwise operations, reductions and casts; one plan for each combination of types."""

    def __init__(self, core: Core):
        super().__init__(core)
        self._plans: dict[tuple[object, ...], Plan] = {}

    def _operand(self, value: Operand) -> tuple[TensorHandle | None, Any]:
        """(handle, its data) or (None, number)."""
        if type(value) is TensorHandle:
            return value, self._data(value)
        return None, self._scalar(value)

    def _binary(self, op: str, a: Operand, b: Operand, out: TensorHandle | None = None) -> Operand:
        """An elementwise operation of two operands, at least one of them a handle."""
        site = self._sites.here(3)
        pool = self._scratch
        a_number = b_number = NONE
        a_type: object
        b_type: object
        # numbers beside handles, for whoever computes the same again
        given = beside = None
        if type(a) is TensorHandle:
            x = a.data
            if a.block.live_in is not pool or (x is None and self._carries_data):
                x = self._missing_data(a)
            a_type, a_number = a.type, a.number
        else:
            a = x = given = self._scalar(a)
            a_type = type(x)
        if type(b) is TensorHandle:
            y = b.data
            if b.block.live_in is not pool or (y is None and self._carries_data):
                y = self._missing_data(b)
            b_type, b_number = b.type, b.number
        else:
            b = y = beside = b if type(b) is float else self._scalar(b)
            b_type = type(y)
            if a is x:
                number: Number = numerics.BINARY[op](x, y).item()
                return number
        key = (op, a_type, b_type)
        plan = self._plans.get(key) or self._plan_binary(key, op, a, b)
        data = None if x is None or y is None else plan.compute(x, y)
        core = self._core
        if core.trace is not None:
            core.trace.append((core.steps, plan.compute, ((a_number, given), (b_number, beside))))
        return core._emit(op, site, plan.kind, data, a_number, b_number, NONE, 0, 0, out)

    def _plan_binary(self, key: tuple[object, ...], op: str, a: Operand, b: Operand) -> Plan:
        dtype = self._meet(op, a, b)
        shape = self._broadcast(op, _shape_of(a), _shape_of(b))
        result = dtype
        if op in numerics.COMPARISONS:
            result = "i1"
        elif dtype not in FLOATS:
            result = self._integer_result(op, dtype)
            if op in ("floordiv", "mod") and type(b) is int and b == 0:
                self._fail("misuse", f"{op} of a handle of {dtype} by 0", "whole numbers have no quotient by 0")
        elif op in numerics.INTEGER_ONLY:
            self._fail("dtype", f"{op} needs integers; got {dtype}", "cast the operands with .to('i32')")
        kind = self._kind(shape, result)
        if all(not isinstance(v, TensorHandle) or v.dtype == "f32" for v in (a, b)):
            # f32 needs no widening and no rounding: the NumPy function itself
            plan = Plan(kind, numerics.BINARY[op])
        else:
            plan = Plan(kind, Elementwise(numerics.binary, op, dtype=dtype, out_dtype=result))
        if dtype in FLOATS or all(isinstance(v, TensorHandle) for v in (a, b)):
            # whether a whole number fits an integer type has to be looked at each time
            self._plans[key] = plan
        return plan

    def _broadcast(self, op: str, left: Shape, right: Shape) -> Shape:
        if left == right or not right:
            return left
        try:
            return np.broadcast_shapes(left, right)
        except ValueError:
            self._fail(
                "shape",
                f"{op}: shapes {left} and {right} do not broadcast",
                "each axis must be equal or 1, counted from the last; reductions keep their axis as size 1",
            )

    def _meet(self, op: str, a: Operand, b: Operand) -> str:
        """The element type two operands compute in; at least one is a handle."""
        if isinstance(a, TensorHandle):
            if isinstance(b, TensorHandle):
                return a.dtype if a.dtype == b.dtype else promote(a.dtype, b.dtype)
            handle, number = a, b
        else:
            assert isinstance(b, TensorHandle)
            handle, number = b, a
        dtype = handle.dtype
        if dtype in FLOATS or type(number) is bool:
            return dtype
        if type(number) is float:
            return "f32"
        if dtype == "i1":
            self._fit(number, "i32")
            return "i32"
        if type(number) is int and number >= WINDOW:
            self._fail(
                "misuse",
                f"{op} of {number:#x}, which is an address, and a handle of {dtype}",
                "there are no pointers to single elements: load a tile, tl.load(ptr + bytes, shape, strides=...), or "
                "use tl.make_block_ptr or tl.make_tensor_descriptor; values of a table become numbers with int(handle)",
            )
        self._fit(number, dtype)
        return dtype

    def _integer_result(self, op: str, dtype: str) -> str:
        if op == "div":
            return "f32"
        if dtype == "i1" and op not in ("and", "or", "xor"):
            self._fail("dtype", f"{op} has no meaning on masks (i1)", "cast the mask with .to('i32')")
        return dtype

    def _unary(self, op: str, value: Operand, out: TensorHandle | None = None) -> Operand:
        """An elementwise operation of one operand."""
        site = self._sites.here(3)
        if type(value) is not TensorHandle:
            number: Number = numerics.UNARY[op](np.asarray(self._scalar(value), np.float32)).item()
            return number
        x = value.data
        if value.block.live_in is not self._scratch or (x is None and self._carries_data):
            x = self._missing_data(value)
        key = (op, value.type)
        plan = self._plans.get(key) or self._plan_unary(key, op, value)
        data = None if x is None else plan.compute(x)
        core = self._core
        if core.trace is not None:
            core.trace.append((core.steps, plan.compute, ((value.number, None),)))
        return core._emit(op, site, plan.kind, data, value.number, NONE, NONE, 0, 0, out)

    def _plan_unary(self, key: tuple[object, ...], op: str, handle: TensorHandle) -> Plan:
        dtype = handle.dtype
        if dtype not in FLOATS:
            if op not in numerics.KEEPS_INTEGERS:
                dtype = "f32"
            elif dtype == "i1" and op != "not":
                self._fail("dtype", f"{op} has no meaning on masks (i1)", "cast the mask with .to('i32')")
        elif op in numerics.INTEGER_ONLY:
            self._fail("dtype", f"{op} needs integers; got {dtype}", "cast the operand with .to('i32')")
        function = numerics.UNARY[op]
        if handle.dtype != "f32":
            compute: Callable[..., Array] = Elementwise(numerics.unary, op, dtype=dtype)
        else:
            compute = function if isinstance(function, np.ufunc) else Elementwise(function)
        plan = self._plans[key] = Plan(self._kind(handle.shape, dtype), compute)
        return plan

    def _fma(self, operands: tuple[Operand, Operand, Operand], out: TensorHandle | None) -> TensorHandle:
        """The product of two operands plus a third; at least one of them a handle."""
        site = self._sites.here(3)
        values: list[Any] = []
        types: list[object] = []
        numbers: list[int] = []
        for operand in operands:
            if type(operand) is TensorHandle:
                values.append(self._read("fma", operand))
                types.append(operand.type)
                numbers.append(operand.number)
            else:
                value = self._scalar(operand)
                values.append(value)
                types.append(type(value))
                numbers.append(NONE)
        key = ("fma", *types)
        plan = self._plans.get(key) or self._plan_fma(key, operands, values)
        x, y, z = values
        data = None if x is None or y is None or z is None else plan.compute(x, y, z)
        a, b, c = numbers
        if self._core.trace is not None:
            given = [operand if n != NONE else v for operand, n, v in zip(operands, numbers, values, strict=True)]
            self._core._traced(self._core.steps, plan.compute, *given)
        return self._emit("fma", site, plan.kind, data, a, b, c, 0, 0, out)

    def _plan_fma(self, key: tuple[object, ...], operands: tuple[Operand, ...], values: list[Any]) -> Plan:
        handles = [operand for operand in operands if type(operand) is TensorHandle]
        if not handles:
            self._handle("fma", operands[0])
        dtype, shape = handles[0].dtype, handles[0].shape
        for handle in handles[1:]:
            dtype, shape = promote(dtype, handle.dtype), self._broadcast("fma", shape, handle.shape)
        for operand, value in zip(operands, values, strict=True):
            if type(operand) is not TensorHandle:
                self._fit(value, dtype)
        plan = Plan(self._kind(shape, dtype), Elementwise(numerics.fma, dtype=dtype))
        if dtype in FLOATS or len(handles) == len(operands):
            self._plans[key] = plan
        return plan

    def _reduce(
        self, op: str, value: TensorHandle, axis: int | None, keep_dims: bool, dtype: str | None = None
    ) -> TensorHandle:
        """A reduction along `axis` (all axes for None), which stays as size 1 unless `keep_dims` is False."""
        site = self._sites.here(3)
        x = value.data if type(value) is TensorHandle else None
        if x is None or value.block.live_in is not self._scratch:
            x = self._read(op, value)
        key = (op, value.type, axis, dtype)
        plan = self._plans.get(key) or self._plan_reduce(key, op, value, axis, dtype)
        data = None if x is None else plan.compute(x)
        core = self._core
        if core.trace is not None:
            core.trace.append((core.steps, plan.compute, ((value.number, None),)))
        out = core._emit(op, site, plan.kind, data, value.number, NONE, NONE, plan.axis)
        if keep_dims:
            return out
        kept = tuple(n for i, n in enumerate(plan.kind.shape) if axis is not None and i != plan.axis)
        self._core._traced(self._core.next_view, partial(reshaped, kept), out)
        return self._view(out, kept, None, 0, None if out.data is None else out.data.reshape(kept))

    def _plan_reduce(
        self, key: tuple[object, ...], op: str, handle: TensorHandle, axis: int | None, dtype: str | None
    ) -> Plan:
        along = None if axis is None else self._axis(op, handle, axis)
        recorded = NONE if along is None else along
        shape = tuple(1 if along is None or i == along else n for i, n in enumerate(handle.shape))
        if 0 in handle.shape and op != "sum" and 0 not in shape:
            self._fail("shape", f"{op} over an empty axis of a handle of shape {handle.shape}")
        result = dtype or handle.dtype
        if op in ("argmax", "argmin") or (op == "sum" and dtype is None and result in ("i1", "i8")):
            result = "i32"
        kind = self._kind(shape, result)
        if handle.dtype == result == "f32":
            function = numerics.REDUCTIONS[op]
            plan = Plan(kind, Along(function, axis=along, keepdims=True), recorded)
        else:
            plan = Plan(kind, Along(numerics.reduce, op, axis=along, dtype=result), recorded)
        self._plans[key] = plan
        return plan

    def _convert(self, handle: TensorHandle, dtype: str, out: TensorHandle | None) -> TensorHandle:
        """Rounded to `dtype`; the handle itself if it has that type."""
        site = self._sites.here(3)
        if handle.dtype == dtype and (out is None or out is handle):
            if out is None:
                self._core._traced(self._core.next_view, same, handle)
            # a handle of its own, so that out= on one is seen by the other
            return self._view(handle, handle.shape, handle.strides, 0, handle.data) if out is None else handle
        x = self._data(handle)
        key = ("cast", handle.type, dtype)
        plan = self._plans.get(key)
        if plan is None:
            kind = self._kind(handle.shape, dtype)
            plan = self._plans[key] = Plan(kind, Elementwise(cast, dtype=dtype))
        data = None if x is None else plan.compute(x)
        if self._core.trace is not None:
            self._core._traced(self._core.steps, plan.compute, handle)
        return self._emit("cast", site, plan.kind, data, handle.number, NONE, NONE, 0, 0, out)


def _shape_of(value: Operand) -> Shape:
    return value.shape if isinstance(value, TensorHandle) else ()
