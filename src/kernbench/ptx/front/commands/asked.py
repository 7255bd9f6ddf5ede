"""What the commands on PTX ask for together: the launch, its limits, and where results go."""

from dataclasses import dataclass

from kernbench.cli.output.document import JSON
from kernbench.cli.output.inside import DUMP
from kernbench.ptx.front import launch_file
from kernbench.ptx.front.commands.options import (
    BLOCK,
    BUDGET,
    CLUSTER,
    ELEMENTS,
    GRID,
    HTML,
    KERNEL,
    LAUNCH,
    SECONDS,
    SEED,
    SHARED,
    STEPS,
    STOP_AT,
    TRACE,
)
from kernbench.safety.budget import Budget


@dataclass(frozen=True)
class LaunchAsked:
    """How a kernel is launched: a launch file, and what goes over it."""

    launch: LAUNCH = None
    kernel: KERNEL = ""
    grid: GRID = ""
    block: BLOCK = ""
    cluster: CLUSTER = ""
    shared: SHARED = None
    elements: ELEMENTS = launch_file.ELEMENTS
    seed: SEED = None


@dataclass(frozen=True)
class LimitsAsked:
    """When a launch is stopped."""

    max_seconds: SECONDS = 600.0
    budget: BUDGET = STEPS

    @property
    def limits(self) -> Budget:
        """As a launch takes them."""
        return Budget(self.budget, self.max_seconds)


@dataclass(frozen=True)
class ResultsAsked:
    """Where results go, and whether the launch stops inside."""

    json: JSON = None
    trace: TRACE = None
    html: HTML = None
    stop_at: STOP_AT = None
    dump: DUMP = None
