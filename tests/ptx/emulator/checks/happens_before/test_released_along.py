"""One lane arrives for its warp: formal where it ran the accesses of the others along, a race where they had parted."""

import random

import numpy as np
import pytest
from tests import sampled

from kernbench import ptx

# warp 0 fills a buffer twice, warp 1 reads it in between; warp 2 hands on what it waits for
PIPELINE = """
.version 8.7
.target sm_100a
.address_size 64
.visible .entry k(.param .u64 src, .param .u64 out)
{
 .reg .pred %p<9>; .reg .b32 %r<40>; .reg .b64 %rd<12>;
 .shared .align 128 .b8 buf[128];
 .shared .align 8 .b64 full; .shared .align 8 .b64 empty; .shared .align 8 .b64 other; .shared .align 8 .b64 hand;
 .shared .align 8 .b64 copied; mov.u32 %r11, copied;
 mov.u32 %r1, %tid.x; and.b32 %r2, %r1, 31; shr.u32 %r3, %r1, 5;
 mov.u32 %r4, buf; mov.u32 %r5, full; mov.u32 %r6, empty; mov.u32 %r7, other; mov.u32 %r8, hand;
 shl.b32 %r9, %r2, 2; add.u32 %r10, %r4, %r9;
 ld.param.u64 %rd1, [src]; ld.param.u64 %rd2, [out];
 mul.wide.u32 %rd3, %r2, 4; add.u64 %rd3, %rd3, %rd2;
 setp.ne.u32 %p1, %r1, 0; setp.ne.u32 %p2, %r2, 0; setp.lt.u32 %p8, %r2, 16;
 @%p1 bra A;
 mbarrier.init.shared.b64 [%r5], 32;
 mbarrier.init.shared.b64 [%r6], 1;
 mbarrier.init.shared.b64 [%r7], 1;
 mbarrier.init.shared.b64 [%r8], 32;
 mbarrier.init.shared.b64 [%r11], 1;
 fence.mbarrier_init.release.cluster;
A:
 bar.sync 0;
 setp.eq.u32 %p3, %r3, 1; @%p3 bra CONSUMER;
 setp.eq.u32 %p3, %r3, 2; @%p3 bra HAND;
 st.shared.b32 [%r10], %r1;
 mbarrier.arrive.shared.b64 _, [%r5];
W0:
 mbarrier.try_wait.parity.shared.b64 %p4, [WAITS], 0;
 @!%p4 bra W0;
 REFILL
 bra END;
CONSUMER:
 mbarrier.try_wait.parity.shared.b64 %p4, [%r5], 0;
 @!%p4 bra CONSUMER;
 USE
 bra END;
HAND:
 RELAY
END:
 ret;
}
"""
READ = "ld.shared.b32 %r20, [%r10]; st.global.b32 [%rd3], %r20;"
ARRIVE = "@!%p2 mbarrier.arrive.shared.b64 _, [%r6];"
STORE = "st.shared.b32 [%r10], %r2;"
COPY = """fence.proxy.async.shared::cta;
 @%p2 bra END;
 mbarrier.arrive.expect_tx.shared.b64 _, [%r11], 128;
 cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r4], [%rd1], 128, [%r11];
V0:
 mbarrier.try_wait.parity.shared.b64 %p5, [%r11], 0;
 @!%p5 bra V0;"""
RELAY = """mbarrier.try_wait.parity.shared.b64 %p4, [%r6], 0;
 @!%p4 bra HAND;
 mbarrier.arrive.shared.b64 _, [%r8];"""


def launch(use, refill=STORE, waits="%r6", relay="", schedule="canonical"):
    text = PIPELINE.replace("USE", use).replace("REFILL", refill).replace("WAITS", waits).replace("RELAY", relay)
    device = ptx.EmulatedDevice(arch="sm_100a")
    kernel = ptx.parse(text).kernels["k"]
    args = [device.array(np.zeros(32, np.uint32)), device.array(np.zeros(32, np.uint32))]
    return device.launch(kernel, grid=1, block=96, args=args, schedule=schedule)


def verdict(run):
    return [finding.kind for finding in run.findings], [finding.kind for finding in run.formal]


FAULT, FORMAL, NOTHING = (["race"], []), ([], ["race"]), ([], [])


@pytest.mark.parametrize("refill", [STORE, COPY])
@pytest.mark.parametrize("schedule", ["canonical", "reversed", 3])
def test_a_lane_that_read_with_the_others_arrives_for_them(refill, schedule):
    run = launch(READ + ARRIVE, refill, schedule=schedule)
    assert verdict(run) == FORMAL
    assert "ran it along with the other lanes of its warp" in run.formal[0].message
    assert "__syncwarp" in run.formal[0].hint


@pytest.mark.parametrize("refill", [STORE, COPY])
def test_with_a_barrier_of_the_warp_nothing_is_said(refill):
    assert verdict(launch(READ + "bar.warp.sync -1;" + ARRIVE, refill)) == NOTHING


# the arriving lane goes another way than those that read; it arrives first; or some lanes read without it
APART = f"@!%p2 bra S; {READ} bra T;\nS:\n {ARRIVE}\nT:\n"
EARLY = ARRIVE + READ
SOME = f"{READ} @%p8 bra S; ld.shared.b32 %r21, [%r10];\nS:\n {ARRIVE}"
# lane 0 ran along what all read, and lane 1 arrives, which had not
OTHER_LANE = f"setp.eq.u32 %p6, %r2, 1; @%p6 bra S; {READ}\nS:\n @!%p2 mbarrier.arrive.shared.b64 _, [%r7];" + (
    "@%p6 mbarrier.arrive.shared.b64 _, [%r6];"
)


@pytest.mark.parametrize("refill", [STORE, COPY])
@pytest.mark.parametrize("schedule", ["canonical", "reversed", 3])
@pytest.mark.parametrize("use", [APART, EARLY, SOME, OTHER_LANE], ids=["apart", "early", "some", "other lane"])
def test_lanes_that_had_parted_race(use, refill, schedule):
    faults, formal = verdict(launch(use, refill, schedule=schedule))
    assert "race" in faults
    assert set(formal) <= {"race"}


def test_lanes_that_met_again_are_together():
    assert verdict(launch(SOME.replace("S:\n", "S:\n bar.warp.sync -1;" + READ))) == FORMAL


def test_without_a_wait_it_is_a_race():
    """The first warp waits for its own arrivals."""
    assert verdict(launch(READ + ARRIVE, waits="%r5"))[0] == ["race"]


@pytest.mark.parametrize("refill", [STORE, COPY])
def test_it_is_handed_on(refill):
    """A third warp waits for the arrival, and arrives where the first one waits."""
    assert verdict(launch(READ + ARRIVE, refill, "%r8", RELAY)) == FORMAL
    assert verdict(launch(APART, refill, "%r8", RELAY))[0] == ["race"]


# warp 1 writes, one lane of it arrives, and a bulk copy of warp 0 reads
WRITE = "st.shared.b32 [%r10], %r1;"
OUTWARD = """@%p2 bra END;
 cp.async.bulk.global.shared::cta.bulk_group [%rd2], [%r4], 128;
 cp.async.bulk.commit_group; cp.async.bulk.wait_group 0;"""


def test_what_was_written_has_to_be_shown_to_the_copy_engine():
    assert verdict(launch(WRITE + "fence.proxy.async.shared::cta;" + ARRIVE, OUTWARD)) == FORMAL
    assert "race" in verdict(launch(WRITE + ARRIVE, OUTWARD))[0]


def random_use(rng):
    """What the consumers do: reads by some lanes, barriers of the warp; then one of them arrives."""
    events, lines = [], []
    for number in range(rng.randint(1, 5)):
        if rng.random() < 0.25:
            events.append(None)
            lines.append(" bar.warp.sync -1;")
            continue
        mask = rng.choice([-1, -1, rng.getrandbits(32) | 1, rng.getrandbits(32)]) & 0xFFFFFFFF
        events.append(mask)
        lines.append(
            f" mov.b32 %r30, {mask}; shr.u32 %r30, %r30, %r2; and.b32 %r30, %r30, 1; setp.eq.u32 %p6, %r30, 0;\n"
            f" @%p6 bra R{number};\n ld.shared.b32 %r20, [%r10];\nR{number}:"
        )
    lane = rng.choice([0, 0, rng.randrange(32)])
    lines.append(f" setp.eq.u32 %p6, %r2, {lane};\n @%p6 mbarrier.arrive.shared.b64 _, [%r6];")
    return events, lane, "\n".join(lines)


def expected(events, lane):
    """Whether there is a race that is a fault, and one that is formal."""
    since = events[len(events) - events[::-1].index(None) :] if None in events else events
    masks = [mask for mask in since if mask]
    others = any(mask & ~(1 << lane) for mask in masks)
    along = all(mask >> lane & 1 for mask in masks)
    return others and not along, others and along


@pytest.mark.parametrize("seed", range(sampled.examples(20, 40)))
def test_random_programs(seed):
    events, lane, use = random_use(random.Random(seed))
    schedule = ["canonical", "reversed", seed][seed % 3]
    faults, formal = verdict(launch(use, schedule=schedule))
    assert (bool(faults), bool(formal)) == expected(events, lane), (events, lane)
