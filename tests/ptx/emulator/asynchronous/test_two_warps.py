"""Two warps of a block begin one tcgen05.mma together, each with its own operands: each operation has its own warp."""

import pytest
from tests.ptx.emulator.asynchronous.conftest import kinds
from tests.ptx.emulator.asynchronous.tcgen05 import idesc, kernel, launch, names, tiles

KINDS = ("f32", "f16", "f16")
BARRIERS = {
    ".shared .align 8 .b64 done;": ".shared .align 8 .b64 done[2];",
    "  @%p3 mbarrier.init.shared::cta.b64 [done], 1;\n": "  @%p3 mbarrier.init.shared::cta.b64 [done], 1;\n"
    "  @%p3 mbarrier.init.shared::cta.b64 [done+8], 1;\n",
}
# the first lanes of warps 0 and 1 multiply, into columns of their own, and commit to barriers of their own
BEGIN = """
  and.b32 %r30, %r0, 31;
  setp.eq.u32 %p6, %r30, 0;
  setp.lt.and.u32 %p6, %r0, 64, %p6;
  mad.lo.u32 %r31, %r1, {apart}, %r3;
  mov.u32 %r32, done;
  mad.lo.u32 %r32, %r1, 8, %r32;
  setp.ne.b32 %p5, 0, 0;
  @%p6 tcgen05.mma.cta_group::1.kind::f16 [%r31], %rd4, %rd5, %r22, %p5;
  @%p6 tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [%r32];
"""
LOAD = """
WAIT{n}:
  mbarrier.try_wait.parity.shared::cta.b64 %p4, [done+{barrier}], 0;
  @!%p4 bra WAIT{n};
  tcgen05.fence::after_thread_sync;
  add.u32 %r33, %r5, {column};
  tcgen05.ld.sync.aligned.32x32b.x8.b32 {into}, [%r33];
"""


def run(waits, apart=16, schedule="canonical"):
    """All warps load the columns of both products, each behind a wait for one of the barriers."""
    body = BEGIN.format(apart=apart)
    for n, barrier in enumerate(waits):
        body += LOAD.format(n=n, barrier=8 * barrier, column=apart * n, into=names(8))
    _, _, data, descriptors = tiles(1, 128, 8, 16, KINDS, "none", "none")
    code = kernel(body, 8, changes=BARRIERS)
    return launch(code, data, descriptors, idesc(128, 8, KINDS), 8, schedule=schedule, grid=2)[0]


@pytest.mark.parametrize("schedule", ["canonical", "reversed", "eager"])
def test_each_product_is_waited_for_at_its_own_barrier(schedule):
    assert kinds(run((0, 1), schedule=schedule)) == []


@pytest.mark.parametrize("schedule", ["canonical", "reversed", "eager"])
@pytest.mark.parametrize("awaited", [0, 1])
def test_a_wait_for_the_other_warps_product_is_none(awaited, schedule):
    found = run((awaited, awaited), schedule=schedule).findings
    assert "race" in {finding.kind for finding in found}
    message = next(finding.message for finding in found if finding.kind == "race")
    assert f"reads column {16 * (1 - awaited)} of tensor memory; warp {1 - awaited} of block" in message


def test_both_write_the_same_columns():
    assert "race" in kinds(run((0, 1), apart=0))
