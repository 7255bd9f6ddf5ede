"""Waits on mbarriers in a deadlock: the phase, what is pending, who arrived last and who never did."""

import numpy as np

from kernbench.common.dtypes import Array
from kernbench.ptx.emulator.barriers.mbarrier_kernels import (
    EXPECTED,
    LAST_LANE,
    LAST_SITE,
    PENDING,
    PHASE,
    START,
)
from kernbench.ptx.emulator.checks.findings.reporter import block_name, some_threads, thread_name
from kernbench.ptx.emulator.lanes.lanes import WARP
from kernbench.ptx.emulator.program.program import Site
from kernbench.ptx.emulator.units.batch import Batch

Waiter = tuple[str, Site]


def mbarrier_waits(batch: Batch) -> list[Waiter]:
    """Waits on mbarriers, one text for each instruction, barrier and phase; CTAs and warps that wait alike merge."""
    groups: dict[tuple[int, int, int], list[tuple[int, Array]]] = {}
    sites: dict[int, Site] = {}
    for parked in batch.scheduler.waiting.parked:
        wait, lanes, wanted = parked.wait, parked.asked.lanes, parked.asked.wanted
        slots = batch.mbarriers.locate(parked.asked.addresses, lanes)
        sites[wait.site.number] = wait.site
        for slot in np.unique(slots[slots >= 0]).tolist():
            here = slots == slot
            value = int(wanted[here][0]) & 1 if wait.parity else int(batch.mbarriers.state[slot, PHASE]) & 1
            key = (wait.site.number, int(batch.mbarriers.offsets[slot]), value)
            groups.setdefault(key, []).append((slot, lanes[here]))
    return [(_text(batch, found, parity), sites[number]) for (number, _, parity), found in groups.items()]


def spin_text(batch: Batch, lanes: Array, address: int) -> str:
    """The text for a loop that polls an mbarrier; "" if there is none at the address."""
    slot = int(batch.mbarriers.locate(np.array([address], np.uint64), lanes[:1])[0])
    if slot < 0:
        return ""
    return _text(batch, [(slot, lanes)], int(batch.mbarriers.state[slot, PHASE]) & 1)


def _text(batch: Batch, found: list[tuple[int, Array]], parity: int) -> str:
    slot = found[0][0]
    lanes = np.concatenate([lanes for _, lanes in found])
    warps = np.unique(lanes // WARP)
    roles, blocks = np.unique(warps // batch.ctas), np.unique(warps % batch.ctas)
    who = f"{_warps(roles)} of {_blocks(batch, blocks)}"
    who += " waits" if len(warps) == 1 else " wait"
    return f"{who} for {_barrier(batch, slot, parity)}{_arrivals(batch, slot, roles)}"


def _warps(roles: Array) -> str:
    numbers = ", ".join(map(str, roles[:8])) + (", ..." if len(roles) > 8 else "")
    return f"warp{'s' if len(roles) > 1 else ''} {numbers}"


def _blocks(batch: Batch, ctas: Array) -> str:
    first = block_name(batch, int(ctas[0]))
    more = f" and {len(ctas) - 1} more" if len(ctas) > 1 else ""
    return f"{first}{more}"


def _barrier(batch: Batch, slot: int, parity: int) -> str:
    barriers = batch.mbarriers
    row = barriers.state[slot]
    phase = int(row[PHASE] - row[START])
    expected, delivered, outstanding = barriers.bytes_of(slot)
    text = f"{batch.checks.asynchronous.name(slot)} to complete phase {phase} (parity {parity}): "
    text += f"{int(row[EXPECTED] - row[PENDING])} of {int(row[EXPECTED])} arrivals have come"
    if expected or delivered or outstanding:
        text += f", {expected} bytes are expected and {delivered} delivered"
    return text


def _arrivals(batch: Batch, slot: int, waiting: Array) -> str:
    barriers = batch.mbarriers
    row = barriers.state[slot]
    if row[LAST_LANE] < 0:
        return "; nobody has ever arrived on it (a fresh barrier passes a wait for parity 1, not for 0)"
    sites = batch.program.sites
    line = sites[int(row[LAST_SITE])].line
    text = f"; the last arrival was by {thread_name(batch, int(row[LAST_LANE]))} in PTX line {line}"
    arrived = barriers.arrivals[slot]
    phase = int(row[PHASE])
    before = np.flatnonzero((arrived[:, 0] > 0) & (arrived[:, 0] <= phase))
    now = np.flatnonzero(arrived[:, 0] == phase + 1)
    if len(now):
        text += f"; in this phase {_warps(now)} arrived"
    if len(before) and row[PENDING]:
        lines = sorted({sites[int(number)].line for number in arrived[before, 1]})
        where = ", ".join(map(str, lines[:3]))
        text += f"; {_warps(before)} arrived in an earlier phase (line {where}) and not in this one"
    return text + _never(row, arrived, waiting)


def _never(row: Array, arrived: Array, waiting: Array) -> str:
    """In the first phase: the warps that have not arrived, unless they wait themselves."""
    first = row[PENDING] and row[PHASE] == row[START]
    never = np.setdiff1d(np.flatnonzero(arrived[:, 0] == 0), waiting)
    return f"; {_warps(never)} never arrived on it" if first and len(never) else ""


def cluster_waits(batch: Batch) -> list[Waiter]:
    """Waits at the barriers of clusters."""
    found = []
    barrier = batch.scheduler.cluster
    for waiter in barrier.waiting:
        lanes = waiter.fragment.window.lane_numbers
        lanes = lanes if waiter.fragment.lanes.mask is None else lanes[waiter.fragment.lanes.mask]
        cluster = int(lanes[0] // WARP) % batch.ctas // batch.cluster.size
        absent = barrier.absent(cluster)
        who = f"; {some_threads(batch, absent)} has not arrived" if len(absent) else ""
        text = (
            f"{some_threads(batch, lanes)} wait at the cluster's barrier: {int(barrier.arrived[cluster])} have arrived"
        )
        found.append((text + who, waiter.site))
    return found
