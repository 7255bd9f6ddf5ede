"""A copy that nobody waited for is reported as that, and not as memory that nobody wrote."""

import numpy as np
import pytest

from kernbench import ptx

HEAD = """.version 8.6
.target sm_90
.address_size 64
.visible .entry k(.param .u64 src, .param .u64 out) {
  .reg .pred %p<4>; .reg .b32 %r<12>; .reg .b64 %rd<8>;
  .shared .align 128 .b8 tile[256]; .shared .align 8 .b8 bar[8];
  ld.param.u64 %rd1, [src]; ld.param.u64 %rd2, [out];
  mov.u32 %r1, %tid.x; mov.u32 %r2, tile; mov.u32 %r3, bar;
  shl.b32 %r4, %r1, 2; add.u32 %r5, %r2, %r4; cvt.u64.u32 %rd4, %r4; add.u64 %rd5, %rd2, %rd4;
"""
TAIL = """
  bar.sync 0;
  xor.b32 %r5, %r5, 4;
  ld.shared.u32 %r6, [%r5];
  st.global.u32 [%rd5], %r6;
  ret;
}"""
BULK = """
  setp.eq.u32 %p1, %r1, 0;
  @%p1 mbarrier.init.shared.b64 [%r3], 1;
  @%p1 fence.mbarrier_init.release.cluster;
  bar.sync 0;
  @!%p1 bra READ;
  mbarrier.arrive.expect_tx.shared.b64 %rd3, [%r3], 256;
  cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r2], [%rd1], 256, [%r3];
READ:
"""
BULK_WAIT = "W: mbarrier.try_wait.parity.shared.b64 %p2, [%r3], 0;\n  @!%p2 bra W;"
OWN = """
  add.u64 %rd1, %rd1, %rd4;
  cp.async.ca.shared.global [%r5], [%rd1], 4;
  cp.async.commit_group;
"""
OWN_WAIT = "cp.async.wait_group 0;"


def findings(body):
    device = ptx.EmulatedDevice("sm_90")
    arrays = [device.array(np.arange(64, dtype=np.uint32)), device.array(np.zeros(64, np.uint32))]
    return device.launch(ptx.parse(HEAD + body + TAIL).kernels["k"], 1, 64, arrays).findings


@pytest.mark.parametrize("body", [BULK + BULK_WAIT, OWN + OWN_WAIT])
def test_copies_that_are_waited_for(body):
    assert findings(body) == []


def test_a_bulk_copy_that_nobody_waits_for():
    (found,) = findings(BULK)
    assert found.kind == "race"
    assert ", begun in PTX line 17 (`cp.async.bulk" in found.message
    assert "fills: nothing on the way here has waited for that copy" in found.message
    assert found.hint.startswith("wait on the mbarrier that the copy completes on")


def test_a_copy_of_threads_that_nobody_waits_for():
    (found,) = findings(OWN)
    assert found.kind == "in-flight"
    assert "`cp.async.ca.shared.global [%r5], [%rd1], 4;`) still fills" in found.message


def test_memory_that_no_copy_fills_is_unwritten_all_the_same():
    (found,) = findings("")
    assert found.kind == "uninitialised-read"


# a warp stores what its block has computed, in two rounds
ROUNDS = """
  mov.u32 %r6, 0; setp.lt.u32 %p2, %r1, 32; setp.eq.u32 %p1, %r1, 0;
ROUND:
  st.shared.u32 [%r5], %r6;
  fence.proxy.async.shared::cta;
  bar.sync 0;
  @!%p2 bra STORED;
  {store} cp.async.bulk.global.shared::cta.bulk_group [%rd2], [%r2], 256;
  {commit} cp.async.bulk.commit_group;
  {wait} cp.async.bulk.wait_group 0;
STORED:
  bar.sync 0;
  add.u32 %r6, %r6, 1;
  setp.lt.u32 %p3, %r6, {rounds};
  @%p3 bra ROUND;
"""


ONE, NOBODY = "@%p1", "@!%p2"


def stored(rounds=2, store="", commit="", wait=""):
    """The findings and formal findings, with guards for each instruction of the warp."""
    text = HEAD + ROUNDS.format(rounds=rounds, store=store, commit=commit, wait=wait) + "ret;\n}"
    device = ptx.EmulatedDevice("sm_90")
    arrays = [device.array(np.zeros(64, np.uint32)), device.array(np.zeros(64, np.uint32))]
    run = device.launch(ptx.parse(text).kernels["k"], 1, 64, arrays)
    return run.findings, run.formal


@pytest.mark.parametrize("guards", [(ONE, ONE, ONE), (ONE, "", ""), ("", "", "")])
def test_stores_that_one_thread_or_all_wait_for(guards):
    assert stored(2, *guards)[0] == []


@pytest.mark.parametrize("guards", [("", ONE, ONE), ("", "", ONE)])
def test_a_store_without_election_is_named_as_the_cause(guards):
    """One thread waits, for its own copy only; the others' are still under way."""
    found, _ = stored(2, *guards)
    assert found
    alone = "32 threads of a warp begin that copy, and only thread (0, 0, 0) of block (0, 0, 0) has waited for it"
    for one in found:
        assert one.kind == "race"
        assert alone in one.message
        assert one.hint.startswith("let one thread begin the copy")
    found, (formal,) = stored(1, *guards)
    assert not found
    assert alone in formal.message


@pytest.mark.parametrize("store", [ONE, ""])
def test_a_wait_that_is_missing_is_the_cause_where_nobody_waits(store):
    found, _ = stored(2, store, "", NOBODY)
    assert found
    assert all("begin that copy" not in one.message and "wait" in one.hint for one in found)
