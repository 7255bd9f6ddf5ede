"""The recorder of a whole launch, or a null one: see `observer.recorder` for that of a batch."""

from typing import TYPE_CHECKING

from kernbench.ptx.emulator.observer.recorder import Recorder

if TYPE_CHECKING:
    from kernbench.ptx.emulator.units.batch import Batch


class LaunchRecorder:
    """Makes the recorders of a launch's batches; this one records nothing."""

    def batch(self, batch: "Batch") -> Recorder:
        """The recorder of one of its batches."""
        return Recorder()
