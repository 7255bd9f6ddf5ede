"""A store behind the release of its lock is reported at its own line, whichever access the race is found at."""

import numpy as np
import pytest

# the lock in the second array protects the word in the first; each block adds one, twice
LOCKED = """
  setp.ne.u32 %p1, %r0, 0;
  @%p1 bra DONE;
  mov.u32 %r9, 0;
TURN:
  add.u32 %r9, %r9, 1;
AGAIN:
  atom.global.cas.b32 %r5, [%rd21], 0, 1;
  setp.ne.u32 %p2, %r5, 0;
  @%p2 bra AGAIN;
  {acquire}
  ld.global.u32 %r6, [%rd20];
  add.u32 %r6, %r6, 1;
  {before}
  {release}
  {behind}
  setp.lt.u32 %p3, %r9, {times};
  @%p3 bra TURN;
DONE:
"""
STORE = "st.global.u32 [%rd20], %r6;"
EXCHANGE = "fence.acq_rel.gpu;\n  atom.global.exch.b32 %r7, [%rd21], 0;"
RELEASES = [
    EXCHANGE,
    "st.release.gpu.global.u32 [%rd21], 0;",
    "fence.acq_rel.gpu;\n  st.relaxed.gpu.global.u32 [%rd21], 0;",
]
EVERY = ["canonical", "reversed", "eager", 1, 2]


def findings(lab, schedule="canonical", **parts):
    given = {"acquire": "fence.acq_rel.gpu;", "before": STORE, "release": EXCHANGE, "behind": "", "times": 1} | parts
    return lab.findings(LOCKED.format(**given), np.zeros(1, "u4"), np.zeros(1, "u4"), grid=3, schedule=schedule)


@pytest.mark.parametrize("release", RELEASES)
@pytest.mark.parametrize("times", [1, 2])
def test_a_store_behind_the_release_is_reported_at_its_own_line(lab, release, times):
    for schedule in EVERY:
        assert findings(lab, schedule, release=release, times=times) == []
    for schedule in EVERY:
        found = findings(lab, schedule, release=release, times=times, before="", behind=STORE)
        late = [one for one in found if "behind its release of a lock" in one.message]
        assert [one.where.text for one in late] == [STORE], (schedule, found)
        assert "move this access in front of the release" in late[0].hint
        assert late[0].others[0].role == "the release of the lock"
        assert late[0].others[0].where.text == release.rpartition("\n")[2].strip()
        assert all(one.where.text == STORE for one in found)


def test_a_store_before_the_release_that_lacks_its_fence_is_not_behind_it(lab):
    (finding,) = findings(lab, release="atom.global.exch.b32 %r7, [%rd21], 0;", acquire="fence.acq_rel.gpu;")
    assert "behind its release" not in finding.message
    assert "has released nothing since that access" in finding.message


def test_a_word_that_no_lock_protects(lab):
    """The blocks take turns by a lock, and one more access races with what they do in their turns."""
    body = LOCKED.format(acquire="fence.acq_rel.gpu;", before=STORE, release=EXCHANGE, behind="", times=2)
    stray = "  setp.eq.u32 %p4, %r3, 32;\n  @%p4 ld.global.u32 %r8, [%rd20];\n"
    found = lab.findings(stray + body, np.zeros(1, "u4"), np.zeros(1, "u4"), grid=3)
    assert found
    assert not [one for one in found if "behind its release" in one.message]
