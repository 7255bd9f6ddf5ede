"""Mends of launches that move too little at a time: each thread as if it did several elements at once.

So many times the work is timed, of which loads of all elements are issued together or as one wide access, and
everything else as often as there are elements. Each element takes its part of that time.
"""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from kernbench.ptx.advice.mend import Flags, Launch, Mend, Sure, changed, repeated, share_waited
from kernbench.ptx.recording.kinds import Kind
from kernbench.ptx.sass.streams import Pipe, Streams
from kernbench.ptx.time.changes import Given
from kernbench.ptx.time.engine.reasons import Reason
from kernbench.ptx.time.lines import least_sectors

# bytes of the widest access of a lane
WIDEST = 16
# loads under way at a time, for each one that was
MORE = 4
# waits of fewer of the warps' cycles are not timed again
LEAST = 0.02
# CTAs of several elements a thread fill at least this part of the GPU
FILLED = 0.5
# what a thread does once for all of its elements
_ONCE = (
    Pipe.BRANCH, Pipe.CONTROL, Pipe.BARRIER, Pipe.MBARRIER, Pipe.CP_ASYNC, Pipe.BULK, Pipe.WGMMA,
    Pipe.TCGEN05, Pipe.SPECIAL, Pipe.UNIFORM, Pipe.CONSTANT,
)  # fmt: skip
_ACCESSES = (Pipe.GLOBAL, Pipe.LOCAL, Pipe.SHARED, Pipe.LDMATRIX, Pipe.CP_ASYNC, Pipe.BULK)
_FACTORS = (16, 8, 4, 2)
_EXPOSED = "exposed wait"
_MOVED = ("sectors", "lines", "bytes", "first", "other", "own", "stored")


def several(launch: Launch) -> Iterator[Mend]:
    """Wide accesses in place of narrow ones, and more loads under way at a time."""
    yield from _narrow(launch)
    yield from _exposed(launch)


def _narrow(launch: Launch) -> Iterator[Mend]:
    events, ops = launch.recording.events, launch.streams.ops
    dense = (least_sectors(events) >= events.sectors) & (events.lanes > 0)
    moves = launch.are((Kind.GLOBAL_LOAD, Kind.GLOBAL_STORE)) & dense & ~launch.flow.loaded[events.instruction]
    width = np.where(moves, events.bytes / np.maximum(events.lanes, 1), 0)
    here = np.isin(ops.instruction, np.unique(events.instruction[moves]))
    widest = int(WIDEST // max(float(width.max(initial=0)), 1.0))
    factor = next((one for one in _FACTORS if one <= widest and _enough(launch, moves, one)), 1)
    group = next(launch.groups(moves), None)
    accesses = np.isin(ops.pipe, [int(pipe) for pipe in _ACCESSES])[launch.streams.op]
    if group is None or factor < 2 or 2 * here[launch.streams.op].sum() < accesses.sum():
        return
    columns = {name: getattr(events, name).astype(np.float64) * factor for name in _MOVED}
    addresses = launch.flow.addresses[np.maximum(ops.instruction, 0)] & (ops.instruction >= 0)
    streams = _repeated(launch, factor, here | addresses)
    streams = replace(streams, ops=replace(ops, width=np.where(here, ops.width * factor, ops.width).astype(np.int32)))
    message = f"{group.named} move {float(width.max()):.0f} bytes a lane, of {WIDEST} that an access can"
    hint = f"let each thread do {factor} neighbouring elements, loaded and stored at once (vector types)"
    given = Given(events=changed(events, moves, columns), streams=streams, times=factor)
    yield Mend("narrow access", group.line, message, hint, Sure.AT_MOST, given, beyond=_EXPOSED)


def _exposed(launch: Launch) -> Iterator[Mend]:
    waited = share_waited(launch, Reason.GLOBAL)
    loads = launch.are((Kind.GLOBAL_LOAD,)) & ~launch.flow.loaded[launch.recording.events.instruction]
    group = next(launch.groups(loads), None)
    if waited < LEAST or group is None or not _enough(launch, loads, MORE):
        return
    message = f"{100 * waited:.0f} % of warp cycles wait for global memory, most of all for what {group.named} load"
    held = launch.again.time.occupancy
    warps = "" if held.warps >= held.most_warps else ", or more warps"
    hint = f"{MORE} times as many under way: load earlier, or unroll by {MORE} with all loads first{warps}"
    nothing = np.zeros(len(launch.streams.ops), bool)
    given = Given(streams=_repeated(launch, MORE, nothing), times=MORE)
    yield Mend(_EXPOSED, group.line, message, hint, Sure.AT_MOST, given)


def _enough(launch: Launch, here: Flags, times: int) -> bool:
    """Whether threads have so many elements, one after the other, or could have, with fewer CTAs.

    Not where so much work would take long to time.
    """
    if not launch.timed_soon(times):
        return False
    held, recording = launch.again.time.occupancy, launch.recording
    if recording.ctas >= FILLED * times * held.ctas * int(launch.again.gpu.chip.sms):
        return True
    bounds = recording.traces.first_event[recording.traces.start]
    in_trace = np.add.reduceat(np.append(here, False).astype(np.int64), bounds[:-1])[np.diff(bounds) > 0]
    return bool(in_trace.max(initial=0) >= times)


def _repeated(launch: Launch, times: int, once: Flags) -> Streams:
    """The streams with instructions so many times in a row, but for some, and what a thread does once."""
    ops = launch.streams.ops
    single = once | np.isin(ops.pipe, [int(pipe) for pipe in _ONCE])
    return repeated(launch.streams, np.where(single, 1, times)[launch.streams.op])
