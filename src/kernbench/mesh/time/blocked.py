"""Runs that ended, timed on a machine with shallower queues: who would deadlock there, where, and on what.

Programs cannot observe the depth of queues. So the graph of their recording has a cycle if and only if a launch on that
machine would deadlock, and each program would wait at the first command that holds its CPU and never completes.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kernbench.common.errors import MachineError
from kernbench.common.ipcq_types import DIRECTIONS, OPPOSITE
from kernbench.machine import Machine
from kernbench.mesh.programs.placement import Placement
from kernbench.mesh.programs.state import State
from kernbench.mesh.programs.waiters import waiter
from kernbench.mesh.time.lower import HOLDS, RECEIVES, SENDS, Lowered, awaited
from kernbench.result.finding import Finding
from kernbench.result.recording import Recording, Stream
from kernbench.safety.waits import Waiter, deadlock

Flags = NDArray[np.bool_]
Seat = tuple[int, int]


@dataclass(frozen=True)
class _Link:
    """A queue between seats."""

    sender: int
    receiver: int
    direction: str
    depth: int


def blocked_error(lowered: Lowered, machine: Machine, never: Flags) -> MachineError:
    """The error if the nodes `never` never complete."""
    finding = _deadlock(lowered, never)
    ipcq = machine.ipcq
    return MachineError(
        f"machine '{machine.name}' has queues of depth {ipcq.depth} with slots of {ipcq.slot:,} bytes (keys ipcq.depth "
        "and ipcq.slot), in which the recorded programs would block each other: a deadlock, which has no time\n"
        f"{finding.message}\n  next: {finding.hint}"
    )


def _deadlock(lowered: Lowered, never: Flags) -> Finding:
    """The report of a launch on that machine, except for its hint: only a launch knows the sufficient depth."""
    recording, first = lowered.recording, lowered.columns.first
    seats = _seats(recording)
    waiters: list[Waiter] = []
    ended = {seats[one].seat: str(State.RETURNED) for one in seats}
    for number, stream in enumerate(recording.streams):
        rows = slice(int(first[number]), int(first[number + 1]))
        stuck = np.flatnonzero(HOLDS[lowered.columns.op[rows]] & never[rows])
        if len(stuck):
            found = _waiter(lowered, stream, rows, int(stuck[0]), seats)
            waiters.append(found)
            del ended[found.rank]
    inner = {one.seat: (one.rank, one.name) for one in seats.values() if not one.leads}
    hint = (
        "launch the kernel on this machine, which reports this deadlock and the depth that would do; or time it with "
        "deeper queues"
    )
    return deadlock(waiters, ended, hint, inner)


def _waiter(lowered: Lowered, stream: Stream, rows: slice, at: int, seats: dict[Seat, Placement]) -> Waiter:
    """The program that waits at its command `at`; a wait is shown as the send or receive of its request."""
    op = lowered.columns.op[rows]
    asked = int(awaited(op, stream.rows, lowered.columns.y[rows])[at])
    message = asked if asked >= 0 else at
    assert SENDS[op[message]] or RECEIVES[op[message]], "nothing else can wait for another program"
    sends = bool(SENDS[op[message]])
    toward, here = DIRECTIONS[stream.rows[message].x], (stream.cube, stream.pe)
    for link in lowered.recording.links:
        end, direction = (link.sender, toward) if sends else (link.receiver, OPPOSITE[toward])
        if end == here and link.direction == direction:
            known = _Link(seats[link.sender].seat, seats[link.receiver].seat, link.direction, lowered.depth)
            where = lowered.recording.tables.sites[stream.site(at)]
            return waiter(seats[here].seat, sends, known, where)
    raise AssertionError("a message went over a link")


def _seats(recording: Recording) -> dict[Seat, Placement]:
    """The programs at the ends of queues, by cube and PE; programs without commands have no stream."""
    # ranks are PEs of one cube, or cubes
    are_pes = all(s.cube == 0 and s.rank == s.pe for s in recording.streams)
    found: dict[Seat, Placement] = {}
    for number, (cube, pe) in enumerate(dict.fromkeys(_programs(recording))):
        rank, leads = (pe, True) if are_pes else (cube, pe == 0)
        # ranks are 0 and up
        found[cube, pe] = Placement(number, rank, pe, cube, leads, rank if leads else -1 - number)
    return found


def _programs(recording: Recording) -> Iterator[Seat]:
    for stream in recording.streams:
        yield stream.cube, stream.pe
    for link in recording.links:
        yield from (link.sender, link.receiver)
