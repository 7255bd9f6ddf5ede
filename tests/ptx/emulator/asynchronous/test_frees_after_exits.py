"""A warp frees tensor memory when the others have exited, as the cluster's barrier tells it (ThunderKittens)."""

import pytest
from tests.ptx.emulator.asynchronous.tcgen05 import COMMIT, WAIT, idesc, kernel, launch, load, mma, tiles

KINDS = ("f32", "f16", "f16")
MEETS = "  barrier.cluster.arrive.release;\n  barrier.cluster.wait.acquire;\n"
# the first warp begins the product and waits for nobody but at the last barrier; the others wait for it, and exit
TAIL = """
  tcgen05.wait::ld.sync.aligned;
  mul.wide.u32 %rd6, %r0, {nbytes};
  add.u64 %rd6, %rd6, %rd3;
{stores}
  ret;
LAST:
MEETS  tcgen05.relinquish_alloc_permit.cta_group::1.sync.aligned;
  tcgen05.dealloc.cta_group::1.sync.aligned.b32 %r3, {columns};
  ret;
}}
"""


def run(meets=MEETS, wait=WAIT, rest=None, schedule="canonical"):
    _, _, data, descriptors = tiles(1, 128, 8, 16, KINDS, "none", "none")
    body = mma("f16") + COMMIT + "  @%p2 bra LAST;\n" + wait + (load(8) if rest is None else rest)
    code = kernel(body, 8, tail=TAIL.replace("MEETS", meets))
    return launch(code, data, descriptors, idesc(128, 8, KINDS), 8, schedule=schedule)[0]


@pytest.mark.parametrize("schedule", ["canonical", "reversed", "eager"])
def test_columns_that_exited_warps_had_seen_done_may_be_freed(schedule):
    found = run(schedule=schedule)
    assert found.findings == []
    assert {finding.kind for finding in found.formal} == {"race"}
    assert all("a warp that had seen that it is done has exited since" in finding.message for finding in found.formal)


@pytest.mark.parametrize("schedule", ["canonical", "reversed", "eager"])
def test_without_the_barrier_or_their_wait_it_is_a_fault(schedule):
    zeros = "".join(f"  mov.b32 %d{i}, 0;\n" for i in range(8))
    for changed in (run("", schedule=schedule), run(wait="", rest=zeros, schedule=schedule)):
        assert "race" in {finding.kind for finding in changed.findings}
