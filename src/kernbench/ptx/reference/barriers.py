"""Barriers of blocks: who has come, who waits, and what those who wait learn.

One without a count is for all living threads of the block; one with a count for that many, a warp whose living lanes
have all come counting as 32. Who only arrives publishes what it knows and learns nothing. A thread that comes to a
barrier, with a count or without, must know that the last round there is over, or it may be counted in that round: it
waited there, somebody who did has published it since, or it knows of every arrival that made up the round. So must one
that has come to the same round before. All who come to one round give the same count and the same operation.
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
    """A thread at a barrier, what it knew then, and where the result of a reduction goes."""

    thread: "Thread"
    knowledge: Knowledge
    clock: int
    waits: bool
    holds: bool
    target: str | None

    def known_to(self, thread: "Thread") -> bool:
        """Whether a thread comes after this arrival; barriers mark warps, so one's own warp's are known."""
        same = (thread.cta, thread.warp) == (self.thread.cta, self.thread.warp)
        return same or thread.knowledge.clocks[self.thread.number] >= self.clock


@dataclass(eq=False)
class Round:
    """One round of a barrier of a block; `operation` is that of a reduction, "" for sync and arrive."""

    count: int | None = None
    operation: str = ""
    arrivals: list[Arrival] = field(default_factory=list)

    def units(self, machine: "Machine") -> int:
        """Threads that have come; warps of which no living lane is missing count as 32."""
        warps: dict[int, list[Thread]] = {}
        for one in self.arrivals:
            warps.setdefault(one.thread.warp, []).append(one.thread)
        return sum(self._warp_units(machine, threads) for threads in warps.values())

    def _warp_units(self, machine: "Machine", threads: "list[Thread]") -> int:
        """A warp may come several times to arrive."""
        times = Counter(thread.number for thread in threads)
        whole = all(one.number in times for one in machine.warp_of(threads[0]))
        return WARP * max(times.values()) if whole else len(threads)


class CtaBarriers:
    """The barriers of all blocks."""

    def __init__(self, machine: "Machine"):
        self._machine = machine
        self._rounds: dict[tuple[int, int], Round] = {}
        # the last round of each barrier that is over, with the threads that waited in it and their clocks at its end
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
        """Threads of one warp come together (to an aligned barrier), or one thread alone."""
        key = threads[0].cta, number
        here = self._rounds.setdefault(key, Round())
        everybody = -(-self._machine.block // WARP) * WARP
        if here.arrivals and (here.count or everybody) != (count or everybody):
            self._machine.misuse.append(f"barrier {number}: different counts in one round")
        if here.arrivals and here.operation != operation:
            self._machine.misuse.append(f"barrier {number}: different operations in one round")
        here.count, here.operation = here.count if count is None else count, operation
        self._in_turn(key, threads)
        self._once(here, threads)
        for thread, vote in zip(threads, votes, strict=True):
            here.arrivals.append(Arrival(thread, thread.knowledge, thread.clock, waits, vote, target))
            thread.clock += 1
            thread.waits = waits
        self._machine.events += 1
        self._look(key)

    def _in_turn(self, key: tuple[int, int], threads: "list[Thread]") -> None:
        """The threads know that the last round is over; what one lane of a warp knows, another does not."""
        if key not in self._last:
            return
        last, waited = self._last[key]
        for thread in threads:
            known = thread.knowledge.clocks
            informed = thread.number in waited or any(known[who] >= clock for who, clock in waited.items())
            if not informed and not all(one.known_to(thread) for one in last.arrivals):
                self._machine.shadow.races.append((0, 0, "barrier", key[1]))
                return

    def _once(self, here: Round, threads: "list[Thread]") -> None:
        """The threads have not come to this round already: then nothing said that it was over."""
        come = {one.thread.number for one in here.arrivals}
        if any(thread.number in come for thread in threads):
            self._machine.shadow.races.append((0, 0, "barrier", threads[0].cta))

    def look_again(self, cta: int) -> None:
        """A thread of a block has ended."""
        for key in [key for key in self._rounds if key[0] == cta]:
            self._look(key)

    def _look(self, key: tuple[int, int]) -> None:
        """Whether a round is over."""
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
            # it has waited since it came, and has learnt nothing else
            one.thread.knowledge = learnt
            one.thread.waits = False
            if one.target is not None:
                one.thread.registers[one.target] = results[here.operation]
        self._last[key] = here, {one.thread.number: one.thread.clock for one in waiting}
        self._machine.events += 1


class ClusterBarriers:
    """The barrier of each cluster: threads arrive, and wait later; a phase is over when all that live have arrived."""

    def __init__(self, machine: "Machine"):
        self._machine = machine
        self._phases: dict[int, int] = {}
        self._arrivals: dict[int, list[tuple[Knowledge, int, int]]] = {}
        self._published: dict[int, Knowledge] = {}

    def arrive(self, thread: "Thread") -> None:
        """A thread arrives, and releases what it did."""
        cluster = thread.cta // self._machine.cluster
        phase = self._phases.setdefault(cluster, 0)
        if thread.cluster_phase == phase:
            self._machine.misuse.append("a thread arrives twice at the barrier of its cluster")
        thread.cluster_phase = phase
        self._arrivals.setdefault(cluster, []).append((thread.knowledge, thread.number, thread.clock))
        thread.clock += 1
        self.look(cluster)

    def wait(self, thread: "Thread") -> bool:
        """A thread waits, and learns what those did that arrived; True where it must come again."""
        cluster = thread.cta // self._machine.cluster
        if thread.cluster_phase == self._phases.get(cluster, 0):
            thread.pc -= 1
            return True
        if cluster in self._published:
            thread.acquire(self._published[cluster])
        return False

    def look(self, cluster: int) -> None:
        """Whether a phase is over."""
        machine, arrivals = self._machine, self._arrivals.get(cluster, [])
        blocks = range(cluster * machine.cluster, (cluster + 1) * machine.cluster)
        if arrivals and len(arrivals) >= sum(machine.living[block] for block in blocks):
            self._phases[cluster] += 1
            self._published[cluster], self._arrivals[cluster] = known_together(arrivals), []
            machine.events += 1
