"""The `tl` object a kernel is handed. One class serves both uses: outside a launch it records commands with shapes
only; inside a launch the same calls carry data and may block.

Names and argument order follow Triton wherever Triton has the operation. Handles stand for values in scratch memory;
reductions keep the reduced axis with size 1. `out=` lets a result take over the space of a handle (its own operand,
say), which from then on stands for the result.
"""

from collections.abc import Callable
from functools import cached_property
from inspect import get_annotations
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar, overload

from kernbench.common.pe_commands import TensorHandle, running_context
from kernbench.result.recording import Stream, Tables
from kernbench.safety.source_locations import SiteTable
from kernbench.triton_emu.engine.core import Core
from kernbench.triton_emu.engine.part import Part
from kernbench.triton_emu.explaining import UnknownOperationError, explained
from kernbench.triton_emu.operations.arithmetic import Arithmetic
from kernbench.triton_emu.operations.computing import ELEMENTWISE, Computing, PropagateNan
from kernbench.triton_emu.operations.debugging import Debugging
from kernbench.triton_emu.operations.hints import Hints
from kernbench.triton_emu.operations.memory import Memory
from kernbench.triton_emu.operations.messages import Messages
from kernbench.triton_emu.operations.pending import Pending
from kernbench.triton_emu.operations.randomness import Randomness
from kernbench.triton_emu.operations.rearranging import Rearranging
from kernbench.triton_emu.operations.signatures import Binary, Clamped, Larger, Largest, Product, Unary
from kernbench.triton_emu.operations.views import Views
from kernbench.triton_emu.pe.port import Port

__all__ = ["ELEMENTWISE", "TLContext", "UnknownOperationError", "run_kernel"]

__kernbench_internal__ = True

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


class Lent(Generic[Arguments, Result]):
    """A name of `tl` that one of its parts answers.

    The first use in a context puts the part's bound method there, so that each further one costs no more than a method
    of its own; of the class it is the function, for documents and error messages.
    """

    def __init__(self, function: Callable[Concatenate[Any, Arguments], Result]):
        self.__func__ = function

    @overload
    def __get__(self, tl: None, owner: "type[TLContext]") -> Callable[Concatenate[Any, Arguments], Result]: ...

    @overload
    def __get__(self, tl: "TLContext", owner: "type[TLContext]") -> Callable[Arguments, Result]: ...

    def __get__(self, tl: "TLContext | None", owner: "type[TLContext]") -> Callable[..., Result]:
        if tl is None:
            return self.__func__
        name = self.__func__.__name__
        bound: Callable[..., Result] = getattr(tl.parts.with_name(name), name)
        tl.__dict__[name] = tl.as_made[name] = bound
        return bound


class Parts:
    """The parts of a context, each made with those it needs when it is first used."""

    def __init__(self, core: Core):
        self._core = core
        self.arithmetic = Arithmetic(core)

    @cached_property
    def memory(self) -> Memory:
        """HBM, by address and by tile."""
        return Memory(self._core)

    @cached_property
    def messages(self) -> Messages:
        """Neighbours."""
        return Messages(self._core)

    @cached_property
    def views(self) -> Views:
        """Other shapes of the same elements."""
        return Views(self._core, self.arithmetic)

    @cached_property
    def computing(self) -> Computing:
        """Making values and computing with them."""
        return Computing(self._core, self.arithmetic, self.views)

    @cached_property
    def rearranging(self) -> Rearranging:
        """Joining, sorting, picking and folding."""
        return Rearranging(self._core, self.arithmetic, self.views, self.computing)

    @cached_property
    def randomness(self) -> Randomness:
        """Random numbers."""
        return Randomness(self._core, self.arithmetic, self.computing)

    @cached_property
    def hints(self) -> Hints:
        """Hints to Triton's compiler."""
        return Hints(self._core, self.computing)

    @cached_property
    def debugging(self) -> Debugging:
        """Printing, asserting and naming values."""
        return Debugging(self._core)

    def with_name(self, name: str) -> Part:
        """The part that has an operation."""
        part: Part = getattr(self, next(own for own, kind in _KINDS.items() if name in vars(kind)))
        return part


_KINDS: dict[str, type[Part]] = {
    "memory": Memory,
    "messages": Messages,
    "views": Views,
    "computing": Computing,
    "rearranging": Rearranging,
    "randomness": Randomness,
    "hints": Hints,
    "debugging": Debugging,
}


class TLContext:
    """`tl` for one PE: `pe_id` of `num_programs` in cube `cube_id` of `num_cubes`.

    It is an engine (`Core`: scratch memory, numbers of values, rows of commands) and the parts that work on it; the
    names a kernel sees are lent from those.
    """

    float32, float16, bfloat16 = "f32", "f16", "bf16"
    float8e4nv, float8e5 = "f8e4m3", "f8e5m2"
    int32, int8, int1 = "i32", "i8", "i1"
    tensor, tuple, slice = TensorHandle, tuple, slice
    PropagateNan = PropagateNan

    load = Lent(Memory.load)
    store = Lent(Memory.store)
    element_type = Lent(Memory.element_type)
    workspace = Lent(Memory.workspace)
    make_block_ptr = Lent(Memory.make_block_ptr)
    advance = Lent(Memory.advance)
    make_tensor_descriptor = Lent(Memory.make_tensor_descriptor)
    load_tensor_descriptor = Lent(Memory.load_tensor_descriptor)
    store_tensor_descriptor = Lent(Memory.store_tensor_descriptor)
    send = Lent(Messages.send)
    recv = Lent(Messages.recv)
    send_async = Lent(Messages.send_async)
    recv_async = Lent(Messages.recv_async)
    wait = Lent(Messages.wait)
    trans = Lent(Views.trans)
    permute = Lent(Views.permute)
    reshape = Lent(Views.reshape)
    view = Lent(Views.view)
    ravel = Lent(Views.ravel)
    squeeze = Lent(Views.squeeze)
    unsqueeze = Lent(Views.unsqueeze)
    expand_dims = Lent(Views.expand_dims)
    flip = Lent(Views.flip)
    split = Lent(Views.split)
    broadcast = Lent(Views.broadcast)
    broadcast_to = Lent(Views.broadcast_to)
    index = Lent(Views.index)
    full = Lent(Computing.full)
    zeros = Lent(Computing.zeros)
    zeros_like = Lent(Computing.zeros_like)
    arange = Lent(Computing.arange)
    dot = Lent(Computing.dot)
    softmax = Lent(Computing.softmax)
    where = Lent(Computing.where)
    cast = Lent(Computing.cast)
    fma = Lent(Computing.fma)
    value_of = Lent(Computing.value_of)
    sum = Lent(Computing.sum)
    argmax = Lent(Computing.argmax)
    argmin = Lent(Computing.argmin)
    cat = Lent(Rearranging.cat)
    join = Lent(Rearranging.join)
    interleave = Lent(Rearranging.interleave)
    gather = Lent(Rearranging.gather)
    sort = Lent(Rearranging.sort)
    topk = Lent(Rearranging.topk)
    histogram = Lent(Rearranging.histogram)
    cumsum = Lent(Rearranging.cumsum)
    cumprod = Lent(Rearranging.cumprod)
    xor_sum = Lent(Rearranging.xor_sum)
    reduce_or = Lent(Rearranging.reduce_or)
    reduce = Lent(Rearranging.reduce)
    associative_scan = Lent(Rearranging.associative_scan)
    philox = Lent(Randomness.philox)
    randint = Lent(Randomness.randint)
    randint4x = Lent(Randomness.randint4x)
    rand = Lent(Randomness.rand)
    rand4x = Lent(Randomness.rand4x)
    randn = Lent(Randomness.randn)
    randn4x = Lent(Randomness.randn4x)
    uint_to_uniform_float = Lent(Randomness.uint_to_uniform_float)
    pair_uniform_to_normal = Lent(Randomness.pair_uniform_to_normal)
    range = Lent(Hints.range)  # type: ignore[arg-type]
    routine = Lent(Hints.routine)
    cdiv = Lent(Hints.cdiv)
    swizzle2d = Lent(Hints.swizzle2d)
    multiple_of = Lent(Hints.multiple_of)
    max_contiguous = Lent(Hints.max_contiguous)
    max_constancy = Lent(Hints.max_constancy)
    debug_barrier = Lent(Hints.debug_barrier)
    to_tensor = Lent(Hints.to_tensor)
    static_assert = Lent(Hints.static_assert)
    constexpr, static_range = staticmethod(Hints.constexpr), staticmethod(Hints.static_range)
    device_print = Lent(Debugging.device_print)
    static_print = Lent(Debugging.static_print)
    device_assert = Lent(Debugging.device_assert)
    assume = Lent(Debugging.assume)
    checkpoint = Lent(Debugging.checkpoint)  # type: ignore[arg-type]
    adopt = Lent(Core.adopt)

    # What these give back depends on what they are given; they are lent below, by these names.
    exp: Unary
    exp2: Unary
    log: Unary
    log2: Unary
    sqrt: Unary
    sqrt_rn: Unary
    rsqrt: Unary
    sigmoid: Unary
    sin: Unary
    cos: Unary
    erf: Unary
    tanh: Unary
    abs: Unary
    floor: Unary
    ceil: Unary
    neg: Unary
    add: Binary
    sub: Binary
    mul: Binary
    div: Binary
    fdiv: Binary
    div_rn: Binary
    umulhi: Product
    maximum: Larger
    minimum: Larger
    clamp: Clamped
    max: Largest
    min: Largest

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
        core = Core(stream, sites, Port() if port is None else port, scratch_base, scratch_size, max_steps)
        core.tl, core.opaque = self, (TLContext, Parts, Part, Core)
        self.core = core
        self._ids = (pe_id, cube_id, package_id)
        self._counts = (num_programs, num_cubes, num_packages)
        self.dispatch_cycles = dispatch_cycles
        self.scratch_size = scratch_size
        self.scratch_base = scratch_base
        self.parts = Parts(core)
        # what operators of handles use
        self._unary, self._binary = self.parts.arithmetic._unary, self.parts.arithmetic._binary
        self.adopt, self._fail, self._dtype = core.adopt, core._fail, core._dtype
        # kernels may add to this object, or put something else in place of a name: see `loop_state`
        self.as_made: dict[str, object] = dict(vars(self))
        self.as_made["as_made"] = self.as_made

    @property
    def commands(self) -> Stream:
        """The commands dispatched so far, oldest first."""
        return self.core.stream

    @property
    def scratch_peak(self) -> int:
        """The most scratch bytes that were in use at once."""
        return self.core._scratch.peak

    @property
    def pending(self) -> list[Pending]:
        """Asynchronous requests nobody has waited for."""
        return list(self.parts.messages.pending.values())

    @property
    def math(self) -> "TLContext":
        """`tl` itself: tl.math.exp is tl.exp."""
        return self

    # Who am I

    def program_id(self, axis: int = 0) -> int:
        """The PE's id in its cube (axis 0), the cube's in the package (1), the package's (2)."""
        self.core.ids_asked += 1
        return self._ids[self._grid_axis(axis)]

    def num_programs(self, axis: int = 0) -> int:
        """How many there are along `axis`."""
        return self._counts[self._grid_axis(axis)]

    def _grid_axis(self, axis: int) -> int:
        if axis not in (0, 1, 2):
            self._fail("misuse", f"axis {axis!r} of the launch grid: 0 is the PE, 1 the cube, 2 the package")
        return axis


for _name in get_annotations(TLContext):
    setattr(TLContext, _name, Lent(getattr(Computing, _name)))


def run_kernel(kernel: Callable[..., Result], tl: TLContext, *args: object, **kwargs: object) -> Result:
    """Call `kernel(*args, tl=tl, **kwargs)` with `tl` as the running context; what the kernel returns."""
    token = running_context.set(tl)
    try:
        return kernel(*args, tl=tl, **kwargs)
    except (AttributeError, TypeError) as error:
        # not by __getattr__ on the context: with one, every use of an attribute costs several times as much
        explanation = explained(error, tl)
        if explanation is None:
            raise
        raise explanation from None
    finally:
        running_context.reset(token)
