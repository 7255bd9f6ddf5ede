"""Runs the rest of a launch with data in several processes, each with some of the programs (docs/adr/0109).

Each process is a forked copy that continues its own programs, and sends messages for programs of others to them. The
results count only if all programs return and nothing happened that could depend on the order of turns, or that a single
process cannot decide: a finding, printed output, a change outside. Otherwise the parent, whose state is unchanged,
continues alone.
"""

import sys
import threading
from contextlib import suppress
from time import process_time
from typing import NamedTuple

from kernbench.mesh.dividing.divided import Divided
from kernbench.mesh.dividing.exchange import Exchange
from kernbench.mesh.dividing.own_programs import Answer, OwnPrograms
from kernbench.mesh.dividing.parts import Numbering, Part, adopt
from kernbench.mesh.dividing.turns import Caller, Turns
from kernbench.mesh.programs.state import State
from kernbench.result.recording import Stream
from kernbench.safety.memory import AddressSpace
from kernbench.safety.processes.copies import Copies
from kernbench.safety.processes.workers import can_fork

# seconds of computing after which a launch is divided
AFTER = 0.15


class Outcome(NamedTuple):
    """Into how many processes a launch was divided, or why it was not."""

    parts: int
    why: str


class StuckError(Exception):
    """Every copy waits for another."""


class Division:
    """The division of a launch's programs over at most `jobs` processes."""

    def __init__(self, launch: Divided, jobs: int):
        self._launch, self._jobs = launch, jobs
        # asked before the thread of the watchdog is started
        self._is_due = jobs > 1 and len(launch.programs) > 1 and can_fork()
        self._threads = threading.active_count() + 1
        self._begun = process_time() if self._is_due else 0.0
        # recordings of other processes, by program, and the most scratch bytes there
        self.streams: dict[int, Stream] = {}
        self.peak = 0
        self.outcome = Outcome(1, "it took less time" if self._is_due else "it may use one process")

    def is_due(self) -> bool:
        """Whether the launch has taken long enough to be divided."""
        return self._is_due and process_time() - self._begun >= AFTER

    def divide(self) -> None:
        """Called between two turns. Returns in the parent only; if the results count, all programs have returned."""
        self._is_due = False
        left = self._launch.left()
        jobs = self._jobs = min(self._jobs, len(left))
        why = self._unfit()
        self.outcome = Outcome(1, why)
        if why:
            return
        homes = {number: i * jobs // len(left) for i, number in enumerate(left)}
        try:
            exchange, copies = Exchange(jobs, self._pairs(homes)), Copies()
        except OSError:
            self.outcome = Outcome(1, "the system has no more files")
            return
        copies.make(jobs)
        if copies.number is not None:
            try:
                OwnPrograms(self._launch, copies.number, homes, exchange, copies).go_on()
            except BaseException:  # raised again in the parent
                copies.refuse()
        answers = self._answers(exchange, copies)
        why = self._take_over(answers, list(homes))
        self.outcome = Outcome(1 if why else jobs, why)

    def _unfit(self) -> str:
        launch = self._launch
        looks = launch.log.on_finding is not None or any(port.taken is not None for port in launch.ports)
        reasons = {
            "it has one program left": self._jobs < 2,
            "its order is a random one": launch.scheduler.is_random,
            "somebody looks inside": looks or sys.gettrace() is not None,
            "something was found": len(launch.log) > 0 or any(c.core.refused for c in launch.contexts),
            "kernels print": bool(launch.printed),
            "other threads run": threading.active_count() > self._threads,
        }
        return next((why for why, holds in reasons.items() if holds), "")

    def _pairs(self, homes: dict[int, int]) -> set[tuple[int, int]]:
        """The pairs of processes with queues between them."""
        ends = [self._launch.ends(queue) for queue in self._launch.queues]
        pairs = [(homes[one], homes[other]) for one, other in ends if one in homes and other in homes]
        return {(min(pair), max(pair)) for pair in pairs if pair[0] != pair[1]}

    def _answers(self, exchange: Exchange, copies: Copies) -> list[Answer]:
        """The results of the copies; fewer if one gives up, ends, or all wait for each other."""

        def tick() -> None:
            self._launch.scheduler.tick()
            if exchange.is_stuck():
                raise StuckError

        exchange.close()
        found: list[object] | None = None
        with suppress(StuckError):
            found = copies.answers(tick)
        return [one for one in found or () if isinstance(one, Answer)]

    def _take_over(self, answers: list[Answer], left: list[int]) -> str:
        """Adopt the end of the launch in the copies; returns the reason if their results do not count."""
        launch = self._launch
        if len(answers) < self._jobs:
            return "something was found, programs wait for each other, or a process ended"
        if process_time() - self._begun + sum(one.seconds for one in answers) > launch.budget.total_seconds:
            return "it goes beyond its budget"
        parts = {part.number: part for one in answers for part in one.parts}
        turns = Turns(self._callers(parts), len(launch.programs), launch.queues)
        outcome = turns.play(launch.scheduler.ready(), launch.scheduler.newest_first)
        if not outcome.everybody_returns:
            return "queues as deep as the machine's make programs wait for each other, or messages are left"
        numbering = Numbering(launch.tables, parts)
        for program in outcome.order:
            numbering.meet(program)
        for number in left:
            self.streams[number] = numbering.stream(launch.contexts[number].commands, parts[number])
        launch.tables.become(numbering.tables)
        self.peak = max(part.peak for part in parts.values())
        self._end(parts)
        return ""

    def _callers(self, parts: dict[int, Part]) -> dict[int, Caller]:
        """The programs that had not ended, with their calls to queues."""
        launch = self._launch
        return {
            number: Caller(
                part.calls,
                [met.call for met in part.met],
                launch.ports[number].outgoing,
                launch.ports[number].incoming,
                launch.under_way(number),
                launch.programs[number].state is State.WAITING,
            )
            for number, part in parts.items()
        }

    def _end(self, parts: dict[int, Part]) -> None:
        """All programs have returned, with this in their memory; end their coroutines here without effects."""
        launch = self._launch
        for number, part in parts.items():
            for memory in part.memory:
                adopt(memory, launch.tensors[memory.tensor].region(number, launch.placements[number].rank))
            launch.programs[number].state, launch.programs[number].waits = State.RETURNED, None
            launch.ports[number].memory = AddressSpace(False)
            launch.contexts[number].parts.messages.pending.clear()
        for queue in launch.queues:
            queue.outbox.clear()
            queue.arriving.clear()
            queue.posted.clear()
        launch.scheduler.stop()
