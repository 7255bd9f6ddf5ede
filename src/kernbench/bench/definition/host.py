"""What a bench launches on, as the runner sees it, whatever the target."""

from collections.abc import Callable
from typing import Protocol

from kernbench.machine.description import Description
from kernbench.result.checkpoint import Checkpoint
from kernbench.result.run import Run
from kernbench.safety.budget import Budget
from kernbench.safety.stopping import Stopper


class Host(Protocol):
    """A target's host: the runner sets its options before each launch, and reads what was launched."""

    budget: Budget
    schedule: str | int
    stop: Stopper | None
    shapes_only: bool
    machine: Description | None
    # called by the bench with whatever its target takes
    launch: Callable[..., Run]
    launches: list[Run]
    checkpoints: Callable[[Checkpoint], None] | None
    # set where its budget follows the work: picoseconds that no schedule can beat
    limit_ps: int | None
