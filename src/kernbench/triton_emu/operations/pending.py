"""Asynchronous sends and receives under way: what `send_async` and `recv_async` return, to be waited on."""

from typing import Any

from kernbench.common.pe_commands import TensorHandle
from kernbench.result.finding import SourceLocation

__kernbench_internal__ = True


class Pending:
    """A send or receive under way. `number` counts the asynchronous requests of this PE."""

    verb = ""

    def __init__(self, context: Any, number: int, request: object, direction: str, where: SourceLocation):
        self._context = context
        self.number = number
        self._request = request
        self.direction = direction
        self.where = where
        self.done = False

    def __repr__(self) -> str:
        state = "done" if self.done else "under way"
        return f"<asynchronous {self.verb} {self.direction} of {self.where}, {state}>"


class PendingSend(Pending):
    """A send under way; its source must not be overwritten before the wait."""

    verb = "send"

    def __init__(
        self, context: Any, number: int, request: object, direction: str, where: SourceLocation, src: TensorHandle
    ):
        super().__init__(context, number, request, direction, where)
        self.src: TensorHandle | None = src

    def wait(self) -> None:
        """Block until the message has left."""
        self._context.wait(self)


class PendingRecv(Pending):
    """A receive under way; `wait` gives the handle of the message, which cannot be seen earlier."""

    verb = "receive"

    def __init__(
        self, context: Any, number: int, request: object, direction: str, where: SourceLocation, handle: TensorHandle
    ):
        super().__init__(context, number, request, direction, where)
        self.handle = handle

    def wait(self) -> TensorHandle:
        """Block until the message is there; its handle."""
        return self._context.wait(self)  # type: ignore[no-any-return]
