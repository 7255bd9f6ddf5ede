"""Producer and consumer over mbarriers: right in every order, and each mistake found."""

import numpy as np
import pytest
from tests.ptx.emulator.asynchronous.conftest import kinds
from tests.ptx.emulator.asynchronous.kernels import PIPE

from kernbench.result import Status

EMPTY_WAIT = "  mbarrier.try_wait.parity.shared::cta.b64 %p3, [%r10], %r11;\n"
FULL_WAIT = "  mbarrier.try_wait.parity.shared::cta.b64 %p3, [%r9], %r11;\n"
ARRIVE = "  @!%p4 mbarrier.arrive.shared::cta.b64 _, [%r10];\n"
FIRST_LOAD = "  ld.shared.f32 %f1, [%r12];\n"
INIT_EMPTY = "  mbarrier.init.shared::cta.b64 [%r3+8], 4;\n"


@pytest.mark.parametrize("schedule", ["canonical", "eager", "reversed", 1, 2, 3])
@pytest.mark.parametrize("checks", [True, False])
def test_a_correct_pipeline(bench, schedule, checks):
    run = bench.pipe(schedule=schedule, checks=checks)
    assert run.findings == []
    np.testing.assert_array_equal(run.outputs["out"], bench.pipe_result())


@pytest.mark.parametrize("schedule", ["canonical", "eager"])
def test_a_correct_store(bench, schedule):
    run = bench.store(schedule=schedule)
    assert run.findings == []
    assert (run.outputs["out"].reshape(4, 256) == np.arange(4)[:, None] * 1024 + np.arange(256)).all()


def test_a_wait_that_is_not_tried_again_is_no_wait(bench):
    assert "race" in kinds(bench.pipe(("  @!%p3 bra FREE;\n", "")))
    assert "race" in kinds(bench.pipe(("  @!%p3 bra FULL;\n", "")))


@pytest.mark.parametrize(
    "loop",
    [
        "  @%p3 bra GO;\n  bra FULL;\nGO:\n",
        "  selp.b32 %r40, 1, 0, %p3;\n  setp.eq.u32 %p5, %r40, 0;\n  @%p5 bra FULL;\n",
        "  not.pred %p5, %p3;\n  nanosleep.u32 20;\n  @%p5 bra FULL;\n",
    ],
)
def test_loops_that_wait(bench, loop):
    run = bench.pipe(("  @!%p3 bra FULL;\n", loop))
    assert run.findings == []
    np.testing.assert_array_equal(run.outputs["out"], bench.pipe_result())


def test_a_loop_of_tests(bench):
    run = bench.pipe(
        (FULL_WAIT, FULL_WAIT.replace("try_wait", "test_wait")),
        (EMPTY_WAIT, EMPTY_WAIT.replace("try_wait", "test_wait")),
    )
    assert run.findings == []
    np.testing.assert_array_equal(run.outputs["out"], bench.pipe_result())


def test_bytes_of_one_copy_of_two(bench):
    run = bench.pipe(("_, [%r9], 4096", "_, [%r9], 2048"))
    assert [f.kind for f in run.findings].count("transaction-bytes") == 1
    finding = run.findings[0]
    assert "The phase expected 2048 bytes, and 4096 or more are delivered" in finding.message
    assert "mbarrier.arrive.expect_tx" in finding.where.text
    assert finding.others[0].role == "the copy that arrives late"
    assert "cp.async.bulk" in finding.others[0].where.text


@pytest.mark.parametrize("bytes_", [2048, 4080, 4112])
def test_an_expectation_apart_from_the_arrival(bench, bytes_):
    """The culprit is the expect_tx, not the arrival after it, nor that of the next phase."""
    line = next(one for one in PIPE.splitlines() if "arrive.expect_tx" in one)
    indent, _, rest = line.partition("mbarrier.arrive.expect_tx")
    address = rest.split("_, ")[1].split(",")[0]
    apart = f"{indent}mbarrier.expect_tx.relaxed.cta.shared::cta.b64 {address}, {bytes_};\n"
    apart += f"{indent}mbarrier.arrive.shared::cta.b64 _, {address};"
    run = bench.pipe((line, apart))
    found = [f for f in run.findings if f.kind == "transaction-bytes"]
    assert [("mbarrier.expect_tx" in f.where.text) for f in found] == [True]
    assert run.findings[0] is found[0]


def test_more_bytes_than_come(bench):
    run = bench.pipe(("_, [%r9], 4096", "_, [%r9], 6144"))
    assert run.status is Status.DEADLOCKED
    assert kinds(run) == ["deadlock", "transaction-bytes"]
    message = next(finding.message for finding in run.findings if finding.kind == "deadlock")
    assert "warps 1, 2, 3, 4 of block (0, 0, 0) and 1 more wait for mbarrier 'full'+0" in message
    assert "6144 bytes are expected and 4096 delivered" in message


def test_too_few_expected_arrivals(bench):
    run = bench.pipe(("init.shared::cta.b64 [%r3], 4", "init.shared::cta.b64 [%r3], 3"))
    assert "mbarrier-phase" in kinds(run)


def test_too_many_expected_arrivals(bench):
    run = bench.pipe(("init.shared::cta.b64 [%r3], 4", "init.shared::cta.b64 [%r3], 5"))
    assert kinds(run) == ["deadlock"]
    assert "4 of 5 arrivals have come" in run.findings[0].message
    assert "in this phase warps 1, 2, 3, 4 arrived" in run.findings[0].message


def test_a_warp_that_never_arrives(bench):
    run = bench.pipe((ARRIVE, "  setp.eq.u32 %p5, %r6, 3;\n  or.pred %p5, %p5, %p4;\n" + ARRIVE.replace("%p4", "%p5")))
    assert kinds(run) == ["deadlock"]
    assert "3 of 4 arrivals have come" in run.findings[0].message
    assert "in this phase warps 1, 2, 4 arrived; warp 3 never arrived on it" in run.findings[0].message


def test_a_producer_that_begins_with_the_wrong_parity(bench):
    run = bench.pipe(("  xor.b32 %r11, %r11, 1;\n", ""))
    assert kinds(run) == ["deadlock"]
    assert (
        "nobody has ever arrived on it (a fresh barrier passes a wait for parity 1, not for 0)"
        in run.findings[0].message
    )


def test_a_consumer_that_begins_with_the_wrong_parity(bench):
    run = bench.pipe(("FULL:\n", "xor.b32 %r11, %r11, 1;\nFULL:\n"))
    assert "nothing on the way here has waited for that copy" in run.findings[0].message
    assert "race" in kinds(run)


def test_a_missing_init_fence(bench):
    run = bench.pipe(("  fence.mbarrier_init.release.cluster;\n", ""))
    assert kinds(run) == ["missing-fence"]
    assert run.safe
    assert "every GPU so far orders the initialisation" in run.formal[0].message


def test_a_compiler_that_leaves_the_init_fence_out(bench):
    signed = (".version", "// Generated by LLVM NVPTX Back-End\n.version")
    unfenced = ("  fence.mbarrier_init.release.cluster;\n", "")
    assert kinds(bench.pipe(signed, unfenced)) == []
    assert "race" in kinds(bench.pipe(signed, unfenced, ("READY:\n  bar.sync 0;\n", "READY:\n")))
    late = ("  @%p1 bra CONSUME;\n", "  @%p1 bra CONSUME;\n  fence.mbarrier_init.release.cluster;\n")
    for edits in ((unfenced,), (unfenced, ("  bar.sync 0;\n", "  bar.sync 0;\n  bar.sync 0;\n"))):
        assert kinds(bench.pipe(*edits)) == ["missing-fence"]
    assert kinds(bench.pipe(unfenced, late)) == []


def test_a_library_that_leaves_the_init_fence_out(bench):
    """libcu++'s memcpy_async, as nvcc compiles it, expects bytes apart from the arrival, and has no fence."""
    signed = (".version", "// Generated by NVIDIA NVVM Compiler\n.version")
    unfenced = ("  fence.mbarrier_init.release.cluster;\n", "")
    apart = (
        "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r9], 4096;",
        "mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%r9], 4096;\n  mbarrier.arrive.shared::cta.b64 _, [%r9];",
    )
    assert kinds(bench.pipe(signed, unfenced, apart)) == []
    assert "race" in kinds(bench.pipe(signed, unfenced, apart, ("READY:\n  bar.sync 0;\n", "READY:\n")))
    for edits in ((signed, unfenced), (unfenced, apart)):
        assert kinds(bench.pipe(*edits)) == ["missing-fence"]


def test_a_proxy_fence_shows_the_init_too(bench):
    assert kinds(bench.pipe(("  fence.mbarrier_init.release.cluster;\n", "  fence.proxy.async;\n"))) == []


def test_a_missing_barrier_after_init(bench):
    assert kinds(bench.pipe(("READY:\n  bar.sync 0;\n", "READY:\n"))) == ["race"]


def test_use_before_init(bench):
    run = bench.pipe((INIT_EMPTY, ""))
    assert "mbarrier-misuse" in kinds(run)
    assert any("which was never initialised" in f.message for f in run.findings)


def test_use_after_inval(bench):
    run = bench.pipe((INIT_EMPTY, INIT_EMPTY + "  mbarrier.inval.shared::cta.b64 [%r3+8];\n"))
    assert any("after mbarrier.inval" in f.message for f in run.findings)


def test_init_twice(bench):
    assert kinds(bench.pipe((INIT_EMPTY, INIT_EMPTY * 2))) == ["mbarrier-misuse"]
    assert (
        kinds(bench.pipe((INIT_EMPTY, INIT_EMPTY + "  mbarrier.inval.shared::cta.b64 [%r3+8];\n" + INIT_EMPTY))) == []
    )


def test_a_stage_reused_before_its_consumers_arrived(bench):
    assert "race" in kinds(bench.pipe((EMPTY_WAIT + "  @!%p3 bra FREE;\n", "")))


def test_a_stage_released_before_it_is_read(bench):
    run = bench.pipe((ARRIVE, ""), (FIRST_LOAD, ARRIVE + FIRST_LOAD))
    assert kinds(run) == ["race"]
    assert "cp.async.bulk.tensor" in run.findings[0].message


def test_a_read_without_a_wait(bench):
    run = bench.pipe((FULL_WAIT + "  @!%p3 bra FULL;\n", ""))
    assert "race" in kinds(run)
    race = next(f for f in run.findings if f.kind == "race")
    assert "an asynchronous copy that completes on an mbarrier of block" in race.message
    assert "wait on the mbarrier that the copy completes on" in race.hint


def test_an_arrival_that_speaks_for_lanes_it_did_not_meet(bench):
    assert kinds(bench.pipe(("  bar.warp.sync -1;\n", ""))) == ["race"]


def test_a_store_that_never_happens(bench):
    store = "  @!%p0 cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [%rd1, {%r7, %r6}], [%r1];\n"
    assert kinds(bench.store((store, ""))) == ["output-unwritten"]


def test_overlapping_stages(bench):
    assert "race" in kinds(bench.pipe(("[%r12+2048], [%rd1", "[%r12+1024], [%rd1")))


def test_ordinary_stores_without_a_proxy_fence(bench):
    run = bench.store(("  fence.proxy.async.shared::cta;\n", ""))
    assert kinds(run) == ["missing-fence"]
    assert "with no proxy fence on the way from there to here" in run.findings[0].message


def test_the_fence_may_stand_on_either_side_of_the_barrier(bench):
    edit = ("  fence.proxy.async.shared::cta;\n  bar.sync 0;\n", "  bar.sync 0;\n  fence.proxy.async.shared::cta;\n")
    assert kinds(bench.store(edit)) == []


def test_a_fence_of_other_threads_does_not_help(bench):
    edit = (
        "  fence.proxy.async.shared::cta;\n  bar.sync 0;\n",
        "  bar.sync 0;\n  @%p2 fence.proxy.async.shared::cta;\n",
    )
    run = bench.store(edit, ("ROUND:\n", "  setp.ge.u32 %p2, %r0, 64;\nROUND:\n"))
    assert kinds(run) == ["missing-fence"]


def test_memory_reused_while_a_store_reads_it(bench):
    run = bench.store(("  @!%p0 cp.async.bulk.wait_group.read 0;\n", ""))
    assert kinds(run) == ["in-flight", "race"]
    assert "cp.async.bulk.wait_group" in run.findings[0].hint


def test_a_store_waited_for_by_another_thread(bench):
    edit = ("  @!%p0 cp.async.bulk.wait_group.read 0;\n", "  @%p0 cp.async.bulk.wait_group.read 0;\n")
    assert kinds(bench.store(edit)) == ["in-flight", "race"]


def test_a_store_of_what_is_not_ordered_before_it(bench):
    assert "race" in kinds(
        bench.store(("  fence.proxy.async.shared::cta;\n  bar.sync 0;\n", "  fence.proxy.async.shared::cta;\n"))
    )


def test_late_results_are_not_seen_early(bench):
    """Without its wait a copy has not arrived, unless it is asked to be eager."""
    skip = (FULL_WAIT + "  @!%p3 bra FULL;\n", "")
    late = bench.pipe(skip, checks=False, tiles=2).outputs["out"]
    assert not np.array_equal(late, bench.pipe_result())


def test_data_over_a_live_barrier(bench):
    run = bench.pipe((ARRIVE, "  @!%p4 st.shared.u32 [%r10+4], %r6;\n" + ARRIVE))
    found = [finding.message for finding in run.findings if finding.kind == "mbarrier-misuse"]
    assert found, run.findings
    assert "its memory was written after its initialisation, by thread" in found[0]
    assert "st.shared.u32 [%r10+4], %r6;" in found[0]


def test_the_memory_of_a_barrier_serves_for_data_before_and_after(bench):
    before = "  st.shared.u64 [%r3+8], 0;\n"
    run = bench.pipe((INIT_EMPTY, before + INIT_EMPTY))
    assert run.findings == []
