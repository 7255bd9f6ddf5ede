"""Times recorded launches on GPUs: the issued instructions are determined once, and timed for each GPU."""

from dataclasses import dataclass

from kernbench.common.errors import MisuseError
from kernbench.ptx.machine import Gpu
from kernbench.ptx.recording.recording import LaunchRecording
from kernbench.ptx.sass.join.making import streams_of
from kernbench.ptx.sass.streams import Streams
from kernbench.ptx.time.launch import time_launch
from kernbench.ptx.time.result import LaunchTime
from kernbench.ptx.time.waits import why_unknown


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
