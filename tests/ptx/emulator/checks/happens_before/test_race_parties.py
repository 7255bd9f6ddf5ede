"""A race names the two instructions that met, also where lanes of one warp wrote the word at several instructions."""

import numpy as np
import pytest

WORDS = np.zeros(64, "u4")


def races(lab, body, *arrays, **options):
    found = lab.findings(body, *[a.copy() for a in arrays], **options)
    return [(f.message.split(";`:")[0].lstrip("`"), f.message, f.others[0].where.text) for f in found]


SETUP = "  setp.eq.u32 %p0, %r0, 0;\n  setp.eq.u32 %p1, %r0, 26;\n  setp.eq.u32 %p2, %r0, 5;\n"


def test_a_race_of_two_writes_has_no_echo_in_what_the_second_reads_back(lab):
    body = f"""{SETUP}
  @%p0 st.global.u32 [%rd20+208], 7;
  @%p1 st.global.u32 [%rd20+208], 9;
  @%p1 ld.global.u32 %r3, [%rd20+208];
  @%p1 st.global.u32 [%rd21], %r3;
"""
    ((here, message, there),) = races(lab, body, WORDS, WORDS)
    assert here == "@%p1 st.global.u32 [%rd20+208], 9"
    assert "thread (26, 0, 0)" in message
    assert there == "@%p0 st.global.u32 [%rd20+208], 7;"


def test_a_third_party_meets_the_last_write(lab):
    body = f"""{SETUP}
  @%p0 st.global.u32 [%rd20], 7;
  @%p1 st.global.u32 [%rd20], 9;
  @%p2 ld.global.u32 %r3, [%rd20];
  @%p2 st.global.u32 [%rd21], %r3;
"""
    first, second = races(lab, body, WORDS, WORDS)
    assert first[2] == "@%p0 st.global.u32 [%rd20], 7;"
    assert second[2] == "@%p1 st.global.u32 [%rd20], 9;"
    assert "; thread (26, 0, 0) of block (0, 0, 0) accesses it" in second[1]


def test_writes_of_the_same_value_at_two_instructions_are_both_remembered(lab):
    body = f"""{SETUP}
  @%p0 st.global.u32 [%rd20], 7;
  @%p1 st.global.u32 [%rd20], 7;
  @%p1 ld.global.u32 %r3, [%rd20];
  @%p1 st.global.u32 [%rd21], %r3;
"""
    ((here, message, there),) = races(lab, body, WORDS, WORDS)
    assert here.startswith("@%p1 ld.global")
    assert there == "@%p0 st.global.u32 [%rd20], 7;"
    assert "; thread (0, 0, 0) of block (0, 0, 0) accesses it" in message


@pytest.mark.parametrize(("offset", "lane", "store"), [(0, 0, "7"), (2, 26, "9")])
def test_halves_of_a_word_that_lanes_write_at_two_instructions(lab, offset, lane, store):
    body = f"""{SETUP}
  mov.b16 %h1, 7; mov.b16 %h2, 9;
  @%p0 st.global.b16 [%rd20], %h1; // 7
  @%p1 st.global.b16 [%rd20+2], %h2; // 9
  @%p2 ld.global.b16 %h3, [%rd20+{offset}];
  @%p2 st.global.b16 [%rd21], %h3;
"""
    ((_, message, there),) = races(lab, body, WORDS, WORDS)
    assert there.endswith(f"// {store}")
    assert f"; thread ({lane}, 0, 0)" in message


HAND_OVER = """
  setp.ne.u32 %p1, %r1, 0;
  @%p1 bra READ;
  st.global.u32 [%rd20], 7;
  {before}
  st.relaxed.gpu.global.u32 [%rd21], 1;
  bra DONE;
READ:
  {wait}
  {behind}
  ld.global.u32 %r8, [%rd20];
  st.global.u32 [%rd22], %r8;
DONE:
"""
WAIT = "ld.{order}.gpu.global.u32 %r7, [%rd21];\n  setp.eq.u32 %p3, %r7, 0;\n  @%p3 bra READ;"


@pytest.mark.parametrize(
    ("before", "order", "behind", "message", "hint"),
    [
        (
            "",
            "relaxed",
            "",
            "both halves are missing",
            "and another behind the read of it by thread (0, 0, 0) of block (1,",
        ),
        ("", "acquire", "", "has released nothing since that access", "write the flag with .release"),
        ("fence.acq_rel.gpu;", "relaxed", "", "by a read that acquires nothing", "read the flag with .acquire"),
        ("fence.acq_rel.gpu;", "", "fence.acq_rel.gpu;", "has not acquired that", "wait for the flag that thread (0,"),
        ("fence.acq_rel.gpu;", "acquire", "", "", ""),
        ("fence.acq_rel.gpu;", "relaxed", "fence.acq_rel.gpu;", "", ""),
    ],
)
def test_which_half_of_a_hand_over_is_missing(lab, before, order, behind, message, hint):
    wait = WAIT.format(order=order) if order else ""
    body = HAND_OVER.format(before=before, wait=wait, behind=behind)
    found = lab.findings(body, *(np.zeros(1, "u4") for _ in range(3)), grid=2, block=1)
    if not message:
        assert found == []
        return
    (race,) = [one for one in found if "'array0'" in one.message]
    assert message in race.message
    assert hint in race.hint


def test_a_reader_that_does_not_wait_and_comes_first(lab):
    """Nothing is missing at the writer, which releases what it wrote: the reader is to wait."""
    body = """
  setp.ne.u32 %p1, %r1, 0;
  @%p1 bra WRITE;
  ld.global.u32 %r8, [%rd20];
  st.global.u32 [%rd22], %r8;
  bra DONE;
WRITE:
  st.global.u32 [%rd20], 7;
  fence.acq_rel.gpu;
  st.relaxed.gpu.global.u32 [%rd21], 1;
DONE:
"""
    found = lab.findings(body, *(np.zeros(1, "u4") for _ in range(3)), grid=2, block=1)
    (race,) = [one for one in found if "'array0'" in one.message]
    assert "of block (0, 0, 0) has read without waiting for thread (0, 0, 0) of block (1, 0, 0)" in race.message
    assert "let it wait for a flag that thread (0, 0, 0) of block (1, 0, 0) sets" in race.hint


@pytest.mark.parametrize(("grid", "block", "hint"), [(1, 64, "a barrier of the block"), (2, 1, "let one block own")])
def test_threads_of_one_block_are_told_of_its_barrier(lab, grid, block, hint):
    body = "  add.u32 %r3, %r0, %r1;\n  st.global.u32 [%rd20], %r3;\n"
    found = lab.findings(body, WORDS.copy(), grid=grid, block=block)
    assert found
    assert all(one.kind == "race" for one in found)
    assert any(hint in one.hint for one in found)
