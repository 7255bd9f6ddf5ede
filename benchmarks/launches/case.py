"""What a launch of the benchmark is: a kernel with a size and an architecture, and its work on the emulated GPU."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class Work:
    """One launch with its arrays on the device.

    - `launch` runs the kernel, or the two kernels of a work in two steps.
    - `outputs` are what it writes, `expected` what must stand there, on the host and in any type.
    - `relative` and `absolute` are the tolerances of the comparison; integers are compared as they are.
    - `start` fills the outputs before each launch: zero for kernels that add to them.
    """

    launch: Callable[[], object]
    outputs: Sequence[torch.Tensor]
    expected: Sequence[torch.Tensor]
    relative: float = 1e-2
    absolute: float = 1e-2
    start: float = float("nan")

    def begin(self) -> None:
        """Fill the outputs, so that nothing of an earlier launch is taken for a result."""
        for output in self.outputs:
            known = output.is_floating_point() or self.start == self.start
            output.fill_(self.start if known else -1)

    def judge(self) -> None:
        """Raise `AssertionError` if the outputs are not what is expected."""
        for output, expected in zip(self.outputs, self.expected, strict=True):
            found = output.cpu()
            if found.is_floating_point():
                limits = {"rtol": self.relative, "atol": self.absolute}
                torch.testing.assert_close(found.double(), expected.double(), **limits)
            else:
                torch.testing.assert_close(found.long(), expected.long(), rtol=0, atol=0)


@dataclass(frozen=True)
class Case:
    """A line of the table; `make` makes its work, inside the block of an emulated GPU of `arch`."""

    kernel: str
    group: str
    arch: str
    size: str
    make: Callable[[], Work]

    @property
    def name(self) -> str:
        """What `--only` and a JSON file call it."""
        return f"{self.kernel}/{self.size}/{self.arch}"


def normal(*shape: int, kind: torch.dtype = torch.float32, scale: float = 1.0) -> torch.Tensor:
    """Random numbers on the host, the same in each process."""
    made = torch.Generator().manual_seed(sum(shape) + len(shape))
    return (torch.randn(*shape, generator=made) * scale).to(kind)


def whole(below: int, *shape: int) -> torch.Tensor:
    """Random whole numbers from 0 to below a bound, 32 bits each, on the host."""
    made = torch.Generator().manual_seed(below + sum(shape))
    return torch.randint(below, shape, generator=made, dtype=torch.int32)
