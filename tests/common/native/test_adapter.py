"""Loops that numba compiles are called by an entry of our own, and run where nobody imports numba."""

import os
import subprocess
import sys

import numpy as np
import pytest

from kernbench.common import compiled
from kernbench.common.native.adapter import adapter
from kernbench.common.native.entry import layout_is_known
from kernbench.common.native.kinds import INT, Array, NotPlain
from kernbench.common.native_loops import SUFFIX, numba_loop

pytestmark = pytest.mark.skipif(
    not layout_is_known(), reason="objects of this Python lie in memory otherwise than they are read: numba compiles"
)


def _scaled(row, by, flag, room):
    counts, extra = room
    for i in range(row.shape[0]):
        for j in range(row.shape[1]):
            row[i, j] = row[i, j] * by + (extra if flag else 0)
            counts[j] += 1


def _refusing(row):
    for i in range(row.size):
        if row[i] < 0:
            raise ValueError("below zero")
        row[i] += 1


def _giving(row):
    return row[0]


@pytest.mark.sampled(6)
@pytest.mark.parametrize("flag", [True, False, np.True_])
@pytest.mark.parametrize("by", [3, 2.5, np.float32(0.5), np.uint8(7)])
def test_arguments_arrive_as_they_are(by, flag):
    loop = numba_loop(_scaled)
    wide = np.arange(24.0).reshape(4, 6)
    for given in (wide.copy(), wide.copy()[:, ::2], wide.copy().T, wide[:0].copy()):
        expected, counts, counts_too = given.copy(), np.zeros(6, np.int32), np.zeros(6, np.int32)
        loop(given, by, flag, (counts, 4))
        _scaled(expected, by, flag, (counts_too, 4))
        assert (given.tolist(), counts.tolist()) == (expected.tolist(), counts_too.tolist())
    # arrays without gaps have a loop of their own, which is faster
    assert len(loop.entries) == 2
    assert "by_numba" not in vars(loop)


@pytest.mark.parametrize("gaps_first", [True, False])
def test_arrays_without_gaps_are_not_taken_for_others(gaps_first):
    loop = numba_loop(_scaled)
    for row in (np.ones((2, 4))[:, ::2], np.ones((2, 2)))[:: 1 if gaps_first else -1]:
        loop(row, 2, False, (np.zeros(2), 0))
    assert [kinds[0] for kinds in loop.signatures] == [
        Array(loop.signatures[0][0].item, 2, packed) for packed in ((False, True) if gaps_first else (True, False))
    ]
    assert len(loop.entries) == 2


@pytest.mark.parametrize(("function", "result"), [(_refusing, None), (_giving, 0)])
def test_what_raises_or_gives_something_is_left_to_numba(function, result):
    loop = numba_loop(function)
    assert loop(np.arange(3)) == result
    assert not loop.entries
    assert "by_numba" in vars(loop)


def test_what_it_raises_is_its_own():
    with pytest.raises(ValueError, match="below zero"):
        numba_loop(_refusing)(np.array([1, -1]))


MODULE = """
define {attributes} i32 @loop({parameters}) local_unnamed_addr #0 {{
entry:
  ret i32 0
}}
"""
GOOD = "ptr noalias captures(none) %retptr, ptr noalias %excinfo, i64 range(i64 0, 5) %arg.n"


@pytest.mark.parametrize(
    "text",
    [
        MODULE.format(attributes="", parameters="ptr %retptr, ptr %excinfo, i32 %arg.n"),
        MODULE.format(attributes="", parameters="ptr %retptr, ptr %excinfo, i64 %arg.n, i64 %more"),
        MODULE.format(attributes="", parameters="ptr %retptr, ptr %other, i64 %arg.n"),
        MODULE.format(attributes="", parameters=GOOD).replace(" i32 @", " i64 @"),
        MODULE.format(attributes="", parameters=GOOD) + "@.const.picklebuf.1 = internal constant i8 0",
        MODULE.format(attributes="", parameters=GOOD).replace("@loop", "@other"),
    ],
)
def test_a_function_that_is_called_otherwise_is_not_taken(text):
    with pytest.raises(NotPlain):
        adapter(text, "loop", (INT,), "name")


def test_a_function_that_is_called_as_expected_is_taken():
    text = adapter(MODULE.format(attributes="noundef range(i32 -1, -2)", parameters=GOOD), "loop", (INT,), "name")
    assert "define internal void @name(i64 %g0.0)" in text


LOOP = """
import sys
from pathlib import Path
import numpy as np
from kernbench.common import compiled, native_loops
compiled._PACKAGE, compiled.PACKAGES = Path(__file__).parent, ('.',)

@compiled.part
def twice(value):
    return 2 * value

def double(row):
    for at in range(row.size):
        row[at] = twice(row[at])

row = np.ones(3)
native_loops.numba_loop(double)(row)
print(row.tolist(), "numba" in sys.modules)
"""


@pytest.mark.programs
def test_what_is_kept_runs_without_numba(tmp_path):
    (tmp_path / "loops.py").write_text(LOOP)
    environment = {**os.environ, "XDG_CACHE_HOME": str(tmp_path / "cache")}
    environment.pop("NUMBA_CACHE_DIR", None)

    def called():
        command = [sys.executable, str(tmp_path / "loops.py")]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        return done.stdout.strip() or done.stderr

    assert called() == "[2.0, 2.0, 2.0] True"
    assert called() == "[2.0, 2.0, 2.0] False"
    # what is damaged is made anew
    (kept,) = tmp_path.glob(f"cache/**/*{SUFFIX}")
    kept.write_bytes(kept.read_bytes()[:-10])
    assert called() == "[2.0, 2.0, 2.0] True"


RUN = """
import sys
from kernbench.bench import find, run_bench
for name, panel, settings in [
    ("paged_attention", "context_33", {}),
    ("milestone_gqa_llama70b", "single_user_decode", {"context": 64}),
    ("batched_incremental_attention", "one_warp", {}),
]:
    assert run_bench(find(name), panel, settings, timed=True).safe
print("numba" in sys.modules)
"""


@pytest.mark.programs
def test_benches_whose_loops_are_kept_run_without_numba():
    # the first may have to compile, and what other processes compile at that moment is not waited for
    environment = {**os.environ, "KERNBENCH_COMPILE": "always"}
    for _ in range(4):
        done = subprocess.run([sys.executable, "-c", RUN], env=environment, capture_output=True, text=True, check=False)
        if done.stdout.strip() == "False":
            return
    assert done.stdout.strip() == "False", done.stderr or compiled.folder()
