"""IPCQ: the bounded queue of one link. A message takes as many slots as it needs and moves in slot-sized pieces.

Sends wait in the outbox until the receiver's slots have room for their pieces; receives are posted and take pieces as
they arrive. Both are in order. `pump` moves everything that can move.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from math import prod

from kernbench.common.dtypes import ITEMSIZE, Array
from kernbench.result.finding import SourceLocation


@dataclass(slots=True)
class Message:
    """A send by a program: `arrived` of its `pieces` are in the receiver's slots or have passed through them."""

    sender: object
    data: Array | None
    shape: tuple[int, ...]
    dtype: str
    pieces: int
    where: SourceLocation
    queue: "Queue | None"
    arrived: int = 0
    taken: int = 0

    @property
    def done(self) -> bool:
        """Whether the sender may continue."""
        return self.arrived == self.pieces

    def describe(self) -> str:
        """Shape and type, as messages show them."""
        return f"{'x'.join(map(str, self.shape)) or 'scalar'} {self.dtype}"


@dataclass(slots=True)
class Receive:
    """A posted receive; `message` is set when it is complete."""

    receiver: object
    shape: tuple[int, ...]
    dtype: str | None
    where: SourceLocation
    queue: "Queue | None"
    message: Message | None = None

    @property
    def done(self) -> bool:
        """Whether the receiver may continue."""
        return self.message is not None


@dataclass(slots=True)
class Queue:
    """The link from `sender`, which sends in `direction`, to `receiver`: seats, with their descriptions in `names`."""

    sender: int
    receiver: int
    direction: str
    depth: int
    slot: int
    names: tuple[str, str]
    free: int = field(init=False)
    outbox: deque[Message] = field(default_factory=deque)
    arriving: deque[Message] = field(default_factory=deque)
    posted: deque[Receive] = field(default_factory=deque)
    _known_pieces: dict[tuple[tuple[int, ...], str], int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.free = self.depth

    def pieces(self, shape: tuple[int, ...], dtype: str) -> int:
        """Slots a message needs; an empty one still takes one."""
        known = self._known_pieces.get((shape, dtype))
        if known is None:
            known = self._known_pieces[shape, dtype] = -(-prod(shape) * ITEMSIZE[dtype] // self.slot) or 1
        return known

    def offer(self, message: Message, wake: Callable[..., object]) -> None:
        """Start a send."""
        if self.outbox or message.pieces > self.free or (self.posted and self.arriving):
            self.outbox.append(message)
            self.pump(wake)
            return
        message.arrived = message.pieces
        if self.posted:
            # a receive waits and no message is ahead: bypass the slots
            message.taken = message.pieces
            receive = self.posted.popleft()
            receive.message = message
            wake(receive.receiver)
        else:
            self.free -= message.pieces
            self.arriving.append(message)

    def post(self, receive: Receive, wake: Callable[..., object]) -> None:
        """Start a receive."""
        if self.ready() is not None:
            receive.message = self.take()
            return
        self.posted.append(receive)
        self.pump(wake)

    def ready(self) -> Message | None:
        """The message a receive would get at once, if nothing else has to move for it."""
        return self.arriving[0] if self.arriving and not self.outbox and not self.posted else None

    def take(self) -> Message:
        """Take the message that is ready."""
        message = self.arriving.popleft()
        self.free += message.pieces - message.taken
        message.taken = message.pieces
        return message

    def pump(self, wake: Callable[..., object]) -> None:
        """Move pieces until nothing moves; calls `wake(program)` for each program whose request is completed."""
        while self._push(wake) or self._take(wake):
            pass

    def _push(self, wake: Callable[..., object]) -> bool:
        """Outbox to slots."""
        moved = False
        while self.free and self.outbox:
            message = self.outbox[0]
            if message.arrived == 0:
                self.arriving.append(message)
            count = min(self.free, message.pieces - message.arrived)
            message.arrived += count
            self.free -= count
            moved = True
            if message.arrived == message.pieces:
                self.outbox.popleft()
                wake(message.sender)
        return moved

    def _take(self, wake: Callable[..., object]) -> bool:
        """Slots to posted receives."""
        moved = False
        while self.posted and self.arriving:
            message = self.arriving[0]
            count = message.arrived - message.taken
            if count:
                message.taken += count
                self.free += count
                moved = True
            if message.taken < message.pieces:
                break
            self.arriving.popleft()
            receive = self.posted.popleft()
            receive.message = message
            wake(receive.receiver)
        return moved

    @property
    def unreceived(self) -> list[Message]:
        """Messages that were never received."""
        return [*self.arriving, *(m for m in self.outbox if m.arrived == 0)]

    @property
    def wanted_depth(self) -> int:
        """The number of slots with which every waiting send would complete."""
        return self.depth - self.free + sum(m.pieces - m.arrived for m in self.outbox)
