"""mbarrier operations one by one."""

import numpy as np
import pytest
from tests.ptx.emulator.asynchronous.conftest import kinds
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


def late(waits):
    """A thread completes two phases of two barriers, and another one waits for some of one by parity, unordered."""

    def program(ctx):
        a, other = (ctx.mbarriers(1, name=name) for name in ("a", "other"))
        with ctx.if_(ctx.tid_x == 0):
            ctx.mbarrier_init(a[0], 1)
            ctx.mbarrier_init(other[0], 1)
        ctx.bar_sync()
        with ctx.if_(ctx.tid_x == 0), ctx.loop(2):
            ctx.mbarrier_arrive(a[0])
            ctx.mbarrier_arrive(other[0])
        with ctx.if_(ctx.tid_x == 32):
            for parity in waits:
                ctx.mbarrier_wait(a[0], parity)

    return ptx.EmulatedDevice("sm_90a").launch(ptx.PtxKernel("late").build(program), 1, 64, [])


def test_arrival_for_a_phase_before_somebody_waits():
    """Phases that nobody waits for, nor for later ones, do no harm; who waits behind them may be too late."""
    assert kinds(late(())) == []
    run = late((1,))
    assert kinds(run) == ["mbarrier-phase"]
    assert any("for the next phase before anybody waited for the one that completed" in f.message for f in run.findings)
    three = "mbarrier.arrive.shared::cta.b64 %rd1, [%r1], 3;"
    for steps in ([three, three], [three, three, "mbarrier.test_wait.parity.shared.b64 %p0, [%r1], 1;"]):
        assert "mbarrier-phase" not in kinds(walk(steps)[0])


def test_a_wait_that_comes_too_late_never_ends():
    """Of the two barriers only the one that is waited for is to blame."""
    run = late((0,))
    assert kinds(run) == ["deadlock", "mbarrier-phase"]
    (found,) = [f for f in run.findings if f.kind == "mbarrier-phase"]
    assert "arrives on mbarrier 'a'" in found.message


def test_bytes_that_never_come():
    run, _ = walk(["mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%r1], 32;"])
    assert [f.kind for f in run.formal] == ["transaction-bytes"]
    assert "it expects 32 bytes and 0 are delivered; nobody waits for the phase" in run.formal[0].message
