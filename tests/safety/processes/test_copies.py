"""Copies of a process: what is sent to them and what they answer arrives as it was, however large."""

import os
import random
import sys

import numpy as np
import pytest

from kernbench.safety.processes.copies import Copies

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")


@pytest.mark.parametrize("in_memory", [True, False])
def test_arrays_are_sent_and_answered(monkeypatch, in_memory):
    if not in_memory:
        monkeypatch.delattr(os, "memfd_create", raising=False)
    given = {"large": np.arange(200_000), "small": np.arange(3), "words": "so"}
    copies = Copies()
    copies.make(3)
    if copies.number is not None:
        heard = [copies.heard() for _ in range(2)]
        # whoever gets an array may write to it, which others do not see
        heard[0]["large"][:] += copies.number
        copies.answer((copies.number, heard))
    assert copies.send(given)
    assert copies.send([given["large"][::-1]])
    answers = copies.answers(lambda: None)
    assert [number for number, _ in answers] == [0, 1, 2]
    for number, (first, (second,)) in answers:
        assert first["words"] == "so"
        assert (first["small"] == np.arange(3)).all()
        assert (first["large"] == np.arange(200_000) + number).all()
        assert (second == np.arange(200_000)[::-1]).all()


def test_a_copy_that_refuses_gives_no_answers():
    copies = Copies()
    copies.make(2)
    if copies.number == 0:
        copies.refuse()
    if copies.number is not None:
        copies.answer(np.arange(200_000))
    assert copies.answers(lambda: None) is None


SHOWN = {
    "printed": lambda: print("printed"),
    "written past Python": lambda: os.write(1, b"written\n"),
    "written by a program": lambda: os.system("echo written >&2"),
    "random numbers": random.random,
    "random numbers of NumPy": np.random.rand,
    "random numbers of torch": lambda: sys.modules["torch"].rand(1),
    "the environment": lambda: os.environ.update(KERNBENCH_TEST_OF_COPIES="1"),
}


@pytest.mark.parametrize("what", SHOWN)
def test_a_copy_that_shows_anything_outside_refuses(what, capfd):
    if what.startswith("written") and not hasattr(os, "memfd_create"):
        pytest.skip("this system has no files in memory")
    if what.endswith("torch"):
        pytest.importorskip("torch")
    copies = Copies()
    copies.make(2)
    if copies.number == 0:
        SHOWN[what]()
    if copies.number is not None:
        copies.answer(1)
    assert copies.answers(lambda: None) is None
    assert capfd.readouterr() == ("", "")


WRITES = {
    "a text": lambda path: path.write_text("new"),
    "more of a file": lambda path: open(path, "a").close(),
    "by its number": lambda path: os.close(os.open(path, os.O_WRONLY | os.O_TRUNC)),
    "an array": lambda path: np.save(path, np.zeros(2)),
    "not there any more": lambda path: path.unlink(),
    "another name": lambda path: path.rename(path.with_suffix(".old")),
    "a folder": lambda path: path.with_suffix(".folder").mkdir(),
}


@pytest.mark.parametrize("what", WRITES)
def test_a_copy_refuses_before_it_changes_a_file(what, tmp_path):
    path = tmp_path / "file.npy"
    path.write_text("old")
    before = path.stat()
    copies = Copies()
    copies.make(2)
    if copies.number == 0:
        WRITES[what](path)
    if copies.number is not None:
        copies.answer(1)
    assert copies.answers(lambda: None) is None
    assert os.listdir(tmp_path) == ["file.npy"]
    assert (path.read_text(), path.stat().st_mtime_ns) == ("old", before.st_mtime_ns)


def test_a_copy_may_read_files(tmp_path):
    path = tmp_path / "file"
    path.write_text("old")
    copies = Copies()
    copies.make(2)
    if copies.number is not None:
        copies.answer(path.read_text())
    assert copies.answers(lambda: None) == ["old", "old"]


@pytest.mark.parametrize("call", ["fork", "pipe"])
def test_where_the_system_has_no_more_there_are_no_answers(monkeypatch, call):
    calls, usual = [], getattr(os, call)

    def scarce():
        calls.append(call)
        if len(calls) == 2:
            raise BlockingIOError
        return usual()

    before = len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else None
    monkeypatch.setattr(os, call, scarce)
    copies = Copies()
    copies.make(3)
    if copies.number is not None:
        copies.answer(copies.number)
    assert copies.answers(lambda: None) is None
    assert before is None or len(os.listdir("/proc/self/fd")) == before


def test_no_file_stays_open():
    before = len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else pytest.skip("no /proc")
    copies = Copies()
    copies.make(2)
    if copies.number is not None:
        copies.answer(copies.number)
    assert copies.answers(lambda: None) == [0, 1]
    assert len(os.listdir("/proc/self/fd")) == before
