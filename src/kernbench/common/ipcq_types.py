"""Types of the inter-PE queues (IPCQ): directions and the two commands that use them."""

from dataclasses import dataclass

from kernbench.common.errors import KernelError, unknown
from kernbench.common.pe_commands import PeCommand, TensorHandle

DIRECTIONS: tuple[str, ...] = ("N", "S", "E", "W")
OPPOSITE: dict[str, str] = {"N": "S", "S": "N", "E": "W", "W": "E"}


def check_direction(direction: object) -> str:
    """`direction` itself if it is one of N, S, E, W."""
    if not isinstance(direction, str) or direction not in OPPOSITE:
        raise KernelError("misuse", unknown("direction", direction, DIRECTIONS))
    return str(direction)


@dataclass(frozen=True, eq=False)
class IpcqSendCmd(PeCommand):
    """Send `src` to the neighbour in `direction`; `blocking` distinguishes a plain send from an asynchronous one."""

    direction: str
    src: TensorHandle
    blocking: bool = True

    @property
    def nbytes(self) -> int:
        """Bytes of the message."""
        return self.src.nbytes


@dataclass(frozen=True, eq=False)
class IpcqRecvCmd(PeCommand):
    """Receive the next message from the neighbour in `direction` as `out`."""

    direction: str
    out: TensorHandle
    blocking: bool = True

    @property
    def nbytes(self) -> int:
        """Bytes of the message."""
        return self.out.nbytes
