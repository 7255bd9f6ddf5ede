"""mbarrier operations one by one."""

import numpy as np
import pytest
from tests.ptx.emulator.asynchronous.kernels import WALK, WALKED, phases

from kernbench import ptx


def walk(steps, **options):
    text, count = phases(steps)
    device = ptx.EmulatedDevice("sm_90a")
    out = device.empty(max(count, 1), np.uint32, "out")
    run = device.launch(ptx.parse(text).kernels["kernel"], 1, 1, [out], **options)
    return run, out.numpy().tolist()


def test_a_walk_through_phases():
    run, seen = walk(WALK)
    assert run.findings == []
    assert seen == WALKED


@pytest.mark.parametrize(
    ("step", "kind", "text"),
    [
        ("mbarrier.arrive.shared.b64 %rd1, [%r1+8];", "mbarrier-misuse", "never initialised"),
        ("mbarrier.arrive.shared.b64 %rd1, [%r1+4];", "mbarrier-misuse", "cannot hold an mbarrier"),
        ("mbarrier.arrive.shared.b64 %rd1, [%r1+4096];", "mbarrier-misuse", "cannot hold an mbarrier"),
        ("mov.b32 %r2, 0; mbarrier.init.shared.b64 [%r1+8], %r2;", "mbarrier-misuse", "an arrival count of 0"),
        ("mbarrier.arrive.shared::cta.b64 %rd1, [%r1], 4;", "mbarrier-count", "more often than its count allows"),
        ("mbarrier.arrive.noComplete.shared.b64 %rd1, [%r1], 3;", "mbarrier-misuse", ".noComplete completes"),
        ("mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%r1], 1048576;", "mbarrier-misuse", "exceed 1048575"),
    ],
)
def test_misuse(step, kind, text):
    run, _ = walk([step])
    found = [f for f in run.findings if f.kind == kind]
    assert found, run.findings
    assert text in found[0].message


def test_arrival_for_a_phase_before_anybody_waited():
    three = "mbarrier.arrive.shared::cta.b64 %rd1, [%r1], 3;"
    run, _ = walk([three, three])
    assert "mbarrier-phase" in [f.kind for f in run.findings]
    run, _ = walk([three, "mbarrier.test_wait.parity.shared.b64 %p0, [%r1], 0;", three])
    assert "mbarrier-phase" not in [f.kind for f in run.findings]


def test_bytes_that_never_come():
    run, _ = walk(["mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%r1], 32;"])
    assert [f.kind for f in run.formal] == ["transaction-bytes"]
    assert "it expects 32 bytes and 0 are delivered; nobody waits for the phase" in run.formal[0].message
