"""Messages from a process that runs somebody else's code: framed, so that what that code writes is not taken for one.

A frame is a key drawn for this channel, the length and checksum of a text, and the text, which is JSON. Bytes that are
no frame break the channel for good: nothing after them is believed.
"""

import json
import os
import secrets
import struct
import zlib
from typing import Any

KEY_BYTES = 16
_HEAD = struct.Struct(f"<{KEY_BYTES}sQI")
_CHUNK = 1 << 16
# of what a process prints, so much of the end is kept
_KEPT = 1 << 14
# taken before somebody else's code can put another function in the place of json.dumps
_to_text = json.JSONEncoder(allow_nan=False).encode


class BrokenChannelError(Exception):
    """Bytes arrived that are no message, or the descriptor to send through is gone."""


def new_key() -> bytes:
    """A key that nobody writes by accident."""
    return secrets.token_bytes(KEY_BYTES)


class Sender:
    """The end that sends. A copy of the process, which somebody else's code has forked, sends nothing."""

    def __init__(self, descriptor: int, key: bytes):
        self._descriptor, self._key = descriptor, key
        self._owner, self._pipe = os.getpid(), identity(descriptor)

    @property
    def mine(self) -> bool:
        """Whether this process is the one the channel was made for."""
        return os.getpid() == self._owner

    def send(self, message: dict[str, object]) -> None:
        """Send a message, whole; does nothing in a forked copy of the process.

        Raises `BrokenChannelError` where the descriptor was closed: its number may stand for another file by now.
        """
        if not self.mine:
            return
        if identity(self._descriptor) != self._pipe:
            raise BrokenChannelError
        text = _to_text(message).encode()
        left = memoryview(_HEAD.pack(self._key, len(text), zlib.crc32(text)) + text)
        while left:
            left = left[os.write(self._descriptor, left) :]


class Receiver:
    """The end that receives; reading never blocks."""

    def __init__(self, descriptor: int, key: bytes):
        os.set_blocking(descriptor, False)
        self.descriptor, self._key = descriptor, key
        self.total = 0
        self._held = bytearray()

    def read(self) -> tuple[list[dict[str, Any]], bool]:
        """The messages that are complete, and whether more may come. A part of a message is kept for later."""
        before = len(self._held)
        more = _read_into(self._held, self.descriptor)
        self.total += len(self._held) - before
        messages = []
        while (message := self._next()) is not None:
            messages.append(message)
        return messages, more

    def _next(self) -> dict[str, object] | None:
        if len(self._held) < _HEAD.size:
            if self._held and not self._key.startswith(bytes(self._held[:KEY_BYTES])):
                raise BrokenChannelError
            return None
        key, length, checksum = _HEAD.unpack_from(self._held)
        if key != self._key:
            raise BrokenChannelError
        if len(self._held) < _HEAD.size + length:
            return None
        text = bytes(self._held[_HEAD.size : _HEAD.size + length])
        del self._held[: _HEAD.size + length]
        if zlib.crc32(text) != checksum:
            raise BrokenChannelError
        return _message(text)

    def close(self) -> None:
        """Read no more."""
        os.close(self.descriptor)


class Tail:
    """The end of what comes through a pipe, however much it is; reading never blocks."""

    def __init__(self, descriptor: int):
        os.set_blocking(descriptor, False)
        self.descriptor = descriptor
        self.total = 0
        self._held = bytearray()

    def read(self) -> bool:
        """Take in one chunk of what is there; whether more may come."""
        before = len(self._held)
        more = _read_into(self._held, self.descriptor)
        self.total += len(self._held) - before
        del self._held[:-_KEPT]
        return more

    def text(self) -> str:
        """What is kept of it."""
        return self._held.decode("utf-8", "replace")

    def take(self) -> str:
        """What is kept of it, which is forgotten then."""
        text = self.text()
        self._held.clear()
        return text

    def close(self) -> None:
        """Read no more."""
        os.close(self.descriptor)


def _message(text: bytes) -> dict[str, object]:
    """What a text says; one that is no JSON object breaks the channel as other bytes do."""
    try:
        message = json.loads(text)
    except ValueError:
        raise BrokenChannelError from None
    if not isinstance(message, dict):
        raise BrokenChannelError
    return message


def identity(descriptor: int) -> tuple[int, int] | None:
    """What a descriptor stands for; None if for nothing."""
    try:
        state = os.fstat(descriptor)
    except OSError:
        return None
    return state.st_dev, state.st_ino


def _read_into(held: bytearray, descriptor: int) -> bool:
    """Read one chunk without blocking; whether the pipe is still open."""
    try:
        chunk = os.read(descriptor, _CHUNK)
    except BlockingIOError:
        return True
    held += chunk
    return bool(chunk)
