"""A block that has begun: its cores, the coroutines of its lanes, and what its waiting lanes wait for."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from kernbench.npu.core.transfers import KernelCore
from kernbench.npu.execution.residency import Cores
from kernbench.npu.isa.units import LANES
from kernbench.npu.tasks.fifo import FifoState
from kernbench.npu.tasks.task import Block, called_from
from kernbench.result.finding import Finding, Other, SourceLocation

__kernbench_internal__ = True
_SHOWN = 8


@dataclass
class Waiting:
    """A waiting lane: on which FIFO, for which operation, for which condition, where, and the calls that led there.

    Without a FIFO, `explain` gives the reason of the wait. A wait is local if only lanes of its block can end it.
    """

    fifo: FifoState | None
    verb: str
    can_go: Callable[[], bool]
    where: SourceLocation
    callers: tuple[SourceLocation, ...]
    explain: Callable[[], str] | None
    is_local: bool

    def line(self, lane: int) -> list[str]:
        """What the lane waits for."""
        if self.fifo is None:
            return [
                f"  {LANES[lane]}: {self.verb} at {self.where}: {self.explain() if self.explain is not None else ''}"
            ]
        state = self.fifo
        ours = state.pushed[lane] if self.verb == "push" else state.popped[lane]
        need = "all slots are full" if self.verb == "push" else "there is no message"
        first = f"  {LANES[lane]}: {self.verb} number {ours + 1} of {state.fifo.describe()} at {self.where}: {need}"
        counts = [f"{LANES[k]} pushed {n}" for k, n in state.pushed.items()]
        counts += [f"{LANES[k]} popped {n}" for k, n in state.popped.items()]
        return [first, f"    {', '.join(counts)}"]


@dataclass(eq=False)
class Started:
    """A block that has begun and has not ended."""

    block: Block
    cores: dict[int, KernelCore]
    running: dict[int, Any] = field(default_factory=dict)
    # what the coroutines of lanes that have not started yet are to run
    jobs: dict[int, tuple[object, ...]] = field(default_factory=dict)
    waits: dict[int, Waiting] = field(default_factory=dict)
    held: Cores = ()

    def able(self) -> list[int]:
        """The lanes that can continue."""
        return [lane for lane in self.running if lane not in self.waits or self.waits[lane].can_go()]

    @property
    def is_local(self) -> bool:
        """Whether only its own lanes could end its waits."""
        return all(wait.is_local for wait in self.waits.values())

    def lines(self) -> list[str]:
        """Who waits for what."""
        lines = [f"no lane of {self.block.task.describe()}, block {self.block.index} can go on:"]
        for lane in sorted(self.running):
            lines += self.waits[lane].line(lane)
        ended = [LANES[lane] for lane in self.block.task.kernels if lane not in self.running]
        if ended:
            lines.append(f"  {' and '.join(ended)} {'has' if len(ended) == 1 else 'have'} returned")
        return lines


def deadlock(blocks: list[Started], unstarted: str = "") -> Finding:
    """The finding for blocks that all wait."""
    lines = [line for started in blocks[:_SHOWN] for line in started.lines()]
    if len(blocks) > _SHOWN:
        lines.append(f"and {len(blocks) - _SHOWN} more blocks")
    if unstarted:
        lines.append(unstarted)
    waits = [(lane, s.waits[lane]) for s in blocks[:_SHOWN] for lane in sorted(s.running)]
    others = tuple(
        Other(f"{LANES[lane]} waits to {w.verb}" if w.fifo is not None else f"{LANES[lane]} waits: {w.verb}", w.where)
        for lane, w in waits[1:]
    )
    for lane, w in waits:
        others += called_from(w.where, w.callers, f"{LANES[lane]}: called from")
    of_fifos = all(w.fifo is not None for _, w in waits)
    hint = (
        "every message is pushed once by each producer and popped once by each consumer; check the loops' ends"
        if of_fifos
        else "every wait needs its post: the same flag or signal, counted as often as it is waited for, by a block "
        "that has a core; blocks that wait for each other start together with sync_start=True"
    )
    return Finding("deadlock", "\n".join(lines), waits[0][1].where, others, hint)
