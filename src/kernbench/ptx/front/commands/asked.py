"""Groups of options that several PTX commands share: the launch, its limits, and where results go."""

from dataclasses import dataclass

from kernbench.cli.output.document import JSON
from kernbench.cli.output.inside import DUMP
from kernbench.ptx.front import launch_file
from kernbench.ptx.front.commands.options import (
    BLOCK,
    BUDGET,
    CLUSTER,
    ELEMENTS,
    GPU,
    GRID,
    HTML,
    KERNEL,
    LAUNCH,
    SECONDS,
    SEED,
    SENSITIVITY,
    SHARED,
    STEPS,
    STOP_AT,
    TIME,
    TRACE,
)
from kernbench.safety.budget import Budget


@dataclass(frozen=True)
class LaunchAsked:
    """How a kernel is launched: a launch file, and options that override it."""

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
        """The limits as a budget of a launch."""
        return Budget(self.budget, self.max_seconds)


@dataclass(frozen=True)
class TimeAsked:
    """Whether the time on a GPU is predicted, and on which."""

    time: TIME = False
    gpu: GPU = ""
    sensitivity: SENSITIVITY = False

    @property
    def wanted(self) -> bool:
        """Whether any option asks for it."""
        return self.time or bool(self.gpu) or self.sensitivity


@dataclass(frozen=True)
class ResultsAsked:
    """Where results are written, and the location at which the launch stops, if any."""

    json: JSON = None
    trace: TRACE = None
    html: HTML = None
    stop_at: STOP_AT = None
    dump: DUMP = None
