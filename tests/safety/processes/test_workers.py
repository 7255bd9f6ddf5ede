"""Processes that do units of this one's work: all of it is done once, however they are made and however they end."""

import errno
import os
import signal
import time
from pathlib import Path

import numpy as np
import pytest

from kernbench.safety.processes import parcels, workers
from kernbench.safety.processes.workers import DeadWorkerError, Workers

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")


def children():
    """Processes that this one made, or took over, and that are not gone."""
    found = set()
    for entry in Path("/proc").glob("[0-9]*/stat"):
        try:
            _, parent, *_ = entry.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(parent) == os.getpid():
            found.add(entry.parent.name)
    return found


@pytest.fixture(autouse=True)
def nobody_left():
    """Whatever happens, no process is left."""
    before = children()
    yield
    assert children() <= before


def done(work, count, units):
    """What so many workers give for units, by number."""
    made = Workers(work)
    try:
        made.begin(range(units))
        made.add(count)
        return dict(made.results(range(units)))
    finally:
        made.close()


@pytest.mark.parametrize("count", [1, 2, 3, 5, 16])
def test_each_unit_is_done_once(count):
    me = os.getpid()
    found = done(lambda number: (number * number, os.getpid(), os.getppid()), count, 40)
    assert {number: square for number, (square, _, _) in found.items()} == {n: n * n for n in range(40)}
    assert me not in {pid for _, pid, _ in found.values()}


def test_units_that_do_not_fit_the_pipe_are_handed_out_later(monkeypatch):
    monkeypatch.setattr(workers, "_AHEAD", 2)
    assert done(lambda number: number, 3, 40) == {n: n for n in range(40)}


def test_workers_make_workers():
    def maker(number):
        # long enough for every worker to get one
        time.sleep(0.2)
        return os.getpid(), os.getppid()

    found = done(maker, 16, 16)
    made = [maker for _, maker in found.values()]
    assert len({pid for pid, _ in found.values()}) > 1
    assert os.getpid() in made
    assert any(maker != os.getpid() for maker in made)


@pytest.mark.parametrize("in_memory", [True, False])
def test_arrays_arrive_as_they_were_sent(monkeypatch, in_memory):
    if not in_memory:
        monkeypatch.delattr(os, "memfd_create", raising=False)

    def work(number):
        large = np.arange(100_000 + number, dtype=np.int64)
        return {"large": large, "columns": large[::2], "other": np.asfortranarray(large[:90_000].reshape(300, 300))}

    for number, found in done(work, 3, 7).items():
        expected = work(number)
        assert all(np.array_equal(found[name], array) for name, array in expected.items())
        # whoever gets it may write to it
        found["large"][0] = 1


def test_a_full_file_sends_nothing_by_half(monkeypatch):
    def full(*given):
        raise OSError(28, "no space")

    monkeypatch.setattr(parcels.os, "ftruncate", full)
    assert all(np.array_equal(found, np.arange(50_000)) for found in done(lambda _: np.arange(50_000), 2, 3).values())


# worker 1 of 3 is made by worker 0, the others by this process
@pytest.mark.parametrize("unit", range(6))
def test_a_worker_that_is_killed_is_an_error(unit):
    def work(number):
        if number == unit:
            os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(0.05)

    with pytest.raises(DeadWorkerError, match=r"signal 9.*jobs=1"):
        done(work, 3, 6)


def test_workers_that_are_not_waited_for_are_ended():
    made = Workers(lambda _: time.sleep(600))
    made.begin(range(16))
    made.add(16)
    made.close()


def test_a_worker_that_cannot_be_made_is_not_missed(monkeypatch):
    me, fork = os.getpid(), os.fork

    def refused():
        if os.getpid() != me:
            raise OSError(11, "too many processes")
        return fork()

    monkeypatch.setattr(os, "fork", refused)
    assert done(lambda number: number, 16, 20) == {n: n for n in range(20)}


def files():
    """How many files this process has open."""
    return len(list(Path("/proc/self/fd").iterdir()))


@pytest.mark.parametrize("name", ["pipe", "fork"])
@pytest.mark.parametrize("given", range(4))
def test_where_the_system_has_no_more_processes_or_files_fewer_work_or_none(name, given, monkeypatch):
    """Whoever asked is told, or has all units done; no file is left open, and nobody waits for who was never made."""
    real, left, before = getattr(os, name), [given], files()

    def scarce():
        left[0] -= 1
        if left[0] < 0:
            raise OSError(errno.EAGAIN, "planted")
        return real()

    monkeypatch.setattr(os, name, scarce)
    # the first pipe is that of the units; a worker that is made makes others
    if given == 0 or name == "pipe":
        with pytest.raises(OSError, match="planted"):
            done(lambda number: number, 3, 20)
    else:
        assert done(lambda number: number, 3, 20) == {n: n for n in range(20)}
    assert files() == before
