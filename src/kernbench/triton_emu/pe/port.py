"""What lies behind a context: nothing, while a kernel is only recorded; a machine, inside a launch.

`Port` is the recording one: no data, no blocking. A machine subclasses it.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple, NoReturn

from kernbench.common.dtypes import ITEMSIZE, Array
from kernbench.common.errors import KernelError
from kernbench.result.finding import Other, SourceLocation
from kernbench.safety.memory import Region

Shape = tuple[int, ...]


class Passed(NamedTuple):
    """A message without data that a program sends, or receives, and waits for at once."""

    is_sent: bool
    direction: str
    shape: Shape
    dtype: str
    where: SourceLocation


class Port:
    """The outside of a PE: memory, queues, and somebody who takes findings."""

    carries_data = False

    def __init__(self) -> None:
        self._workspace = 1 << 46
        # what the kernel printed
        self.printed: list[str] = []

    def load(
        self, address: int, shape: Shape, strides: Shape | None, dtype: str | None, where: SourceLocation
    ) -> tuple[Array | None, str]:
        """The elements at `address` and their type; f16 where neither the kernel nor the memory says."""
        return None, dtype or "f16"

    def unwatched(self, address: int, shape: Shape, strides: Shape | None) -> tuple[int, int, int, int] | None:
        """Where accesses like this one need not be looked at; see `AddressSpace.unwatched`."""
        return None

    def lent_at(self, address: int, shape: Shape, dtype: str | None) -> Region | None:
        """The region whose memory loads like this one are lent; see `AddressSpace.lent_at`."""
        return None

    def store(
        self, address: int, data: Array | None, shape: Shape, strides: Shape | None, dtype: str, where: SourceLocation
    ) -> int:
        """Put `data` at `address`; gives the bytes of an element of the tensor's own type."""
        return ITEMSIZE[dtype]

    def workspace(self, shape: Shape, dtype: str, name: str, where: SourceLocation) -> int:
        """The address of fresh HBM memory for this PE alone."""
        address = self._workspace
        self._workspace += 1 << 40
        return address

    def send(self, direction: str, data: Array | None, shape: Shape, dtype: str, where: SourceLocation) -> Any:
        """Start a send; gives a request for `wait_send`."""
        return None

    def send_now(self, direction: str, data: Array | None, shape: Shape, dtype: str, where: SourceLocation) -> None:
        """Send and wait in one."""
        self.wait_send(self.send(direction, data, shape, dtype, where), where)

    def wait_send(self, request: Any, where: SourceLocation) -> None:
        """Block until the send has left."""

    def recv(self, direction: str, shape: Shape, dtype: str | None, where: SourceLocation) -> Any:
        """Post a receive; gives a request for `wait_recv`."""
        return dtype or "f16"

    def recv_now(
        self, direction: str, shape: Shape, dtype: str | None, where: SourceLocation
    ) -> tuple[Array | None, str]:
        """Receive and wait in one."""
        return self.wait_recv(self.recv(direction, shape, dtype, where), where)

    def wait_recv(self, request: Any, where: SourceLocation) -> tuple[Array | None, str]:
        """Block until the message is there; gives its data and type."""
        return None, request

    def pass_again(self, messages: Sequence[Passed]) -> bool:
        """Send and receive messages without data, one after the other; whether one that came had values after all."""
        had_values = False
        for is_sent, direction, shape, dtype, where in messages:
            if is_sent:
                self.send_now(direction, None, shape, dtype, where)
            else:
                had_values |= self.recv_now(direction, shape, dtype, where)[0] is not None
        return had_values

    def element_type(self, address: int) -> str:
        """The element type of the tensor at `address`; f16 where nothing is known."""
        return "f16"

    def tensor_name(self, address: int) -> str | None:
        """The name of the tensor at `address`."""
        return None

    def print(self, line: str, where: SourceLocation) -> None:
        """Take a line that the kernel prints."""
        self.printed.append(line)

    def checkpoint(self, name: str, data: Array, where: SourceLocation, keys: dict[str, object]) -> None:
        """Take a value that the kernel calls by a name."""

    def report(
        self,
        kind: str,
        message: str,
        hint: str,
        where: SourceLocation,
        others: tuple[Other, ...] = (),
        subject: object = None,
    ) -> None:
        """Take a finding. Outside a launch there is no run to hold it, so it is an error at once."""
        self._refuse(kind, message, hint, where)

    def is_late(self) -> bool:
        """Whether the launch has used up its time."""
        return False

    def pause(self) -> None:
        """Called between two commands, now and then: others may have their turn."""

    def over_budget(self, steps: int, where: SourceLocation) -> None:
        """Called when the step budget of the context or the time of its launch is used up; must not return."""
        self._refuse("over-budget", f"the kernel dispatched {steps} commands and has not stopped", "", where)

    def _refuse(self, kind: str, message: str, hint: str, where: SourceLocation) -> NoReturn:
        raise KernelError(kind, message, hint, where)
