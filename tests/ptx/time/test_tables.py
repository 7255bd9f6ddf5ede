"""Tables that all CTAs read: the first of them, and those that are resident with it, wait for memory; others do not."""

import numpy as np
import pytest
from tests.ptx.time.made import Op, Pipe, launch, load
from tests.ptx.time.test_engine import END, H200

from kernbench.ptx.time.events import event_costs
from kernbench.ptx.time.launch import time_launch
from kernbench.ptx.time.result import Unit

# shared memory leaves room for two CTAs in an SM
RESIDENT, SHARED = 264, 100_000
SECTORS = 16


def timed(ctas: int, first: float):
    """CTAs that load something, of which so many sectors on average come from memory, and use it."""
    event = load(sectors=SECTORS, lines=4, first=first, other=SECTORS - first)
    return time_launch(*launch([[event, Op(Pipe.FMA, wait=1), END]], ctas=ctas, shared=SHARED), H200)


def test_a_table_that_is_there_is_not_waited_for():
    """A row of a norm is read once, its weights by all CTAs: 65536 of them took 32 % too long."""
    ctas = 40 * RESIDENT
    table, there, missed = (timed(ctas, first).cycles for first in (SECTORS / ctas, 0.0, SECTORS))
    assert there < table < there + 0.1 * (missed - there)


def test_ctas_that_want_it_while_it_is_under_way_wait_for_it():
    table, there = timed(RESIDENT, SECTORS / RESIDENT).cycles, timed(RESIDENT, 0.0).cycles
    latency = float(H200.hbm.latency) - float(H200.l2.latency)
    assert table - there > 0.8 * latency


def test_memory_gives_as_much_whoever_waits():
    """A quarter of the accesses waits, with four times as much each."""
    ctas, first = 40 * RESIDENT, SECTORS / 4 / RESIDENT
    whole = timed(ctas, SECTORS)
    part = timed(ctas, first)
    busy = [one.busy[Unit.HBM] * one.cycles for one in (whole, part)]
    # what is read and what leaves L2 for it, which is less and less
    assert busy[1] / busy[0] == pytest.approx(first / SECTORS, rel=0.4)
    assert part.traffic.hbm_read == pytest.approx(whole.traffic.hbm_read * first / SECTORS, rel=1e-3)


@pytest.mark.parametrize(("first", "resident", "share"), [
    (SECTORS, 264, 1.0), (SECTORS / 2, 1, 1 - 0.5**4), (SECTORS / 1000, 264, 0.264), (SECTORS / 100, 264, 1.0),
    (0.0, 264, 0.0),
])  # fmt: skip
def test_the_share_that_waits(first, resident, share):
    recording, _ = launch([[load(sectors=SECTORS, lines=4, first=first, other=SECTORS - first), END]])
    found = event_costs(recording, H200, 0.0, 1.0, resident).misses / 65536
    assert np.allclose(found, max(share, 1 / 65536), atol=1e-3)


def test_a_table_takes_the_same_time_to_the_last_digit():
    assert timed(2000, 0.01).cycles == timed(2000, 0.01).cycles
