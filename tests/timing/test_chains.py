"""Chains against the pass over all nodes: the same times and causes, to the last digit, on graphs with many ties."""

import random
from itertools import pairwise

import numpy as np
import pytest

from kernbench.timing.chains import make_chains
from kernbench.timing.engine import CycleError, run_events
from kernbench.timing.graph import DISPATCH, ENGINE, OPERAND, make_graph
from kernbench.timing.needed import FOLLOWED, LEFT_OUT, LOOKED_UP, Lanes, needed_edges
from kernbench.timing.playing import in_order_of_time, run_chains, steps_of
from kernbench.timing.servers import Rates

# engines of a program: two that compute, two that transfer, and one that keeps no order
COMPUTING, TRANSFERRING, LANES = (0, 1), (2, 3), 4


class Drawn:
    """Programs whose commands are dispatched in order, wait for their engine and for some commands before them, and now
    and then for a command of another program.
    """

    def __init__(self, seed):
        self.draw = random.Random(seed)
        self.programs, self.length = self.draw.randint(1, 4), self.draw.randint(1, 25)
        self.commands = self.programs * self.length
        self.nodes = self.commands + self.programs
        self.lane = np.array([self.draw.choice((-1, 0, 0, 1, 1, 2, 3)) for _ in range(self.commands)], np.int32)
        self.edges = []
        for program in range(self.programs):
            self._add_program(program)
        if self.programs > 1:
            for _ in range(self.draw.randint(0, self.commands)):
                self._add_message()
        self.graph = make_graph(self.nodes, *np.array(self.edges, np.int32).reshape(-1, 4).T)

    def _add_program(self, program):
        first = program * self.length
        head, since, last = self.commands + program, 0, {}
        for c in range(first, first + self.length):
            since += 1
            self.edges.append((head, c, since, DISPATCH))
            lane = int(self.lane[c])
            if lane in last:
                self.edges.append((last[lane], c, 0, ENGINE))
            if lane >= 0:
                last[lane] = c
            for _ in range(self.draw.choice((0, 0, 0, 1, 2, 4))):
                if c > first:
                    source = max(first, c - self.draw.choice((1, 1, 2, 3, 6)))
                    self.edges.append((source, c, self.draw.choice((0, 0, 0, 1)), OPERAND))
            if self.draw.random() < 0.15:
                head, since = c, 0

    def _add_message(self):
        """From a command to one that comes later in its own program: so no two of them wait for each other."""
        one, other = self.draw.sample(range(self.programs), 2)
        sent, taken = sorted((self.draw.randrange(self.length), self.draw.randrange(self.length)))
        if sent < taken:
            edge = (one * self.length + sent, other * self.length + taken, -self.draw.randint(1, 2), OPERAND)
            self.edges.append(edge)

    def lanes(self, duration):
        group = np.concatenate([np.repeat(np.arange(self.programs), self.length), np.arange(self.programs)])
        lane = np.concatenate([self.lane, np.full(self.programs, -1)])
        takes_time = np.isin(lane, COMPUTING) & (duration > 0)
        return Lanes(group.astype(np.int32), lane.astype(np.int32), takes_time.astype(np.int8))

    def rates(self, always):
        """`always`: the commands that take time at any rates."""
        duration = np.array([self.draw.choice((1, 1, 2, 5)) if one else 0 for one in always], np.int64)
        free = [u for u in range(self.commands) if self.lane[u] in TRANSFERRING]
        duration[free] = self.draw.choice((0, 0, 3))
        server = np.full(self.nodes, -1, np.int32)
        server[free] = np.arange(len(free)) % 2 if self.draw.random() < 0.5 else 0
        nbytes = np.array([self.draw.choice((1, 4, 4, 9)) for _ in range(self.nodes)], np.int64)
        bandwidth = np.array([self.draw.choice((0.25, 0.5, 3.0)), 1.0])
        latency = np.array([self.draw.choice((0, 1, 4)), 2], np.int64)
        return Rates(duration, server, nbytes, bandwidth, self.draw.choice((0, 1, 1, 3)), latency)


def same(ours, theirs):
    for name in ("start", "finish", "cause"):
        assert getattr(ours, name).tolist() == getattr(theirs, name).tolist(), name


@pytest.mark.parametrize("first", range(0, 300, 60))
def test_times_and_causes_are_those_of_the_pass_over_nodes(first):
    for seed in range(first, first + 60):
        drawn = Drawn(seed)
        always = [lane in COMPUTING and drawn.draw.random() < 0.9 for lane in (*drawn.lane, *[-1] * drawn.programs)]
        given = drawn.rates(always)
        chains = make_chains(drawn.graph, given.server, drawn.lanes(given.duration))
        same(run_chains(chains, given), run_events(drawn.graph, given))
        ordered = in_order_of_time(chains, given)
        same(run_chains(ordered, given), run_events(drawn.graph, given))
        for _ in range(3):
            other = drawn.rates(always)
            other.server[:] = given.server
            same(run_chains(ordered, other, steps_of(ordered, other)), run_events(drawn.graph, other))


def anything(seed):
    """Edges from anywhere to anywhere later, of which any may be a dispatch; no lanes."""
    draw = random.Random(seed)
    nodes = draw.randint(2, 14)
    edges = []
    for v in range(1, nodes):
        for _ in range(draw.choice((0, 1, 1, 1, 2, 3))):
            kind = draw.choice((DISPATCH, OPERAND))
            edges.append((max(0, v - draw.choice((1, 1, 2, 3, 5))), v, draw.choice((0, 0, 0, 1)), kind))
    graph = make_graph(nodes, *np.array(edges, np.int32).reshape(-1, 4).T)
    duration = np.array([draw.choice((0, 0, 1, 2)) for _ in range(nodes)], np.int64)
    server = np.array([draw.choice((-1, -1, -1, -1, 0)) for _ in range(nodes)], np.int32)
    given = Rates(
        duration, server, np.ones(nodes, np.int64), np.array([0.5]), draw.choice((0, 1)), np.zeros(1, np.int64)
    )
    nowhere, no = np.full(nodes, -1, np.int32), np.zeros(nodes, np.int8)
    return graph, given, Lanes(np.zeros(nodes, np.int32), nowhere, no)


def test_any_graph_has_chains():
    for seed in range(1500):
        graph, given, lanes = anything(seed)
        chains = in_order_of_time(make_chains(graph, given.server, lanes), given)
        same(run_chains(chains, given), run_events(graph, given))


def line(*edges, nodes, lanes=(), takes_time=()):
    graph = make_graph(nodes, *np.array(edges, np.int32).reshape(-1, 4).T)
    lane = np.array(lanes or [-1] * nodes, np.int32)
    return graph, Lanes(np.zeros(nodes, np.int32), lane, np.array(takes_time or [0] * nodes, np.int8))


def test_what_a_later_command_waited_for_is_left_out():
    given = ((0, 1, 0, OPERAND), (0, 2, 0, OPERAND), (1, 2, 0, OPERAND))
    graph, lanes = line(*given, nodes=3, lanes=(0, 1, 2), takes_time=(0, 1, 0))
    assert needed_edges(graph, lanes).use.tolist() == [FOLLOWED, LEFT_OUT, FOLLOWED]
    # the middle one may take no time: then the first edge is what was waited for
    graph, lanes = line(*given, nodes=3, lanes=(0, 1, 2), takes_time=(1, 0, 0))
    assert needed_edges(graph, lanes).use.tolist() == [FOLLOWED] * 3


def test_a_dispatch_is_looked_up_where_all_else_waits_for_it():
    """The first command has nothing else to wait for, the second does; the third waits for somebody else, too."""
    given = ((0, 1, 1, DISPATCH), (0, 2, 2, DISPATCH), (0, 3, 3, DISPATCH), (1, 2, 0, ENGINE), (2, 3, 0, ENGINE))
    graph, lanes = line(*given, (4, 3, 0, OPERAND), nodes=5)
    rows = zip((0, 0, 0, 1, 2, 4), graph.targets.tolist(), needed_edges(graph, lanes).use, strict=True)
    use = {(u, v): found for u, v, found in rows}
    assert use[0, 1] == FOLLOWED
    assert use[0, 2] == LOOKED_UP
    assert use[0, 3] == FOLLOWED
    chains = make_chains(graph, np.full(5, -1, np.int32), lanes)
    assert [chains.nodes[a:b].tolist() for a, b in pairwise(chains.first)] == [[0], [1, 2], [3], [4]]


def test_a_cycle_is_found():
    graph, lanes = line((0, 1, 0, OPERAND), (1, 2, 0, OPERAND), (2, 1, 0, OPERAND), nodes=3)
    given = Rates(
        *(np.zeros(3, np.int64), np.full(3, -1, np.int32), np.zeros(3, np.int64)), np.ones(1), 0, np.zeros(1, np.int64)
    )
    with pytest.raises(CycleError):
        run_chains(make_chains(graph, given.server, lanes), given)
