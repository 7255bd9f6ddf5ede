"""Compiled loops over the queue calls of programs: what `scheduler` and `queues` do, without data, over arrays.

`tests/mesh/dividing` compares them with the queues themselves.
"""

from kernbench.common.compiled import part
from kernbench.common.deferred import deferred
from kernbench.mesh.programs.calls import SEND, WAIT


@part
def _wake(at, program):  # type: ignore[no-untyped-def]
    """A request of a program is done: if the program waits, it gets a turn."""
    if program >= 0 and at.programs.waits[program] != 0:
        at.programs.waits[program] = 0
        at.turns[at.ends[1] % len(at.turns)] = program
        at.ends[1] += 1


@part
def _finish(at, request, program):  # type: ignore[no-untyped-def]
    """A request is done; -1 is one without a call that waits for it."""
    if request >= 0:
        at.done[request] = 1
    _wake(at, program)


@part
def _push(at, q):  # type: ignore[no-untyped-def]
    """Move waiting pieces into free slots; whether there were any."""
    queues, messages = at.queues, at.messages
    moved = False
    while queues.free[q] > 0 and queues.leaving[q] < queues.sent[q]:
        row = queues.first_message[q] + queues.leaving[q]
        if messages.arrived[row] == 0:
            queues.arrived[q] += 1
        count = min(queues.free[q], messages.pieces[row] - messages.arrived[row])
        messages.arrived[row] += count
        queues.free[q] -= count
        moved = True
        if messages.arrived[row] == messages.pieces[row]:
            queues.leaving[q] += 1
            _finish(at, messages.request[row], messages.sender[row])
    return moved


@part
def _take(at, q):  # type: ignore[no-untyped-def]
    """Move pieces in slots to waiting receives; whether there were any."""
    queues, messages, receives = at.queues, at.messages, at.receives
    moved = False
    while queues.posted[q] < queues.asked[q] and queues.arriving[q] < queues.arrived[q]:
        row = queues.first_message[q] + queues.arriving[q]
        count = messages.arrived[row] - messages.taken[row]
        if count > 0:
            messages.taken[row] += count
            queues.free[q] += count
            moved = True
        if messages.taken[row] < messages.pieces[row]:
            break
        queues.arriving[q] += 1
        receive = queues.first_receive[q] + queues.posted[q]
        queues.posted[q] += 1
        _finish(at, receives.request[receive], receives.receiver[receive])
    return moved


@part
def _pump(at, q):  # type: ignore[no-untyped-def]
    """Move pieces until nothing moves."""
    while _push(at, q) or _take(at, q):
        pass


@part
def _send(at, program, q, pieces, request):  # type: ignore[no-untyped-def]
    """A program sends: the message goes to a waiting receive, into slots, or waits for some."""
    queues, messages, receives = at.queues, at.messages, at.receives
    row = queues.first_message[q] + queues.sent[q]
    messages.sender[row], messages.request[row], messages.pieces[row] = program, request, pieces
    must_wait = queues.leaving[q] < queues.sent[q] or pieces > queues.free[q]
    is_asked = queues.posted[q] < queues.asked[q]
    queues.sent[q] += 1
    if must_wait or (is_asked and queues.arriving[q] < queues.arrived[q]):
        _pump(at, q)
        return
    messages.arrived[row] = pieces
    at.done[request] = 1
    queues.leaving[q] = queues.sent[q]
    queues.arrived[q] = queues.sent[q]
    if is_asked:
        messages.taken[row] = pieces
        queues.arriving[q] = queues.sent[q]
        receive = queues.first_receive[q] + queues.posted[q]
        queues.posted[q] += 1
        _finish(at, receives.request[receive], receives.receiver[receive])
    else:
        queues.free[q] -= pieces


@part
def _receive(at, program, q, request):  # type: ignore[no-untyped-def]
    """A program receives: it takes the message that is ready, or waits."""
    queues, messages, receives = at.queues, at.messages, at.receives
    is_first = queues.leaving[q] == queues.sent[q] and queues.posted[q] == queues.asked[q]
    if is_first and queues.arriving[q] < queues.arrived[q]:
        row = queues.first_message[q] + queues.arriving[q]
        queues.arriving[q] += 1
        queues.free[q] += messages.pieces[row] - messages.taken[row]
        messages.taken[row] = messages.pieces[row]
        at.done[request] = 1
        return
    receive = queues.first_receive[q] + queues.asked[q]
    receives.receiver[receive], receives.request[receive] = program, request
    queues.asked[q] += 1
    _pump(at, q)


@part
def _meet(at, program, order, noted):  # type: ignore[no-untyped-def]
    """Append a program once for each new table entry before its next call; returns the length of `order`."""
    programs = at.programs
    while programs.met[program] < programs.first_met[program + 1]:
        if at.met[programs.met[program]] != programs.done[program]:
            break
        order[noted] = program
        noted += 1
        programs.met[program] += 1
    return noted


@part
def _call(at, calls, program, row):  # type: ignore[no-untyped-def]
    """Whether a call is done; otherwise the program waits."""
    programs = at.programs
    first = programs.first_request[program]
    if calls.kind[row] == WAIT:
        return at.done[first + calls.what[row]] != 0
    request = first + programs.requests[program]
    programs.requests[program] += 1
    if calls.kind[row] == SEND:
        _send(at, program, calls.what[row], calls.pieces[row], request)
    else:
        _receive(at, program, calls.what[row], request)
    return True


@deferred(lambda at, calls, *_: len(calls.kind))
def go_through(at, calls, newest_first, order):  # type: ignore[no-untyped-def]
    """Run programs in turns until none can continue; returns how many entries of `order` are written.

    `at.turns` is a ring buffer of the programs whose turn is to come, from `at.ends[0]` to before `at.ends[1]`. A
    program is in it at most once, as it is added when it stops waiting.
    """
    programs, noted = at.programs, 0
    while at.ends[0] < at.ends[1]:
        if newest_first:
            at.ends[1] -= 1
            program = at.turns[at.ends[1] % len(at.turns)]
        else:
            program = at.turns[at.ends[0] % len(at.turns)]
            at.ends[0] += 1
        noted = _meet(at, program, order, noted)
        row = programs.first_call[program] + programs.done[program]
        last = programs.first_call[program + 1]
        while row < last:
            if not _call(at, calls, program, row):
                programs.waits[program] = 1
                break
            programs.done[program] += 1
            noted = _meet(at, program, order, noted)
            row += 1
    return noted
