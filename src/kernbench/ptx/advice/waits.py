"""Mends of waits for groups and phases, as if one more were under way; for fences and barriers, as if without them."""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from kernbench.ptx.advice.mend import Flags, Launch, Mend, Sure, share_waited, silent, without
from kernbench.ptx.recording.kinds import Kind
from kernbench.ptx.recording.recording import NONE, Events
from kernbench.ptx.sass.streams import Pipe
from kernbench.ptx.time.changes import Given
from kernbench.ptx.time.engine.reasons import Reason

# waits of fewer of the warps' cycles are not timed again
LEAST = 0.02
_GROUPS = {
    Kind.ASYNC_COPY_WAIT: ("copies", (Kind.ASYNC_COPY,), Kind.ASYNC_COPY_COMMIT),
    Kind.WGMMA_WAIT: ("products", (), Kind.WGMMA_COMMIT),
    Kind.BULK_WAIT: ("bulk stores", (), Kind.BULK_COMMIT),
}


def waits(launch: Launch) -> Iterator[Mend]:
    """All mends of waits."""
    yield from _stages(launch)
    yield from _phases(launch)
    yield from _synchronised(launch, Reason.FENCE, Pipe.FENCE, "fences", "fewer fences: one after the last store")
    balance = "balance the work of the warps, or let fewer of them meet (a barrier of a warp)"
    yield from _synchronised(launch, Reason.BARRIER, Pipe.BARRIER, "barriers", balance)


def _stages(launch: Launch) -> Iterator[Mend]:
    """Waits for groups of copies or products that let one more group be under way."""
    recording = launch.recording
    events = recording.events
    for kind, (what, moved, commit) in _GROUPS.items():
        here = launch.are((kind,)) & (events.phase > 0)
        if not here.any():
            continue
        group = launch.one_group(here)
        commits = max(float((launch.are((commit,)) * launch.warps).sum()), 1.0)
        moves = float((launch.are(moved) * launch.warps * events.bytes).sum())
        shared = int(moves / commits * recording.warps)
        phases = np.where(here, events.phase - 1, events.phase).astype(np.int32)
        given = Given(events=replace(events, phase=phases), shared=shared)
        message = f"warps wait at {group.named} for {what}"
        room = f": {shared:,} bytes of shared memory more" if shared else ""
        hint = f"one more stage of {what} under way{room}"
        # what follows a wait for products may need all of them
        sure = Sure.LIKELY if kind == Kind.ASYNC_COPY_WAIT else Sure.AT_MOST
        yield Mend("too few stages", group.line, message, hint, sure, given)


def _phases(launch: Launch) -> Iterator[Mend]:
    """Waits for mbarriers, as if bulk copies were begun one stage earlier.

    Those who copy wait until a stage is free: for the one before. Where nobody does, those who read a stage wait for
    the one before.
    """
    events, recording = launch.recording.events, launch.recording
    copies, awaited = launch.are((Kind.BULK_LOAD,)), launch.are((Kind.MBARRIER_WAIT,))
    if not copies.any() or not awaited.any() or share_waited(launch, Reason.MBARRIER) < LEAST:
        return
    full = np.isin(events.object, np.unique(events.object[copies]))
    bounds = recording.traces.first_event[recording.traces.start]
    copying = np.repeat(np.add.reduceat(np.append(copies, False), bounds[:-1]) > 0, np.diff(bounds))
    free = awaited & copying & ~full
    here = free if free.any() else awaited & full
    stages = max(len(np.unique(np.stack([events.object[copies], events.phase[copies]]), axis=1).T), 1)
    shared = int((events.bytes * launch.warps)[copies].sum() / recording.ctas / stages)
    group = launch.one_group(here)
    given = Given(events=_shifted(launch, here), shared=shared)
    message = f"warps wait at {group.named} for bulk copies"
    hint = f"one more stage of copies under way: {shared:,} bytes of shared memory more"
    yield Mend("too few stages", group.line, message, hint, Sure.LIKELY, given)


def _shifted(launch: Launch, here: Flags) -> Events:
    """The events, where some waits are each for what the one before in its trace waited for; the first for nothing."""
    events, recording = launch.recording.events, launch.recording
    objects, phases = events.object.copy(), events.phase.copy()
    bounds = recording.traces.first_event[recording.traces.start]
    for first, last in zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True):
        found = first + np.flatnonzero(here[first:last])
        if len(found):
            objects[found[1:]], phases[found[1:]] = events.object[found[:-1]], events.phase[found[:-1]]
            objects[found[0]] = phases[found[0]] = NONE
    return replace(events, object=objects, phase=phases)


def _synchronised(launch: Launch, reason: Reason, pipe: Pipe, what: str, hint: str) -> Iterator[Mend]:
    """Fences or barriers of a line, as if they were not there."""
    ops, time = launch.streams.ops, launch.again.time
    if share_waited(launch, reason) < LEAST:
        return
    here = (ops.pipe == pipe) & (ops.instruction >= 0)
    rows_of = np.maximum(ops.instruction, 0)
    by_row = np.bincount(rows_of, here * time.stalls.issued, len(launch.recording.instructions))
    for group in launch.groups_of_rows(by_row.astype(np.float64)):
        rows = here & np.isin(ops.instruction, group.rows)
        events = silent(launch.recording.events, launch.within(group))
        given = Given(streams=without(launch.streams, rows), events=events)
        share = 100 * share_waited(launch, reason)
        message = f"{share:.0f} % of warp cycles wait for {what}, such as {group.named}"
        yield Mend(what, group.line, message, hint, Sure.AT_MOST, given)
