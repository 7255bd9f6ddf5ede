"""Machine code of plain loops is kept, read again, made anew where it is damaged, and called by what numba compiles."""

import os
import pickle
import subprocess
import sys

import numpy as np
import pytest

from kernbench.common import compiled
from kernbench.common.native.entry import layout_is_known
from kernbench.common.native_loops import SUFFIX, native_loop

pytestmark = pytest.mark.skipif(
    not layout_is_known(), reason="objects of this Python lie in memory otherwise than they are read: numba compiles"
)

LOOPS = """
from pathlib import Path
import numpy as np
from kernbench.common import compiled, native_loops
compiled._PACKAGE, compiled.PACKAGES = Path(__file__).parent, ('.',)
made = []
old = native_loops.NativeLoop._made
native_loops.NativeLoop._made = lambda self, *given: made.append(self.__name__) or old(self, *given)

@native_loops.native_loop
def double(row):
    for at in range(row.size):
        row[at] *= 2

row = np.ones(3)
double(row)
print(row.tolist(), made)
"""


@native_loop
def _double(row):
    for at in range(row.size):
        row[at] *= 2


@compiled.loop
def _four_times(row):
    _double(row)
    _double(row)


@pytest.fixture
def called(tmp_path):
    """Calls a loop in a process of its own."""
    (tmp_path / "loops.py").write_text(LOOPS)
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path / "cache")}
    environment.pop("NUMBA_CACHE_DIR", None)
    command = [sys.executable, str(tmp_path / "loops.py")]

    def call():
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        assert not done.returncode, done.stderr
        return done.stdout.strip()

    return call


@pytest.mark.programs
def test_a_loop_is_kept(called, tmp_path):
    assert called() == "[2.0, 2.0, 2.0] ['double']"
    assert called() == "[2.0, 2.0, 2.0] []"
    (kept,) = tmp_path.glob(f"cache/**/*{SUFFIX}")
    kept.write_bytes(kept.read_bytes()[:-10] + b"0123456789")
    assert called() == "[2.0, 2.0, 2.0] ['double']"
    kept.write_bytes(b"")
    assert called() == "[2.0, 2.0, 2.0] ['double']"


def test_loops_of_numba_call_plain_ones():
    row = np.ones(3)
    _four_times(row)
    assert row.tolist() == [4.0, 4.0, 4.0]
    _double(row)
    assert row.tolist() == [8.0, 8.0, 8.0]
    assert len(_double.entries) == 1


def test_where_objects_lie_otherwise_numba_compiles(monkeypatch):
    monkeypatch.setattr("kernbench.common.native_loops.layout_is_known", lambda: False)
    loop, row = native_loop(_double.py_func), np.ones(2)
    loop(row)
    assert (row.tolist(), loop.entries) == ([2.0, 2.0], [])


def test_compiling_counts_as_compiling():
    before = compiled.seconds_compiling()
    native_loop(_double.py_func)(np.ones(2, np.float32))
    assert compiled.seconds_compiling() > before


@pytest.mark.parametrize("code", ["?", "i1", "u2", "i4", "u4", "i8", "u8", "f4", "f8"])
def test_arrays_that_were_pickled_are_taken_by_the_machine_code(code, monkeypatch):
    """They have a description of their type of their own; kept kernels are full of them, and each call counted."""

    @native_loop
    def copied(taken, given):
        for at in range(taken.size):
            taken[at] = given[at]

    given = np.arange(3).astype(code)
    copied(np.zeros_like(given), given)
    other = pickle.loads(pickle.dumps(given))
    assert other.dtype is not given.dtype
    assert other.dtype == given.dtype
    monkeypatch.setattr(copied, "_called_otherwise", lambda given: pytest.fail("not taken by the machine code"))
    taken = pickle.loads(pickle.dumps(np.zeros_like(given)))
    copied(taken, other)
    assert (taken == given).all()


@pytest.mark.parametrize("code", [">i4", "u4", "f4", "i8"])
def test_arrays_of_another_type_or_order_of_bytes_are_not_taken(code):
    """The machine code is for numbers of one type in the machine's order."""
    given = np.arange(3, dtype=np.int32)
    total = native_loop(_sum_of)
    assert total(given) == 3
    assert total.entries[0](given.astype(code)) is NotImplemented


def _sum_of(row):
    found = 0
    for at in range(row.size):
        found += row[at]
    return found
