"""The batch, as asynchronous work sees it."""

from typing import TYPE_CHECKING, Protocol

from kernbench.common.dtypes import Array
from kernbench.ptx.emulator.barriers.hub import BarrierBatch, BarrierScheduler
from kernbench.ptx.emulator.memory.arena import Arena
from kernbench.ptx.emulator.program.hub import LaunchHub
from kernbench.ptx.emulator.program.program import Site

if TYPE_CHECKING:
    from kernbench.ptx.emulator.asynchronous.agents import Agents
    from kernbench.ptx.emulator.asynchronous.journal import Journal


class Groups(Protocol):
    """The bulk groups of a batch's threads."""

    def issue(self, lanes: Array, site: Site) -> tuple[Array, Array]:
        """Lanes begin a copy: their groups, and the index of the copy in each lane's warp."""


class AsynchronousLaunch(LaunchHub, Protocol):
    """What asynchronous work needs from its launch."""

    arena: Arena


class AsynchronousBatch(BarrierBatch, Protocol):
    """What asynchronous work needs from its batch."""

    agents: "Agents"

    @property
    def launch(self) -> AsynchronousLaunch:
        """The batch's launch."""

    @property
    def journal(self) -> "Journal | None":
        """The record of the first CTAs, if kept."""

    @property
    def groups(self) -> Groups:
        """The bulk groups of its threads."""

    @property
    def scheduler(self) -> BarrierScheduler:
        """The scheduler of its fragments."""
