"""Small kernels whose recordings are counted by hand."""

import numpy as np

from kernbench import ptx
from kernbench.ptx.recording.kinds import Kind
from kernbench.ptx.recording.recording import Event, LaunchRecording

HEAD = """.version 8.6
.target sm_90a
.address_size 64
.visible .entry kernel(.param .u64 array, .param .u32 number)
{
  .reg .pred %p<8>; .reg .b32 %r<32>; .reg .b64 %rd<16>;
  .shared .align 128 .b8 s[32768];
  .shared .align 8 .b64 full[4];
  .shared .align 8 .b64 empty[4];
  ld.param.u64 %rd0, [array];
  ld.param.u32 %r9, [number];
  mov.u32 %r0, %tid.x;
  and.b32 %r1, %r0, 31;
  shr.u32 %r2, %r0, 5;
  mov.u32 %r3, %ctaid.x;
  mov.u32 %r8, s;
"""
WORDS = 1 << 16


def recorded(body: str, number: int = 0, grid: int = 1, block: int = 32, **more: object) -> LaunchRecording:
    """The recording of a kernel with this body: %r0 thread, %r1 lane, %r2 warp, %r3 block, %r9 number, %rd0 array."""
    device = ptx.EmulatedDevice("sm_90a")
    array = device.array(np.zeros(WORDS, np.uint32), "array")
    run = device.launch(ptx.parse(HEAD + body + "\n  ret;\n}\n"), grid, block, [array, number], record=True, **more)
    assert run.findings == []
    assert isinstance(run.recording, LaunchRecording)
    return run.recording


def events(recording: LaunchRecording, *kinds: Kind, warp: int = 0, of: int = 0) -> list[Event]:
    """The events of a warp of a class, of some kinds or all."""
    found = [recording.event(number) for number in recording.events_of(of, warp)]
    return [event for event in found if not kinds or event.kind in kinds]


def blocks(recording: LaunchRecording, warp: int = 0, of: int = 0) -> list[tuple[int, int]]:
    """Blocks and lanes of the steps of a warp of a class."""
    traces = recording.traces
    return [(int(traces.block[step]), int(traces.lanes[step])) for step in recording.steps(of, warp)]
