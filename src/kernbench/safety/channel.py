"""Messages from a process that runs user code: framed, so that other output of that code is not mistaken for one.

A frame is a random key of this channel, the length and checksum of a text, and the text, which is JSON. Any other bytes
break the channel for good: nothing after them is trusted.
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
# bytes of the end of a process's output that are kept
_KEPT = 1 << 14
# bound early, before user code can replace json.dumps
_to_text = json.JSONEncoder(allow_nan=False).encode


class BrokenChannelError(Exception):
    """The bytes received are no message, or the descriptor for sending was closed."""


def new_key() -> bytes:
    """A random key, which no output contains by accident."""
    return secrets.token_bytes(KEY_BYTES)


class Sender:
    """The sending end; it does nothing in a process that user code has forked."""

    def __init__(self, descriptor: int, key: bytes):
        self._descriptor, self._key = descriptor, key
        self._owner, self._pipe = os.getpid(), identity(descriptor)

    @property
    def mine(self) -> bool:
        """Whether this is the process that the channel was made for, not a fork of it."""
        return os.getpid() == self._owner

    def send(self, message: dict[str, object]) -> None:
        """Send a whole message; does nothing in a fork of the process.

        Raises `BrokenChannelError` if the descriptor was closed: its number may belong to another file by now.
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
    """The receiving end; reading never blocks."""

    def __init__(self, descriptor: int, key: bytes):
        os.set_blocking(descriptor, False)
        self.descriptor, self._key = descriptor, key
        self.total = 0
        self._held = bytearray()

    def read(self) -> tuple[list[dict[str, Any]], bool]:
        """The complete messages, and whether more may come; an incomplete message is buffered."""
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
        """Close the pipe."""
        os.close(self.descriptor)


class Tail:
    """Keeps the end of what comes through a pipe; reading never blocks."""

    def __init__(self, descriptor: int):
        os.set_blocking(descriptor, False)
        self.descriptor = descriptor
        self.total = 0
        self._held = bytearray()

    def read(self) -> bool:
        """Read one chunk if there is one; returns whether more may come."""
        before = len(self._held)
        more = _read_into(self._held, self.descriptor)
        self.total += len(self._held) - before
        del self._held[:-_KEPT]
        return more

    def text(self) -> str:
        """The text that is kept."""
        return self._held.decode("utf-8", "replace")

    def take(self) -> str:
        """The text that is kept, which is then cleared."""
        text = self.text()
        self._held.clear()
        return text

    def close(self) -> None:
        """Close the pipe."""
        os.close(self.descriptor)


def _message(text: bytes) -> dict[str, object]:
    """Parse a message; a text that is not a JSON object breaks the channel."""
    try:
        message = json.loads(text)
    except ValueError:
        raise BrokenChannelError from None
    if not isinstance(message, dict):
        raise BrokenChannelError
    return message


def identity(descriptor: int) -> tuple[int, int] | None:
    """Device and inode of an open descriptor; None if it is closed."""
    try:
        state = os.fstat(descriptor)
    except OSError:
        return None
    return state.st_dev, state.st_ino


def _read_into(held: bytearray, descriptor: int) -> bool:
    """Read one chunk without blocking; returns whether the pipe is still open."""
    try:
        chunk = os.read(descriptor, _CHUNK)
    except BlockingIOError:
        return True
    held += chunk
    return bool(chunk)
