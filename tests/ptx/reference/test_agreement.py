"""Small programs on both executors, each of a kind on which they once did not agree: race or no race."""

import numpy as np
import pytest

from kernbench import ptx
from kernbench.ptx.reference import execute

HEAD = """.version 8.6
.target sm_90a
.address_size 64
.visible .entry kernel(.param .u64 array)
{
  .reg .pred %p<8>; .reg .b32 %r<16>; .reg .b64 %rd<8>;
  .shared .align 16 .b32 s[64];
  .shared .align 8 .b64 m;
  ld.param.u64 %rd0, [array];
  mov.u32 %r0, %tid.x;
  and.b32 %r1, %r0, 31;
  shr.u32 %r2, %r0, 5;
  mad.wide.u32 %rd1, %r0, 4, %rd0;
  setp.eq.u32 %p1, %r2, 1;
  setp.eq.u32 %p2, %r0, 0;
"""
ORDERS = [None, 1, 2, 3]
SCHEDULES = ["canonical", "reversed", "eager", 1]


def verdicts(body, threads=96, grid=1):
    """Whether the executors see a race: the reference in several orders, the emulator in several schedules."""
    kernel = ptx.parse(HEAD + body + "\n  ret;\n}\n").kernels["kernel"]
    found = []
    for order in ORDERS:
        outcome = execute(kernel, grid, threads, [np.zeros(grid * threads, np.uint32)], order)
        assert outcome.misuse == []
        found.append(bool(outcome.races))
    for schedule in SCHEDULES:
        device = ptx.EmulatedDevice("sm_90a")
        array = device.array(np.zeros(grid * threads, np.uint32))
        kinds = {finding.kind for finding in device.launch(kernel, grid, threads, [array], schedule=schedule).findings}
        assert kinds <= {"race"}
        found.append(bool(kinds))
    assert len(set(found)) == 1, found
    return found[0]


# the first warp writes and leaves; the others meet, all that live, and one of them reads
LEFT = """
  setp.ne.u32 %p3, %r2, 0;
  @%p3 bra STAY;
  st.shared.u32 [s], %r0;
  {before}
  exit;
STAY:
  {stay}
  bar.sync 0;
  ld.shared.u32 %r3, [s];
  st.global.u32 [%rd1], %r3;
"""


def test_a_warp_that_met_the_others_before_it_left_has_told_them():
    # only one lane writes, so that lanes do not race with each other
    body = LEFT.replace("  st.shared.u32 [s], %r0;", "  setp.eq.u32 %p4, %r1, 0;\n  @%p4 st.shared.u32 [s], %r0;")
    assert not verdicts(body.format(before="bar.sync 1, 96;", stay="bar.sync 1, 96;"))
    assert verdicts(body.format(before="", stay=""))


# a lane of the first warp accesses a word and leaves; the others meet, and then one thread uses the word
LANES_LEFT = """
  setp.ne.u32 %p3, %r0, {who};
  {first}
  @%p3 bra STAY;
  {access}
  {before}
  exit;
STAY:
  {meet}
  setp.ne.u32 %p4, %r0, {user};
  @%p4 bra END;
  {use}
END:
"""
WRITE, READ = "st.shared.u32 [s], %r0;", "ld.shared.u32 %r3, [s];"
SET = "@%p2 st.shared.u32 [s], %r0;\n  bar.sync 0;"
MEETINGS = {
    "bar.sync 0;": (5, 0, 40),
    "barrier.sync 0;": (5, 40),
    "bar.sync 1, 96;": (5, 40),
    "bar.red.popc.u32 %r5, 0, %p3;": (40,),
    "bar.warp.sync -1;": (5,),
    "@%p1 bar.sync 1, 64;\n  setp.eq.u32 %p5, %r2, 0;\n  @%p5 bar.arrive 1, 64;": (40,),
    "bar.sync 0;\n  bar.sync 0;": (70,),
}


@pytest.mark.parametrize(("meet", "user"), [(meet, user) for meet, users in MEETINGS.items() for user in users])
def test_a_lane_that_left_has_told_nobody_what_it_did_last(meet, user):
    """It never comes to the barrier, and a barrier orders what those threads did that come to it."""
    given = {"who": 4, "user": user, "meet": meet, "before": "", "first": ""}
    assert verdicts(LANES_LEFT.format(access=WRITE, use=READ, **given))
    given["first"] = SET
    assert verdicts(LANES_LEFT.format(access=READ, use="st.shared.u32 [s], 7;", **given))
    assert not verdicts(LANES_LEFT.format(access=READ, use=READ, **given))


def test_a_lane_that_told_what_it_did_before_it_left():
    """At a barrier, or as one of the lanes that arrive on an mbarrier; not what it did after that."""
    given = {"who": 4, "user": 70, "use": READ, "first": "", "access": WRITE}
    meet = "barrier.sync 0;\n  barrier.sync 0;"
    assert not verdicts(LANES_LEFT.format(before="barrier.sync 0;", meet=meet, **given))
    assert verdicts(LANES_LEFT.format(before=f"barrier.sync 0;\n  {WRITE.replace('%r0', '77')}", meet=meet, **given))
    given["first"] = "@%p2 mbarrier.init.shared.b64 [m], 1;\n  bar.sync 0;"
    arrive = "mbarrier.arrive.shared.b64 %rd2, [m];"
    meet = "bar.sync 0;\nWAIT:\n  mbarrier.test_wait.parity.shared.b64 %p5, [m], 0;\n  @!%p5 bra WAIT;"
    assert not verdicts(LANES_LEFT.format(before=arrive, meet=meet, **given))
    later = f"{arrive}\n  {WRITE.replace('%r0', '77')}"
    assert verdicts(LANES_LEFT.format(before=later, meet=meet, **given))


def test_lanes_that_left_say_so():
    body = HEAD + LANES_LEFT.format(who=4, user=40, use=READ, first="", access=WRITE, before="", meet="bar.sync 0;")
    device = ptx.EmulatedDevice("sm_90a")
    array = device.array(np.zeros(96, np.uint32))
    run = device.launch(ptx.parse(body + "  ret;\n}\n").kernels["kernel"], 1, 96, [array])
    (finding,) = run.findings
    assert "thread (4, 0, 0) of block (0, 0, 0) has ended since, and a barrier orders only what" in finding.message


@pytest.mark.parametrize("barrier", ["barrier.sync", "bar.sync"])
def test_rounds_of_one_warp_each_may_mix(barrier):
    """Two warps meet, then come to the same barrier with the count of one: either may be counted for the other."""
    assert verdicts(f"{barrier} 2, 64;\n  {barrier} 2, 32;", threads=64)
    assert not verdicts(f"{barrier} 2, 64;\n  {barrier} 2, 64;", threads=64)


# all lanes of all warps update a word; one thread reads it at once, the others after they met
UPDATE = """
  @%p2 st.shared.u32 [s], 0;
  bar.sync 0;
  {update}
  setp.ne.u32 %p3, %r0, {reader};
  @%p3 bra MEET;
  {between}
  ld.shared.u32 %r4, [s];
  st.global.u32 [%rd1], %r4;
MEET:
"""


@pytest.mark.sampled(5)
@pytest.mark.parametrize("reader", [0, 31, 32, 95])
@pytest.mark.parametrize("update", ["red.shared.add.u32 [s], 1;", "atom.relaxed.gpu.shared.max.s32 %r3, [s], %r0;"])
def test_an_update_that_shows_nothing_orders_nothing(update, reader):
    """Whichever thread happened to be the last: it cannot know, so it might as well have been the first."""
    assert verdicts(UPDATE.format(update=update, reader=reader, between=""))
    assert not verdicts(UPDATE.format(update=f"{update}\n  bar.sync 0;", reader=reader, between=""))


def test_who_sees_the_last_of_all_updates_comes_after_them():
    """The thread that counts to the end by what its update gave, or by a strong load, may use the word as its own."""
    last = "atom.shared.add.u32 %r3, [s], 1;\n  setp.ne.u32 %p4, %r3, 95;\n  @%p4 bra MEET;\n  ld.shared.u32 %r4, [s];"
    assert not verdicts(UPDATE.split("  {update}")[0] + last + "\nMEET:\n")
    poll = "POLL:\n  ld.relaxed.gpu.shared.u32 %r3, [s];\n  setp.ne.u32 %p4, %r3, 96;\n  @%p4 bra POLL;"
    for reader in (0, 40, 95):
        assert not verdicts(UPDATE.format(update="red.shared.add.u32 [s], 1;", reader=reader, between=poll))
    again = "atom.shared.add.u32 %r3, [s], 0;"
    poll = f"POLL:\n  {again}\n  setp.ne.u32 %p4, %r3, 96;\n  @%p4 bra POLL;"
    for reader in (0, 40, 95):
        assert not verdicts(UPDATE.format(update="red.shared.add.u32 [s], 1;", reader=reader, between=poll))


@pytest.mark.parametrize("reader", [0, 31, 63])
def test_updates_of_other_types_follow_the_same_rule(reader):
    """Pairs of halves, which the emulator updates in rounds of lanes; the reference does not know them."""
    update = "red.shared.add.noftz.f16x2 [s], %r0;"
    for text, racing in ((update, True), (f"{update}\n  bar.sync 0;", False)):
        body = HEAD + UPDATE.format(update=text, reader=reader, between="") + "\n  ret;\n}\n"
        device = ptx.EmulatedDevice("sm_90a")
        array = device.array(np.zeros(64, np.uint32))
        run = device.launch(ptx.parse(body).kernels["kernel"], 1, 64, [array])
        assert {finding.kind for finding in run.findings} == ({"race"} if racing else set())


# warp 1 copies, an mbarrier tells warp 0 when that is done; warp 1 waits for its copies as well, perhaps before
TOLD = """
  @%p2 mbarrier.init.shared.b64 [m], 32;
  bar.sync 0;
  @!%p1 bra READ;
  mov.u32 %r3, s;
  mad.lo.u32 %r3, %r1, 4, %r3;
  cp.async.ca.shared.global [%r3], [%rd1], 4;
  {arrive}
  cp.async.wait_all;
  bra END;
READ:
  setp.ne.u32 %p3, %r2, 0;
  @%p3 bra END;
WAIT:
  mbarrier.try_wait.parity.shared.b64 %p4, [m], 0;
  @!%p4 bra WAIT;
  ld.shared.u32 %r4, [s];
END:
"""


def test_an_mbarrier_tells_of_copies_that_their_thread_has_waited_for_too():
    assert not verdicts(TOLD.format(arrive="cp.async.mbarrier.arrive.noinc.shared.b64 [m];"))
    both = "cp.async.mbarrier.arrive.shared.b64 [m];\n  mbarrier.arrive.shared.b64 %rd2, [m];"
    assert not verdicts(TOLD.format(arrive=both))


UNTOLD = """
  @%p2 mbarrier.init.shared.b64 [m], 96;
  bar.sync 0;
  mov.u32 %r3, s;
  mad.lo.u32 %r3, %r1, 4, %r3;
  setp.ne.u32 %p3, %r2, 0;
  @!%p3 cp.async.ca.shared.global [%r3], [%rd1], 4;
  cp.async.mbarrier.arrive.noinc.shared.b64 [m];
  {wait}
  @!%p3 ld.shared.u32 %r4, [%r3];
"""


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_a_copy_that_an_mbarrier_tells_of_is_under_way_until_somebody_has_waited(schedule):
    """However early it is there, as in the eager schedule."""
    ways = {
        "": ["in-flight"],
        "bar.sync 0;": ["in-flight"],
        "cp.async.wait_all;": [],
        "WAIT: mbarrier.try_wait.parity.shared.b64 %p4, [m], 0;\n  @!%p4 bra WAIT;": [],
    }
    for wait, wanted in ways.items():
        kernel = ptx.parse(HEAD + UNTOLD.format(wait=wait) + "\n  ret;\n}\n").kernels["kernel"]
        device = ptx.EmulatedDevice("sm_90a")
        run = device.launch(kernel, 1, 96, [device.array(np.zeros(96, np.uint32))], schedule=schedule)
        assert [finding.kind for finding in run.findings] == wanted, wait
