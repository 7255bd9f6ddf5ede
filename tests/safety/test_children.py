"""Somebody else's code in processes of its own: its parent learns how it ended, and nothing is left."""

import json
import mmap
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress

import pytest

from kernbench.common.errors import MisuseError
from kernbench.safety.channel import BrokenChannelError, Receiver, Sender, Tail, new_key
from kernbench.safety.children import Children, Ended, location_in, start_method

SECONDS = 600.0
MODULE = """
import ctypes, os, signal, subprocess, sys, threading, time

def twice(given, send):
    print("printed")
    send({"twice": 2 * given})

def leaves(given, send):
    send({"first": 1})
    os._exit(given)

def crashes(given, send):
    ctypes.string_at(0)

def kills_itself(given, send):
    os.kill(os.getpid(), signal.SIGKILL)

def raises(given, send):
    raise KeyboardInterrupt("of its own")

def closes_everything(given, send):
    os.closerange(3, 256)
    with open(given, "wb") as file:
        file.write(b"mine")
        file.flush()
        kept = [os.dup(file.fileno()) for _ in range(20)]
        send({"lost": True})

def writes_everywhere(given, send):
    for number in range(3, 64):
        try:
            os.write(number, b"no message")
        except OSError:
            pass
    time.sleep(1e6)

def starts_others(given, send):
    child = subprocess.Popen(["sleep", "1000000"])
    if os.fork() == 0:
        send({"forged": True})
        time.sleep(1e6)
    threading.Thread(target=time.sleep, args=(1e6,)).start()
    send({"others": child.pid})

def sleeps(given, send):
    open(given, "w").close()
    time.sleep(1e9)

def ignores_signals(given, send):
    for number in (signal.SIGABRT, signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)
    open(given, "w").close()
    while True:
        time.sleep(1e6)

def prints_much(given, send):
    for _ in range(given):
        os.write(1, b"x" * (1 << 20))
    os.write(2, b"the end")

def eats_memory(given, send):
    import numpy
    kept = []
    try:
        while True:
            kept.append(numpy.empty(1 << 28, numpy.uint8))
    except MemoryError:
        count = len(kept)
        kept.clear()
        send({"blocks": count})

def starts_a_thread(given, send):
    thread = threading.Thread(target=send, args=({"thread": True},))
    thread.start()
    thread.join()

def large(given, send):
    send({"text": "x" * given})

def calls_itself(given, send):
    class Endless:
        def __repr__(self):
            return repr([self])
    sys.setrecursionlimit(10**9)
    repr(Endless())
"""


@pytest.fixture
def module(tmp_path, monkeypatch):
    (tmp_path / "foreign_code.py").write_text(MODULE)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield "foreign_code"
    sys.modules.pop("foreign_code", None)


def outcome(module, function, argument=None, memory=None, clock=time.monotonic):
    """Messages and end of one process, and what it printed."""
    with Children(clock) as children:
        child = children.start(f"{module}:{function}", argument, SECONDS, memory)
        events = [event for _, event in children.events()]
    assert isinstance(events[-1], Ended)
    return events[:-1], events[-1], child.output


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_messages_and_output(module, monkeypatch, method):
    monkeypatch.setenv("KERNBENCH_START_METHOD", method)
    messages, ended, output = outcome(module, "twice", 21)
    assert messages == [{"twice": 42}]
    assert ended.finished
    assert output.text() == "printed\n"


@pytest.mark.parametrize(
    ("function", "argument", "words"),
    [
        ("leaves", 0, ["exit code 0", "os._exit was called", "foreign_code.py:10 in leaves"]),
        ("crashes", None, ["SIGSEGV", "foreign_code.py:13 in crashes"]),
        (
            "calls_itself",
            None,
            ["SIGSEGV", " in __repr__: its stack overflowed, as calls were nested"],
        ),
        ("kills_itself", None, ["SIGKILL", "memory"]),
        ("raises", None, ["exit code 1"]),
        ("writes_everywhere", None, ["a descriptor that is not its own"]),
    ],
)
def test_how_it_ended_and_where(module, function, argument, words):
    _, ended, _ = outcome(module, function, argument)
    assert not ended.finished
    for word in words:
        assert word in ended.reason()


def test_what_came_before_the_end_is_kept(module):
    messages, ended, _ = outcome(module, "leaves", 3)
    assert messages == [{"first": 1}]
    assert ended.code == 3


def test_a_number_that_stands_for_another_file_is_not_written_to(module, tmp_path):
    messages, ended, _ = outcome(module, "closes_everything", str(tmp_path / "mine"))
    assert messages == []
    assert ended.lost
    assert (tmp_path / "mine").read_bytes() == b"mine"


def test_what_it_started_ends_with_it(module):
    messages, ended, _ = outcome(module, "starts_others")
    assert ended.finished
    assert [list(message) for message in messages] == [["others"]]
    wait_until_gone(messages[0]["others"])


def wait_until_gone(pid):
    """A killed process is gone as soon as somebody has taken its status."""
    while running(pid):
        time.sleep(0.01)


def running(pid):
    with suppress(OSError), open(f"/proc/{pid}/stat") as stat:
        return stat.read().rsplit(")", 1)[1].split()[0] != "Z"
    return False


@pytest.mark.parametrize("function", ["sleeps", "ignores_signals"])
def test_time_is_limited(module, tmp_path, function, monkeypatch):
    """The clock jumps beyond the limit once the process is where it stays: no load can make this fail."""
    there = tmp_path / "there"

    def clock():
        return time.monotonic() + 10 * SECONDS * there.exists()

    looked = []
    look = Children._patience
    monkeypatch.setattr(Children, "_patience", lambda children: looked.append(1) or look(children))
    _, ended, _ = outcome(module, function, str(there), clock=clock)
    assert ended.over == "time"
    # it looks now and then for the end of a process that was told to end, and does not spin
    assert len(looked) < 5000
    if function == "sleeps":
        assert ended.where[1:] == (47, "sleeps")


def test_only_the_end_of_its_output_is_kept(module):
    _, ended, output = outcome(module, "prints_much", 64)
    assert ended.finished
    assert output.total == (64 << 20) + 7
    assert len(output.text()) <= 1 << 14
    assert output.text().endswith("the end")


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux limits private memory")
def test_memory_is_limited(module):
    (message,), ended, _ = outcome(module, "eats_memory", memory=4 << 30)
    assert ended.finished
    assert 8 <= message["blocks"] <= 16


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux limits private memory")
@pytest.mark.parametrize("reserved", [(4 << 30) - (1 << 20), (4 << 30) + (1 << 20), 1 << 38])
def test_memory_of_the_parent_does_not_count(module, reserved):
    """Below the limit, just above it, and far above: in each case the limit is what the copy may take itself."""
    no_reserve = 0x4000
    try:
        held = mmap.mmap(-1, reserved, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | no_reserve)
    except OSError:
        pytest.skip("this system reserves no addresses beyond its memory")
    with held:
        messages, ended, _ = outcome(module, "starts_a_thread", memory=4 << 30)
        (eaten,), _, _ = outcome(module, "eats_memory", memory=4 << 30)
    assert ended.finished
    assert messages == [{"thread": True}]
    assert 8 <= eaten["blocks"] <= 16


def test_messages_larger_than_a_pipe(module):
    (message,), ended, _ = outcome(module, "large", 1 << 22)
    assert ended.finished
    assert len(message["text"]) == 1 << 22


def test_leaving_early_ends_all(module, tmp_path):
    with Children() as children:
        pids = [children.start(f"{module}:sleeps", str(tmp_path / "there"), SECONDS).pid for _ in range(2)]
    assert not any(map(running, pids))


@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
def test_children_end_with_a_parent_that_is_killed(module, tmp_path):
    script = (
        "import sys\n"
        f"sys.path.insert(0, {str(tmp_path)!r})\n"
        "from kernbench.safety.children import Children\n"
        "with Children() as children:\n"
        "    children.start('foreign_code:starts_others', None, 600)\n"
        "    busy = children.start('foreign_code:sleeps', sys.argv[1], 600)\n"
        "    for child, event in children.events():\n"
        "        print(busy.pid, event['others'] if isinstance(event, dict) else 0, flush=True)\n"
    )
    words = [sys.executable, "-c", script, str(tmp_path / "there")]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as parent:
        first = parent.stdout.readline().split()
        while not (tmp_path / "there").exists():
            time.sleep(0.01)
        parent.send_signal(signal.SIGKILL)
        for pid in map(int, first):
            wait_until_gone(pid)


def test_the_start_method_is_chosen(monkeypatch):
    monkeypatch.setenv("KERNBENCH_START_METHOD", "neither")
    with pytest.raises(MisuseError, match="fork or spawn"):
        start_method()
    monkeypatch.delenv("KERNBENCH_START_METHOD")
    assert start_method() in ("fork", "spawn")


def test_frames():
    key = new_key()
    reading, writing = os.pipe()
    receiver, sender = Receiver(reading, key), Sender(writing, key)
    assert receiver.read() == ([], True)
    sender.send({"a": 1})
    sender.send({"b": [2]})
    assert receiver.read() == ([{"a": 1}, {"b": [2]}], True)
    os.write(writing, json.dumps({"forged": True}).encode())
    with pytest.raises(BrokenChannelError):
        receiver.read()
    os.close(writing)
    receiver.close()


def test_parts_of_frames():
    key = new_key()
    (reading, writing), (whole, into) = os.pipe(), os.pipe()
    Sender(into, key).send({"text": "x" * 100})
    receiver, frame = Receiver(reading, key), os.read(whole, 1 << 16)
    for byte in frame[:-1]:
        os.write(writing, bytes([byte]))
        assert receiver.read() == ([], True)
    os.write(writing, frame[-1:])
    assert receiver.read() == ([{"text": "x" * 100}], True)
    os.close(writing)
    assert receiver.read() == ([], False)
    for descriptor in (reading, whole, into):
        os.close(descriptor)


def test_a_pipe_that_ends():
    reading, writing = os.pipe()
    tail = Tail(reading)
    os.write(writing, "käse\xff".encode()[:-1])
    os.close(writing)
    assert tail.read()
    assert not tail.read()
    assert tail.take().startswith("käse")
    assert tail.text() == ""
    tail.close()


def test_the_innermost_frame_of_somebodys_own():
    library = os.path.dirname(os.__file__)
    trace = (
        "Fatal Python error: Aborted\n\nCurrent thread 0x1 (most recent call first):\n"
        f'  File "{library}/ctypes/__init__.py", line 1 in string_at\n'
        '  File "/x/site-packages/numpy/core.py", line 2 in ones\n'
        '  File "/home/me/bad bench.py", line 7 in launch\n'
        '  File "/home/me/other.py", line 9 in <module>\n'
    )
    assert location_in(trace) == ("/home/me/bad bench.py", 7, "launch")
    assert location_in("") is None
