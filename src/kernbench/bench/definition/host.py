"""The interface of hosts, on which benches launch, as the runner uses it."""

from collections.abc import Callable
from typing import Protocol

from kernbench.machine.description import Description
from kernbench.result.checkpoint import Checkpoint
from kernbench.result.run import Run
from kernbench.safety.budget import Budget
from kernbench.safety.stopping import Stopper


class Host(Protocol):
    """A target's host: the runner sets its options before each launch, and reads its launches."""

    budget: Budget
    schedule: str | int
    stop: Stopper | None
    shapes_only: bool
    machine: Description | None
    # called by the bench with arguments of its target
    launch: Callable[..., Run]
    launches: list[Run]
    checkpoints: Callable[[Checkpoint], None] | None
    # set if its default budget follows the work: picoseconds that no schedule can beat
    limit_ps: int | None
