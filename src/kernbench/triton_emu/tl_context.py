"""The `tl` object a kernel is handed. One class serves both uses: outside a launch it records commands with shapes
only; inside a launch the same calls carry data and may block.

Names and argument order follow Triton wherever Triton has the operation. Handles stand for values in scratch memory;
reductions keep the reduced axis with size 1. `out=` lets a result take over the space of a handle (its own operand,
say), which from then on stands for the result.
"""

from collections.abc import Callable
from typing import Any

from kernbench.common.errors import KernelError
from kernbench.common.ipcq_types import DIRECTIONS, check_direction
from kernbench.common.pe_commands import TensorHandle, running_context
from kernbench.result.recording import NONE, Stream, Tables
from kernbench.safety.places import SiteTable
from kernbench.triton_emu.computing import ELEMENTWISE, PropagateNan
from kernbench.triton_emu.explaining import UnknownOperationError, explained
from kernbench.triton_emu.hints import Hints
from kernbench.triton_emu.pending import Pending, PendingRecv, PendingSend
from kernbench.triton_emu.port import Port

__all__ = ["ELEMENTWISE", "TLContext", "UnknownOperationError", "run_kernel"]

__kernbench_internal__ = True

_DIRECTION = {name: number for number, name in enumerate(DIRECTIONS)}


class TLContext(Hints):
    """`tl` for one PE: `pe_id` of `num_programs` in cube `cube_id` of `num_cubes`."""

    float32, float16, bfloat16 = "f32", "f16", "bf16"
    float8e4nv, float8e5 = "f8e4m3", "f8e5m2"
    int32, int8, int1 = "i32", "i8", "i1"
    tensor, tuple, slice = TensorHandle, tuple, slice
    PropagateNan = PropagateNan

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
        # how often the program asked which one it is
        self.ids_asked = 0
        # kernels may add to this object: see `loop_state`
        self.own_names = frozenset((*vars(self), "own_names"))

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
        self.ids_asked += 1
        return self._ids[self._grid_axis(axis)]

    def num_programs(self, axis: int = 0) -> int:
        """How many there are along `axis`."""
        return self._counts[self._grid_axis(axis)]

    def _grid_axis(self, axis: int) -> int:
        if axis not in (0, 1, 2):
            self._fail("misuse", f"axis {axis!r} of the launch grid: 0 is the PE, 1 the cube, 2 the package")
        return axis

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


def run_kernel(kernel: Callable[..., Any], tl: TLContext, *args: Any, **kwargs: Any) -> Any:
    """Call `kernel(*args, tl=tl, **kwargs)` with `tl` as the running context; what the kernel returns."""
    token = running_context.set(tl)
    try:
        return kernel(*args, tl=tl, **kwargs)
    except (AttributeError, TypeError) as error:
        # not by __getattr__ on the context: with one, every use of an attribute costs several times as much
        told = explained(error, tl)
        if told is None:
            raise
        raise told from None
    finally:
        running_context.reset(token)
