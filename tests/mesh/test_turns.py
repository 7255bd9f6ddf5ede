"""Turns found again from calls are those that programs take at the queues themselves."""

import random
from collections import deque

import numpy as np
import pytest

from kernbench.common.native_loops import NativeLoop
from kernbench.mesh.dividing.turn_kernels import go_through
from kernbench.mesh.dividing.turns import Caller, Turns
from kernbench.mesh.programs.calls import RECEIVE, SEND, WAIT, Noted
from kernbench.mesh.programs.queues import Message, Queue, Receive
from kernbench.result.finding import SourceLocation

NOWHERE = SourceLocation("", 0)


class Player:
    """A program at real queues: it does one call after the other, and stops at a wait for what is not done."""

    def __init__(self, number, calls, outgoing, incoming):
        self.number, self.calls, self.outgoing, self.incoming = number, calls, outgoing, incoming
        self.done, self.waits, self.requests = 0, False, []

    def call(self, kind, what, pieces, wake):
        """Whether a call is done."""
        if kind == WAIT:
            return self.requests[what].done
        if kind == SEND:
            queue = self.outgoing[what]
            self.requests.append(Message(self, None, (), "", pieces, NOWHERE, queue))
            queue.offer(self.requests[-1], wake)
        else:
            queue = self.incoming[what]
            self.requests.append(Receive(self, (), None, NOWHERE, queue))
            queue.post(self.requests[-1], wake)
        return True


class Slow:
    """The scheduler's rules over players: the reference."""

    def __init__(self, players, newest_first):
        self.players, self.newest_first = players, newest_first
        self.ready, self.order = deque(players), []

    def wake(self, player):
        if player.waits:
            player.waits = False
            self.ready.append(player)

    def play(self, calls=None):
        """Until nobody can go on, or so many calls are done."""
        while self.ready and (calls is None or calls > 0):
            player = self.ready.pop() if self.newest_first else self.ready.popleft()
            self.order.append((player.number, player.done))
            while player.done < len(player.calls):
                if not player.call(*player.calls[player.done], self.wake):
                    player.waits = True
                    break
                player.done += 1
                self.order.append((player.number, player.done))
                if calls is not None:
                    calls -= 1
                    if calls == 0:
                        self.ready.appendleft(player)
                        break

    def everybody_returns(self, queues):
        returned = all(player.done == len(player.calls) for player in self.players)
        return returned and not any(queue.unreceived or queue.posted for queue in queues)


def drawn(seed, depth):
    """Programs that send and receive at random, all to be received or nearly; queues; and who holds which."""
    rng = random.Random(seed)
    count = rng.randint(2, 5)
    pairs = [(a, b) for a in range(count) for b in range(count) if a != b and rng.random() < 0.7] or [(0, 1)]
    queues = [Queue(a, b, f"to {b}", depth, 64, ("a", "b")) for a, b in pairs]
    calls = [[] for _ in range(count)]
    made = [0] * count
    open_ = [[] for _ in range(count)]

    def add(program, kind, what, pieces):
        calls[program].append((kind, what, pieces))
        open_[program].append(made[program])
        made[program] += 1
        while open_[program] and rng.random() < 0.6:
            calls[program].append((WAIT, open_[program].pop(rng.randrange(len(open_[program]))), 0))

    for _ in range(rng.randint(5, 40)):
        a, b = rng.choice(pairs)
        kinds = [(a, SEND, f"to {b}", rng.randint(1, depth + 2)), (b, RECEIVE, f"from {a}", 0)]
        for one in kinds if rng.random() < 0.7 else kinds[::-1]:
            if rng.random() < 0.99:
                add(*one)
    outgoing = [{f"to {b}": q for (x, b), q in zip(pairs, queues, strict=True) if x == a} for a in range(count)]
    incoming = [{f"from {a}": q for (a, x), q in zip(pairs, queues, strict=True) if x == b} for b in range(count)]
    players = [Player(n, calls[n], outgoing[n], incoming[n]) for n in range(count)]
    return players, queues


def noted(calls):
    """Calls as a process sends them."""
    names = {}
    rows = [(kind, names.setdefault(what, len(names)) if kind != WAIT else what, n) for kind, what, n in calls]
    return Noted(np.array(rows, np.int32).reshape(-1, 3), list(names))


@pytest.mark.parametrize("compiled", [False, True])
def test_turns_are_those_at_the_queues(compiled, monkeypatch):
    if compiled:
        monkeypatch.setenv("KERNBENCH_COMPILE", "always")
        assert isinstance(go_through._compiled, NativeLoop)
    returned = 0
    for seed in range(300):
        depth, newest_first = 1 + seed % 4, seed % 3 == 0
        players, queues = drawn(seed, depth)
        slow = Slow(players, newest_first)
        # some calls are done before the launch is divided
        slow.play(seed % 17)
        slow.order.clear()
        rest = {}
        for player in players:
            # a program goes on from inside the wait that it is in
            under_way = list(player.requests)
            calls = player.calls[player.done :]
            met = [call for call in range(len(calls) + 1) if random.Random(f"{seed} {call}").random() < 0.5]
            ends = player.outgoing, player.incoming
            rest[player.number] = Caller(noted(calls), met, *ends, under_way, player.waits), met, player.done
        ready = [player.number for player in slow.ready]
        found = Turns({n: caller for n, (caller, _, _) in rest.items()}, len(players), queues).play(ready, newest_first)
        slow.play()
        wanted, passed = [], {}
        for number, done in slow.order:
            _, met, before = rest[number]
            after = done - before
            # each is met once
            if after in met and after not in passed.setdefault(number, set()):
                passed[number].add(after)
                wanted.append(number)
        assert found.order == wanted, seed
        assert found.everybody_returns == slow.everybody_returns(queues), seed
        returned += found.everybody_returns
    # both ends are met often enough
    assert 50 < returned < 250


def played(calls, depth, newest_first=False):
    """Whether two programs return that send to each other over queues of a depth, and the order in which they go on."""
    queues = [Queue(0, 1, "E", depth, 64, ("a", "b")), Queue(1, 0, "W", depth, 64, ("b", "a"))]
    callers = {
        number: Caller(noted(own), range(len(own) + 1), {"E": queues[number]}, {"W": queues[1 - number]})
        for number, own in enumerate(calls)
    }
    return Turns(callers, 2, queues).play([0, 1], newest_first)


def test_two_programs_that_exchange_messages():
    exchanging = [(SEND, "E", 1), (WAIT, 0, 0), (RECEIVE, "W", 0), (WAIT, 1, 0)]
    fine, order = played([exchanging, exchanging], 1)
    assert fine
    # the first sends and waits for a message; the second finds it, and returns
    assert order == [0, 0, 0, 0, 1, 1, 1, 1, 1, 0]
    assert played([exchanging, exchanging], 1, newest_first=True).order[0] == 1
    twice = [(SEND, "E", 1), (WAIT, 0, 0), (SEND, "E", 1), (WAIT, 1, 0), (RECEIVE, "W", 0), (WAIT, 2, 0)]
    twice += [(RECEIVE, "W", 0), (WAIT, 3, 0)]
    assert played([twice, twice], 2).everybody_returns
    assert not played([twice, twice], 1).everybody_returns
    assert not played([exchanging[:2], []], 1).everybody_returns
