"""Polling loops in a deadlock: the variable and its address, its value, and the instructions that could write it."""

import numpy as np

from kernbench.common.dtypes import Array
from kernbench.ptx.emulator.checks.findings.reporter import doing
from kernbench.ptx.emulator.checks.waiting.deadlock import Waiter, spin_text
from kernbench.ptx.emulator.memory.arena import GLOBAL_BASE, LOCAL_BASE, SHARED_BASE, Allocation
from kernbench.ptx.emulator.program.program import UNKNOWN, VARIABLE, LoopRead
from kernbench.ptx.emulator.units.batch import Batch

_SHOWN = 4
_ADDRESS = (1 << 64) - 1
_WINDOWS = {LOCAL_BASE >> 44: "local", SHARED_BASE >> 44: "shared"}


def polls(batch: Batch) -> list[Waiter]:
    """Parked loops, one text for each address that is read; lanes that read the same address are merged."""
    found: list[Waiter] = []
    for spinner in batch.scheduler.spinning.parked:
        active = spinner.fragment.lanes.active()
        lanes = spinner.fragment.window.lane_numbers[active]
        reads = spinner.loop.reads[:1]
        for read in reads:
            row = np.broadcast_to(spinner.fragment.window.rows[read.slot], active.shape)[active]
            addresses = (row.astype(np.uint64) + np.uint64(read.offset & _ADDRESS)) & np.uint64(_ADDRESS)
            found += [
                (_text(batch, lanes[addresses == address], int(address), read), read.site)
                for address in np.unique(addresses)[:_SHOWN]
            ]
        if not reads:
            site = batch.program.blocks[spinner.loop.head].sites
            text = doing(batch, lanes, "goes round this loop for ever", "go round this loop for ever")
            found += [(text, site[0])] if site else []
    return found


def _text(batch: Batch, lanes: Array, address: int, read: LoopRead) -> str:
    if read.site.effects.acts_on == "mbarrier":
        text = spin_text(batch, lanes, address)
        if text:
            return text
    space = read.space or _WINDOWS.get(address >> 44, "global")
    name, owner = _name(batch, space, address)
    value = _value(batch, space, int(lanes[0]), address, read.nbytes)
    holds = "" if value is None else f" from {value}"
    who = doing(batch, lanes, "waits", "wait")
    return f"{who} for {name} to change{holds}; {_writers(batch, space, owner)}"


def _name(batch: Batch, space: str, address: int) -> tuple[str, str]:
    """An address by its variable or array, and the name that its writers know it by."""
    if space == "shared":
        offset = address & 0xFFFFFF
        owner = next((v.name for v in reversed(batch.program.shared) if v.offset <= offset), "")
        return f"shared memory {batch.checks.shared_name(offset)}", owner
    if space == "local":
        return f"its own local memory at {address:#x}", ""
    nearest = batch.launch.arena.nearest(address)
    return batch.checks.global_name(address), _owner(batch, nearest)


def _owner(batch: Batch, allocation: Allocation | None) -> str:
    """The parameter that points to an allocation, or the module variable that it is."""
    if allocation is None:
        return ""
    for parameter in batch.program.kernel.params:
        within = range(allocation.address, allocation.address + max(1, allocation.nbytes))
        if any(word in within for word in batch.launch.addresses_in(parameter.name)):
            return str(parameter.name)
    return str(allocation.name)


def _value(batch: Batch, space: str, lane: int, address: int, nbytes: int) -> int | None:
    if space == "local" or nbytes not in (1, 2, 4, 8):
        return None
    memory = batch.port.space("shared" if space == "shared" else "global")
    offset = address - GLOBAL_BASE
    if space == "shared":
        offset = (address & 0xFFFFFF) + int(memory.origins[lane])
    if not 0 <= offset <= len(memory.words[1]) - nbytes:
        return None
    return int.from_bytes(memory.words[1][offset : offset + nbytes].tobytes(), "little")


def _writers(batch: Batch, space: str, owner: str) -> str:
    """The lines that may write it."""
    wide = "shared" if space == "shared" else "global"
    lines = sorted(
        {
            w.site.line
            for w in batch.program.writers
            if w.space in (wide, "generic", "") and _may_write(w.origins, owner)
        }
    )
    if not lines:
        return "no instruction of this kernel writes it"
    shown = ", ".join(map(str, lines[:_SHOWN])) + (", ..." if len(lines) > _SHOWN else "")
    return f"PTX line{'s' if len(lines) > 1 else ''} {shown} may write it"


def _may_write(origins: frozenset[str], owner: str) -> bool:
    return UNKNOWN in origins or VARIABLE in origins or owner in origins or not owner
