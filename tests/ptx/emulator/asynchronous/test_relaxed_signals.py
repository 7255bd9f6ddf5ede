"""Relaxed arrivals and waits on mbarriers, as compilers write them for tcgen05: what the fences beside them order."""

import numpy as np
import pytest
from tests.ptx.emulator.asynchronous.test_tensor_pipeline import SOURCE, pipeline

from kernbench import ptx

WAIT, ARRIVE = "mbarrier.try_wait.parity.shared::cta.b64", "mbarrier.arrive.shared::cta.b64 _, [%r23];"
RELAXED_WAIT, RELAXED_ARRIVE = (
    WAIT.replace("parity", "parity.relaxed.cta"),
    ARRIVE.replace("arrive", "arrive.relaxed.cta"),
)


def relaxed(source, *labels, fence=""):
    """The waits at labels, relaxed, each with a fence behind its loop."""
    for label in labels:
        old = source[source.index(f"{label}:\n") : source.index(f"bra {label};\n") + len(f"bra {label};\n")]
        source = source.replace(old, old.replace(WAIT, RELAXED_WAIT) + fence)
    return source


def kinds(run):
    return {finding.kind for finding in run.findings}


# as PTX's canonical patterns have it: who waits for a commit, or for loads of others, passes tcgen05.fence
TENSOR = relaxed(SOURCE, "WAITREADY", "WAITTAKEN").replace(ARRIVE, RELAXED_ARRIVE)
FENCES = ["fence.acquire.sync_restrict::shared::cluster.cluster;", "fence.acq_rel.cta;", "fence.sc.gpu;"]


@pytest.mark.parametrize("schedule", ["canonical", "eager", "reversed", 1, 2])
def test_tensor_fences_order_operations_of_the_tensor_core_by_relaxed_signals(schedule):
    assert TENSOR.count("relaxed") == 3
    run, error = pipeline(TENSOR, schedule=schedule)
    assert not run.findings, run.findings
    assert error < 1e-3


@pytest.mark.parametrize("fence", FENCES)
def test_an_ordinary_fence_acquires_what_a_relaxed_wait_has_seen(fence):
    """Copies before products that read them, and products before copies that write there again."""
    run, error = pipeline(relaxed(TENSOR, "WAITFULL", "WAITEMPTY", fence=f"  {fence}\n"))
    assert not run.findings, run.findings
    assert error < 1e-3


@pytest.mark.parametrize("label", ["WAITFULL", "WAITEMPTY"])
def test_a_relaxed_wait_alone_orders_nothing(label):
    run, _ = pipeline(relaxed(TENSOR, label))
    assert "race" in kinds(run), run.findings


@pytest.mark.parametrize("which", [0, 1])
def test_without_the_fence_behind_a_relaxed_wait(which):
    fence = "  tcgen05.fence::after_thread_sync;\n"
    parts = TENSOR.split(fence)
    assert len(parts) == 3
    run, _ = pipeline("".join([parts[0], "" if which == 0 else fence, parts[1], "" if which else fence, parts[2]]))
    assert "race" in kinds(run), run.findings


@pytest.mark.parametrize("line", ["tcgen05.fence::before_thread_sync;", "tcgen05.wait::ld.sync.aligned;"])
def test_without_what_makes_a_relaxed_arrival_speak_of_loads(line):
    run, _ = pipeline(TENSOR.replace(f"  {line}\n", ""))
    assert "race" in kinds(run), run.findings


@pytest.mark.parametrize("fence", ["", *FENCES])
def test_a_relaxed_arrival_carries_what_was_known_at_a_fence(fence):
    """Ordinary stores to shared memory by one warp, read by another behind an mbarrier."""
    release = fence.replace("acquire", "release").replace("shared::cluster", "shared::cta")
    device = ptx.EmulatedDevice("sm_100a")
    out = device.array(np.zeros(32, np.uint32))
    kernel = ptx.parse(HANDED_OVER.format(release=release, acquire=fence)).kernels["kernel"]
    run = device.launch(kernel, 1, 64, [out])
    assert kinds(run) == (set() if fence else {"race"})
    assert out.numpy().tolist() == list(range(32))


@pytest.mark.parametrize("without", ["release", "acquire"])
def test_one_fence_of_two_orders_nothing(without):
    device = ptx.EmulatedDevice("sm_100a")
    fences = {"release": "fence.acq_rel.cta;", "acquire": "fence.acq_rel.cta;", without: ""}
    kernel = ptx.parse(HANDED_OVER.format(**fences)).kernels["kernel"]
    run = device.launch(kernel, 1, 64, [device.array(np.zeros(32, np.uint32))])
    assert kinds(run) == {"race"}


HANDED_OVER = """.version 8.6
.target sm_100a
.address_size 64
.shared .align 8 .b64 full;
.shared .align 4 .b32 words[32];
.visible .entry kernel(.param .u64 out)
{{
  .reg .pred %p<4>;
  .reg .b32 %r<8>;
  .reg .b64 %rd<4>;
  mov.u32 %r0, %tid.x;
  setp.eq.u32 %p1, %r0, 0;
  @%p1 mbarrier.init.shared::cta.b64 [full], 32;
  bar.sync 0;
  and.b32 %r1, %r0, 31;
  mov.u32 %r2, words;
  mad.lo.u32 %r3, %r1, 4, %r2;
  setp.ge.u32 %p2, %r0, 32;
  @%p2 bra READ;
  st.shared.u32 [%r3], %r1;
  {release}
  mbarrier.arrive.relaxed.cluster.shared::cta.b64 _, [full];
  ret;
READ:
  mbarrier.try_wait.parity.relaxed.cluster.shared::cta.b64 %p3, [full], 0;
  @!%p3 bra READ;
  {acquire}
  xor.b32 %r4, %r1, 31;
  mad.lo.u32 %r4, %r4, 4, %r2;
  ld.shared.u32 %r5, [%r4];
  ld.param.u64 %rd1, [out];
  mul.wide.u32 %rd2, %r1, 4;
  sub.u64 %rd1, %rd1, %rd2;
  st.global.u32 [%rd1+124], %r5;
  ret;
}}
"""
