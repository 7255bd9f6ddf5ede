"""Requests over a socket, as `native/link.c` sends them: a header of three numbers, 64-bit words, bytes."""

import socket
from array import array
from struct import Struct

from kernbench.ptx.doors.driver.requests import MOST_WORDS, Answer

_HEADER = Struct("<IIQ")
_GREETING = Struct("<Q")
_MAPPING = Struct("<QQ")
_MOST_BYTES = 1 << 32


class ConnectionEndedError(Exception):
    """The program at the other end is gone, or violates the protocol."""


def receive(connection: socket.socket, count: int) -> bytes:
    """Exactly `count` bytes."""
    data = bytearray(count)
    view, at = memoryview(data), 0
    while at < count:
        try:
            got = connection.recv_into(view[at:])
        except OSError:
            got = 0
        if not got:
            raise ConnectionEndedError
        at += got
    return bytes(data)


def greet(connection: socket.socket) -> int:
    """The pid of the process that connected."""
    return int(_GREETING.unpack(receive(connection, _GREETING.size))[0])


def send_mapping(connection: socket.socket, address: int, nbytes: int, file: int) -> None:
    """Send the file of device memory, and the address to map it at."""
    rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array("i", [file]))]
    connection.sendmsg([_MAPPING.pack(address, nbytes)], rights)


def receive_request(connection: socket.socket) -> tuple[int, tuple[int, ...], bytes]:
    """Receive a request: its number, its words, its bytes."""
    request, count, nbytes = _HEADER.unpack(receive(connection, _HEADER.size))
    if count > MOST_WORDS or nbytes > _MOST_BYTES:
        raise ConnectionEndedError
    words = Struct(f"<{count}Q").unpack(receive(connection, 8 * count))
    return request, words, receive(connection, nbytes)


def send_answer(connection: socket.socket, answer: Answer) -> None:
    """Answer the last request."""
    words = [word & 0xFFFF_FFFF_FFFF_FFFF for word in answer.words]
    head = _HEADER.pack(int(answer.result), len(words), len(answer.data))
    try:
        connection.sendall(head + Struct(f"<{len(words)}Q").pack(*words) + answer.data)
    except OSError:
        raise ConnectionEndedError from None
