"""A copy of the process that continues some of a launch's programs, and sends messages for the others to their
processes.
"""

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from time import process_time
from typing import NoReturn

from kernbench.common.dtypes import Array
from kernbench.mesh.dividing.divided import Divided
from kernbench.mesh.dividing.exchange import Exchange
from kernbench.mesh.dividing.parts import Begun, Part, part_of
from kernbench.mesh.programs.calls import Calls
from kernbench.mesh.programs.queues import Message, Queue
from kernbench.mesh.programs.state import State
from kernbench.result.finding import SourceLocation
from kernbench.safety.budget import Watchdog
from kernbench.safety.processes.copies import Copies
from kernbench.safety.processes.outside import Outside

_NOWHERE = SourceLocation("", 0)
# how far a sender may be ahead of a receiver in another process, which may never receive: bytes, and the weight of a
# small message
MOST_AHEAD = 1 << 28
_SMALL = 1 << 14


@dataclass(frozen=True)
class Answer:
    """The results of a copy, and the seconds that it computed."""

    parts: list[Part]
    seconds: float


class OwnPrograms:
    """The programs of copy `me`; `homes` has the process of each program that had not ended."""

    def __init__(self, launch: Divided, me: int, homes: Mapping[int, int], exchange: Exchange, copies: Copies):
        self._launch, self._homes, self._exchange, self._copies = launch, homes, exchange, copies
        self._mine = [number for number, home in homes.items() if home == me]
        self._outside = Outside()
        self._begun = {
            n: Begun(len(launch.contexts[n].commands), len(launch.contexts[n].commands.views)) for n in homes
        }
        self._senders = [launch.programs[launch.ends(queue)[0]] for queue in launch.queues]
        exchange.begin(me)
        self._calls = {number: self._noted(number) for number in self._mine}

    def go_on(self) -> NoReturn:
        """Run them to their ends, send the results, and exit."""
        launch = self._launch
        launch.log.on_finding = lambda finding: self._copies.refuse()
        sys.breakpointhook = lambda *args, **options: self._copies.refuse()
        self._outside.add([launch.kernel])
        for number in self._homes:
            if number not in self._calls:
                # it is not woken in this process
                launch.programs[number].state = State.STOPPED
        for number, queue in enumerate(launch.queues):
            self._cut(number, queue)
        launch.scheduler.keep(self._mine)
        with Watchdog(launch.budget.seconds, launch.progress, lambda error: self._copies.refuse()):
            self._run()
        self._answer()

    def _noted(self, number: int) -> Calls:
        """The log of a program's calls to its queues from now on, with tables of its own."""
        launch = self._launch
        tables = launch.tables.copied()
        calls = Calls(tables, launch.sites.copied(tables.sites))
        for request in launch.under_way(number):
            calls.under_way(request)
        waits = launch.programs[number].waits
        if waits is not None:
            # it continues inside this wait
            calls.waited(waits[0])
        launch.ports[number].calls = calls
        return calls

    def _cut(self, number: int, queue: Queue) -> None:
        """Cut queues between two processes: messages in flight belong to the receiver's. Whether the slots of a queue
        would have sufficed is determined at the end.
        """
        launch = self._launch
        sender, receiver = launch.ends(queue)
        if sender in self._calls and receiver not in self._calls:
            for message in queue.outbox:
                message.arrived = message.pieces
                launch.scheduler.wake(launch.programs[sender])
            launch.ports[sender].outgoing[queue.direction] = Distant(queue, partial(self._send, number, receiver))

    def _send(self, queue: int, receiver: int, message: Message) -> None:
        if receiver not in self._homes or message.data is None:
            # the receiver has returned: the message is never received
            self._copies.refuse()
        home = self._homes[receiver]
        if self._exchange.waiting(home) > MOST_AHEAD:
            self._copies.refuse()
        self._exchange.send(home, queue, message.data, message.dtype)

    def _deliver(self, number: int, data: Array, dtype: str) -> None:
        queue = self._launch.queues[number]
        sender = self._senders[number]
        if len(queue.outbox) * max(data.nbytes, _SMALL) > MOST_AHEAD:
            # in a single process its sender would wait
            self._copies.refuse()
        pieces = queue.pieces(data.shape, dtype)
        queue.offer(Message(sender, data, data.shape, dtype, pieces, _NOWHERE, queue), self._launch.scheduler.wake)

    def _run(self) -> None:
        launch, exchange = self._launch, self._exchange
        while True:
            while (program := launch.scheduler.next()) is not None:
                calls = self._calls[program.number]
                launch.tables.become(calls.tables)
                launch.sites.become(calls.sites)
                launch.scheduler.give_turn(program)
                exchange.turn(self._deliver)
            if not set(launch.left()) & set(self._mine):
                break
            exchange.wait(self._deliver, launch.scheduler.tick)
        exchange.finish(launch.scheduler.tick)

    def _answer(self) -> NoReturn:
        launch, mine = self._launch, self._mine
        contexts = [launch.contexts[number] for number in mine]
        fine = all(launch.programs[number].state is State.RETURNED for number in mine)
        fine = fine and not any(c.pending or c.core.refused or c.core.folded_wrongly for c in contexts)
        if not fine or launch.printed or self._outside.changed():
            self._copies.refuse()
        parts = [part_of(n, launch.contexts[n], self._calls[n], self._begun[n], launch.tensors) for n in mine]
        self._copies.answer(Answer(parts, process_time()))


class Distant(Queue):
    """The sender's end of a queue to a program of another process, which takes any number of messages."""

    def __init__(self, queue: Queue, deliver: Callable[[Message], None]):
        super().__init__(queue.sender, queue.receiver, queue.direction, queue.depth, queue.slot, queue.names)
        self._deliver = deliver

    def offer(self, message: Message, wake: Callable[..., object]) -> None:
        """Start a send, which is done at once."""
        message.arrived = message.pieces
        self._deliver(message)
