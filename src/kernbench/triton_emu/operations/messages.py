"""Messages to and from neighbours: sends and receives that block, and those to be waited for."""

from typing import Any

from kernbench.common.errors import KernelError
from kernbench.common.ipcq_types import DIRECTIONS, check_direction
from kernbench.common.pe_commands import TensorHandle
from kernbench.result.recording import NONE
from kernbench.triton_emu.engine.core import Core
from kernbench.triton_emu.engine.part import Part
from kernbench.triton_emu.engine.written import ElementType, Sizes
from kernbench.triton_emu.operations.pending import Pending, PendingRecv, PendingSend

__kernbench_internal__ = True

_DIRECTION = {name: number for number, name in enumerate(DIRECTIONS)}


class Messages(Part):
    """Talking to neighbours."""

    def __init__(self, core: Core):
        super().__init__(core)
        self.pending: dict[int, Pending] = {}
        self._requests = 0

    def send(self, dir: str, src: TensorHandle) -> None:
        """`src` to the neighbour in direction `dir` (N, S, E, W); blocks while that neighbour's queue is full."""
        site = self._sites.here()
        location = self._sites.locations[site]
        direction, data = self._direction(dir), self._read("send", src)
        self._require_room(src.nbytes)
        # recorded first, so that a program that blocks here shows what it is doing
        self._record("send", site, src.number, _DIRECTION[direction], NONE)
        self._core._port.send_now(direction, data, src.shape, src.dtype, location)

    def recv(self, dir: str, shape: Sizes, dtype: ElementType = None) -> TensorHandle:
        """The next message from the neighbour in direction `dir`; blocks while there is none."""
        site = self._sites.here()
        location = self._sites.locations[site]
        direction, sizes = self._direction(dir), self._shape(shape)
        data, name = self._core._port.recv_now(
            direction, sizes, None if dtype is None else self._dtype(dtype), location
        )
        kind = self._tables.scratch_type(sizes, name)
        return self._emit("recv", site, kind, data, NONE, NONE, NONE, _DIRECTION[direction], NONE)

    def send_async(self, dir: str, src: TensorHandle) -> PendingSend:
        """Start a send and go on; wait on what it returns before writing to `src` in place."""
        site = self._sites.here()
        location = self._sites.locations[site]
        direction, handle = self._direction(dir), self._handle("send_async", src)
        self._require_room(handle.nbytes)
        request = self._core._port.send(direction, self._data(handle), handle.shape, handle.dtype, location)
        number = self._next_request()
        self._record("send_async", site, handle.number, _DIRECTION[direction], number)
        pending = PendingSend(self._core.tl, number, request, direction, location, handle)
        self.pending[number] = pending
        handle.block.sends = (*handle.block.sends, pending)
        return pending

    def recv_async(self, dir: str, shape: Sizes, dtype: ElementType) -> PendingRecv:
        """Post a receive and go on; `wait()` on it gives the handle. Its space is taken now, hence the type."""
        site = self._sites.here()
        location = self._sites.locations[site]
        direction, sizes = self._direction(dir), self._shape(shape)
        kind = self._dtype(dtype)
        request = self._core._port.recv(direction, sizes, kind, location)
        number = self._next_request()
        expected = self._tables.scratch_type(sizes, kind)
        handle = self._emit("recv_async", site, expected, None, x=_DIRECTION[direction], y=number)
        pending = PendingRecv(self._core.tl, number, request, direction, location, handle)
        handle.block.arriving = pending
        self.pending[number] = pending
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
        location = self._sites.locations[site]
        self._record("wait", site, NONE, pending.number, 0)
        if isinstance(pending, PendingSend):
            self._core._port.wait_send(pending._request, location)
            self._release_source(pending)
        elif handle is not None:
            handle.data = handle.block.data = self._core._port.wait_recv(pending._request, location)[0]
            handle.block.arriving = None
        pending.done = True
        self.pending.pop(pending.number, None)
        return handle

    def _release_source(self, pending: PendingSend) -> None:
        if pending.src is not None:
            block = pending.src.block
            block.sends = tuple(p for p in block.sends if p is not pending)
        pending.src = None

    def _next_request(self) -> int:
        self._requests += 1
        return self._requests - 1

    def _direction(self, direction: object) -> str:
        if type(direction) is str and direction in _DIRECTION:
            return direction
        try:
            return check_direction(direction)
        except KernelError as error:
            self._fail(error.kind, error.message, error.hint)
