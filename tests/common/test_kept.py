"""A loop that several processes need at once is compiled by one of them."""

import os
import shutil
import subprocess
import sys

import pytest

from kernbench.common import compiled, kept

pytestmark = pytest.mark.programs

LOOPS = """
import sys, time
from pathlib import Path
import numpy as np
from kernbench.common import compiled
compiled._PACKAGE, compiled.PACKAGES = Path(__file__).parent, ('.',)

@compiled.loop
def double(row):
    for at in range(row.size):
        row[at] *= 2

@compiled.loop
def wrong(row):
    row.nothing = 1

if __name__ == "__main__":
    for name in ("double", *sys.argv[1:]):
        row = np.ones(2)
        try:
            globals()[name](row)
        except Exception as error:
            print(type(error).__name__, end=" ")
    print(row.tolist(), sum(double.stats.cache_hits.values()), compiled.seconds_compiling() > 0)
"""


@pytest.fixture
def start(tmp_path):
    """Starts a process that calls a loop; several may run at once."""
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "loops.py").write_text(LOOPS)
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path / "cache")}
    environment.pop("NUMBA_CACHE_DIR", None)

    def begin(*words, where="a"):
        command = [sys.executable, str(tmp_path / where / "loops.py"), *words]
        return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)

    return begin


def told(process):
    return process.communicate()[0].strip()


def test_one_of_several_processes_compiles_a_loop(start):
    begun = [start() for _ in range(3)]
    answers = [told(one) for one in begun]
    assert all(answer.startswith("[2.0, 2.0]") for answer in answers)
    # the others waited for it, or came later
    assert sorted(answer.split()[2] for answer in answers) == ["0", "1", "1"]


def test_loops_are_found_wherever_the_sources_lie(start, tmp_path):
    assert told(start()) == "[2.0, 2.0] 0 True"
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    os.utime(tmp_path / "b" / "loops.py", (1, 1))
    assert told(start(where="b")) == "[2.0, 2.0] 1 False"


def test_a_loop_that_cannot_be_compiled_holds_nobody_up(start):
    assert "TypingError" in told(start("wrong"))
    assert "TypingError" in told(start("wrong", "wrong"))


class Clock:
    """Time that passes when somebody sleeps."""

    def __init__(self):
        self.now = 0.0

    def monotonic(self):
        return self.now

    def sleep(self, seconds):
        self.now += seconds


def test_a_process_that_is_stuck_is_not_waited_for_for_ever(tmp_path, monkeypatch):
    clock = Clock()
    monkeypatch.setattr(kept, "time", clock)
    path = str(tmp_path / "loop.lock")
    first, second = kept.Turn(path, compiled.counted), kept.Turn(path, compiled.counted)
    first.take()
    second.take()
    assert kept._PATIENCE <= clock.now <= kept._PATIENCE + 1
    first.give_up()
    second.give_up()
    first.take()
    assert clock.now <= kept._PATIENCE + 1


def test_where_no_lock_can_be_had_everybody_compiles(tmp_path):
    turn = kept.Turn(str(tmp_path / "missing" / "loop.lock"), compiled.counted)
    turn.take()
    turn.give_up()
