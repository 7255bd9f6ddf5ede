"""Replays the turns of programs from their calls: who runs when, and for how long, as in one process.

Programs in several processes run in another order than in one, and queues between processes hold any
number of messages. The calls of a program to its queues are the same in any order. So replaying these calls alone, by
the rules of the scheduler and of the queues, gives the order of one process, and shows whether queues of the machine's
depth let every program return.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from kernbench.mesh.dividing.turn_kernels import go_through
from kernbench.mesh.programs.calls import SEND, WAIT, Noted
from kernbench.mesh.programs.queues import Message, Queue, Receive

Ints = NDArray[np.int64]
Flags = NDArray[np.int8]
Request = Message | Receive


class CallRows(NamedTuple):
    """Calls of all programs, one program after the other. `what` is a queue, or the number of a request to wait for."""

    kind: Flags
    what: Ints
    pieces: Ints


class ProgramRows(NamedTuple):
    """For each program: the first of its calls, and how many are done; whether it waits; the first of its requests, and
    how many it has made; the index of its first table entry, and of the next.
    """

    first_call: Ints
    done: Ints
    waits: Flags
    first_request: Ints
    requests: Ints
    first_met: Ints
    met: Ints


class QueueRows(NamedTuple):
    """For each queue: free slots; where its messages and receives begin; and how far both have come.

    Messages of a queue pass through three states in order, so four numbers describe them: those from
    `arriving` to before `arrived` are in slots, those from `leaving` to before `sent` wait for slots. A message with
    only some pieces arrived is in both ranges. Receives from `posted` to before `asked` wait for a message.
    """

    free: Ints
    first_message: Ints
    arriving: Ints
    arrived: Ints
    leaving: Ints
    sent: Ints
    first_receive: Ints
    posted: Ints
    asked: Ints


class MessageRows(NamedTuple):
    """For each message, queue by queue: its sender, its request, its pieces and their progress."""

    sender: Ints
    request: Ints
    pieces: Ints
    arrived: Ints
    taken: Ints


class ReceiveRows(NamedTuple):
    """For each receive, queue by queue: its program and its request."""

    receiver: Ints
    request: Ints


class Rows(NamedTuple):
    """All mutable state: programs, which requests are done, queues and their contents; the programs whose turn
    is to come, in a ring buffer with its two ends. `met` has the number of calls before each new table entry.
    """

    programs: ProgramRows
    done: Flags
    queues: QueueRows
    messages: MessageRows
    receives: ReceiveRows
    met: Ints
    turns: Ints
    ends: Ints


@dataclass(frozen=True)
class Caller:
    """A program: its calls, the positions of its new table entries, and its outstanding requests at the division.

    `outgoing` and `incoming` are its queues, by direction; `under_way` are the requests that its calls may wait for.
    """

    calls: Noted
    met: Sequence[int]
    outgoing: Mapping[str, Queue]
    incoming: Mapping[str, Queue]
    under_way: Sequence[Request] = ()
    waits: bool = False


class Outcome(NamedTuple):
    """Whether all programs return and all messages are received; the programs in the order of their new table
    entries.
    """

    everybody_returns: bool
    order: list[int]


class Turns:
    """Callers at queues as they were when a launch was divided. The replay changes nothing of the launch."""

    def __init__(self, callers: Mapping[int, Caller], programs: int, queues: Sequence[Queue]):
        self._callers = [callers.get(number) for number in range(programs)]
        self._queues = queues
        self._number = {id(queue): number for number, queue in enumerate(queues)}
        # outstanding requests in queues, by their identity: their numbers among all requests
        self._known: dict[int, int] = {}

    def play(self, ready: Sequence[int], newest_first: bool) -> Outcome:
        """Replay all calls, those of `ready` programs first."""
        calls = self._calls()
        programs, done = self._programs(calls)
        queues, messages, receives = self._links(calls)
        met = np.array([one for caller in self._callers if caller for one in caller.met], np.int64)
        turns = np.zeros(len(self._callers) + 1, np.int64)
        turns[: len(ready)] = ready
        programs.waits[list(ready)] = 0
        rows = Rows(programs, done, queues, messages, receives, met, turns, np.array([0, len(ready)]))
        order = np.zeros(len(met), np.int64)
        noted = go_through(rows, calls, newest_first, order)
        returned = (programs.done == np.diff(programs.first_call)).all()
        received = (queues.arriving == queues.sent).all() and (queues.posted == queues.asked).all()
        return Outcome(bool(returned and received), order[:noted].tolist())

    def _calls(self) -> CallRows:
        rows = [self._with_queues(caller) for caller in self._callers if caller is not None]
        whole = np.concatenate(rows) if rows else np.zeros((0, 3), np.int64)
        return CallRows(whole[:, 0].astype(np.int8), whole[:, 1].copy(), whole[:, 2].copy())

    def _with_queues(self, caller: Caller) -> Ints:
        """A program's calls, with numbers of queues instead of directions."""
        rows = caller.calls.rows.astype(np.int64)
        for ends, sends in ((caller.outgoing, True), (caller.incoming, False)):
            names = caller.calls.directions
            numbers = np.array([self._number[id(ends[name])] if name in ends else -1 for name in names], np.int64)
            those = (rows[:, 0] != WAIT) & ((rows[:, 0] == SEND) == sends)
            rows[those, 1] = numbers[rows[those, 1]]
        return rows

    def _programs(self, calls: CallRows) -> tuple[ProgramRows, Flags]:
        """Programs before their first call, and which requests are done."""
        lengths = [len(caller.calls.rows) if caller else 0 for caller in self._callers]
        before = [len(caller.under_way) if caller else 0 for caller in self._callers]
        first_call = _starts(lengths)
        new = np.zeros(len(calls.kind) + 1, np.int64)
        np.cumsum(calls.kind != WAIT, out=new[1:])
        first_request = _starts(np.diff(new[first_call]) + np.array(before, np.int64))
        waits = np.array([bool(caller and caller.waits) for caller in self._callers], np.int8)
        done = np.zeros(first_request[-1], np.int8)
        for caller, start in zip(self._callers, first_request.tolist(), strict=False):
            for number, request in enumerate(caller.under_way if caller else (), start):
                self._known[id(request)] = number
                done[number] = request.done
        first_met = _starts([len(caller.met) if caller else 0 for caller in self._callers])
        calls_done, made = np.zeros(len(lengths), np.int64), np.array(before, np.int64)
        return ProgramRows(first_call, calls_done, waits, first_request, made, first_met, first_met[:-1].copy()), done

    def _links(self, calls: CallRows) -> tuple[QueueRows, MessageRows, ReceiveRows]:
        """Queues in their state at the division, with room for all that the calls send and receive."""
        held = [[*queue.arriving, *(one for one in queue.outbox if one.arrived == 0)] for queue in self._queues]
        waiting = [list(queue.posted) for queue in self._queues]
        count = len(self._queues)
        sends = np.bincount(calls.what[calls.kind == SEND], minlength=count)
        asks = np.bincount(calls.what[(calls.kind != SEND) & (calls.kind != WAIT)], minlength=count)
        in_slots = np.array([len(queue.arriving) for queue in self._queues], np.int64)
        sent, asked = (np.array([len(ones) for ones in lists], np.int64) for lists in (held, waiting))
        leaving = sent - np.array([len(queue.outbox) for queue in self._queues], np.int64)
        first_message, first_receive = _starts(sends + sent), _starts(asks + asked)
        queues = QueueRows(
            np.array([queue.free for queue in self._queues], np.int64), first_message, np.zeros(count, np.int64),
            in_slots, leaving, sent,
            first_receive, np.zeros(count, np.int64), asked,
        )  # fmt: skip
        messages = MessageRows(*(np.zeros(first_message[-1], np.int64) for _ in MessageRows._fields))
        receives = ReceiveRows(*(np.zeros(first_receive[-1], np.int64) for _ in ReceiveRows._fields))
        for number in range(count):
            for row, message in enumerate(held[number], first_message[number]):
                known = self._known.get(id(message), -1)
                fields = (_program(message.sender), known, message.pieces, message.arrived, message.taken)
                for column, value in zip(messages, fields, strict=True):
                    column[row] = value
            for row, receive in enumerate(waiting[number], first_receive[number]):
                receives.receiver[row] = _program(receive.receiver)
                receives.request[row] = self._known.get(id(receive), -1)
        return queues, messages, receives


def _program(owner: object) -> int:
    """The number of the program that a request belongs to."""
    number: int = getattr(owner, "number", -1)
    return number


def _starts(lengths: Sequence[int] | Ints) -> Ints:
    """The begin of each of several concatenated lists, and the end of the last one."""
    found = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths, out=found[1:])
    return found
