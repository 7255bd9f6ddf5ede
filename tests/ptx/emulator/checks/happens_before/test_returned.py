"""The last block, as an atomic that acquires nothing says, may clear what all have used: that race is formal."""

import numpy as np
import pytest

from kernbench.result.finding import FORMAL

SCHEDULES = ["canonical", "reversed", 1, 2]
# each block stores its number to its word, counts itself, and the last clears the words of all
SINGLE = """
  setp.ne.u32 %p1, %r0, 0;
  @%p1 bra DONE;
  mul.wide.u32 %rd1, %r1, 4;
  add.u64 %rd1, %rd1, %rd20;
  {used}
  {before}
  {count}
  setp.ne.u32 %p2, {value}, 3;
  {branch}
  {after}
  {clear}
DONE:
"""
CLEAR = "".join(f"  st.global.u32 [%rd20+{4 * n}], 0;\n" for n in range(4))
ADD = "atom.{sem}.gpu.global.add.u32 %r5, [%rd21], 1;"
PLAIN = {
    "used": "st.global.u32 [%rd1], %r1;",
    "before": "",
    "count": ADD.format(sem="release"),
    "value": "%r5",
    "branch": "@%p2 bra DONE;",
    "after": "",
    "clear": CLEAR,
}


def single(lab, schedule="canonical", **parts):
    body = SINGLE.format(**{**PLAIN, **parts})
    return lab.launch(body, np.zeros(4, "u4"), np.zeros(1, "u4"), grid=4, schedule=schedule)


CLEAN = {
    "an atomic that releases": {},
    "a fence before a relaxed atomic": {"before": "fence.acq_rel.gpu;", "count": ADD.format(sem="relaxed")},
    "what was read": {"used": "ld.global.u32 %r6, [%rd1];"},
    "a guard": {"branch": "", "clear": CLEAR.replace("  st", "  @!%p2 st")},
    "a value made of the atomic's": {"value": "%r7", "count": PLAIN["count"] + "\n  add.u32 %r7, %r5, 0;"},
}


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("name", CLEAN)
def test_a_store_that_an_atomic_decides_is_formal(lab, name, schedule):
    run = single(lab, schedule, **CLEAN[name])
    assert run.findings == []
    for found in run.formal:
        assert (found.kind, found.severity) == ("race", FORMAL)
        assert "no GPU so far stores before such an atomic has returned" in found.message
        assert found.hint.startswith("give the atomic .acq_rel instead of .release")
    assert run.formal
    assert lab.arrays[0].numpy().tolist() == [0] * 4


def test_an_atomic_that_acquires_is_no_finding(lab):
    for parts in ({"count": ADD.format(sem="acq_rel")}, {"after": "fence.acq_rel.gpu;"}):
        run = single(lab, **parts)
        assert run.findings + run.formal == []


FAULTS = {
    "nothing is released": {"count": ADD.format(sem="relaxed")},
    "nothing is released by the others": {
        "count": "setp.eq.u32 %p3, %r1, 3;\n  @%p3 atom.release.gpu.global.add.u32 %r5, [%rd21], 1;\n"
        + "  @!%p3 atom.relaxed.gpu.global.add.u32 %r5, [%rd21], 1;"
    },
    "it is used after it was released": {"used": "", "count": PLAIN["count"] + "\n  st.global.u32 [%rd1], %r1;"},
    "a load": {"clear": CLEAR.replace("st.global.u32 [", "ld.global.u32 %r9, [").replace("], 0", "]")},
    "an atomic in too narrow a scope": {"count": PLAIN["count"].replace(".gpu", ".cta")},
    "another value decides": {"value": "%r1"},
    "nothing decides": {"branch": ""},
    "both ways lead to the store": {"branch": "@%p2 bra NEXT;\n  mov.u32 %r8, 1;\nNEXT:"},
}


@pytest.mark.parametrize("name", FAULTS)
def test_what_is_no_such_store_stays_a_fault(lab, name):
    assert "race" in {found.kind for schedule in SCHEDULES for found in single(lab, schedule, **FAULTS[name]).findings}


# the same by all threads of each block: one counts for all, and says in shared memory whether it was the last
WHOLE = """
  mul.wide.u32 %rd1, %r0, 4;
  add.u64 %rd1, %rd1, %rd20;
  {used}
  {first}
  setp.ne.u32 %p1, %r0, 0;
  @%p1 bra COUNTED;
  atom.{sem}.gpu.global.add.u32 %r5, [%rd21], 1;
  {flag}
COUNTED:
  {second}
  ld.shared.u32 %r6, [last];
  setp.ne.u32 %p2, %r6, 3;
  @%p2 bra DONE;
  {clear}
DONE:
"""
USED = "atom.global.add.u32 %r7, [%rd1], 1;"
BLOCKS = {
    "used": USED,
    "first": "bar.sync 0;",
    "sem": "release",
    "flag": "st.shared.u32 [last], %r5;",
    "second": "bar.sync 0;",
    "clear": "st.global.u32 [%rd1], 0;",
}


def whole(lab, schedule="canonical", **parts):
    body = WHOLE.format(**{**BLOCKS, **parts})
    arrays = np.zeros(64, "u4"), np.zeros(1, "u4")
    return lab.launch(body, *arrays, grid=4, block=64, outside=".shared .align 4 .b32 last;", schedule=schedule)


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_a_block_may_clear_when_one_of_its_threads_has_counted(lab, schedule):
    run = whole(lab, schedule)
    assert run.findings == []
    assert {(found.kind, found.where.text.split()[0]) for found in run.formal} == {("race", "st.global.u32")}
    assert lab.arrays[0].numpy().tolist() == [0] * 64
    acquired = whole(lab, schedule, sem="acq_rel")
    assert acquired.findings + acquired.formal == []


WHOLE_FAULTS = {
    "other threads may not be done": {"first": ""},
    "nothing is released": {"sem": "relaxed"},
    "a load": {"clear": "ld.global.u32 %r9, [%rd1];\n  st.global.u32 [%rd1+1024], %r9;"},
    # nothing waits for the atomic before the barrier
    "the value is not needed": {"flag": "st.shared.u32 [last], 3;"},
}


@pytest.mark.parametrize("name", WHOLE_FAULTS)
def test_what_a_block_may_not(lab, name):
    arrays = np.zeros(1024, "u4"), np.zeros(1, "u4")
    body = WHOLE.format(**{**BLOCKS, **WHOLE_FAULTS[name]})
    outside = ".shared .align 4 .b32 last;"
    kinds = set()
    for schedule in SCHEDULES:
        kinds |= set(lab.kinds(body, *arrays, grid=4, block=64, outside=outside, schedule=schedule))
    assert "race" in kinds
