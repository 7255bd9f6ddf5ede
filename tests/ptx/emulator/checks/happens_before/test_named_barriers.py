"""Barriers for a number of threads: who waits learns, who arrives does not, and rounds do not mix."""

import numpy as np
import pytest

from kernbench import ptx

HEAD = """.version 8.0
.target sm_90a
.address_size 64
.visible .entry kernel(.param .u64 out)
{
  .reg .pred %p<8>; .reg .b32 %r<16>; .reg .b64 %rd<4>;
  .shared .align 16 .b32 x[256];
  .shared .align 8 .b64 done;
  mov.u32 %r0, %tid.x;
  shr.u32 %r1, %r0, 5;
  and.b32 %r2, %r0, 31;
  mov.u32 %r3, x;
  mad.lo.u32 %r4, %r2, 4, %r3;
  ld.param.u64 %rd0, [out];
  mul.wide.u32 %rd1, %r0, 4;
  add.u64 %rd0, %rd0, %rd1;
  mov.u32 %r5, 0;
  mov.u32 %r6, 0;
  setp.ne.u32 %p0, %r1, 0;
  setp.ge.u32 %p1, %r1, 2;
  setp.eq.u32 %p2, %r0, 0;
  @%p2 mbarrier.init.shared.b64 [done], 1;
  bar.sync 0;
"""
TAIL = """
END:
  st.global.b32 [%rd0], %r5;
  ret;
}
"""
EVERY = ["canonical", "reversed", 1]


def launch(body, threads=64, schedule="canonical"):
    device = ptx.EmulatedDevice("sm_90a")
    out = device.array(np.zeros(threads, np.uint32))
    run = device.launch(ptx.parse(HEAD + body + TAIL).kernels["kernel"], 1, threads, [out], schedule=schedule)
    return run, out.numpy()


def told(run):
    return [finding.message for finding in run.findings if finding.kind == "race"]


# warp 0 fills, warp 1 empties, four times
PING_PONG = """
  @%p0 bra EMPTY;
FILL:
  st.shared.b32 [%r4], %r6;
  bar.arrive 1, 64;
  bar.sync 2, 64;
  add.u32 %r6, %r6, 1;
  setp.lt.u32 %p3, %r6, 4;
  @%p3 bra FILL;
  bra END;
EMPTY:
  bar.sync 1, 64;
  ld.shared.b32 %r7, [%r4];
  add.u32 %r5, %r5, %r7;
  bar.arrive 2, 64;
  add.u32 %r6, %r6, 1;
  setp.lt.u32 %p3, %r6, 4;
  @%p3 bra EMPTY;
"""


@pytest.mark.parametrize("schedule", EVERY)
def test_producer_and_consumer(schedule):
    run, out = launch(PING_PONG, schedule=schedule)
    assert not run.findings, run.findings
    assert (out[32:] == 6).all()


@pytest.mark.parametrize("schedule", EVERY)
def test_a_store_after_the_arrival_is_not_covered(schedule):
    store, arrive = "  st.shared.b32 [%r4], %r6;\n", "  bar.arrive 1, 64;\n"
    assert store + arrive in PING_PONG
    run, _ = launch(PING_PONG.replace(store + arrive, arrive + store), schedule=schedule)
    assert told(run)


HAND_OVER = """
  @%p0 bra OTHER;
  bar.{how} 1, 64;
  ld.shared.b32 %r5, [%r4];
  bra END;
OTHER:
  st.shared.b32 [%r4], %r2;
  bar.sync 1, 64;
"""


@pytest.mark.parametrize("schedule", EVERY)
def test_who_only_arrives_learns_nothing(schedule):
    assert not launch(HAND_OVER.format(how="sync"), schedule=schedule)[0].findings
    assert told(launch(HAND_OVER.format(how="arrive"), schedule=schedule)[0])


@pytest.mark.parametrize("schedule", EVERY)
def test_a_warp_that_arrives_twice_may_be_counted_twice_in_one_round(schedule):
    """Without the barrier that tells the producer that its slot is empty, whichever warp runs first."""
    body = PING_PONG.replace("  bar.sync 2, 64;\n", "").replace("  bar.arrive 2, 64;\n", "")
    run, _ = launch(body, schedule=schedule)
    assert any("counted" in message for message in told(run))


# both warps arrive, and the second one waits as well: three arrivals, that of its wait the last
FOR_ITSELF = """
  st.shared.b32 [%r4], %r2;
  bar.sync 0;
FILL:
  @!%p0 ld.shared.b32 %r7, [%r4];
  bar.arrive 1, 96;
  {between}
  @%p0 bar.sync 1, 96;
  @%p0 st.shared.b32 [%r4], %r6;
  {before}
  add.u32 %r6, %r6, 1;
  setp.lt.u32 %p3, %r6, 3;
  @%p3 bra FILL;
"""


@pytest.mark.parametrize("schedule", EVERY)
def test_a_warp_that_arrives_and_then_waits_in_the_same_round(schedule):
    """As the last warp of FlashAttention's epilogue, which stores what all warps have written."""
    for between in ("", "bar.arrive 3, 96;\n  @%p0 bar.sync 3, 96;"):
        run, _ = launch(FOR_ITSELF.format(between=between, before="bar.sync 2;"), schedule=schedule)
        assert run.findings == [], run.findings
    # without the meeting at the end the first warp may come to the next round before this one is over
    run, _ = launch(FOR_ITSELF.format(between="", before=""), schedule=schedule)
    assert any("barrier 1" in message and "counted" in message for message in told(run))


# two groups take turns; the first one opens its own barrier for the first time
TURNS = """
  @%p0 bra SECOND;
  {own}
FIRST:
  bar.sync 1, 64;
  ld.shared.b32 %r7, [%r4];
  st.shared.b32 [%r4], %r6;
  bar.arrive 2, 64;
  add.u32 %r6, %r6, 1;
  setp.lt.u32 %p3, %r6, 3;
  @%p3 bra FIRST;
  bra END;
SECOND:
  bar.sync 2, 64;
  ld.shared.b32 %r7, [%r4];
  st.shared.b32 [%r4], %r6;
  add.u32 %r6, %r6, 1;
  setp.lt.u32 %p3, %r6, 3;
  @%p3 bar.arrive 1, 64;
  @%p3 bra SECOND;
"""


@pytest.mark.parametrize("schedule", EVERY)
def test_a_warp_that_counts_for_itself_in_the_first_round(schedule):
    body = TURNS.format(own="st.shared.b32 [%r4], %r6;\n  bar.arrive 1, 64;")
    run, _ = launch(body, schedule=schedule)
    assert run.findings == [], run.findings
    run, _ = launch(body.replace("  bar.sync 2, 64;\n", "").replace("  bar.arrive 2, 64;\n", ""), schedule=schedule)
    assert any("counted" in message for message in told(run))


def test_a_round_to_which_a_warp_came_twice_says_so():
    """The producer completes the round by itself; the consumer may have been counted in it."""
    body = PING_PONG.replace("  bar.sync 2, 64;\n", "").replace("  bar.arrive 2, 64;\n", "")
    (finding,) = (one for one in launch(body)[0].findings if one.kind == "race")
    assert "the last round there, of warps 0 (more than once), is over" in finding.message
    (other,) = finding.others
    assert other.role == "the arrival that completed that round"
    assert HEAD.count("\n") + body[: body.index("bar.arrive 1")].count("\n") + 1 == other.where.line
    again = FOR_ITSELF.format(between="", before="")
    (message,) = (one for one in told(launch(again)[0]) if "comes to barrier 1 again" in one)
    assert "it may be counted twice in that round" in message


TEAMS = """
  @%p1 bra OTHERS;
  bar.sync 1, 64;
  bra BOTH;
OTHERS:
  bar.sync 2, 64;
BOTH:
"""


@pytest.mark.parametrize("schedule", EVERY)
def test_two_teams(schedule):
    assert not launch(TEAMS, 128, schedule)[0].findings
    (message,) = told(launch(TEAMS.replace("bar.sync 2", "bar.sync 1"), 128, schedule)[0])
    assert "comes to barrier 1, and nothing says that the last round there, of warps" in message
    assert "is over: it may be counted in that round" in message


ONE_AFTER_THE_OTHER = """
  @%p1 bra OTHERS;
  bar.sync 1, 64;
{told}  bra END;
OTHERS:
{waits}  bar.sync 1, 64;
"""
WAIT = "AGAIN:\n  mbarrier.try_wait.parity.shared.b64 %p3, [done], 0;\n  @!%p3 bra AGAIN;\n"


def test_teams_one_after_the_other():
    meet = "  bar.arrive 3, 128;\n", "  bar.sync 3, 128;\n"
    tell = "  @%p2 mbarrier.arrive.shared.b64 _, [done];\n", WAIT
    for first, second in (meet, tell):
        assert not launch(ONE_AFTER_THE_OTHER.format(told=first, waits=second), 128)[0].findings
    assert told(launch(ONE_AFTER_THE_OTHER.format(told="", waits=""), 128)[0])


THREE = """
  bar.sync 1, {count};
  bar.sync 1, {count};
  bar.sync 1, {count};
"""


def test_more_warps_than_are_counted():
    assert not launch(THREE.format(count=128), 128)[0].findings
    run, _ = launch(THREE.format(count=96), 128)
    assert "the warp of thread (96, 0, 0) of block (0, 0, 0) comes to barrier 1" in told(run)[0]
    # twelve arrivals are three rounds of four, or of ninety-six threads four; of 160 two, and two warps wait for ever
    assert run.status.value == "finished"
    run, _ = launch(THREE.format(count=160), 128)
    assert run.status.value == "deadlocked"


def test_votes_of_each_round():
    body = """
  setp.eq.u32 %p3, %r0, %r0;
  bar.red.popc.u32 %r5, 1, 64, %p3;
"""
    run, out = launch(body, 128)
    assert told(run)
    assert (out == 64).all()


COUNTS = """
  @%p0 bra OTHER;
  st.shared.b32 [%r4], %r0;
  {first}
  bra END;
OTHER:
  {second}
END_OTHER:
"""


@pytest.mark.parametrize("schedule", EVERY)
@pytest.mark.parametrize(
    ("first", "second", "counts"),
    [
        ("bar.arrive 1, 64;", "bar.sync 1, 96;", ("64", "96")),
        ("bar.arrive 1, 96;", "bar.sync 1;", ("96", "64")),
    ],
)
def test_one_round_has_one_number_of_threads(first, second, counts, schedule):
    run, _ = launch(COUNTS.format(first=first, second=second), schedule=schedule)
    found = [finding for finding in run.findings if finding.kind == "misuse"]
    assert len(found) == 1
    assert all(count in found[0].message for count in counts)
    assert "the same number of threads" in found[0].hint


@pytest.mark.parametrize("schedule", EVERY)
@pytest.mark.parametrize("second", ["bar.sync 1, 64;", "bar.sync 1;"])
def test_the_same_number_said_twice_is_clean(second, schedule):
    run, _ = launch(COUNTS.format(first="bar.arrive 1, 64;", second=second), schedule=schedule)
    assert run.findings == []


@pytest.mark.parametrize("schedule", EVERY)
def test_a_last_warp_with_few_lanes_counts_whole_also_where_it_comes_in_parts(schedule):
    body = """
  @%p0 bra SECOND;
  bar.sync 1, 64;
  bra END;
SECOND:
  setp.eq.u32 %p3, %r2, 0;
  @%p3 bra ALONE;
  barrier.arrive 1, 64;
  bra END;
ALONE:
  barrier.arrive 1, 64;
"""
    run, _ = launch(body, 52, schedule)
    assert str(run.status) == "finished"
    assert run.findings == []
