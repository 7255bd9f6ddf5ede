"""Times recorded launches on GPUs: the issued instructions are determined once, and timed for each GPU."""

from dataclasses import dataclass

from kernbench.common.errors import MisuseError
from kernbench.ptx.machine import Gpu
from kernbench.ptx.recording.recording import LaunchRecording
from kernbench.ptx.sass.join.making import streams_of
from kernbench.ptx.sass.streams import Streams
from kernbench.ptx.time.changes import Again
from kernbench.ptx.time.launch import time_launch
from kernbench.ptx.time.presentation import timed
from kernbench.ptx.time.result import LaunchTime
from kernbench.ptx.time.waits import why_unknown
from kernbench.result.run import Run


@dataclass(frozen=True)
class LaunchTiming:
    """A recording timed for a GPU."""

    recording: LaunchRecording
    streams: Streams
    time: LaunchTime

    def again(self, machine: object) -> "LaunchTiming":
        """The same recording on another GPU."""
        assert isinstance(machine, Gpu)
        return LaunchTiming(self.recording, self.streams, time_launch(self.recording, self.streams, machine))


def time_recording(recording: LaunchRecording, gpu: Gpu) -> LaunchTiming:
    """Time a recording for the first time."""
    if why := why_unknown(recording):
        raise MisuseError(f"no time: {why}")
    streams = streams_of(recording, gpu.arch)
    return LaunchTiming(recording, streams, time_launch(recording, streams, gpu))


def retime(run: Run, gpu: Gpu, drawn: bool = True, sensitivity: bool = False) -> Run:
    """A recorded run that is safe and not known to be wrong, with its time on `gpu`.

    With `sensitivity` also what changes would save, which small launches include by default.
    """
    return explained(run, time_recording(run.recording, gpu), gpu, drawn, sensitivity)


def explained(run: Run, timing: LaunchTiming, gpu: Gpu, drawn: bool = True, sensitivity: bool = False) -> Run:
    """The run with a time that is known: its metrics, and if `drawn` its timeline, lines and advice."""
    return timed(run, Again(timing.recording, timing.streams, gpu, timing.time), drawn, sensitivity)
