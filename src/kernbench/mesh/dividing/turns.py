"""The turns of programs, found again from their calls: who runs when, and for how long, as in one process.

Programs that run in several processes take turns in another order than in one, and queues between processes hold any
number of messages. What a program asks of its queues is the same in any order, so that the order of one process, and
whether queues of the machine's depth let every program return, is found by going through these calls alone.
"""

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from kernbench.mesh.programs.calls import SEND, Call
from kernbench.mesh.programs.queues import Message, Queue, Receive
from kernbench.mesh.programs.scheduler import Program
from kernbench.result.finding import Place

Request = Message | Receive
_NOWHERE = Place("", 0)


@dataclass(eq=False)
class Player:
    """A program that is gone through again. `requests` has those of before first, as copies."""

    number: int
    calls: Sequence[Call] = ()
    done: int = 0
    waits: bool = False
    outgoing: dict[str, Queue] = field(default_factory=dict)
    incoming: dict[str, Queue] = field(default_factory=dict)
    requests: list[Request] = field(default_factory=list)

    @property
    def has_returned(self) -> bool:
        """Whether all calls are done."""
        return self.done == len(self.calls)


class Turns:
    """Players at queues that are copies of the launch's: what happens here changes nothing there."""

    def __init__(self, programs: int, queues: Sequence[Queue]):
        self.players = [Player(number) for number in range(programs)]
        self._copies: dict[int, Request] = {}
        self._queues: dict[int, Queue] = {}
        self._ready: deque[Player] = deque()
        self.queues = [self._queue(queue) for queue in queues]

    def copy_of(self, request: Request) -> Request:
        """The copy of a request that is under way."""
        copy = self._copies.get(id(request))
        if copy is None:
            copy = self._copies[id(request)] = self._request(request)
        return copy

    def _queue(self, queue: Queue) -> Queue:
        copy = Queue(queue.sender, queue.receiver, queue.direction, queue.depth, queue.slot, queue.names)
        self._queues[id(queue)] = copy
        copy.free = queue.free
        copy.outbox.extend(self.copy_of(one) for one in queue.outbox)  # type: ignore[misc]
        copy.arriving.extend(self.copy_of(one) for one in queue.arriving)  # type: ignore[misc]
        copy.posted.extend(self.copy_of(one) for one in queue.posted)  # type: ignore[misc]
        return copy

    def _request(self, request: Request) -> Request:
        queue = self._queues.get(id(request.queue))
        if isinstance(request, Message):
            sender = self._player(request.sender)
            form = request.shape, request.dtype, request.pieces, request.where
            return Message(sender, None, *form, queue, request.arrived, request.taken)
        copy = Receive(self._player(request.receiver), request.shape, request.dtype, request.where, queue)
        copy.message = None if request.message is None else self.copy_of(request.message)  # type: ignore[assignment]
        return copy

    def _player(self, program: object) -> Player | None:
        return self.players[program.number] if isinstance(program, Program) else None

    def play(self, ready: Sequence[int], newest_first: bool, visit: Callable[[int, int], None]) -> bool:
        """Go through all calls, those of `ready` programs first; `visit(program, calls)` whenever one more is done, and
        when a program has its first turn. Whether all returned and every message was received.
        """
        self._ready.extend(self.players[number] for number in ready)
        for player in self._ready:
            player.waits = False
        while self._ready:
            player = self._ready.pop() if newest_first else self._ready.popleft()
            self._run(player, visit)
        everybody = all(player.has_returned for player in self.players)
        return everybody and not any(queue.unreceived or queue.posted for queue in self.queues)

    def _wake(self, player: Player) -> None:
        if player.waits:
            player.waits = False
            self._ready.append(player)

    def _run(self, player: Player, visit: Callable[[int, int], None]) -> None:
        if not player.done:
            visit(player.number, 0)
        while player.done < len(player.calls):
            if not self._call(player, *player.calls[player.done]):
                player.waits = True
                return
            player.done += 1
            visit(player.number, player.done)

    def _call(self, player: Player, kind: int, what: str | int, pieces: int) -> bool:
        """Whether a call is done; else the program waits."""
        if isinstance(what, int):
            return player.requests[what].done
        if kind == SEND:
            queue = player.outgoing[what]
            message = Message(player, None, (), "", pieces, _NOWHERE, queue)
            player.requests.append(message)
            queue.offer(message, self._wake)
        else:
            queue = player.incoming[what]
            receive = Receive(player, (), None, _NOWHERE, queue)
            player.requests.append(receive)
            queue.post(receive, self._wake)
        return True
