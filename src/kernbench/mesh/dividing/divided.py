"""The state of a launch that is divided over processes."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from kernbench.mesh.programs.placement import Placement
from kernbench.mesh.programs.port import MeshPort
from kernbench.mesh.programs.queues import Message, Queue, Receive
from kernbench.mesh.programs.scheduler import Program, Scheduler
from kernbench.mesh.programs.state import State
from kernbench.mesh.programs.tensors import Tensor
from kernbench.result.finding import FindingLog
from kernbench.result.recording import Tables
from kernbench.safety.budget import Budget
from kernbench.safety.source_locations import SiteTable
from kernbench.triton_emu.tl_context import TLContext


@dataclass(frozen=True)
class Divided:
    """The programs of a launch with their state, by number, and the state that they share.

    `kernel` is called without arguments; it is inspected for the objects it can reach.
    """

    placements: Sequence[Placement]
    programs: Sequence[Program]
    ports: Sequence[MeshPort]
    contexts: Sequence[TLContext]
    queues: Sequence[Queue]
    tensors: Sequence[Tensor]
    tables: Tables
    sites: SiteTable
    scheduler: Scheduler
    log: FindingLog
    printed: list[str]
    kernel: "partial[object]"
    budget: Budget

    def ends(self, queue: Queue) -> tuple[int, int]:
        """The programs that send to a queue and receive from it."""
        sender, receiver = (
            next(p.number for p in self.placements if p.seat == seat) for seat in (queue.sender, queue.receiver)
        )
        return sender, receiver

    def left(self) -> list[int]:
        """Programs that have not ended."""
        return [p.number for p in self.programs if p.state in (State.READY, State.WAITING)]

    def under_way(self, number: int) -> list[Message | Receive]:
        """Requests of a program that it may still wait for; the one that it waits for is the last, or among them."""
        waits = self.programs[number].waits
        pending = [one._request for one in self.contexts[number].pending]
        last = [] if waits is None or any(waits[0] is one for one in pending) else [waits[0]]
        return [one for one in (*pending, *last) if isinstance(one, Message | Receive)]

    def progress(self) -> object:
        """A value that changes while programs make progress."""
        return self.scheduler.switches, sum(context.core.steps for context in self.contexts)
