"""Shared memory that cp.async still fills may not be touched before the wait, whatever lies there already."""

import numpy as np
import pytest

TILE = ".shared .align 16 .b8 tile[1024];"
# each thread clears its place, all meet, each copies to its place; then a wait or none, a barrier, the mirrored place
STALE = """
  mov.u32 %r10, tile;
  shl.b32 %r11, %r0, 4;
  add.u32 %r12, %r10, %r11;
  mov.u32 %r5, 0;
  st.shared.v4.b32 [%r12], {{%r5, %r5, %r5, %r5}};
  bar.sync 0;
  mul.wide.u32 %rd1, %r0, 16;
  add.u64 %rd1, %rd1, %rd20;
  cp.async.cg.shared.global [%r12], [%rd1], 16;
  cp.async.commit_group;
  {wait}
  bar.sync 0;
  sub.u32 %r13, 63, %r0;
  shl.b32 %r13, %r13, 4;
  add.u32 %r13, %r10, %r13;
  {use}
"""
X = np.arange(256, dtype="u4")
READ = "ld.shared.u32 %r63, [%r13];"
STORE = """
  mul.wide.u32 %rd2, %r0, 4;
  add.u64 %rd2, %rd2, %rd21;
  st.global.u32 [%rd2], %r63;
"""


@pytest.mark.parametrize("schedule", ["canonical", "reversed", 1])
def test_a_stale_read_is_told(lab, schedule):
    body = STALE.format(wait="", use=READ)
    run = lab.launch(body + STORE, X, np.zeros(64, "u4"), block=64, outside=TILE, schedule=schedule)
    (found,) = run.findings
    assert found.kind == "in-flight"
    assert found.count == 64
    assert "reads shared memory 'tile'+" in found.message
    assert "which a copy begun in PTX line" in found.message


@pytest.mark.parametrize("wait", ["cp.async.wait_group 0;", "cp.async.wait_all;"])
def test_what_was_waited_for_is_clean(lab, wait):
    assert (
        lab.compute(STALE.format(wait=wait, use=READ), X, block=64, outside=TILE) == 4 * np.arange(63, -1, -1)
    ).all()
    assert lab.run.findings == []


def test_a_group_too_few(lab):
    assert lab.kinds(STALE.format(wait="cp.async.wait_group 1;", use=READ), X, block=64, outside=TILE) == ["in-flight"]


@pytest.mark.parametrize(
    ("use", "verb"),
    [
        ("st.shared.u32 [%r13], %r5;", "writes"),
        ("atom.shared.add.u32 %r63, [%r13], 1;", "writes"),
        ("ld.shared.u8 %r63, [%r13+-15];", "reads"),
        ("ld.shared.u64 %rd5, [%r13+8];", "reads"),
        ("cvt.u64.u32 %rd3, %r13;\n  cvta.shared.u64 %rd3, %rd3;\n  ld.u32 %r63, [%rd3];", "reads"),
    ],
)
def test_every_access(lab, use, verb):
    body = STALE.format(wait="", use=use)
    found = [f for f in lab.findings(body, X, block=64, outside=TILE) if f.kind == "in-flight"]
    assert len(found) == 1
    assert f"{verb} shared memory" in found[0].message


def test_the_copier_itself_has_to_wait(lab):
    body = STALE.format(wait="ld.shared.u32 %r62, [%r12];\n  cp.async.wait_all;", use=READ)
    assert lab.kinds(body, X, block=64, outside=TILE) == ["in-flight"]


def test_another_stage_may_be_read_meanwhile(lab):
    body = STALE.format(wait="", use="cp.async.wait_all;\n  bar.sync 0;\n  ld.shared.u32 %r63, [%r13];")
    assert lab.kinds(body, X, block=64, outside=TILE) == []
    beside = """
  mov.u32 %r10, tile;
  shl.b32 %r11, %r0, 4;
  add.u32 %r12, %r10, %r11;
  st.shared.u32 [%r12+512], %r0;
  mul.wide.u32 %rd1, %r0, 16;
  add.u64 %rd1, %rd1, %rd20;
  cp.async.cg.shared.global [%r12], [%rd1], 16;
  ld.shared.u32 %r63, [%r12+512];
  cp.async.wait_all;
"""
    assert (lab.compute(beside, X, outside=TILE) == np.arange(32)).all()
    assert lab.run.findings == []


def test_lanes_that_bring_the_same_word_to_the_same_place(lab):
    """A scale that a whole warp copies is one copy; different words at one place are a race."""
    copy = "  mov.u32 %r10, tile;\n  cp.async.ca.shared.global [%r10], [{}], 4;\n  cp.async.wait_all;\n"
    assert lab.kinds(copy.format("%rd20"), X, outside=TILE) == []
    own = "  mul.wide.u32 %rd1, %r0, 4;\n  add.u64 %rd1, %rd1, %rd20;\n"
    assert lab.kinds(own + copy.format("%rd1"), X, outside=TILE) == ["race"]
    assert lab.kinds(copy.format("%rd20"), X, outside=TILE, block=64) == ["race"]
