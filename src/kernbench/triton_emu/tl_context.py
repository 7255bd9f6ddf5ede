"""The `tl` object a kernel is handed. One class serves both uses: outside a launch it records commands with shapes
only; inside a launch the same calls carry data and may block.

Names and argument order follow Triton wherever Triton has the operation. Handles stand for values in scratch memory;
reductions keep the reduced axis with size 1. `out=` lets a result take over the space of a handle (its own operand,
say), which from then on stands for the result.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from kernbench.common.dtypes import DTYPES, FLOATS, cast, promote
from kernbench.common.errors import KernelError, unknown
from kernbench.common.ipcq_types import DIRECTIONS, check_direction
from kernbench.common.pe_commands import TensorHandle, running_context
from kernbench.result.recording import NONE, ScratchType, Stream, Tables
from kernbench.safety.memory import WINDOW_BITS
from kernbench.safety.places import SiteTable, raised_at
from kernbench.triton_emu import numerics
from kernbench.triton_emu.arithmetic import Plan
from kernbench.triton_emu.core import Shape
from kernbench.triton_emu.pending import Pending, PendingRecv, PendingSend
from kernbench.triton_emu.port import Port
from kernbench.triton_emu.telling import Telling

__kernbench_internal__ = True

_DIRECTION = {name: number for number, name in enumerate(DIRECTIONS)}
_Out = TensorHandle | None


def _constexpr(value: Any) -> Any:
    return value


class UnknownOperationError(KernelError, AttributeError):
    """`tl` has no such name."""


class TLContext(Telling):
    """`tl` for one PE: `pe_id` of `num_programs` in cube `cube_id` of `num_cubes`."""

    float32, float16, bfloat16 = "f32", "f16", "bf16"
    float8e4nv, float8e5 = "f8e4m3", "f8e5m2"
    int32, int8, int1 = "i32", "i8", "i1"
    constexpr = staticmethod(_constexpr)
    static_range = range
    range = range

    def __init__(
        self,
        pe_id: int = 0,
        num_programs: int = 1,
        cube_id: int = 0,
        num_cubes: int = 1,
        dispatch_cycles: int = 0,
        scratch_base: int = 0,
        scratch_size: int = 4 << 20,
        *,
        package_id: int = 0,
        num_packages: int = 1,
        port: Port | None = None,
        stream: Stream | None = None,
        sites: SiteTable | None = None,
        max_steps: int = 1_000_000,
    ):
        # an empty stream is false, so only `is None` will do
        stream = Stream(pe_id, cube_id, pe_id, Tables()) if stream is None else stream
        sites = SiteTable(stream.tables.sites) if sites is None else sites
        super().__init__(stream, sites, Port() if port is None else port, scratch_base, scratch_size, max_steps)
        self._ids = (pe_id, cube_id, package_id)
        self._counts = (num_programs, num_cubes, num_packages)
        self.dispatch_cycles = dispatch_cycles
        self.scratch_size = scratch_size
        self.scratch_base = scratch_base
        self._pending: dict[int, Pending] = {}
        self._requests = 0
        self._known_steps: dict[Shape, Shape] = {}
        self._plain_loads: dict[tuple[Any, ...], tuple[tuple[int, int, int, int], ScratchType]] = {}

    @property
    def commands(self) -> Stream:
        """The commands dispatched so far, oldest first."""
        return self.stream

    @property
    def scratch_peak(self) -> int:
        """The most scratch bytes that were in use at once."""
        return self._scratch.peak

    @property
    def pending(self) -> list[Pending]:
        """Asynchronous requests nobody has waited for."""
        return list(self._pending.values())

    # Who am I

    def program_id(self, axis: int = 0) -> int:
        """The PE's id in its cube (axis 0), the cube's in the package (1), the package's (2)."""
        return self._ids[self._grid_axis(axis)]

    def num_programs(self, axis: int = 0) -> int:
        """How many there are along `axis`."""
        return self._counts[self._grid_axis(axis)]

    def _grid_axis(self, axis: int) -> int:
        if axis not in (0, 1, 2):
            self._fail("misuse", f"axis {axis!r} of the launch grid: 0 is the PE, 1 the cube, 2 the package")
        return axis

    # Memory

    def load(self, ptr: int, shape: Any = (1,), dtype: Any = None, *, strides: Any = None) -> TensorHandle:
        """`shape` elements of HBM from byte address `ptr`; `strides` (in elements) for a tile of a larger tensor.

        Without `dtype` they have the tensor's own type (f16 while a kernel is only recorded).
        """
        site = self._sites.here()
        if not self._carries_data and dtype is None and type(ptr) is int and type(shape) is tuple:
            # most loads of a run without data are like an earlier one that was looked at
            known = self._plain_loads.get((ptr >> WINDOW_BITS, shape, strides if type(strides) is tuple else None))
            if known is not None and (strides is None or type(strides) is tuple):
                (first, last, base, itemsize), kind = known
                if first <= ptr <= last and not (ptr - base) % itemsize:
                    return self._emit("load", site, kind, None, NONE, NONE, NONE, ptr, kind.nbytes)
        sizes, address = self._shape(shape), self._address("load", ptr)
        steps = None if strides is None else self._steps(sizes, strides)
        name = None if dtype is None else self._dtype(dtype)
        data, name = self._port.load(address, sizes, steps, name, self._sites.places[site])
        kind = self._tables.scratch_type(sizes, name)
        if dtype is None and not self._carries_data:
            unwatched = self._port.unwatched(address, sizes, steps)
            if unwatched is not None:
                self._plain_loads[address >> WINDOW_BITS, sizes, steps] = (unwatched, kind)
        return self._emit("load", site, kind, data, NONE, NONE, NONE, address, kind.nbytes)

    def store(self, ptr: int, value: TensorHandle, *, strides: Any = None) -> None:
        """`value` to HBM at byte address `ptr`, rounded to the tensor's own type."""
        site = self._sites.here()
        data, address = self._read("store", value), self._address("store", ptr)
        steps = None if strides is None else self._steps(value.shape, strides)
        nbytes = self._port.store(address, data, value.shape, steps, value.dtype, self._sites.places[site])
        self._record("store", site, value.number, address, nbytes)

    def element_type(self, ptr: int) -> str:
        """The element type of the tensor at byte address `ptr` (f16 while a kernel is only recorded); no command."""
        return self._port.element_type(self._address("element_type", ptr))

    def workspace(self, shape: Any, dtype: Any = "f32", name: str = "workspace") -> int:
        """The address of fresh HBM memory that belongs to this PE until the kernel returns; no command."""
        place = self._sites.places[self._sites.here()]
        return self._port.workspace(self._shape(shape), self._dtype(dtype), name, place)

    def _address(self, verb: str, ptr: Any) -> int:
        if type(ptr) is int and ptr >= 0:
            return ptr
        if isinstance(ptr, TensorHandle) and ptr.space == "hbm":
            return ptr.addr
        number = -1 if isinstance(ptr, (TensorHandle, bool, float)) else self._scalar(ptr)
        address = int(number) if isinstance(number, int) else -1
        if address < 0:
            self._fail(
                "misuse",
                f"{verb}: {ptr!r} is no byte address",
                "pass the tensor to the launch; addresses are whole numbers of bytes (divide with //)",
            )
        return address

    def _steps(self, shape: Shape, strides: Any) -> Shape:
        known = self._known_steps.get(strides) if type(strides) is tuple else None
        if known is None:
            known = self._whole_numbers(strides)
            self._known_steps[known] = known
        steps = known
        if len(steps) != len(shape):
            self._fail("shape", f"{len(steps)} strides for a shape of {len(shape)} axes: {steps} and {shape}")
        return steps

    # Making values

    def full(self, shape: Any, value: Any, dtype: Any = "f32") -> TensorHandle:
        """`shape` elements, all `value`."""
        site = self._sites.here()
        sizes, kind, number = self._shape(shape), self._dtype(dtype), self._scalar(value)
        self._fit(number, kind)
        data = None
        if self._port.carries_data:
            wide = np.full(sizes, number, np.float32 if DTYPES[kind].kind == "float" else np.int64)
            data = cast(wide, kind)
        return self._emit("full", site, self._tables.scratch_type(sizes, kind), data)

    def zeros(self, shape: Any, dtype: Any = "f32") -> TensorHandle:
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
        first, last = self._whole_numbers((first, last))
        if last < first:
            self._fail("shape", f"arange from {first} to {last}: the end lies before the start")
        self._fit(first, "i32")
        self._fit(max(first, last - 1), "i32")
        data = np.arange(first, last, dtype=np.int32) if self._port.carries_data else None
        return self._emit("arange", site, self._tables.scratch_type((last - first,), "i32"), data)

    # Computing

    def dot(
        self,
        input: TensorHandle,
        other: TensorHandle,
        acc: TensorHandle | None = None,
        input_precision: Any = None,
        allow_tf32: Any = None,
        max_num_imprecise_acc: Any = None,
        out_dtype: Any = None,
        *,
        out: _Out = None,
    ) -> TensorHandle:
        """input @ other (+ acc): one GEMM command. Accumulates in f32 (i8 operands: i32).

        The precision arguments are Triton's and change nothing here: products are exact.
        """
        site = self._sites.here()
        x, y = self._read("dot", input), self._read("dot", other)
        if acc is None:
            z, acc_type, acc_number = None, NONE, NONE
        else:
            z, acc_type, acc_number = self._read("dot", acc), acc.type, acc.number
        key = ("dot", input.type, other.type, acc_type, out_dtype)
        plan = self._plans.get(key) or self._plan_dot(key, input, other, acc, out_dtype)
        missing = x is None or y is None or (acc is not None and z is None)
        data = None if missing else plan.compute(x, y, z)
        return self._emit("dot", site, plan.kind, data, input.number, other.number, acc_number, 0, 0, out)

    def _plan_dot(
        self, key: tuple[Any, ...], a: TensorHandle, b: TensorHandle, acc: TensorHandle | None, out_dtype: Any
    ) -> Plan:
        result = self._dot_type(a, b, out_dtype)
        kind = self._tables.scratch_type(self._dot_shape(a, b, acc), result)
        operands = (a, b) if acc is None else (a, b, acc)
        if result == "f32" and all(h.dtype == "f32" for h in operands):
            plan = Plan(kind, numerics.dot_f32)
        else:
            plan = Plan(kind, lambda x, y, z: numerics.dot(x, y, z, result))
        self._plans[key] = plan
        return plan

    def _dot_type(self, a: TensorHandle, b: TensorHandle, out_dtype: Any) -> str:
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

    def softmax(self, input: TensorHandle, axis: int = -1) -> TensorHandle:
        """exp(x - max) / sum along `axis`: one command."""
        site = self._sites.here()
        handle = self._handle("softmax", input)
        axis = self._axis("softmax", handle, axis)
        if handle.shape[axis] == 0:
            self._fail("shape", f"softmax over an empty axis of a handle of shape {handle.shape}")
        kind = handle.dtype if handle.dtype in FLOATS else "f32"
        x = self._data(handle)
        data = None if x is None else numerics.softmax(x, axis, kind)
        return self._emit("softmax", site, self._tables.scratch_type(handle.shape, kind), data, handle.number, x=axis)

    def max(self, input: TensorHandle, axis: int | None = None, keep_dims: bool = True) -> TensorHandle:
        """Largest element along `axis` (all axes for None)."""
        return self._reduce("max", input, axis, keep_dims)

    def min(self, input: TensorHandle, axis: int | None = None, keep_dims: bool = True) -> TensorHandle:
        """Smallest element along `axis` (all axes for None)."""
        return self._reduce("min", input, axis, keep_dims)

    def sum(
        self, input: TensorHandle, axis: int | None = None, keep_dims: bool = True, dtype: Any = None
    ) -> TensorHandle:
        """Sum along `axis` (all axes for None), accumulated in f32 or i32."""
        return self._reduce("sum", input, axis, keep_dims, None if dtype is None else self._dtype(dtype))

    def argmax(self, input: TensorHandle, axis: int, keep_dims: bool = True) -> TensorHandle:
        """Where the largest element along `axis` is, as i32; the first of equals."""
        return self._reduce("argmax", input, axis, keep_dims)

    def argmin(self, input: TensorHandle, axis: int, keep_dims: bool = True) -> TensorHandle:
        """Where the smallest element along `axis` is, as i32; the first of equals."""
        return self._reduce("argmin", input, axis, keep_dims)

    def where(self, condition: Any, x: Any, y: Any, *, out: _Out = None) -> TensorHandle:
        """`x` where the mask holds, else `y`; either may be a number."""
        site = self._sites.here()
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
        m = self._data(mask)
        data = None
        if m is not None and a is not None and b is not None:
            target = DTYPES[kind].numpy
            a, b = (cast(np.asarray(v), kind) if np.asarray(v).dtype != target else v for v in (a, b))
            data = np.where(m, a, b)
        x_number, y_number = (NONE if h is None else h.number for h in (x_handle, y_handle))
        return self._emit(
            "where", site, self._tables.scratch_type(shape, kind), data, mask.number, x_number, y_number, out=out
        )

    def _where_type(self, x_handle: _Out, a: Any, y_handle: _Out, b: Any) -> str:
        if x_handle is not None and y_handle is not None:
            return promote(x_handle.dtype, y_handle.dtype)
        if x_handle is not None:
            return self._meet("where", x_handle, b)
        if y_handle is not None:
            return self._meet("where", a, y_handle)
        return "f32" if isinstance(a, float) or isinstance(b, float) else "i32"

    def cast(self, input: TensorHandle, dtype: Any, *, out: _Out = None) -> TensorHandle:
        """Rounded to `dtype`: one command, none if it has that type already."""
        return self._convert(self._handle("cast", input), self._dtype(dtype), out)

    def fma(self, x: Any, y: Any, z: Any, *, out: _Out = None) -> TensorHandle:
        """x * y + z: one command; at least one is a handle, the others may be numbers."""
        return self._fma((x, y, z), out)

    def cat(self, input: TensorHandle, other: TensorHandle, axis: int = 0) -> TensorHandle:
        """Two handles joined along `axis`: one command."""
        site = self._sites.here()
        a, b = self._handle("cat", input), self._handle("cat", other)
        axis = self._axis("cat", a, axis)
        rest = [tuple(n for i, n in enumerate(h.shape) if i != axis) for h in (a, b)]
        if a.ndim != b.ndim or rest[0] != rest[1]:
            self._fail("shape", f"cat of shapes {a.shape} and {b.shape} along axis {axis}: the other axes must agree")
        kind = promote(a.dtype, b.dtype)
        shape = tuple(n + b.shape[i] if i == axis else n for i, n in enumerate(a.shape))
        x, y = self._data(a), self._data(b)
        data = None
        if x is not None and y is not None:
            data = np.concatenate([cast(x, kind), cast(y, kind)], axis=axis)
        return self._emit("cat", site, self._tables.scratch_type(shape, kind), data, a.number, b.number)

    def value_of(self, input: TensorHandle) -> float | int | bool:
        """The one element of `input`, read back by the PE's CPU to branch on or to use as a number."""
        site = self._sites.here()
        handle = self._handle("reading a value", input)
        if handle.size != 1:
            self._fail(
                "shape", f"a handle of shape {handle.shape} has no single value", "reduce it to one element first"
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

    # Talking to neighbours

    def send(self, dir: str, src: TensorHandle) -> None:
        """`src` to the neighbour in direction `dir` (N, S, E, W); blocks while that neighbour's queue is full."""
        site = self._sites.here()
        place = self._sites.places[site]
        direction, data = self._direction(dir), self._read("send", src)
        # recorded first, so that a program that blocks here shows what it is doing
        self._record("send", site, src.number, _DIRECTION[direction], NONE)
        request = self._port.send(direction, data, src.shape, src.dtype, place)
        if request is not None and not request.done:
            self._port.wait_send(request, place)

    def recv(self, dir: str, shape: Any, dtype: Any = None) -> TensorHandle:
        """The next message from the neighbour in direction `dir`; blocks while there is none."""
        site = self._sites.here()
        place = self._sites.places[site]
        direction, sizes = self._direction(dir), self._shape(shape)
        data, name = self._port.recv_now(direction, sizes, None if dtype is None else self._dtype(dtype), place)
        kind = self._tables.scratch_type(sizes, name)
        return self._emit("recv", site, kind, data, NONE, NONE, NONE, _DIRECTION[direction], NONE)

    def send_async(self, dir: str, src: TensorHandle) -> PendingSend:
        """Start a send and go on; wait on what it returns before writing to `src` in place."""
        site = self._sites.here()
        place = self._sites.places[site]
        direction, handle = self._direction(dir), self._handle("send_async", src)
        request = self._port.send(direction, self._data(handle), handle.shape, handle.dtype, place)
        number = self._next_request()
        self._record("send_async", site, handle.number, _DIRECTION[direction], number)
        pending = PendingSend(self, number, request, direction, place, handle)
        self._pending[number] = pending
        handle.block.sends = (*handle.block.sends, pending)
        return pending

    def recv_async(self, dir: str, shape: Any, dtype: Any) -> PendingRecv:
        """Post a receive and go on; `wait()` on it gives the handle. Its space is taken now, hence the type."""
        site = self._sites.here()
        place = self._sites.places[site]
        direction, sizes = self._direction(dir), self._shape(shape)
        kind = self._dtype(dtype)
        request = self._port.recv(direction, sizes, kind, place)
        number = self._next_request()
        expected = self._tables.scratch_type(sizes, kind)
        handle = self._emit("recv_async", site, expected, None, x=_DIRECTION[direction], y=number)
        pending = PendingRecv(self, number, request, direction, place, handle)
        handle.block.arriving = pending
        self._pending[number] = pending
        return pending

    def wait(self, *pending: Any) -> Any:
        """Wait for asynchronous sends and receives, in order; gives the handle of a receive (a list for several)."""
        site = self._sites.here()
        results = [self._wait_one(p, site) for p in pending]
        return results[0] if len(results) == 1 else results

    def _wait_one(self, pending: Any, site: int) -> TensorHandle | None:
        if not isinstance(pending, Pending):
            self._fail(
                "misuse", f"wait: {pending!r} is nothing to wait for", "pass what send_async or recv_async returned"
            )
        handle = pending.handle if isinstance(pending, PendingRecv) else None
        if pending.done:
            return handle
        place = self._sites.places[site]
        self._record("wait", site, NONE, pending.number, 0)
        if isinstance(pending, PendingSend):
            self._port.wait_send(pending._request, place)
            self._release_source(pending)
        elif handle is not None:
            handle.data = handle.block.data = self._port.wait_recv(pending._request, place)[0]
            handle.block.arriving = None
        pending.done = True
        self._pending.pop(pending.number, None)
        return handle

    def _release_source(self, pending: PendingSend) -> None:
        if pending.src is not None:
            block = pending.src.block
            block.sends = tuple(p for p in block.sends if p is not pending)
        pending.src = None

    def _next_request(self) -> int:
        self._requests += 1
        return self._requests - 1

    def _direction(self, direction: Any) -> str:
        if type(direction) is str and direction in _DIRECTION:
            return direction
        try:
            return check_direction(direction)
        except KernelError as error:
            self._fail(error.kind, error.message, error.hint)

    # Small help for kernels written for Triton

    @staticmethod
    def cdiv(x: int, y: int) -> int:
        """x / y rounded up."""
        return -(-x // y)

    def static_assert(self, condition: bool, message: str = "") -> None:
        """Stop the kernel unless `condition` holds."""
        if not condition:
            self._fail("misuse", f"static_assert failed: {message or 'no message'}")


def _elementwise(op: str, operands: int, meaning: str) -> Callable[..., Any]:
    """The method for one elementwise row of the table."""
    if operands == 1:

        def unary(self: TLContext, x: Any, *, out: _Out = None) -> Any:
            return self._unary(op, x, out)

        method: Callable[..., Any] = unary
    else:

        def binary(self: TLContext, x: Any, y: Any, *, out: _Out = None) -> Any:
            return self._binary(op, x, y, out)

        method = binary
    method.__name__ = op
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
    "maximum": ("maximum", 2, "The larger of x and y"),
    "minimum": ("minimum", 2, "The smaller of x and y"),
}

for _name, _row in ELEMENTWISE.items():
    setattr(TLContext, _name, _elementwise(*_row))


def run_kernel(kernel: Callable[..., Any], tl: TLContext, *args: Any, **kwargs: Any) -> Any:
    """Call `kernel(*args, tl=tl, **kwargs)` with `tl` as the running context; what the kernel returns."""
    token = running_context.set(tl)
    try:
        return kernel(*args, tl=tl, **kwargs)
    except AttributeError as error:
        # not by __getattr__ on the context: with one, every use of an attribute costs several times as much
        if error.obj is not tl:
            raise
        known = sorted(n for n in dir(tl) if not n.startswith("_"))
        raise UnknownOperationError(
            "misuse", unknown("tl operation", error.name, known), "", raised_at(error)
        ) from None
    finally:
        running_context.reset(token)
