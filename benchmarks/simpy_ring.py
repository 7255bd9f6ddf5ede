"""A ring whose ranks share memory, modelled twice: as SimPy processes, and as a graph for our engine.

In each turn a rank loads through the memory server of its group (which divides its bandwidth equally among the loads
under way), works, sends to its right neighbour over a link, and waits for the token of its left one.
"""

from collections.abc import Generator
from dataclasses import dataclass
from heapq import heappop, heappush
from math import ceil, inf
from typing import Any

import numpy as np
import simpy

from kernbench.timing.engine import Times, run_events
from kernbench.timing.graph import MESSAGE, OPERAND, Graph, make_graph
from kernbench.timing.servers import Rates

LOAD, WORK, PUSH = range(3)


@dataclass(frozen=True)
class Ring:
    """Sizes and rates; the bytes and the work of a rank differ from its neighbours'. Times are picoseconds."""

    ranks: int = 64
    turns: int = 200
    ranks_per_server: int = 8
    bytes_per_ps: float = 0.5
    link: int = 4_000
    latency: int = 20_000

    @property
    def nodes(self) -> int:
        """Things that happen: a load, some work and a push for each rank in each turn."""
        return 3 * self.ranks * self.turns

    def nbytes(self, rank: int) -> int:
        """Bytes a rank loads in each turn."""
        return 4096 + 512 * (rank % 5)

    def work(self, rank: int) -> int:
        """How long a rank works in each turn."""
        return 9_000 + 1_700 * (rank % 7)


# As a graph


def as_graph(ring: Ring) -> tuple[Graph, Rates]:
    """Nodes in the order turn, rank, (load, work, push)."""
    first = np.arange(0, ring.nodes, 3, dtype=np.int32).reshape(ring.turns, ring.ranks)
    before, after = first[:-1] + PUSH, first[1:]
    follows: list[tuple[Any, Any, int, int]] = [
        (first + LOAD, first + WORK, 0, OPERAND),
        (first + WORK, first + PUSH, 0, OPERAND),
        (before, after, 0, OPERAND),
        (before, np.roll(after, -1, axis=1), -1, MESSAGE),
    ]
    sources = np.concatenate([source.ravel() for source, _, _, _ in follows])
    targets = np.concatenate([target.ravel() for _, target, _, _ in follows])
    lags, kinds = (np.concatenate([np.full(row[0].size, row[i]) for row in follows]) for i in (2, 3))
    graph = make_graph(ring.nodes, sources, targets, lags.astype(np.int32), kinds.astype(np.int8))
    return graph, _rates(ring)


def _rates(ring: Ring) -> Rates:
    duration = np.zeros((ring.turns, ring.ranks, 3), np.int64)
    duration[:, :, WORK] = [ring.work(rank) for rank in range(ring.ranks)]
    duration[:, :, PUSH] = ring.link
    server = np.full((ring.turns, ring.ranks, 3), -1, np.int32)
    server[:, :, LOAD] = np.arange(ring.ranks) // ring.ranks_per_server
    nbytes = np.zeros((ring.turns, ring.ranks, 3), np.int64)
    nbytes[:, :, LOAD] = [ring.nbytes(rank) for rank in range(ring.ranks)]
    servers = -(-ring.ranks // ring.ranks_per_server)
    return Rates(
        duration.ravel(),
        server.ravel(),
        nbytes.ravel(),
        np.full(servers, ring.bytes_per_ps),
        0,
        np.array([ring.latency], np.int64),
    )


def pushed(ring: Ring, times: Times) -> list[list[int]]:
    """When each rank's token had left, in each turn."""
    left: list[list[int]] = times.finish.reshape(ring.turns, ring.ranks, 3)[:, :, PUSH].tolist()
    return left


def run_engine(ring: Ring) -> list[list[int]]:
    """The ring timed by our engine."""
    return pushed(ring, run_events(*as_graph(ring)))


# As processes


class SharedServer:
    """Divides its bandwidth equally among its transfers; `given` is what each of those under way has been given."""

    def __init__(self, env: simpy.Environment, bytes_per_ps: float):
        self._env = env
        self._rate = bytes_per_ps
        self._under_way: list[tuple[float, int, simpy.Event]] = []
        self._given = 0.0
        self._seen = 0
        self._begun = 0
        self._plan = 0

    def transfer(self, nbytes: int) -> simpy.Event:
        """An event for the end of a transfer that begins now."""
        self._advance()
        self._begun += 1
        done = self._env.event()
        heappush(self._under_way, (self._given + nbytes, self._begun, done))
        self._plan_next()
        return done

    def _advance(self) -> None:
        now, count = int(self._env.now), len(self._under_way)
        self._given = self._given + (now - self._seen) * self._rate / count if count else 0.0
        self._seen = now

    def _plan_next(self) -> None:
        """Wake when the next transfer will be done, if nothing changes; an older plan is void."""
        self._plan += 1
        if self._under_way:
            left = self._under_way[0][0] - self._given
            wait = ceil(left * len(self._under_way) / self._rate - 1e-6) if left > 0 else 0
            wake = self._env.timeout(wait, self._plan)
            wake.callbacks.append(self._complete)

    def _complete(self, wake: Any) -> None:
        if wake.value != self._plan:
            return
        self._advance()
        reached = max(self._given, self._under_way[0][0])
        while self._under_way and self._under_way[0][0] <= reached:
            heappop(self._under_way)[2].succeed()
        self._plan_next()


def as_processes(ring: Ring) -> tuple[simpy.Environment, list[list[int]]]:
    """The ring, ready to run, and the list that `pushed` gives, to be filled."""
    env = simpy.Environment()
    servers = [SharedServer(env, ring.bytes_per_ps) for _ in range(-(-ring.ranks // ring.ranks_per_server))]
    boxes = [simpy.Store(env) for _ in range(ring.ranks)]
    left = [[0] * ring.ranks for _ in range(ring.turns)]

    def deliver(box: simpy.Store) -> None:
        box.put("token")

    def program(rank: int) -> Generator[simpy.Event, Any, None]:
        server, following = servers[rank // ring.ranks_per_server], boxes[(rank + 1) % ring.ranks]
        for turn in range(ring.turns):
            yield server.transfer(ring.nbytes(rank))
            yield env.timeout(ring.work(rank))
            yield env.timeout(ring.link)
            left[turn][rank] = int(env.now)
            env.timeout(ring.latency).callbacks.append(lambda _: deliver(following))
            yield boxes[rank].get()

    for rank in range(ring.ranks):
        env.process(program(rank))
    return env, left


def run_simpy(ring: Ring) -> list[list[int]]:
    """The ring timed by SimPy."""
    env, left = as_processes(ring)
    env.run()
    return left


def count_events(ring: Ring) -> int:
    """Events SimPy processes for the ring."""
    env, _ = as_processes(ring)
    count = 0
    while env.peek() != inf:
        env.step()
        count += 1
    return count
