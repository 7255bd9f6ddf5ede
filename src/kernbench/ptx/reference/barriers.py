"""Barriers of blocks and clusters: who has arrived, who waits, and what those who wait learn.

A barrier without a count is for all live threads of the block; one with a count is for that many, and a warp whose live
lanes have all arrived counts as 32. bar.arrive releases but does not acquire. A thread that arrives at a barrier must
know that the previous round there is complete, or it may be counted in that round: it waited there, or acquired from a
thread that did, or knows of every arrival of the round. A thread may arrive more than once in one round. All arrivals
of a round must have the same count and the same operation.
"""

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from kernbench.ptx.reference.order import Knowledge, known_together

if TYPE_CHECKING:
    from kernbench.ptx.reference.machine import Machine, Thread

WARP = 32


@dataclass(eq=False)
class Arrival:
    """A thread's arrival at a barrier, with its knowledge then, and the register for the result of a reduction."""

    thread: "Thread"
    knowledge: Knowledge
    clock: int
    waits: bool
    holds: bool
    target: str | None

    def known_to(self, thread: "Thread") -> bool:
        """Whether a thread is ordered after this arrival; barriers count warps, so those of its own warp are known."""
        same = (thread.cta, thread.warp) == (self.thread.cta, self.thread.warp)
        return same or thread.knowledge.clocks[self.thread.number] >= self.clock


@dataclass(eq=False)
class Round:
    """One round of a block's barrier; `operation` is that of a reduction, "" for sync and arrive."""

    count: int | None = None
    operation: str = ""
    arrivals: list[Arrival] = field(default_factory=list)

    def units(self, machine: "Machine") -> int:
        """Number of arrived threads; warps of which all live lanes have arrived count as 32."""
        warps: dict[int, list[Thread]] = {}
        for one in self.arrivals:
            warps.setdefault(one.thread.warp, []).append(one.thread)
        return sum(self._warp_units(machine, threads) for threads in warps.values())

    def _warp_units(self, machine: "Machine", threads: "list[Thread]") -> int:
        """The same for one warp, which may arrive several times with bar.arrive."""
        times = Counter(thread.number for thread in threads)
        whole = all(one.number in times for one in machine.warp_of(threads[0]))
        return WARP * max(times.values()) if whole else len(threads)


class CtaBarriers:
    """The barriers of all blocks."""

    def __init__(self, machine: "Machine"):
        self._machine = machine
        self._rounds: dict[tuple[int, int], Round] = {}
        # the last complete round of each barrier, and the threads that waited in it with their clocks at its end
        self._last: dict[tuple[int, int], tuple[Round, dict[int, int]]] = {}

    def arrive(
        self,
        threads: "list[Thread]",
        number: int,
        count: int | None,
        waits: bool,
        votes: list[bool],
        operation: str,
        target: str | None,
    ) -> None:
        """Threads of one warp arrive together (at an aligned barrier), or one thread by itself."""
        key = threads[0].cta, number
        here = self._rounds.setdefault(key, Round())
        everybody = -(-self._machine.block // WARP) * WARP
        if here.arrivals and (here.count or everybody) != (count or everybody):
            self._machine.misuse.append(f"barrier {number}: different counts in one round")
        if here.arrivals and here.operation != operation:
            self._machine.misuse.append(f"barrier {number}: different operations in one round")
        here.count, here.operation = here.count if count is None else count, operation
        self._in_turn(key, threads)
        for thread, vote in zip(threads, votes, strict=True):
            here.arrivals.append(Arrival(thread, thread.knowledge, thread.clock, waits, vote, target))
            thread.clock += 1
            thread.waits = waits
        self._machine.events += 1
        self._look(key)

    def _in_turn(self, key: tuple[int, int], threads: "list[Thread]") -> None:
        """It is a race unless each thread knows that the last round is complete; knowledge is that of a lane."""
        if key not in self._last:
            return
        last, waited = self._last[key]
        for thread in threads:
            known = thread.knowledge.clocks
            informed = thread.number in waited or any(known[who] >= clock for who, clock in waited.items())
            if not informed and not all(one.known_to(thread) for one in last.arrivals):
                self._machine.shadow.races.append((0, 0, "barrier", key[1]))
                return

    def look_again(self, cta: int) -> None:
        """Check the rounds of a block after one of its threads has exited."""
        for key in [key for key in self._rounds if key[0] == cta]:
            self._look(key)

    def _look(self, key: tuple[int, int]) -> None:
        """Complete a round if nothing is missing."""
        here, machine = self._rounds[key], self._machine
        if not here.arrivals:
            return
        if here.count is None:
            over = len(here.arrivals) == machine.living[key[0]]
        else:
            over = here.units(machine) >= here.count
        if over:
            del self._rounds[key]
            self._finish(key, here)

    def _finish(self, key: tuple[int, int], here: Round) -> None:
        learnt = known_together((one.knowledge, one.thread.number, one.clock) for one in here.arrivals)
        holds = sum(one.holds for one in here.arrivals)
        results = {"popc": holds, "and": int(holds == len(here.arrivals)), "or": int(holds > 0), "": 0}
        waiting = [one for one in here.arrivals if one.waits]
        for one in waiting:
            # it has waited since it arrived, and has acquired nothing since
            one.thread.knowledge = learnt
            one.thread.waits = False
            if one.target is not None:
                one.thread.registers[one.target] = results[here.operation]
        self._last[key] = here, {one.thread.number: one.thread.clock for one in waiting}
        self._machine.events += 1


class ClusterBarriers:
    """The barrier of each cluster: threads arrive, and wait later; a phase ends when all live threads have arrived."""

    def __init__(self, machine: "Machine"):
        self._machine = machine
        self._phases: dict[int, int] = {}
        self._arrivals: dict[int, list[tuple[Knowledge, int, int]]] = {}
        self._published: dict[int, Knowledge] = {}

    def arrive(self, thread: "Thread") -> None:
        """A thread arrives, and releases."""
        cluster = thread.cta // self._machine.cluster
        phase = self._phases.setdefault(cluster, 0)
        if thread.cluster_phase == phase:
            self._machine.misuse.append("a thread arrives twice at the barrier of its cluster")
        thread.cluster_phase = phase
        self._arrivals.setdefault(cluster, []).append((thread.knowledge, thread.number, thread.clock))
        thread.clock += 1
        self.look(cluster)

    def wait(self, thread: "Thread") -> bool:
        """A thread waits, and acquires from those that arrived; True if it must retry."""
        cluster = thread.cta // self._machine.cluster
        if thread.cluster_phase == self._phases.get(cluster, 0):
            thread.pc -= 1
            return True
        if cluster in self._published:
            thread.acquire(self._published[cluster])
        return False

    def look(self, cluster: int) -> None:
        """Complete the phase if all live threads have arrived."""
        machine, arrivals = self._machine, self._arrivals.get(cluster, [])
        blocks = range(cluster * machine.cluster, (cluster + 1) * machine.cluster)
        if arrivals and len(arrivals) >= sum(machine.living[block] for block in blocks):
            self._phases[cluster] += 1
            self._published[cluster], self._arrivals[cluster] = known_together(arrivals), []
            machine.events += 1
