"""The batch, as inspection sees it."""

from typing import TYPE_CHECKING, Protocol

from kernbench.ptx.emulator.lanes.window import WindowOf
from kernbench.ptx.emulator.units import batch as whole

if TYPE_CHECKING:
    from kernbench.ptx.emulator.inspect.naming import Naming
    from kernbench.ptx.emulator.inspect.probing import Probe


class Launch(whole.Launch, Protocol):
    """A launch that may be inspected."""

    probe: "Probe | None"
    naming: "Naming | None"


class Batch(whole.Batch, Protocol):
    """A batch of such a launch."""

    @property
    def launch(self) -> Launch:
        """The batch's launch."""


Window = WindowOf[Batch]
