"""Where the warps of a launch spent their cycles: by line of the PTX, and of the user's source."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from tests.ptx.time import made
from tests.ptx.time.made import Op, Pipe
from tests.ptx.time.test_presentation import launch_time
from tests.ptx.time.test_sources import TRITON, line_of

from kernbench.ptx.time.causes import REASONS
from kernbench.ptx.time.engine.reasons import Reason
from kernbench.ptx.time.lines import LineAccesses, LineStalls


def test_lines_where_warps_wait_come_first():
    stalls = np.zeros((3, len(Reason)))
    stalls[0, Reason.GLOBAL], stalls[1, Reason.FIXED], stalls[2, Reason.GLOBAL] = 10.0, 50.0, 20.0
    recording, _ = made.launch([[made.load(sectors=8), Op(Pipe.FMA)]])
    rows = replace(recording.instructions, line=np.array([5, 7], np.int32), text=("ld", "add"))
    recording = replace(recording, instructions=rows, text="")
    streams = SimpleNamespace(ops=SimpleNamespace(line=np.array([5, 7, 5])))
    found = LineStalls(launch_time(stalls), recording, streams).by_line()
    assert [(row["line"], row["text"], row["issued"]) for row in found] == [(7, "add", 1), (5, "ld", 2)]
    assert found[1]["share"] == pytest.approx(30 / 80)
    assert found[1]["waits"] == {REASONS[Reason.GLOBAL]: pytest.approx(30 / 80)}
    # 128 bytes in 8 sectors of 32
    assert (found[1]["bytes"], found[1]["coalescing"], found[1]["bank_efficiency"]) == (128, 0.5, None)
    assert found[1]["shared_bytes"] == 0


def by_source(cycles, accesses=()):
    """Rows for a launch of the kernel above whose instructions waited for global memory, by their text."""
    lines = [line_of(TRITON, instruction) for instruction in cycles]
    stalls = np.zeros((len(lines), len(Reason)))
    stalls[:, Reason.GLOBAL] = list(cycles.values())
    recording, _ = made.launch([[Op(Pipe.FMA)]])
    streams = SimpleNamespace(ops=SimpleNamespace(line=np.array(lines)))
    held = LineStalls(launch_time(stalls), replace(recording, text=TRITON), streams)
    held._accesses = dict(accesses)
    return held.by_source()


def test_what_is_inlined_counts_at_the_line_of_the_program_with_its_own_lines_beside_it():
    rows = by_source({"%r2, %r1, 1": 5.0, "%r3, %r2": 20.0, "%r4, %r3": 60.0, "%r5, %r4": 10.0, "%r6, %r5": 5.0})
    assert [(row["source"]["line"], round(row["share"], 2)) for row in rows] == [(12, 0.8), (2, 0.1), (9, 0.05)]
    reduction, own, _ = rows
    assert [(frame["line"], round(frame["share"], 2)) for frame in reduction["inner"]] == [(291, 0.6), (261, 0.2)]
    assert reduction["lines"] == [line_of(TRITON, "%r4, %r3"), line_of(TRITON, "%r3, %r2")]
    assert reduction["waits"] == {REASONS[Reason.GLOBAL]: pytest.approx(0.8)}
    # a function of the program's own: who called it
    assert [frame["line"] for frame in own["callers"]] == [13]
    assert "inner" not in own


def test_accesses_of_one_line_of_the_source_are_added_up():
    lines = line_of(TRITON, "%r3, %r2"), line_of(TRITON, "%r4, %r3")
    accesses = LineAccesses(bytes=128, sectors=8, least_sectors=4), LineAccesses(bytes=128, sectors=24, least_sectors=4)
    (row,) = by_source({"%r3, %r2": 20.0, "%r4, %r3": 60.0}, zip(lines, accesses, strict=True))
    assert (row["bytes"], row["coalescing"], row["bank_efficiency"]) == (256, 0.25, None)


def test_a_text_without_source_lines_has_none():
    recording, _ = made.launch([[Op(Pipe.FMA)]])
    streams = SimpleNamespace(ops=SimpleNamespace(line=np.array([1])))
    stalls = np.ones((1, len(Reason)))
    assert set(LineStalls(launch_time(stalls), recording, streams).views()) == {"stalls"}
