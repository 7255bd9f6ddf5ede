"""st.async and red.async to another block of a cluster, on both executors: values, and race or no race."""

import numpy as np
import pytest

from kernbench import ptx
from kernbench.ptx.reference import execute

# two blocks of one warp form a cluster; block 0 sets words, and `send` is run by both
TEXT = """.version 8.6
.target sm_90a
.address_size 64
.visible .entry kernel(.param .u64 array)
{{
  .reg .pred %p<8>; .reg .b32 %r<20>; .reg .b64 %rd<8>;
  .shared .align 16 .b32 s[32];
  .shared .align 8 .b64 m;
  ld.param.u64 %rd0, [array];
  mov.u32 %r0, %tid.x;
  mov.u32 %r1, %ctaid.x;
  mad.lo.u32 %r2, %r1, 32, %r0;
  mad.wide.u32 %rd1, %r2, 4, %rd0;
  setp.eq.u32 %p1, %r1, 0;
  setp.eq.u32 %p2, %r0, 0;
  mov.u32 %r3, s;
  and.b32 %r4, %r0, 7;
  mad.lo.u32 %r3, %r4, 4, %r3;
  setp.lt.u32 %p3, %r0, 8;
  @%p3 st.shared.u32 [%r3], 1000;
  @%p2 mbarrier.init.shared.b64 [m], 1;
  mapa.shared::cluster.u32 %r5, %r3, 0;
  mov.u32 %r7, m;
  mapa.shared::cluster.u32 %r6, %r7, 0;
  {meet}
  @!%p1 bra SEND;
  @%p2 mbarrier.arrive.expect_tx.shared.b64 %rd2, [m], {nbytes};
SEND:
  {send}
  @!%p1 bra END;
  {wait}
  ld.shared.u32 %r8, [%r3];
  st.global.u32 [%rd1], %r8;
END:
  barrier.cluster.arrive.release;
  barrier.cluster.wait.acquire;
  ret;
}}
"""
MEET = "barrier.cluster.arrive.release;\n  barrier.cluster.wait.acquire;"
WAIT = "W: mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 %p4, [m], 0;\n  @!%p4 bra W;"
UPDATE = "red.async.relaxed.cluster.mbarrier::complete_tx::bytes.shared::cluster.{} [%r5], %r2, [%r6];"
ADD = UPDATE.format("add.u32")
STORE = "st.async.shared::cluster.mbarrier::complete_tx::bytes.u32 [%r5], %r2, [%r6];"


def verdict(send, nbytes, meet=MEET, wait=WAIT):
    """Whether both see a race, in several orders; without one they give the same values."""
    kernel = ptx.parse(TEXT.format(send=send, nbytes=nbytes, meet=meet, wait=wait)).kernels["kernel"]
    found, values = [], []
    for order in (None, 1):
        outcome = execute(kernel, 2, 32, [np.zeros(64, np.uint32)], order, 2)
        assert (outcome.status, outcome.misuse) == ("finished", [])
        found.append(bool(outcome.races))
        values.append(outcome.arrays[0])
    for schedule in ("canonical", "reversed", "eager"):
        device = ptx.EmulatedDevice("sm_90a")
        array = device.array(np.zeros(64, np.uint32))
        run = device.launch(kernel, 2, 32, [array], schedule=schedule, cluster=2)
        assert {finding.kind for finding in run.findings} <= {"race"}
        found.append(bool(run.findings))
        values.append(array.numpy())
    assert len(set(found)) == 1, found
    if not found[0]:
        for one in values[1:]:
            np.testing.assert_array_equal(one, values[0])
    return found[0], values[0]


@pytest.mark.parametrize("operation", ["add.u32", "add.s32", "min.u32", "max.s32", "and.b32", "or.b32", "xor.b32"])
def test_updates_of_both_blocks(operation):
    racing, values = verdict(UPDATE.format(operation), 256)
    assert not racing
    held = np.full(8, 1000, np.uint32)
    name = operation.partition(".")[0]
    function = {
        "add": np.add, "min": np.minimum, "max": np.maximum,
        "and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor,
    }[name]  # fmt: skip
    for given in range(64):
        held[given % 8] = function(held[given % 8], np.uint32(given))
    np.testing.assert_array_equal(values[:32], np.tile(held, 4))


def test_what_is_not_waited_for_or_not_set_before_is_a_race():
    assert verdict(ADD, 256, wait="")[0]
    assert verdict(ADD, 256, meet="")[0]


def test_ordinary_stores_before_need_no_proxy_fence():
    """Neither of them is of the async proxy: the cluster's barrier orders what was stored, and the mbarrier's init."""
    racing, values = verdict(f"@%p1 bra OVER;\n  @%p3 {STORE}\nOVER:", 32)
    assert not racing
    np.testing.assert_array_equal(values[:32], 32 + np.arange(32) % 8)


@pytest.mark.parametrize(
    ("other", "nbytes", "racing"),
    [
        (STORE, 256, True),
        (f"red.relaxed.cluster.shared::cluster.add.u32 [%r5], 1;\n  {MEET}", 128, False),
        (f"red.relaxed.cta.shared::cluster.add.u32 [%r5], 1;\n  {MEET}", 128, True),
        (f"st.shared::cluster.u32 [%r5], 1;\n  {MEET}", 128, True),
    ],
)
def test_updates_are_strong_in_the_scope_of_the_cluster(other, nbytes, racing):
    assert verdict(f"@%p1 {ADD}\n  @!%p1 {other}", nbytes)[0] is racing
