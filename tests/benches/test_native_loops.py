"""Loops of PTX benches are compiled natively, and give what numba's do, to the bit."""

import logging
from functools import cache

import numpy as np
import pytest
from tests.sampled import some

from kernbench.bench import find, run_bench
from kernbench.common.native.entry import layout_is_known
from kernbench.common.native_loops import NativeLoop, NumbaLoop
from kernbench.ptx.sass.tools import SETTING

pytestmark = pytest.mark.skipif(
    not layout_is_known(), reason="objects of this Python lie in memory otherwise than they are read: numba compiles"
)

RUNS = [
    ("batched_incremental_attention", "one_warp"),
    ("gated_delta_rule_chunk_output", "sm_90a_keys_64"),
    ("gated_delta_rule_chunk_output", "sm_100a_keys_64"),
]
# half the heads and a quarter of the rows, of whole and of broken chunks, need the same loops
SMALLER = {"gated_delta_rule_chunk_output": {"heads": 1, "value_heads": 2, "lengths": (70, 0, 64, 1)}}
# calls of each loop that are compared
CALLS = 3
# called when a program is decoded, which is kept: not where another test did so before
DECODING = {"shuffle"}
# called where lanes part or live for the first time in this process
REMEMBERED = {"_survey", "_part"}
# loops that the first of these runs calls besides
FIRST = (
    "count_lanes",
    "end_lanes",
    "permute",
    "number_groups",
    "_rebuild",
    "_count_syncs",
    "add_reuse",
    "write_out",
    "checked_store",
    "fold",
    "hash_warps",
    "checked_load",
    "note_writes",
    "simulate",
    "survey_global",
    "reaches",
    "fill_table",
    "touch",
)
COMPARED = some(FIRST, 2)


def copied(given, known):
    """Arguments anew; arrays over the same memory have the same memory again."""
    if isinstance(given, tuple):
        items = [copied(one, known) for one in given]
        return tuple(items) if type(given) is tuple else type(given)(*items)
    if not isinstance(given, np.ndarray) or not given.size:
        return given
    whole = given
    while isinstance(whole.base, np.ndarray):
        whole = whole.base
    if not whole.flags.c_contiguous:
        return given.copy()
    if id(whole) not in known:
        known[id(whole)] = whole, whole.copy()
    offset = given.__array_interface__["data"][0] - whole.__array_interface__["data"][0]
    memory = known[id(whole)][1].reshape(-1).view(np.uint8)
    return np.ndarray(given.shape, given.dtype, memory, offset, given.strides)


def arrays(given):
    """The arrays among arguments."""
    if isinstance(given, tuple):
        return [array for one in given for array in arrays(one)]
    return [given] if isinstance(given, np.ndarray) else []


def are_same(some, others):
    """Whether arrays hold the same bytes."""
    pairs = zip(arrays(some), arrays(others), strict=True)
    return all(np.ascontiguousarray(a).tobytes() == np.ascontiguousarray(b).tobytes() for a, b in pairs)


@cache
def calls(name, panel):
    """The loops that a run calls; for the first calls of those that are compared, whether numba's did the same.

    They are compared as they are called: arguments are gigabytes, and none are kept.
    """
    found, plain = {}, NativeLoop.__call__

    def noted(self, *given):
        # of those that numba compiles the log says whether they have an entry of ours
        if isinstance(self, NumbaLoop):
            return plain(self, *given)
        seen = found.setdefault(self.__name__, (self, []))[1]
        if (name, panel) != RUNS[0] or self.__name__ not in COMPARED or len(seen) >= CALLS:
            return plain(self, *given)
        before = copied(given, {})
        result = plain(self, *given)
        seen.append(self.by_numba(*before) == result and are_same(before, given))
        return result

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(NativeLoop, "__call__", noted)
        # whatever is installed: loops of the join with machine code are not called
        patch.setenv(SETTING, "/no/nvdisasm")
        # what is drawn is timed a dozen times more, for what changes would save, by the same loops
        run_bench(find(name), panel, SMALLER.get(name), timed=True, drawn=False)
    return found


@pytest.mark.parametrize(("name", "panel"), RUNS)
def test_no_loop_is_left_to_numba(name, panel, caplog):
    with caplog.at_level(logging.INFO, "kernbench.common"):
        found = calls(name, panel)
    assert len(found) > 12
    assert [text for text in caplog.messages if "left to numba" in text] == []
    assert [name for name, (loop, _) in found.items() if not loop.entries] == []


def test_the_loops_of_the_first_run_are_known():
    assert set(calls(*RUNS[0])) - DECODING - REMEMBERED == set(FIRST)


@pytest.mark.parametrize("loop", COMPARED)
def test_numba_gives_the_same(loop):
    compared = calls(*RUNS[0])[loop][1]
    assert compared
    assert all(compared)
