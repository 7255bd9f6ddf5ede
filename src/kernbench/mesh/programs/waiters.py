"""Descriptions of programs that wait at a queue for deadlock reports, of launches and of timed recordings."""

from typing import Protocol

from kernbench.common.ipcq_types import OPPOSITE
from kernbench.result.finding import SourceLocation
from kernbench.safety.waits import Waiter


class Link(Protocol):
    """A queue from one seat to another."""

    @property
    def sender(self) -> int:
        """The seat that sends in `direction`."""

    @property
    def receiver(self) -> int:
        """The seat on the other side."""

    @property
    def direction(self) -> str:
        """N, S, E or W."""

    @property
    def depth(self) -> int:
        """Its slots."""


def waiter(seat: int, sends: bool, link: Link, where: SourceLocation | None) -> Waiter:
    """The program at `seat`, at one end of the link."""
    side = OPPOSITE[link.direction]
    if sends:
        action = f"send {link.direction} waits for a free slot in the neighbour's queue (depth {link.depth})"
        return Waiter(seat, action, where, link.receiver, f"received from {side}")
    return Waiter(seat, f"receive from {side} waits for a message", where, link.sender, f"sent {link.direction}")
