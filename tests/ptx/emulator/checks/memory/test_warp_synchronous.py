"""Lanes of one warp that hand over data without bar.warp.sync: volatile code of old is formal, all else a fault."""

import numpy as np
import pytest

from kernbench.result.finding import FORMAL

# x[t] and x[t + 32] to shared memory; addresses of s[t] in %r4, of out[t] in %rd2
HEAD = """
  .shared .align 4 .b32 s[64];
  mov.u32 %r4, s;
  and.b32 %r5, %r0, 31;
  shl.b32 %r5, %r5, 2;
  add.u32 %r4, %r4, %r5;
  mul.wide.u32 %rd1, %r3, 4;
  add.u64 %rd2, %rd1, %rd21;
  add.u64 %rd1, %rd1, %rd20;
"""
FILL = """
  ld.global.u32 %r6, [%rd1];
  st.volatile.shared.u32 [%r4], %r6;
  st.volatile.shared.u32 [%r4+128], %r6;
  bar.warp.sync -1;
"""
STORE = "  ld.volatile.shared.u32 %r9, [%r4];\n  st.global.u32 [%rd2], %r9;\n"
SYNCWARP = "  bar.warp.sync -1;\n"


def step(distance, how=".volatile", between=""):
    return f"""
  ld{how}.shared.u32 %r7, [%r4+{4 * distance}];
  ld{how}.shared.u32 %r8, [%r4];
{between}
  add.u32 %r8, %r8, %r7;
  st{how}.shared.u32 [%r4], %r8;
{between}
"""


def run(lab, body, **options):
    out = lab.empty(32 * options.get("grid", 1), "u4")
    return lab.launch(HEAD + body, np.arange(32 * options.get("grid", 1), dtype="u4"), out, **options)


REDUCTION = FILL + "".join(step(n) for n in (16, 8, 4, 2, 1)) + STORE


@pytest.mark.parametrize("grid", [1, 3])
def test_the_last_warp_of_a_reduction(lab, grid):
    found = run(lab, REDUCTION, grid=grid)
    assert found.findings == []
    assert found.safe
    (note,) = found.formal
    assert (note.kind, note.severity) == ("race", FORMAL)
    assert "both volatile, and nothing orders the two" in note.message
    assert "the lanes ran the earlier access together" in note.message
    assert note.hint.startswith("put __syncwarp()")
    assert found.outputs["out"][0] == sum(range(32))


def test_with_syncwarp(lab):
    clean = run(lab, FILL + "".join(step(n, between=SYNCWARP) for n in (16, 8, 4, 2, 1)) + STORE)
    assert (clean.findings, clean.formal) == ([], [])


@pytest.mark.parametrize("grid", [1, 3])
def test_ordinary_accesses(lab, grid):
    """A compiler keeps the sums in registers, and reads before it writes."""
    found = run(lab, REDUCTION.replace(".volatile", ""), grid=grid)
    assert {one.kind for one in found.findings} == {"race"}
    assert found.formal == []


@pytest.mark.parametrize("fence", ["membar.cta", "fence.acq_rel.cta", "fence.sc.gpu"])
def test_ordinary_accesses_with_fences_between(lab, fence):
    found = run(lab, FILL + "".join(step(n, "", f"  {fence};\n") for n in (16, 8, 4)) + STORE.replace(".volatile", ""))
    assert found.findings == []
    assert {one.kind for one in found.formal} == {"race"}
    assert "the lanes passed a fence together between the two" in found.formal[0].message


PARTED = """
  setp.lt.u32 %p1, %r0, 16;
  @%p1 bra LOW;
  st.volatile.shared.u32 [%r4], 7;
  bra JOIN;
LOW:
  ld.volatile.shared.u32 %r6, [%r4+64];
  st.global.u32 [%rd2], %r6;
JOIN:
"""


@pytest.mark.parametrize("schedule", ["canonical", "reversed"])
def test_lanes_that_have_parted(lab, schedule):
    found = run(lab, FILL + PARTED + STORE.replace("%r9, [%r4]", "%r9, [%r4+4]"), schedule=schedule)
    assert "race" in {one.kind for one in found.findings}
    assert any("the lanes had parted" in one.message for one in found.findings)


def test_half_a_warp_reads_what_all_wrote_together(lab):
    body = "  st.volatile.shared.u32 [%r4], %r0;\n" + PARTED.replace("  st.volatile.shared.u32 [%r4], 7;\n", "")
    found = run(lab, FILL + body + STORE)
    assert found.findings == []
    assert [one.kind for one in found.formal] == ["race"]


def test_fences_passed_apart(lab):
    body = PARTED.replace(".volatile", "").replace("  bra JOIN;", "  membar.cta;\n  bra JOIN;")
    body = body.replace("LOW:\n", "LOW:\n  membar.cta;\n")
    found = run(lab, FILL + body + STORE.replace("%r9, [%r4]", "%r9, [%r4+4]").replace(".volatile", ""))
    assert "race" in {one.kind for one in found.findings}


def test_a_lane_that_waits_for_another(lab):
    """Whoever polls reads early and late, by right."""
    body = """
  @!%p2 bra POLL;
  st.volatile.shared.u32 [s], 1000;
  bra OUT;
POLL:
  ld.volatile.shared.u32 %r6, [s];
  setp.lt.u32 %p3, %r6, 1000;
  @%p3 bra POLL;
OUT:
"""
    clean = run(lab, FILL + "  setp.eq.u32 %p2, %r0, 31;\n" + body + STORE.replace("[%r4]", "[%r4+128]"))
    assert (clean.findings, clean.formal) == ([], [])


def test_flags_between_warps_are_no_concern(lab):
    body = """
  setp.ge.u32 %p1, %r0, 32;
  @%p1 st.volatile.shared.u32 [s], 1;
  @!%p1 ld.volatile.shared.u32 %r6, [s];
"""
    head = "  .shared .align 4 .b32 s;\n  @!%p1 bra GO;\nGO:\n"
    found = lab.launch("  setp.eq.u32 %p1, %r0, 99;\n" + head + body, np.zeros(1, "u4"), block=64)
    assert found.formal == []
    assert "the lanes had parted" not in " ".join(one.message for one in found.findings)
