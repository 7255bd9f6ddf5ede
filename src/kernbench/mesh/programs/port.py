"""The interface of a program to its launch: its address space, its queues, and the log of findings."""

from collections.abc import Sequence

from kernbench.common.dtypes import Array, poisoned
from kernbench.common.ipcq_types import OPPOSITE
from kernbench.mesh.programs.calls import Calls
from kernbench.mesh.programs.placement import Placement
from kernbench.mesh.programs.queues import Message, Queue, Receive
from kernbench.mesh.programs.scheduler import Program, Scheduler
from kernbench.result.checkpoint import Checkpoint, Taken
from kernbench.result.finding import Finding, FindingLog, Other, SourceLocation
from kernbench.safety.budget import OverBudgetError, Watchdog
from kernbench.safety.memory import AddressSpace, Problem, Region
from kernbench.triton_emu.pe.port import Passed, Port, Shape

# most printed lines that a launch keeps
MOST_LINES = 10_000


class MeshPort(Port):
    """Memory and queues of one program. `outgoing` and `incoming` map a direction to the queue of that link."""

    def __init__(
        self,
        placement: Placement,
        memory: AddressSpace,
        log: FindingLog,
        scheduler: Scheduler,
        carries_data: bool,
        printed: list[str],
    ):
        super().__init__()
        self.rank = placement.rank
        self._placement = placement
        self.memory = memory
        self.carries_data = carries_data
        self.outgoing: dict[str, Queue] = {}
        self.incoming: dict[str, Queue] = {}
        self.program: Program | None = None
        self._log = log
        self._scheduler = scheduler
        self._wake = scheduler.wake
        self._overruns = 0
        self.printed = printed
        # comparison of checkpoints
        self.taken: Taken | None = None
        # log of calls to queues, if the launch is divided over processes
        self.calls: Calls | None = None

    def load(
        self, address: int, shape: Shape, strides: Shape | None, dtype: str | None, where: SourceLocation
    ) -> tuple[Array | None, str]:
        """The elements at `address`; poison if the access is invalid."""
        data, kind, problem = self.memory.load(address, shape, strides, dtype)
        if problem is not None:
            self._problem(problem, where)
        return data, kind

    def unwatched(self, address: int, shape: Shape, strides: Shape | None) -> tuple[int, int, int, int] | None:
        """The range in which accesses like this one need no check."""
        return self.memory.unwatched(address, shape, strides)

    def lent_at(self, address: int, shape: Shape, dtype: str | None) -> Region | None:
        """The region that gives out views of its memory to loads like this one."""
        return self.memory.lent_at(address, shape, dtype)

    def store(
        self, address: int, data: Array | None, shape: Shape, strides: Shape | None, dtype: str, where: SourceLocation
    ) -> int:
        """Store `data` at `address`; dropped if the access is invalid."""
        itemsize, problem = self.memory.store(address, data, shape, strides, dtype)
        if problem is not None:
            self._problem(problem, where)
        return itemsize

    def workspace(self, shape: Shape, dtype: str, name: str, where: SourceLocation) -> int:
        """Fresh, poisoned HBM memory of this PE alone."""
        return self.memory.allocate(f"{name} of {where}", shape, dtype).base

    def element_type(self, address: int) -> str:
        """The element type of the tensor at `address`; f16 where there is none."""
        region = self.memory.region_at(address)
        return "f16" if region is None else region.dtype

    def tensor_name(self, address: int) -> str | None:
        """The name of the tensor at `address`."""
        region = self.memory.region_at(address)
        return None if region is None else region.name

    def print(self, line: str, where: SourceLocation) -> None:
        """Print a line with its program; a launch keeps the first `MOST_LINES`."""
        if len(self.printed) < MOST_LINES:
            self.printed.append(f"rank {self.rank} at {where}: {line}")

    def checkpoint(self, name: str, data: Array, where: SourceLocation, keys: dict[str, object]) -> None:
        """Pass a named value to the comparison with the golden."""
        if self.taken is not None:
            self.taken(Checkpoint(name, data, where, f"rank {self.rank}", keys))

    def send(self, direction: str, data: Array | None, shape: Shape, dtype: str, where: SourceLocation) -> Message:
        """Start sending a copy of `data`."""
        if self._scheduler.is_random:
            self._give_way()
        queue = self.outgoing.get(direction)
        if queue is None:
            self._no_neighbour("send", direction, where)
            return Message(self.program, None, shape, dtype, 0, where, None)
        copy = None if data is None else data.copy()
        message = Message(self.program, copy, shape, dtype, queue.pieces(shape, dtype), where, queue)
        queue.offer(message, self._wake)
        if self.calls is not None:
            self.calls.sent(message, direction, message.pieces)
        return message

    def send_now(self, direction: str, data: Array | None, shape: Shape, dtype: str, where: SourceLocation) -> None:
        """Send and wait in one call; the wait for a message that has left is skipped unless calls are logged."""
        message = self.send(direction, data, shape, dtype, where)
        if not message.done or self.calls is not None:
            self.wait_send(message, where)

    def recv(self, direction: str, shape: Shape, dtype: str | None, where: SourceLocation) -> Receive:
        """Post a receive."""
        if self._scheduler.is_random:
            self._give_way()
        queue = self.incoming.get(direction)
        receive = Receive(self.program, shape, dtype, where, queue)
        if queue is None:
            self._no_neighbour("receive", direction, where)
        else:
            queue.post(receive, self._wake)
            if self.calls is not None:
                self.calls.posted(receive, direction)
        return receive

    def recv_now(
        self, direction: str, shape: Shape, dtype: str | None, where: SourceLocation
    ) -> tuple[Array | None, str]:
        """Receive and wait in one call; a matching message that has arrived needs no request."""
        queue = self.incoming.get(direction)
        noted = self._scheduler.is_random or self.calls is not None
        message = None if queue is None or noted else queue.ready()
        if queue is None or message is None or message.shape != shape or message.dtype != (dtype or message.dtype):
            return super().recv_now(direction, shape, dtype, where)
        queue.take()
        return message.data, message.dtype

    def pass_again(self, messages: Sequence[Passed]) -> bool:
        """Send and receive messages without data, one after the other; most need no wait."""
        if self._scheduler.is_random or self.calls is not None:
            return super().pass_again(messages)
        had_values = False
        for is_sent, direction, shape, dtype, where in messages:
            queue = (self.outgoing if is_sent else self.incoming).get(direction)
            if queue is None:
                super().pass_again([Passed(is_sent, direction, shape, dtype, where)])
            elif is_sent:
                message = Message(self.program, None, shape, dtype, queue.pieces(shape, dtype), where, queue)
                queue.offer(message, self._wake)
                if message.arrived != message.pieces:
                    self.wait_send(message, where)
            elif (ready := queue.ready()) is not None and ready.shape == shape and ready.dtype == dtype:
                had_values |= queue.take().data is not None
            else:
                had_values |= super().recv_now(direction, shape, dtype, where)[0] is not None
        return had_values

    def wait_send(self, request: Message, where: SourceLocation) -> None:
        """Yield until the message has left."""
        self._wait(request, where)
        if self.calls is not None:
            self.calls.waited(request)

    def wait_recv(self, request: Receive, where: SourceLocation) -> tuple[Array | None, str]:
        """Yield until the message is there; poison if it is not what was asked for."""
        if request.queue is None:
            return self._poison(request.shape, request.dtype or "f16")
        if request.message is None:
            self._wait(request, where)
        if self.calls is not None:
            self.calls.waited(request)
        message = request.message
        assert message is not None
        dtype = request.dtype or message.dtype
        if message.shape != request.shape or message.dtype != dtype:
            self._mismatch(request, message)
            return self._poison(request.shape, dtype)
        return message.data, dtype

    def _poison(self, shape: Shape, dtype: str) -> tuple[Array | None, str]:
        return (poisoned(shape, dtype) if self.carries_data else None), dtype

    def _give_way(self) -> None:
        """A random schedule may switch programs at every message."""
        if self.program is not None:
            self._scheduler.maybe_yield(self.program)

    def _wait(self, request: Message | Receive, where: SourceLocation) -> None:
        program = self.program
        assert program is not None
        while not request.done:
            self._scheduler.wait(program, (request, where))

    def _problem(self, problem: Problem, where: SourceLocation) -> None:
        self.report(problem.kind, problem.message, problem.hint, where, (), problem.subject)

    def _no_neighbour(self, verb: str, direction: str, where: SourceLocation) -> None:
        who = f"rank {self.rank}"
        hint = "guard it with the rank (edge ranks have no outer neighbour), or install another wiring"
        if not self._placement.leads:
            who = f"PE {self._placement.pe} of cube {self._placement.cube}"
            hint = (
                "with rank_axis=1 only PE 0 of a cube has neighbours: the others return (if tl.program_id(0): return), "
                "or the host wires them to each other (inside='line')"
            )
        installed = ", ".join(sorted(self.outgoing)) or "none"
        message = f"{verb} {direction}: {who} has no neighbour there; installed directions: {installed}"
        self.report("no-neighbour", message, hint, where, (), (direction, self._placement.leads))

    def _mismatch(self, request: Receive, message: Message) -> None:
        assert request.queue is not None
        wanted = f"{'x'.join(map(str, request.shape))} {request.dtype or message.dtype}"
        side = OPPOSITE[request.queue.direction]
        self.report(
            "message-mismatch",
            f"receive from {side} expects {wanted}, but the message from {request.queue.names[0]} is "
            f"{message.describe()}",
            "messages of one link arrive in the order they were sent: compare both sides' order, shape and dtype",
            request.where,
            (Other("the send", message.where),),
            side,
        )

    def report(
        self,
        kind: str,
        message: str,
        hint: str,
        where: SourceLocation,
        others: tuple[Other, ...] = (),
        subject: object = None,
    ) -> None:
        """Report a finding for this rank, unless the program is being ended."""
        if not self._scheduler.ending:
            self._log.add(Finding(kind, message, where, others, hint, 1, (self.rank,)), subject)

    def is_late(self) -> bool:
        """Whether the launch has used up its time."""
        return self._scheduler.is_late()

    def pause(self) -> None:
        """Between two commands: let the launch be divided, if that is due."""
        if self.program is not None and self._scheduler.is_due():
            self._scheduler.pause(self.program)

    def over_budget(self, steps: int, where: SourceLocation) -> None:
        """End this program; one that catches that error twice is abandoned."""
        self._overruns += 1
        error = OverBudgetError(f"dispatched {steps:,} commands and had not returned", where)
        if self._overruns > Watchdog.PATIENCE:
            self._scheduler.abandon(error)
        raise error


def waiting(what: tuple[Message | Receive, SourceLocation]) -> tuple[Message | Receive, SourceLocation]:
    """The request that a blocked program waits for, and its source location."""
    request, where = what
    return request, where
