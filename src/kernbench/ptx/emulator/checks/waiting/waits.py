"""Deadlock reports: which threads wait, where, for what, and which never arrived."""

from collections.abc import Sequence
from math import prod

import numpy as np

from kernbench.ptx.emulator.barriers.barriers import Barrier
from kernbench.ptx.emulator.checks.findings.reporter import Reporter, doing, thread_name
from kernbench.ptx.emulator.checks.waiting.deadlock import cluster_waits, mbarrier_waits
from kernbench.ptx.emulator.checks.waiting.matrix_waits import matrix_waits
from kernbench.ptx.emulator.checks.waiting.polls import polls
from kernbench.ptx.emulator.lanes.lanes import WARP
from kernbench.ptx.emulator.program.program import Site
from kernbench.ptx.emulator.units.batch import Batch
from kernbench.result.finding import Other

_SHOWN = 8


def deadlock_message(
    reporter: Reporter, batches: Sequence[Batch], queued: int, resident: int
) -> tuple[str, tuple[Other, ...], Site | None]:
    """The whole message, the other source locations, and the first site."""
    lines = ["no thread can go on:"]
    waits: list[tuple[str, Site]] = []
    for batch in batches:
        # causes come before their consequences
        waits += mbarrier_waits(batch) + matrix_waits(batch) + polls(batch)
        waits += cluster_waits(batch) + _meetings(batch) + _barriers(batch)
    for text, site in waits[:_SHOWN]:
        lines.append(f"  line {site.line} (`{site.text}`): {text}")
    if len(waits) > _SHOWN:
        lines.append(f"  and {len(waits) - _SHOWN} more groups")
    lines += _ended(batches, queued)
    if queued:
        lines.append(
            f"  {queued} blocks have not begun: {resident} fit on the device at once, and those wait for others"
        )
    others = tuple(Other(text, reporter.location(site)) for text, site in waits[1:_SHOWN])
    return "\n".join(lines), others, waits[0][1] if waits else None


def _ended(batches: Sequence[Batch], queued: int) -> list[str]:
    """How many blocks have ended, where some have and others wait."""
    total = prod(batches[0].launch.grid) if batches else 0
    living = sum(int(np.count_nonzero(batch.alive_by_cta)) for batch in batches)
    ended = total - queued - living
    return [f"  {ended} of {total} blocks {'has' if ended == 1 else 'have'} ended"] if ended > 0 else []


def _barriers(batch: Batch) -> list[tuple[str, Site]]:
    found = []
    for number, barrier, arrival in batch.scheduler.barriers.waiting():
        lanes = arrival.fragment.lanes
        numbers = lanes.lane_numbers()
        here = numbers if lanes.mask is None else numbers[lanes.mask]
        cta = int(here[0] // WARP) % batch.ctas
        expected = int(barrier.expected[cta])
        wanted = expected if expected >= 0 else int(batch.alive_by_cta[cta])
        arrived = int(barrier.units[cta] if expected >= 0 else barrier.lanes[cta])
        who = doing(batch, here, "waits", "wait")
        text = f"{who} at barrier {number}: {arrived} of {wanted} threads have arrived"
        missing = _absent(batch, cta, barrier)
        found.append((text + missing, arrival.site))
    return found


def _absent(batch: Batch, cta: int, barrier: Barrier) -> str:
    """A living thread of the CTA that has not arrived."""
    waiting = np.zeros(batch.lanes, bool)
    for arrival in barrier.waiting:
        waiting |= arrival.fragment.lanes.spread(batch.lanes)
    of_cta = (np.arange(batch.lanes) // WARP) % batch.ctas == cta
    absent = np.flatnonzero(batch.alive & of_cta & ~waiting)
    return f"; {thread_name(batch, int(absent[0]))} has not" if len(absent) else "; the others have ended"


def _meetings(batch: Batch) -> list[tuple[str, Site]]:
    """Parts of warps that wait for the rest of their warp."""
    found = []
    for parked in batch.scheduler.gathering.waiting():
        lanes = parked.fragment.lanes
        numbers = lanes.lane_numbers()
        here = numbers if lanes.mask is None else numbers[lanes.mask]
        warp = int(here[0]) // WARP
        living = np.flatnonzero(batch.alive[warp * WARP : (warp + 1) * WARP]) + warp * WARP
        absent = np.setdiff1d(living, here)
        who = f", such as {thread_name(batch, int(absent[0]))}" if len(absent) else ""
        text = doing(batch, here, "waits for the rest of its warp", "wait for the rest of their warp")
        found.append((text + who, parked.operation.site))
    return found
