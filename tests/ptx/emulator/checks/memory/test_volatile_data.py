"""Data that warps hand each other through volatile shared memory: found where no barrier orders it; flags are meant."""

import numpy as np
import pytest

# `%r4` is the address of the word of a thread, `%r5` of that of the thread 32 on, round the block of 64
HEAD = """
  .shared .align 4 .b32 s[64];
  mov.u32 %r6, s;
  shl.b32 %r4, %r0, 2;
  xor.b32 %r5, %r4, 128;
  add.u32 %r4, %r4, %r6;
  add.u32 %r5, %r5, %r6;
  st.volatile.shared.u32 [%r4], %r0;
"""
READ = "  ld.volatile.shared.u32 %r7, [%r5];\n"
ADD = "  add.u32 %r8, %r7, 1;\n"
WRITE = "  st.volatile.shared.u32 [%r4], %r8;\n"
BARRIER = "  bar.sync 0;\n"


def found(lab, body, **options):
    run = lab.launch(HEAD + body, **{"block": 64, **options})
    return [(one.kind, one.where.line) for one in run.findings]


@pytest.mark.parametrize("schedule", ["canonical", "reversed", 1])
@pytest.mark.parametrize("grid", [1, 3])
def test_with_barriers_it_is_clean(lab, schedule, grid):
    assert found(lab, BARRIER + READ + ADD + BARRIER + WRITE, schedule=schedule, grid=grid) == []


@pytest.mark.parametrize("schedule", ["canonical", "reversed", 1])
def test_a_barrier_that_is_missing_after_the_read(lab, schedule):
    (one,) = lab.launch(HEAD + BARRIER + READ + ADD + WRITE, block=64, schedule=schedule).findings
    assert (one.kind, one.count) == ("race", 64)
    assert "writes shared memory 's'" in one.message
    assert "of another warp, accesses it in PTX line" in one.message
    assert "both volatile, and nothing orders the two: warps run in any order" in one.message
    assert "bar.sync" in one.hint


@pytest.mark.parametrize("schedule", ["canonical", "reversed", 1])
def test_a_barrier_that_is_missing_before_the_read(lab, schedule):
    run = lab.launch(HEAD + READ + ADD + BARRIER + WRITE, block=64, schedule=schedule)
    assert [one.kind for one in run.findings] == ["race"]
    assert "volatile" in run.findings[0].message


def test_a_reader_whose_word_its_owner_has_read_since(lab):
    """As in a scan: each thread reads another's word, then its own, and writes that."""
    body = BARRIER + READ + "  ld.volatile.shared.u32 %r9, [%r4];\n  add.u32 %r8, %r7, %r9;\n"
    assert [kind for kind, _ in found(lab, body + WRITE)] == ["race"]
    assert found(lab, body + BARRIER + WRITE) == []


def test_a_word_that_all_warps_read(lab):
    body = BARRIER + "  ld.volatile.shared.u32 %r7, [s+4];\n" + ADD
    assert [kind for kind, _ in found(lab, body + WRITE)] == ["race"]
    assert found(lab, body + BARRIER + WRITE) == []


@pytest.mark.parametrize(
    "body",
    [
        # a flag decides what is stored, where, or whether
        READ + "  setp.ne.u32 %p1, %r7, 5;\n  @%p1 st.volatile.shared.u32 [%r4], %r0;\n",
        READ + "  setp.ne.u32 %p1, %r7, 5;\n  selp.b32 %r8, %r0, %r6, %p1;\n" + WRITE,
        READ + "  and.b32 %r8, %r7, 60;\n  add.u32 %r8, %r8, %r6;\n  st.volatile.shared.u32 [%r8], %r0;\n",
        # what is read goes nowhere, or to an atomic
        READ + WRITE.replace("%r8", "%r0"),
        READ + "  atom.shared.add.u32 %r9, [%r4], %r7;\n",
        # a lock, whoever gets it
        "  atom.shared.cas.b32 %r9, [s], 0, 0;\n  setp.eq.u32 %p1, %r9, 0;\n" + READ + ADD + WRITE,
        # a flag in other memory, or by a generic address
        "  ld.volatile.global.u32 %r9, [%rd20];\n  setp.ne.u32 %p1, %r9, 5;\n" + READ + ADD + WRITE,
        "  ld.relaxed.gpu.u32 %r9, [%rd20];\n  setp.ne.u32 %p1, %r9, 5;\n" + READ + ADD + WRITE,
        # a fence says that something is handed over
        READ + "  membar.cta;\n" + ADD + WRITE,
        # writes alone
        "  mov.u32 %r8, 7;\n  st.volatile.shared.u32 [s], %r8;\n",
    ],
)  # fmt: skip
def test_what_may_be_meant_is_clean(lab, body):
    assert lab.kinds(HEAD + BARRIER + body, np.zeros(1, "u4"), block=64) == []


def test_barriers_of_some_warps_count(lab):
    """A named barrier: the second warp arrives, the first one waits, and nobody else needs to."""
    body = """
  setp.lt.u32 %p1, %r0, 32;
  @%p1 bra TAKE;
  bar.arrive 1, 64;
  bra END;
TAKE:
  {wait}
  ld.volatile.shared.u32 %r7, [%r5];
  add.u32 %r8, %r7, 1;
  st.volatile.shared.u32 [%r4], %r8;
END:
"""
    assert found(lab, body.format(wait="bar.sync 1, 64;")) == []


def test_blocks_have_their_own_words(lab):
    body = BARRIER + "  ld.volatile.shared.u32 %r7, [%r4];\n" + ADD + WRITE
    assert found(lab, body, grid=4) == []


def test_a_reader_of_another_block_of_the_cluster_is_no_warp_of_this_one(lab):
    """The second block has met more often when it reads the other's words, and both meet before these are written."""
    meet = "  barrier.cluster.arrive.aligned;\n  barrier.cluster.wait.aligned;\n"
    body = """
  mov.u32 %r9, %cluster_ctarank;
  setp.eq.u32 %p1, %r9, 0;
  @%p1 bra READ;
  bar.sync 0;
  bar.sync 0;
  bar.sync 0;
READ:
  xor.b32 %r9, %r9, 1;
  mapa.shared::cluster.u32 %r10, %r5, %r9;
  ld.volatile.shared::cluster.u32 %r7, [%r10];
  add.u32 %r8, %r7, 1;
"""
    assert found(lab, meet + body + meet + WRITE + meet, grid=2, cluster=2) == []
