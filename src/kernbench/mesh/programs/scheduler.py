"""Runs the programs of a launch as coroutines, one at a time, in an order the schedule fixes, until all have returned
or none can continue. Results of right programs do not depend on the order; other schedules test that.
"""

import random
from collections import deque
from collections.abc import Callable, Collection
from time import thread_time
from typing import Any

from greenlet import GreenletExit, getcurrent, greenlet

from kernbench.common.errors import MisuseError
from kernbench.mesh.programs.state import State
from kernbench.safety.budget import Budget, OverBudgetError, Watchdog

# programs that could not be stopped; dropping the last reference to one would resume it
_abandoned: list[object] = []


class Program:
    """One coroutine. `body` is called once, in it; `waits` is what it is blocked on.

    `on_abandon` is called if the program cannot be stopped.
    """

    def __init__(self, number: int, body: Callable[[], State], on_abandon: Callable[[OverBudgetError], None]):
        self.number = number
        self.state = State.READY
        self.waits: Any = None
        self._body = body
        self.on_abandon = on_abandon
        self.coroutine = greenlet(self._run)

    def _run(self) -> None:
        # a body that does not even return (it killed its own coroutine) has failed
        self.state = State.FAILED
        self.state = self._body()


class Scheduler:
    """`schedule` is "canonical" (oldest ready first), "reversed" (highest, newest first) or a seed."""

    def __init__(self, schedule: str | int):
        self._random = random.Random(schedule) if isinstance(schedule, int) else None
        if self._random is None and schedule not in ("canonical", "reversed"):
            raise MisuseError(f"schedule {schedule!r}: it is 'canonical', 'reversed' or a whole number (a seed)")
        self.is_random = self._random is not None
        self.newest_first = schedule == "reversed"
        self._ready: deque[Program] = deque()
        self._hub = getcurrent()
        self._running: Program | None = None
        self.switches = 0
        # whether the launch has used up its seconds
        self.is_late: Callable[[], bool] = lambda: False
        # whether the rest of the launch is to be divided over processes between two turns, and the function that does
        # it
        self.is_due: Callable[[], bool] = lambda: False
        self.divide: Callable[[], None] = lambda: None
        # whether no program can continue, and the waiting ones are being ended
        self.ending = False

    def run(
        self, programs: list[Program], budget: Budget, steps: Callable[[], int], settled: Callable[[], None]
    ) -> None:
        """Run `programs` until none is ready, call `settled`, then end those that still wait.

        What a program does while it is being ended (in a `finally`) is not part of the launch.
        """
        self._ready.extend(programs)
        # computing time, so that the load of the machine does not matter
        deadline = thread_time() + budget.total_seconds
        self.is_late = lambda: thread_time() > deadline
        with Watchdog(budget.seconds, lambda: (self.switches, steps()), self.abandon):
            while self._ready:
                if self.is_due():
                    self.divide()
                elif (program := self.next()) is not None:
                    self.give_turn(program)
            settled()
            self.ending = True
            self._end(programs)

    def next(self) -> Program | None:
        """The program whose turn is next; None if none is ready."""
        return self._pick() if self._ready else None

    def give_turn(self, program: Program) -> None:
        """Let a program run until it yields or ends."""
        try:
            self._switch_to(program)
        except OverBudgetError:
            # the watchdog's exception may arrive when the program has just yielded
            return

    def pause(self, program: Program) -> None:
        """Called in a program: yield, and be the next to run."""
        if self.newest_first:
            self._ready.append(program)
        else:
            self._ready.appendleft(program)
        before, program.state = program.state, State.READY
        self._hub.switch()
        program.state = before

    def ready(self) -> list[int]:
        """The programs that wait for their turn, in order."""
        return [program.number for program in self._ready]

    def keep(self, numbers: Collection[int]) -> None:
        """Let only these programs run."""
        self._ready = deque(program for program in self._ready if program.number in numbers)

    def tick(self) -> None:
        """Called while waiting for other processes, so that the watchdog does not blame a program."""
        self.switches += 1

    @property
    def running(self) -> Program | None:
        """The program that is running."""
        return self._running

    def stop(self) -> None:
        """Let no further program run."""
        self._ready.clear()

    def wait(self, program: Program, what: object) -> None:
        """Called in a program: yield until it is woken."""
        program.state = State.WAITING
        program.waits = what
        self._hub.switch()
        program.waits = None

    def wake(self, program: Program) -> None:
        """Make a waiting program ready."""
        if program.state is State.WAITING:
            program.state = State.READY
            self._ready.append(program)

    def maybe_yield(self, program: Program) -> None:
        """Called in a program where another order is possible: a random schedule yields half of the time."""
        if self._random is not None and self._ready and self._random.random() < 0.5:
            self._ready.append(program)
            self._hub.switch()

    def _pick(self) -> Program:
        if self._random is not None:
            self._ready.rotate(self._random.randrange(len(self._ready)))
        return self._ready.pop() if self.newest_first else self._ready.popleft()

    def _switch_to(self, program: Program) -> None:
        self.switches += 1
        self._running = program
        try:
            program.coroutine.switch()
        except OverBudgetError:
            # the watchdog may strike just as the program yields: it has ended then, or is stopped next time
            return
        finally:
            self.switches += 1

    def abandon(self, error: OverBudgetError) -> None:
        """Called in a program that cannot be stopped: leave it suspended for good."""
        if getcurrent() is self._hub:
            return
        _abandoned.append(getcurrent())
        if self._running is not None:
            self._running.state = State.STOPPED
            self._running.on_abandon(error)
        self._hub.switch()

    def _end(self, programs: list[Program]) -> None:
        for program in programs:
            coroutine = program.coroutine
            if coroutine and coroutine not in _abandoned:
                state, waits = program.state, program.waits
                self.switches += 1
                coroutine.throw(GreenletExit)
                program.state, program.waits = state, waits
                if coroutine:
                    _abandoned.append(coroutine)
