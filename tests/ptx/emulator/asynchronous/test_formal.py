"""Copies, barriers and tensor memory that break the letter of the ISA: formal where no result can change, else a fault.

Each formal case has a twin beside it, the same kernel with the harm in it.
"""

import numpy as np
import pytest
from tests.ptx.emulator.asynchronous import cluster_kernels
from tests.ptx.emulator.asynchronous.tcgen05 import COMMIT, TAIL, WAIT, load, mma
from tests.ptx.emulator.asynchronous.test_copies import FRAME, THROUGH
from tests.ptx.emulator.asynchronous.test_copies import WAIT as WAIT_COPY
from tests.ptx.emulator.asynchronous.test_copies import launch as launch_copies
from tests.ptx.emulator.asynchronous.test_tensor_checks import planted

ARM = "  @!%p0 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r2], %r3;\n"
COPY = "  @!%p0 cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r1], [%rd1], %r3, [%r2];\n"
WAIT_FOR_STORE = "  @!%p0 cp.async.bulk.wait_group 0;\n"


def copies(body, **options):
    return launch_copies(body, np.arange(512, dtype=np.uint32), np.zeros(512, np.uint32), 64, **options)[0]


def formal(run, kind, reason):
    """The one formal finding of a run without faults."""
    assert run.findings == []
    (found,) = run.formal
    assert found.kind == kind
    assert reason in found.message


def fault(run, *kinds):
    assert {found.kind for found in run.findings} == set(kinds)


# a last phase that is armed


def test_a_phase_that_is_armed_and_never_waited_for():
    formal(copies(ARM), "transaction-bytes", "nobody waits for the phase, and a barrier ends with its block")


def test_somebody_waits_for_it():
    fault(copies(ARM + WAIT_COPY), "transaction-bytes", "deadlock")


def test_more_bytes_than_the_last_phase_expects():
    run = copies(ARM.replace("%r3;", "32;") + COPY + WAIT_COPY)
    assert "transaction-bytes" in {found.kind for found in run.findings}


@pytest.mark.parametrize("schedule", ["canonical", "eager"])
def test_a_last_copy_that_nobody_waits_for(schedule):
    formal(copies(ARM + COPY, schedule=schedule), "in-flight", "until its own bulk copies are done")


def test_somebody_reads_what_it_brings():
    read = "  ld.shared.b32 %r4, [%r1];\n  @!%p0 st.global.b32 [%rd2], %r4;\n"
    fault(copies(ARM + COPY + read), "race")


def test_a_last_copy_to_a_block_of_a_cluster():
    """What a peer's copy brings to a block that has ended is not held back by anything."""
    body = cluster_kernels.INIT + (
        "  @!%p0 mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%r3], 512;\n"
        "  @!%p0 mbarrier.arrive.shared::cta.b64 _, [%r3];\n"
        "  mov.u32 %r40, 0;\n  mov.u32 %r20, 0;\n  mov.u32 %r21, 0;\n"
        "  @!%p0 cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
        "[%r2], [%rd1, {%r20, %r21}], [%r3];\n"
    )
    fault(cluster_kernels.launch(body), "in-flight")


# a last bulk store


def test_a_last_bulk_store():
    formal(copies(THROUGH.replace(WAIT_FOR_STORE, "")), "in-flight", "until its bulk stores have read it")


def test_a_last_bulk_store_whose_source_is_written_again():
    fault(copies(THROUGH.replace(WAIT_FOR_STORE, "  @!%p0 st.shared.b32 [%r1], %r0;\n")), "race")


# an initialisation without its fence


def without_fence(text):
    line = "  @!%p0 fence.mbarrier_init.release.cluster;\n"
    assert line in text
    return text.replace(line, "")


def test_a_copy_of_the_block_that_initialised_the_barrier(monkeypatch):
    monkeypatch.setattr("tests.ptx.emulator.asynchronous.test_copies.FRAME", without_fence(FRAME))
    formal(copies(THROUGH), "missing-fence", "every GPU so far orders the initialisation")


def test_without_the_barrier_of_the_block(monkeypatch):
    """Nothing orders the initialisation before the copy of another warp."""
    frame = without_fence(FRAME).replace("  bar.sync 0;\n", "")
    monkeypatch.setattr("tests.ptx.emulator.asynchronous.test_copies.FRAME", frame)
    body = ARM.replace("@!%p0", "@%p2") + COPY.replace("@!%p0", "@%p2")
    run = copies("  setp.eq.u32 %p2, %r0, 32;\n" + body + WAIT_COPY, block=64)
    assert "race" in {found.kind for found in run.findings}


# tensor memory

ZERO = """
  mov.b32 %r50, 0;
  tcgen05.st.sync.aligned.32x32b.x1.b32 [%r5], {%r50};
"""
SYNCHRONISE = """
  tcgen05.fence::before_thread_sync;
  bar.sync 0;
  tcgen05.fence::after_thread_sync;
"""
PRODUCT = mma("f16") + COMMIT + WAIT


def aside(text):
    """`text` for columns behind those of the product."""
    return "  add.u32 %r51, %r5, 96;\n" + text.replace("[%r5]", "[%r51]")


def test_columns_cleared_without_a_wait_and_only_freed():
    body = aside(ZERO) + SYNCHRONISE + PRODUCT + load(64)
    formal(planted(body), "race", "nobody reads these columns any more")
    waited = planted(body.replace(SYNCHRONISE, "  tcgen05.wait::st.sync.aligned;\n" + SYNCHRONISE))
    assert (waited.findings, waited.formal) == ([], [])


def test_columns_cleared_without_a_wait_and_multiplied_into():
    fault(planted(ZERO + SYNCHRONISE + PRODUCT + load(64)), "race")


def test_columns_cleared_without_a_wait_and_loaded():
    read = aside("  tcgen05.ld.sync.aligned.32x32b.x1.b32 {%r52}, [%r5];\n  tcgen05.wait::ld.sync.aligned;\n")
    body = aside(ZERO) + SYNCHRONISE + read + PRODUCT + load(64)
    assert "race" in {found.kind for found in planted(body).findings}


def test_columns_cleared_and_freed_without_a_barrier():
    """A store of another warp that may not even have begun when the columns are freed."""
    ending = "  bar.sync 0;\n  @%p2 tcgen05.relinquish"
    late = aside(ZERO).replace("{", "{{").replace("}", "}}") + "  @%p2 tcgen05.relinquish"
    fault(planted(PRODUCT + load(64), tail=TAIL.replace(ending, "  bar.sync 0;\n" + late)), "race")
