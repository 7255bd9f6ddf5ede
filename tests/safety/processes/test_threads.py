"""Work that several threads do together."""

import threading
from functools import partial

import numpy as np
import pytest

from kernbench.common.errors import MisuseError
from kernbench.ptx.emulator.memory import arena as arenas
from kernbench.ptx.emulator.memory.arena import POISON, UNWRITTEN, WRITTEN, Arena
from kernbench.safety.processes.threads import both, in_stretches, together


@pytest.mark.parametrize("jobs", ["1", "2", "5"])
@pytest.mark.parametrize("works", [0, 1, 2, 40])
def test_everything_is_done_once_and_no_thread_is_left(monkeypatch, jobs, works):
    monkeypatch.setenv("KERNBENCH_JOBS", jobs)
    before, done = threading.active_count(), []
    together(partial(done.append, number) for number in range(works))
    assert sorted(done) == list(range(works))
    assert threading.active_count() == before


@pytest.mark.parametrize("given", [0, 2])
def test_where_the_system_has_no_more_threads_those_that_there_are_do_all(monkeypatch, given):
    monkeypatch.setenv("KERNBENCH_JOBS", "5")
    before, done, left, start = threading.active_count(), [], [given], threading.Thread.start

    def scarce(thread):
        left[0] -= 1
        if left[0] < 0:
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", scarce)
    together(partial(done.append, number) for number in range(40))
    assert sorted(done) == list(range(40))
    assert threading.active_count() == before


@pytest.mark.parametrize("jobs", ["1", "3"])
def test_what_one_of_them_raises_is_raised(monkeypatch, jobs):
    monkeypatch.setenv("KERNBENCH_JOBS", jobs)

    def refuse(number):
        if number == 7:
            raise MisuseError("no room")

    before = threading.active_count()
    with pytest.raises(MisuseError, match="no room"):
        together(partial(refuse, number) for number in range(20))
    assert threading.active_count() == before


@pytest.mark.parametrize("jobs", ["1", "3"])
def test_memory_holds_the_same_whoever_brings_it(monkeypatch, jobs):
    monkeypatch.setenv("KERNBENCH_JOBS", jobs)
    monkeypatch.setattr(arenas, "_TOGETHER", 100)
    data = np.random.default_rng(1).integers(0, 256, 1234, np.uint8)
    arena = Arena(1 << 30)
    for value, bytes_, state in ((data, data, WRITTEN), (None, POISON, UNWRITTEN), (7, 7, WRITTEN)):
        made = arena.allocate(len(data), data=value)
        assert (arena.contents(made) == bytes_).all()
        assert (arena.states(made) == state).all()
        end = made.offset + made.nbytes
        assert not arena.words[1][end : end + 64].any()
        assert not arena.state[1][end : end + 64].any()


@pytest.mark.parametrize("jobs", ["1", "3"])
@pytest.mark.parametrize("written", [[], [(0, 1234)], [(0, 1)], [(300, 301), (1000, 1234)], [(0, 730), (731, 1234)]])
def test_copies_and_unwritten_bytes_are_the_same_whoever_looks(monkeypatch, jobs, written):
    monkeypatch.setenv("KERNBENCH_JOBS", jobs)
    monkeypatch.setattr(arenas, "_TOGETHER", 100)
    monkeypatch.setattr(arenas, "_PIECE", 30)
    arena = Arena(1 << 30)
    made = arena.allocate(1234)
    arena.contents(made)[...] = np.random.default_rng(2).integers(0, 256, 1234, np.uint8)
    for first, last in written:
        arena.states(made)[first:last] = WRITTEN
    copy = arena.copy(made)
    assert not np.shares_memory(copy, arena.contents(made))
    assert (copy == arena.contents(made)).all()
    left = np.flatnonzero(arena.states(made) != WRITTEN)
    assert arena.unwritten(made) == (len(left), left[0] if len(left) else 0)


def test_nothing_moves_when_a_device_gets_its_first_large_array():
    arena = Arena(1 << 40)
    made = arena.allocate(100, data=np.arange(100, dtype=np.uint8))
    words, small = arena.words[1], arena.capacity
    arena.allocate(arenas.LARGE)
    assert arena.capacity > small
    assert np.shares_memory(words, arena.words[1])
    assert (arena.contents(made) == np.arange(100)).all()
    assert (arena.states(made) == WRITTEN).all()


@pytest.mark.parametrize("jobs", ["1", "3"])
def test_stretches_give_what_they_give_in_their_order(monkeypatch, jobs):
    monkeypatch.setenv("KERNBENCH_JOBS", jobs)
    before = threading.active_count()
    assert in_stretches(lambda begin, end: end - begin, [(5, 9), (0, 5), (9, 9)]) == [4, 5, 0]
    with pytest.raises(ZeroDivisionError):
        in_stretches(lambda begin, end: begin // end, [(1, 1), (1, 0)])
    assert threading.active_count() == before


@pytest.mark.parametrize("jobs", ["1", "2"])
@pytest.mark.parametrize("worth", [True, False])
def test_two_works_give_what_they_give(monkeypatch, jobs, worth):
    monkeypatch.setenv("KERNBENCH_JOBS", jobs)
    before = threading.active_count()
    assert both(lambda: 3, lambda: None, worth) == (3, None)
    with pytest.raises(ZeroDivisionError):
        both(lambda: 3, lambda: 1 // 0, worth)
    assert threading.active_count() == before


def test_an_interrupt_between_two_threads_leaves_no_thread_and_begins_nothing_more(monkeypatch):
    before, done, waited_for = threading.active_count(), [], threading.Event()
    begin, end = threading.Thread.start, threading.Thread.join

    def interrupted(thread):
        begin(thread)
        raise KeyboardInterrupt

    def joined(thread):
        waited_for.set()
        end(thread)

    monkeypatch.setattr(threading.Thread, "start", interrupted)
    monkeypatch.setattr(threading.Thread, "join", joined)
    with pytest.raises(KeyboardInterrupt):
        together([partial(waited_for.wait, 5.0)] + [partial(done.append, 1)] * 10, jobs=4)
    assert threading.active_count() == before
    assert not done
