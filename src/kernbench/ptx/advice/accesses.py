"""Mends of accesses: all of a source line together touch what their bytes fill, different banks, or take no turns."""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from kernbench.ptx.advice.mend import Flags, Floats, Group, Launch, Mend, Sure, changed, silent
from kernbench.ptx.recording.kinds import Kind
from kernbench.ptx.recording.recording import Events
from kernbench.ptx.time.changes import Given
from kernbench.ptx.time.lines import SECTOR, least_passes, least_sectors

_LOADS = (Kind.GLOBAL_LOAD, Kind.ASYNC_COPY)
_STORES = (Kind.GLOBAL_STORE,)
_ATOMICS = (Kind.GLOBAL_ATOMIC, Kind.GLOBAL_REDUCTION)
_LOCAL = (Kind.LOCAL_LOAD, Kind.LOCAL_STORE)
# an address is the target of many atomics if each sector is touched so often
OFTEN = 8
_UNCOALESCED = "uncoalesced access"


def accesses(launch: Launch) -> Iterator[Mend]:
    """All mends of accesses."""
    yield from _uncoalesced(launch)
    yield from _conflicts(launch)
    yield from _atomics(launch)
    yield from _local(launch)


def _uncoalesced(launch: Launch) -> Iterator[Mend]:
    events = launch.recording.events
    least = np.where(launch.are((*_LOADS, *_STORES)), least_sectors(events), events.sectors)
    excess = np.asarray(events.sectors - least, np.float64)
    groups = list(launch.groups(excess))
    for group in groups:
        yield _gathered(launch, group, launch.within(group) & (excess > 0), least, joint=False)
    if len(groups) > 1:
        everywhere = replace(groups[0], rows=tuple(row for group in groups for row in group.rows))
        yield _gathered(launch, everywhere, excess > 0, least, joint=True)


def _gathered(launch: Launch, group: Group, here: Flags, least: Floats, joint: bool) -> Mend:
    events = launch.recording.events
    share = float((least * launch.warps)[here].sum() / (events.sectors * launch.warps)[here].sum())
    named = f"`{group.text}` and {len(group.rows) - 1} more at several lines" if joint else group.named
    message = f"{100 * share:.0f} % of the bytes that {named} move are what lanes ask for"
    hint = "let neighbouring lanes access neighbouring bytes (another layout), or pass through shared memory"
    for kinds in (_LOADS, _STORES):
        events = gathered(events, here & launch.are(kinds), least, launch.warps)
    beyond = _UNCOALESCED if joint else ""
    # which bytes lanes need may be known only when others were loaded
    sure = Sure.AT_MOST if launch.flow.loaded[list(group.rows)].any() else Sure.SURE
    return Mend(_UNCOALESCED, group.line, message, hint, sure, Given(events=events), beyond=beyond)


def gathered(events: Events, here: Flags, least: Floats, warps: Floats) -> Events:
    """The events, with the chosen accesses touching only the sectors that their bytes fill.

    Together they touch for the first time what they did, unless they ask for less: neighbouring bytes that one lane
    asks for one after the other are asked for by neighbouring lanes at once.
    """
    if not here.any():
        return events

    def whole(column: Floats) -> float:
        return float((column * warps)[here].sum())

    wanted = whole(least)
    first, other, own = (whole(column.astype(np.float64)) for column in (events.first, events.other, events.own))
    unstored = whole(np.maximum(events.sectors - events.stored, 0.0))
    new = min(first, wanted) / wanted
    by_others = (1.0 - new) * other / max(other + own, 1e-9)
    lines = np.minimum(events.lines, np.ceil(least * SECTOR / 128))
    columns: dict[str, Floats] = {
        "sectors": least, "lines": lines, "first": least * new, "other": least * by_others,
        "own": least * (1.0 - new - by_others), "stored": least * (1.0 - min(unstored / wanted, 1.0)),
    }  # fmt: skip
    return changed(events, here, columns)


def _conflicts(launch: Launch) -> Iterator[Mend]:
    events = launch.recording.events
    least = least_passes(events)
    for group in launch.groups(events.wavefronts - least):
        here = launch.within(group)
        times = float((events.wavefronts * launch.warps)[here].sum() / (least * launch.warps)[here].sum())
        message = f"{group.named} take {times:.1f} times the passes over the banks that their bytes need"
        hint = "pad rows, or swizzle addresses, so that lanes of one pass hit different banks"
        given = Given(events=changed(events, here, {"wavefronts": least}))
        yield Mend("bank conflict", group.line, message, hint, Sure.SURE, given)


def _atomics(launch: Launch) -> Iterator[Mend]:
    events = launch.recording.events
    atomics = launch.are(_ATOMICS)
    for group in launch.groups(np.where(atomics, np.maximum(events.wavefronts, events.sectors), 0.0)):
        here = launch.within(group) & atomics
        touched, new = (float((one * launch.warps)[here].sum()) for one in (events.sectors, events.first))
        if touched < OFTEN * max(new, 1.0):
            continue
        turns = float(events.wavefronts[here].mean())
        message = f"{group.named} change few addresses again and again: {turns:.0f} turns each time"
        hint = "add in registers, then in the warp (shuffles) or in shared memory, and once for each block in memory"
        yield Mend("atomics", group.line, message, hint, Sure.LIKELY, _combined(launch, here))


def _combined(launch: Launch, here: Flags) -> Given:
    """The launch with one atomic for each address and block: the last one of each warp has its part of these."""
    events, warps = launch.recording.events, launch.warps
    last = np.zeros(len(events), bool)
    bounds = launch.recording.traces.first_event[launch.recording.traces.start]
    for first, end in zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True):
        found = np.flatnonzero(here[first:end])
        last[first + found[-1:]] = True
    # a block changes each sector once, and no more sectors than there are
    sectors, first = events.sectors.astype(np.float64), float((events.first * warps)[here].sum())
    touched = min(float(((sectors - events.own) * warps)[here].sum()), max(first, 1.0) * launch.recording.ctas)
    share = np.where(last, min(touched / float((sectors * warps)[last].sum()), 1.0), 1.0)
    new = first / float(warps[last].sum())
    events = changed(events, last, {"wavefronts": sectors, "first": np.full(len(events), new)})
    return Given(events=silent(events, here & ~last), atomics=share)


def _local(launch: Launch) -> Iterator[Mend]:
    local = launch.are(_LOCAL)
    if not local.any():
        return
    events = launch.recording.events
    group = launch.one_group(local)
    message = f"`{group.text}` and others access local memory: {launch.recording.local_bytes:,} bytes of each thread"
    hint = "give arrays constant indices (unrolled loops), so that they are registers, or keep them in shared memory"
    given = Given(events=silent(events, local))
    yield Mend("local memory", group.line, message, hint, Sure.LIKELY, given)
