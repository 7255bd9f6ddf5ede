"""Messages between processes that run the programs of one launch: sockets on which sending never blocks.

Values are in shared memory, so that a sender need not serve them while it computes; the socket carries their offsets.
Once a process has filled its part of that memory, values go through the socket, too: what does not fit is buffered by
the sender until there is room. In shared memory each process also publishes whether it is idle, and how many
messages it sent and received: if all are idle and no message is in flight, the launch is stuck.
"""

import mmap
import selectors
import socket
from collections.abc import Callable
from struct import Struct

import numpy as np
from numpy.typing import NDArray

from kernbench.common.dtypes import DTYPES, Array

# bytes of the values, their offset in the sender's memory (-1: they follow this header), queue, type, axes
_HEAD = Struct("=qqiii")
_AXIS = Struct("=q")
_AT_ONCE = 1 << 20
# bytes of shared memory for the sends of a process, not allocated until used; bytes of a message from which it is used
SHARED = 1 << 26
_WORTH = 1 << 10
_LINE = 64
_NAMES = tuple(DTYPES)
# seconds after which a waiting process shows that it is alive
_TICK = 0.2
# activity of a process
_BUSY, _WAITS, _ENDED = range(3)
# receives a message: the queue, its values and their type
Deliver = Callable[[int, Array, str], None]


class LostMessageError(Exception):
    """The process of the receiver has ended."""


class Exchange:
    """The sockets between `count` processes, of which each of `pairs` needs one."""

    def __init__(self, count: int, pairs: set[tuple[int, int]]):
        self._pairs = {pair: socket.socketpair() for pair in sorted(pairs)}
        shared = np.frombuffer(mmap.mmap(-1, 8 * (count + 2 * count * count)), np.int64)
        self._idle = shared[:count]
        self._sent, self._taken = shared[count:].reshape(2, count, count)
        # each process's part for its sends, if memory permits, and how much of its own part this process has filled
        self._memory = _shared_memory(count)
        self._filled = 0
        self._seen: bytes = b""
        self._me = -1
        self._ends: dict[int, socket.socket] = {}
        self._unsent: dict[int, bytearray] = {}
        self._unread: dict[int, bytearray] = {}
        # partners that have not ended, and those with buffered bytes
        self._readable: set[int] = set()
        self._full: set[int] = set()
        self._selector: selectors.BaseSelector = selectors.SelectSelector()

    def begin(self, me: int) -> None:
        """This is process `me`: it keeps its own sockets."""
        self._me = me
        # created after the fork: a shared one would report the events of other processes, too
        self._selector = selectors.DefaultSelector()
        for (one, other), ends in self._pairs.items():
            for number, partner, end in ((one, other, ends[0]), (other, one, ends[1])):
                if number == me:
                    end.setblocking(False)
                    self._ends[partner] = end
                    self._unsent[partner], self._unread[partner] = bytearray(), bytearray()
                    self._selector.register(end, selectors.EVENT_READ, partner)
                    self._readable.add(partner)
                else:
                    end.close()
        self._pairs = {}

    def close(self) -> None:
        """This process does not take part, or no longer."""
        for end in (*self._ends.values(), *(end for ends in self._pairs.values() for end in ends)):
            end.close()
        self._pairs, self._ends = {}, {}
        self._selector.close()

    def is_stuck(self) -> bool:
        """Whether some processes wait, all others have ended, and no message is in flight: checked twice, with the same
        counts.
        """
        counts = self._sent.tobytes()
        waits = bool((self._idle != _BUSY).all()) and bool((self._idle == _WAITS).any())
        waits = waits and bool((self._sent == self._taken).all())
        stuck, self._seen = waits and counts == self._seen, counts if waits else b""
        return stuck

    def waiting(self, to: int) -> int:
        """Bytes that are sent to a process and for which there was no room yet."""
        return len(self._unsent[to])

    def send(self, to: int, queue: int, data: Array, dtype: str) -> None:
        """Start sending a message."""
        self._sent[self._me, to] += 1
        unsent, plain = self._unsent[to], data.reshape(-1).view(np.uint8)
        start = self._kept(plain)
        unsent += _HEAD.pack(data.nbytes, start, queue, _NAMES.index(dtype), data.ndim)
        unsent += b"".join(_AXIS.pack(size) for size in data.shape)
        if start < 0:
            unsent += plain.data
        self._flush(to)

    def _kept(self, plain: Array) -> int:
        """The offset of values copied into this process's part of the shared memory; -1 if they do not fit."""
        start = self._filled
        if not _WORTH <= len(plain) <= self._memory.shape[1] - start:
            return -1
        self._memory[self._me, start : start + len(plain)] = plain
        self._filled = -(-(start + len(plain)) // _LINE) * _LINE
        return start

    def _flush(self, to: int) -> None:
        unsent, end = self._unsent[to], self._ends[to]
        try:
            while unsent:
                done = end.send(memoryview(unsent)[:_AT_ONCE])
                del unsent[:done]
        except BlockingIOError:
            pass
        except OSError:
            raise LostMessageError from None
        if bool(unsent) != (to in self._full):
            self._full ^= {to}
            if to in self._readable:
                events = selectors.EVENT_READ | (selectors.EVENT_WRITE if unsent else 0)
                self._selector.modify(end, events, to)

    def turn(self, deliver: Deliver) -> None:
        """Transfer what is possible without waiting."""
        self._move(0.0, deliver)

    def wait(self, deliver: Deliver, tick: Callable[[], None]) -> None:
        """Wait for a message, or for room to send one."""
        self._idle[self._me] = _WAITS
        while not self._move(_TICK, deliver):
            tick()
        self._idle[self._me] = _BUSY

    def finish(self, tick: Callable[[], None]) -> None:
        """Nothing more is received here: send what is buffered."""
        while self._full:
            if not self._full <= self._readable:
                raise LostMessageError
            for key, events in self._selector.select(_TICK):
                if events & selectors.EVENT_WRITE:
                    self._flush(key.data)
                if events & selectors.EVENT_READ:
                    self._read(key.data, _refused)
            tick()
        self._idle[self._me] = _ENDED

    def _move(self, timeout: float, deliver: Deliver) -> bool:
        moved = False
        for key, events in self._selector.select(timeout):
            moved = True
            if events & selectors.EVENT_WRITE:
                self._flush(key.data)
            if events & selectors.EVENT_READ:
                self._read(key.data, deliver)
        return moved

    def _read(self, partner: int, deliver: Deliver) -> None:
        end, unread = self._ends[partner], self._unread[partner]
        try:
            found = end.recv(_AT_ONCE)
        except BlockingIOError:
            return
        if not found:
            # the partner has ended; all it sent has been read
            self._selector.unregister(end)
            self._readable.discard(partner)
        unread += found
        while len(unread) >= _HEAD.size:
            nbytes, kept, queue, kind, axes = _HEAD.unpack_from(unread)
            start = _HEAD.size + axes * _AXIS.size
            end_of_message = start + (nbytes if kept < 0 else 0)
            if len(unread) < end_of_message:
                return
            shape = [size for (size,) in _AXIS.iter_unpack(bytes(unread[_HEAD.size : start]))]
            data, plain = np.empty(shape, DTYPES[_NAMES[kind]].numpy), bytes(unread[start:end_of_message])
            sent = np.frombuffer(plain, np.uint8) if kept < 0 else self._memory[partner, kept : kept + nbytes]
            data.reshape(-1).view(np.uint8)[:] = sent
            del unread[:end_of_message]
            self._taken[partner, self._me] += 1
            self._idle[self._me] = _BUSY
            deliver(queue, data, _NAMES[kind])


def _shared_memory(count: int) -> NDArray[np.uint8]:
    """A row for each process; empty rows if the system provides no shared memory."""
    try:
        return np.frombuffer(mmap.mmap(-1, count * SHARED), np.uint8).reshape(count, SHARED)
    except (OSError, ValueError):
        return np.empty((count, 0), np.uint8)


def _refused(queue: int, data: Array, dtype: str) -> None:
    """A message without a receiver."""
    raise LostMessageError
