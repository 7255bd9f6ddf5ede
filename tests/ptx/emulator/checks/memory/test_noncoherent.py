"""Loads through the non-coherent cache of what the same launch writes."""

import os

import numpy as np
import pytest

from kernbench.ptx.emulator.engine import launch as launching
from kernbench.ptx.emulator.engine import splitting

# %rd10: this thread's element of array 0, %rd11: that of its neighbour in the other warp, %rd12: of array 1
PLACES = """
  mul.wide.u32 %rd1, %r3, 4; add.u64 %rd10, %rd20, %rd1; add.u64 %rd12, %rd21, %rd1;
  xor.b32 %r4, %r3, 33; mul.wide.u32 %rd2, %r4, 4; add.u64 %rd11, %rd20, %rd2;
"""
LOAD = "ld.global.nc.u32 %r10, [%rd11];"
OWN_LOAD = "ld.global.nc.u32 %r10, [%rd10];"
STORE = "st.global.u32 [%rd10], %r3;"
RESULT = "st.global.u32 [%rd12], %r10;"


@pytest.fixture
def found(lab):
    def found(*lines, grid=1, block=64, words=None, **options):
        data = np.zeros(grid * block if words is None else words, np.uint32)
        body = PLACES + "\n".join(f"  {line}" for line in lines)
        findings = lab.findings(body, data, data.copy(), grid=grid, block=block, **options)
        lab.device.close()
        return findings

    return found


def test_a_load_of_what_another_thread_wrote_is_found_behind_a_barrier(found):
    (one,) = found(STORE, "bar.sync 0;", LOAD, RESULT)
    assert (one.kind, one.severity, one.count) == ("race", "fault", 64)
    assert one.where.text == LOAD
    assert [other.where.text for other in one.others] == [STORE]
    assert "has written it in the same launch" in one.message
    assert "__ldg()" in one.hint


@pytest.mark.parametrize(
    "lines",
    [
        (STORE, "bar.sync 0;", LOAD.replace(".nc", ""), RESULT),
        (LOAD, RESULT),
        (LOAD.replace("%rd11", "%rd12"), STORE, "bar.sync 0;"),
        # in place: each thread stores what it has made of its own element
        (OWN_LOAD, "add.u32 %r10, %r10, 1;", STORE),
    ],
    ids=["without .nc", "never written", "another array", "in place"],
)
def test_twins_without_a_fault(found, lines):
    assert found(*lines) == []


def test_what_a_thread_wrote_itself_counts_too(found):
    (one,) = found(STORE, OWN_LOAD, RESULT)
    assert (one.kind, one.where.text) == ("race", OWN_LOAD)


def test_a_write_after_the_load_is_found_at_the_write(found):
    (one,) = found(LOAD, "bar.sync 0;", STORE, RESULT)
    assert (one.kind, one.severity, one.where.text) == ("race", "fault", STORE)
    assert [other.where.text for other in one.others] == [LOAD]
    assert "what is read may be what is written here" in one.message
    assert found(LOAD.replace(".nc", ""), "bar.sync 0;", STORE, RESULT) == []


def test_a_write_after_the_load_of_many_threads(found):
    load = "ld.global.nc.u32 %r10, [%rd20];"
    (one,) = found(load, "bar.sync 0;", "setp.eq.u32 %p1, %r0, 5;", "@%p1 st.global.u32 [%rd20], %r0;", RESULT)
    assert one.where.text == "@%p1 st.global.u32 [%rd20], %r0;"
    assert "several threads have read it" in one.message


def test_a_loop_of_loads_and_writes_is_one_finding(found):
    again = ("add.u32 %r5, %r5, 1;", "setp.lt.u32 %p1, %r5, 3;", "@%p1 bra LOOP;")
    (one,) = found("mov.u32 %r5, 0;", "LOOP:", LOAD, "bar.sync 0;", STORE, "bar.sync 0;", *again, RESULT)
    assert one.where.text == LOAD


def test_a_race_that_nothing_orders_at_all_is_one_finding_too(found):
    (one,) = found(STORE, LOAD, RESULT)
    assert (one.kind, one.where.text) == ("race", LOAD)
    assert "without .nc" in one.hint


@pytest.mark.parametrize("update", ["red.global.add.u32 [%rd10], 1;", "st.release.gpu.global.u32 [%rd10], 1;"])
def test_strong_writes(found, update):
    (one,) = found(update, "bar.sync 0;", LOAD, RESULT)
    assert (one.where.text, one.others[0].where.text) == (LOAD, update)
    (one,) = found(LOAD, "bar.sync 0;", update, RESULT)
    assert (one.where.text, one.others[0].where.text) == (update, LOAD)


def test_bytes_are_told_apart(found):
    """Four threads share a word, each reads its own byte and then stores there; then one reads another's."""
    own = "cvt.u64.u32 %rd3, %r3; add.u64 %rd4, %rd20, %rd3; xor.b64 %rd5, %rd4, 1;"
    load, store = "ld.global.nc.u8 %r10, [{}];", "st.global.u8 [%rd4], %r10;"
    assert found(own, load.format("%rd4"), store) == []
    (one,) = found(own, load.format("%rd5"), "bar.sync 0;", store)
    assert one.where.text == store
    (one,) = found(own, "mov.u32 %r10, 0;", store, "bar.sync 0;", load.format("%rd5"), RESULT)
    assert one.where.text == load.format("%rd5")
    odd = ("and.b32 %r5, %r3, 1;", "setp.eq.u32 %p1, %r5, 1;", "mov.u32 %r10, 0;")
    assert found(own, *odd, "@%p1 " + store, "bar.sync 0;", "@!%p1 " + load.format("%rd4"), RESULT) == []


def test_vectors(found):
    wide = (
        "mul.wide.u32 %rd3, %r3, 16; add.u64 %rd4, %rd20, %rd3;",
        "mul.wide.u32 %rd3, %r4, 16; add.u64 %rd5, %rd20, %rd3;",
    )
    load = "ld.global.nc.v4.u32 {%r10, %r11, %r12, %r13}, [%rd5];"
    last = "st.global.u32 [%rd4+12], %r3;"
    (one,) = found(*wide, last, "bar.sync 0;", load, RESULT, words=256)
    assert (one.where.text, one.count) == (load, 64)
    (one,) = found(*wide, load, "bar.sync 0;", last, RESULT, words=256)
    assert one.where.text == last
    assert (
        found(*wide, load.replace("%rd5", "%rd4"), "st.global.v4.u32 [%rd4], {%r10, %r11, %r12, %r13};", words=256)
        == []
    )


@pytest.mark.fast_paths
@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
@pytest.mark.parametrize("jobs", [1, 2, 3])
@pytest.mark.parametrize(
    ("lines", "where"),
    [
        ((STORE, "bar.sync 0;", LOAD, RESULT), LOAD),
        ((LOAD, "bar.sync 0;", STORE, RESULT), STORE),
        ((OWN_LOAD, STORE, RESULT), None),
    ],
    ids=["write first", "load first", "in place"],
)
def test_divided_launches(lab, found, monkeypatch, jobs, lines, where):
    """Only blocks of the second half do what is wrong, when the launch has been divided."""
    monkeypatch.setattr(splitting, "WORTH", 0.0)
    monkeypatch.setattr(splitting, "FIXED_THREADS", 0)
    monkeypatch.setattr(launching, "_LANES", 128)
    splitting.forget()
    skip = ("setp.lt.u32 %p1, %r1, 8;", "@%p1 bra DONE;")
    findings = found(*skip, *lines, "DONE:", grid=16, jobs=jobs)
    assert [(one.kind, one.where.text, one.count) for one in findings] == ([("race", where, 8 * 64)] if where else [])
    assert (lab.device.division.workers > 1) == (jobs > 1 and where is None)


def test_blocks_of_two_parts_are_held_against_each_other(found, monkeypatch):
    """A block reads what a block of another part writes later, or wrote before."""
    monkeypatch.setattr(splitting, "WORTH", 0.0)
    monkeypatch.setattr(splitting, "FIXED_THREADS", 0)
    monkeypatch.setattr(launching, "_LANES", 128)
    splitting.forget()
    load, store = "@%p1 ld.global.nc.u32 %r10, [%rd20];", "@%p2 st.global.u32 [%rd20], %r3;"
    lines = ("setp.eq.u32 %p1, %r1, {};", "setp.eq.u32 %p2, %r3, {};", "mov.u32 %r10, 0;", load, store, RESULT)
    for reader, writer, where in ((8, 15 * 64, store), (15, 8 * 64, load), (0, 15 * 64, store), (15, 0, load)):
        given = (lines[0].format(reader), lines[1].format(writer), *lines[2:])
        alone, apart = (found(*given, grid=16, jobs=jobs) for jobs in (1, 3))
        assert [(one.kind, one.where.text) for one in alone] == [("race", where)]
        assert [one.to_dict() for one in alone] == [one.to_dict() for one in apart]
