"""Faults planted in kernels with tcgen05: each is found, and the kernel without it is clean."""

import numpy as np
import pytest
from tests.ptx.emulator.asynchronous.tcgen05 import (
    AGAIN,
    COMMIT,
    KINDS_F16,
    TAIL,
    WAIT,
    expected,
    idesc,
    kernel,
    launch,
    load,
    mma,
    names,
    result,
    tiles,
)
from tests.ptx.emulator.asynchronous.test_tcgen05 import A_TO_TENSOR, READY, SCALES

from kernbench import ptx


def planted(body=None, n=64, columns=128, tail=TAIL, data=None, said=None, change=None, **options):
    """A kernel that multiplies and stores, with something changed."""
    _, _, image_, descriptors = tiles(12, 128, n, 16, KINDS_F16)
    code = kernel(mma("f16") + COMMIT + WAIT + load(n) if body is None else body, n, columns, tail)
    if change is not None:
        text = code.module.emit()
        assert change[0] in text, text
        code = ptx.parse(text.replace(*change)).kernels["kernel"]
    given = descriptors if data is None else data(descriptors)
    return launch(code, image_, given, idesc(128, n, KINDS_F16) if said is None else said, n, **options)[0]


def kinds_of(run):
    return {finding.kind for finding in (*run.findings, *run.formal)}


def only(run, kind):
    assert kinds_of(run) == {kind}, run.findings
    return run.findings[0].message


def test_clean():
    for schedule in ("canonical", "eager", "reversed", 5):
        assert not planted(schedule=schedule).findings


def test_leak():
    tail = TAIL.replace("  @%p2 tcgen05.dealloc.cta_group::1.sync.aligned.b32 %r3, {columns};\n", "")
    assert "block (0, 0, 0) ends without freeing columns 0 to 128" in only(planted(tail=tail), "tensor-memory")


def test_freed_twice():
    free = "  @%p2 tcgen05.dealloc.cta_group::1.sync.aligned.b32 %r3, {columns};\n"
    message = only(planted(tail=TAIL.replace(free, free + free)), "tensor-memory")
    assert "frees columns 0 to 128, which are not allocated" in message


def test_freed_in_part():
    tail = TAIL.replace("%r3, {columns};", "%r3, 64;")
    assert "frees 64 columns from 0 on" in planted(tail=tail).findings[0].message


def test_allocation_after_relinquishing():
    give_up = "  @%p2 tcgen05.relinquish_alloc_permit.cta_group::1.sync.aligned;\n"
    more = "  @%p2 tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [slot], 32;\n"
    more += "  @%p2 bar.warp.sync 0xffffffff;\n  @%p2 ld.shared.u32 %r9, [slot];\n"
    more += "  @%p2 tcgen05.dealloc.cta_group::1.sync.aligned.b32 %r9, 32;\n"
    message = only(planted(tail=TAIL.replace(give_up, give_up + more)), "tensor-memory")
    assert "allocates after its block gave up the right to" in message


def test_columns_no_power_of_two():
    alloc = "@%p2 tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [slot], "
    run = planted(change=(f"{alloc}128;", f"mov.b32 %r9, 96;\n{alloc}%r9;"))
    assert any("asks for 96 columns" in finding.message for finding in run.findings)


def test_outside_the_allocation():
    run = planted(n=64, columns=32)
    assert kinds_of(run) == {"tensor-memory"}
    assert any("reaches columns 0 to 64 of tensor memory; allocated: 0 to 32" in f.message for f in run.findings)


def test_lanes_of_another_warp():
    body = mma("f16") + COMMIT + WAIT + load(64).replace("%r5", "%r3")
    message = only(planted(body), "tensor-memory")
    assert "warp 1 of block (0, 0, 0) touches lanes 0 to 31 of tensor memory; it may touch 32 to 63 only" in message


def test_read_before_the_commit_is_waited_for():
    body = mma("f16") + COMMIT + load(64) + WAIT
    message = planted(body).findings[0].message
    assert "reads column 0 of tensor memory; warp 0 of block (0, 0, 0) began line" in message
    assert "and nothing says that it is done" in message


def test_missing_commit():
    body = mma("f16") + "  bar.sync 0;\n" + load(64)
    run = planted(body)
    assert {"race", "in-flight"} <= kinds_of(run)
    assert any("no tcgen05.commit follows" in f.message for f in run.findings)


@pytest.mark.parametrize("elsewhere", ["", "  tcgen05.fence::after_thread_sync;\n"])
def test_missing_fence_after_the_wait_is_formal_wherever_else_there_is_one(elsewhere):
    """The two accesses decide; official examples have fences before barriers only, ThunderKittens in its allocator."""
    without = WAIT.replace("  tcgen05.fence::after_thread_sync;\n", "  tcgen05.fence::before_thread_sync;\n")
    for body in (elsewhere + mma("f16") + COMMIT + without + load(64), mma("f16") + COMMIT + without + load(64)):
        run = planted(body + elsewhere)
        assert run.findings == []
        assert [(f.kind, "fence::after_thread_sync is missing" in f.message) for f in run.formal] == [("race", True)]
    run = planted(mma("f16") + "  bar.sync 0;\n  tcgen05.fence::before_thread_sync;\n" + load(64) + COMMIT + elsewhere)
    assert "race" in {finding.kind for finding in run.findings}


def test_a_commit_of_an_earlier_product_is_no_wait_for_the_later_one():
    """The wait is for the first product; the second one may still write what is loaded."""
    twice = mma("f16") + COMMIT + mma("f16") + WAIT.replace("after", "before") + load(64) + COMMIT
    run = planted(twice)
    assert "race" in {finding.kind for finding in run.findings}


STAGE = """
  mov.b32 %r50, 0;
  tcgen05.st.sync.aligned.32x32b.x1.b32 [%r5], {%r50};
  tcgen05.wait::st.sync.aligned;
  tcgen05.fence::before_thread_sync;
  bar.sync 0;
  tcgen05.fence::after_thread_sync;
"""


@pytest.mark.parametrize(
    "missing", ["tcgen05.wait::st.sync.aligned", "tcgen05.fence::before_thread_sync", "bar.sync 0"]
)
def test_store_not_finished_before_a_product(missing):
    assert not planted(STAGE + mma("f16") + COMMIT + WAIT + load(64)).findings
    run = planted(STAGE.replace(f"  {missing};\n", "") + mma("f16") + COMMIT + WAIT + load(64))
    assert "race" in kinds_of(run)


BEFORE = "  tcgen05.fence::before_thread_sync;\n"
# instead of the block's barrier: an arrival of each thread, or of one for each warp, and a wait of the multiplying one
ARRIVES = """
  .shared .align 8 .b64 staged;
  setp.eq.u32 %p1, %r0, 0;
  @%p1 mbarrier.init.shared::cta.b64 [staged], {count};
  and.b32 %r51, %r0, {mask};
  setp.eq.u32 %p6, %r51, 0;
  bar.sync 0;
"""
SIGNAL = """
  bar.warp.sync -1;
  @%p6 mbarrier.arrive.shared::cta.b64 _, [staged];
STAGED:
  mbarrier.try_wait.parity.shared::cta.b64 %p4, [staged], 0;
  @!%p4 bra STAGED;
"""
SIGNALS = {"barrier": None, "every thread": (128, 0), "a thread of each warp": (4, 31)}


@pytest.mark.parametrize("elsewhere", ["", BEFORE])
@pytest.mark.parametrize("signal", SIGNALS)
def test_an_awaited_store_without_the_fence_before_the_arrival_is_formal_wherever_else_there_is_one(signal, elsewhere):
    """The two accesses decide: only what is awaited before the arrival, or barrier, is complete by then."""
    stage, given = STAGE, SIGNALS[signal]
    if given is not None:
        stage = ARRIVES.format(count=given[0], mask=given[1]) + STAGE.replace("  bar.sync 0;\n", SIGNAL)
    rest = mma("f16") + COMMIT + WAIT + load(64) + elsewhere
    assert kinds_of(planted(stage + rest)) == set()
    run = planted(stage.replace(BEFORE, "") + rest)
    assert run.findings == []
    assert [(f.kind, "only fence::before_thread_sync is missing there" in f.message) for f in run.formal] == [
        ("race", True)
    ]
    waits = "  tcgen05.wait::st.sync.aligned;\n"
    for late in ("", waits):
        assert waits in stage
        run = planted(stage.replace(BEFORE, "").replace(waits, "") + late + rest)
        assert "race" in {finding.kind for finding in run.findings}


def test_an_awaited_load_without_the_fence_before_the_barrier_is_formal():
    first = mma("f16") + COMMIT + WAIT
    for wait, faults in ((FINISH, []), ("", ["race"])):
        run = planted(first + RELEASE.format(every=names(64), wait=wait).replace(BEFORE, "") + load(64))
        assert [finding.kind for finding in run.findings] == faults
        assert [finding.kind for finding in run.formal] == ([] if faults else ["race"])


RELEASE = """
  tcgen05.ld.sync.aligned.32x32b.x64.b32 {every}, [%r5];
{wait}
  tcgen05.fence::before_thread_sync;
  bar.sync 0;
  tcgen05.fence::after_thread_sync;
  @%p3 tcgen05.mma.cta_group::1.kind::f16 [%r3], %rd4, %rd5, %r22, %p5;
  @%p3 tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [done];
AGAIN:
  mbarrier.try_wait.parity.shared::cta.b64 %p4, [done], 1;
  @!%p4 bra AGAIN;
  tcgen05.fence::after_thread_sync;
"""
FINISH = "  tcgen05.wait::ld.sync.aligned;"


def test_stage_released_while_a_load_is_in_flight():
    every = names(64)
    clean = RELEASE.format(every=every, wait=FINISH)
    assert not planted(mma("f16") + COMMIT + WAIT + clean + load(64)).findings
    message = planted(mma("f16") + COMMIT + WAIT + RELEASE.format(every=every, wait="") + load(64)).findings[0].message
    assert "began line" in message
    assert "tcgen05.ld" in message


def test_use_of_a_register_finishes_its_load():
    use = "  add.u32 %r51, %d0, 1;"
    assert not planted(mma("f16") + COMMIT + WAIT + RELEASE.format(every=names(64), wait=use) + load(64)).findings


def test_accumulator_never_written():
    body = mma("f16").replace("setp.ne.b32", "setp.eq.b32") + COMMIT + WAIT + load(64)
    assert "the accumulator that thread (0, 0, 0) of block (0, 0, 0) reads" in only(planted(body), "uninitialised-read")


def test_a_descriptor_without_the_bit_that_older_compilers_left_out_is_formal():
    run = planted(data=lambda d: (d[0] & ~(1 << 46), d[1]))
    assert not run.findings
    (formal,) = run.formal
    assert formal.kind == "descriptor"
    assert "of A that thread (0, 0, 0) of block (0, 0, 0) gives is not as it should be" in formal.message
    assert "bits 46 to 48 hold 0b000 where 0b001 belongs" in formal.message


def test_descriptors():
    message = planted(data=lambda d: (d[0] | 1 << 47, d[1])).findings[0].message
    assert "bits 46 to 48 hold 0b011 where 0b001 belongs" in message
    message = planted(data=lambda d: (d[0], d[1] + 4096)).findings[0].message
    assert "the descriptor of B that thread (0, 0, 0) of block (0, 0, 0) gives reaches to byte" in message
    message = planted(said=idesc(128, 64, KINDS_F16) | 4).findings[0].message
    assert "bit 2 says that A is sparse" in message


def test_missing_proxy_fence():
    run = planted(change=("fence.proxy.async.shared::cta;", ""))
    assert kinds_of(run) == {"missing-fence"}


def test_issued_by_a_whole_warp():
    """Without an elected thread the product is issued 32 times."""
    body = (mma("f16") + AGAIN.format(extra="", scale="")).replace("@%p3 tcgen05.mma", "@%p2 tcgen05.mma")
    a, b, data, descriptors = tiles(13, 128, 32, 16, KINDS_F16)
    code = kernel(body + COMMIT + WAIT + load(32), 32)
    _, words = launch(code, data, descriptors, idesc(128, 32, KINDS_F16), 32)
    np.testing.assert_allclose(result(words, "f32"), 33 * expected(a, b), rtol=1e-4, atol=1e-2)


def test_allocation_waits_for_columns():
    """The second warp asks for all columns while the first holds some, and gets them when those are freed."""
    more = """
  setp.eq.u32 %p6, %r1, 1;
  @%p6 tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [slot], 512;
  @%p6 tcgen05.dealloc.cta_group::1.sync.aligned.b32 0, 512;
"""
    give_up = "  @%p2 tcgen05.relinquish_alloc_permit.cta_group::1.sync.aligned;\n"
    assert not planted(tail=TAIL.replace(give_up, "").replace("  ret;", f"{more}  ret;")).findings
    tail = TAIL.replace("  @%p2 tcgen05.relinquish", f"{more}  @%p2 tcgen05.relinquish").replace(
        "  @%p2 tcgen05.relinquish", "  bar.sync 0;\n  @%p2 tcgen05.relinquish"
    )
    run = planted(tail=tail)
    assert run.status.value == "deadlocked"
    message = next(f.message for f in run.findings if f.kind == "deadlock")
    assert "waits for columns of tensor memory; allocated are columns 0 to 128 (line" in message


def test_commit_on_the_wrong_barrier():
    run = planted(change=("arrive::one.shared::cluster.b64 [done]", "arrive::one.shared::cluster.b64 [slot]"))
    assert "deadlock" in kinds_of(run)


@pytest.mark.parametrize(("code", "found"), [(5, set()), (3, {"uninitialised-read"}), (0, {"uninitialised-read"})])
def test_padding_of_narrow_elements_need_not_be_written(code, found):
    kinds = ("f32", "e4m3", "e4m3")
    _, _, image_, descriptors = tiles(12, 128, 64, 32, kinds)
    text = kernel(mma("f8f6f4") + COMMIT + WAIT + load(64), 64).module.emit()
    whole, half = "st.shared.v4.u32 [%r15], {%r11, %r12, %r13, %r14};", "st.shared.v2.u32 [%r15], {%r11, %r12};"
    assert whole in text
    said = idesc(128, 64, kinds) | code << 7 | code << 10
    for stored, kinds_found in ((whole, set()), (half, found)):
        changed = ptx.parse(text.replace(whole, stored)).kernels["kernel"]
        assert kinds_of(launch(changed, image_, descriptors, said, 64)[0]) == kinds_found


def test_tensor_memory_that_nobody_wrote():
    (found,) = planted(load(64)).findings
    assert found.kind == "uninitialised-read"
    assert "%d0 is stored, and comes from tensor memory (line " in found.message
    assert "`tcgen05.ld.sync.aligned.32x32b.x64.b32`) that nobody wrote, in thread (0, 0, 0)" in found.message
    assert found.count == 128


def test_a_load_ahead_of_a_loop_that_does_not_run():
    taken = "\n".join(f"  selp.b32 %d{i}, %d{i}, 0, %p6;" for i in range(64))
    ahead = load(64) + "  tcgen05.wait::ld.sync.aligned;\n" + taken
    assert not planted("  setp.eq.u32 %p6, %r20, 0;\n" + ahead).findings
    assert kinds_of(planted("  setp.ne.u32 %p6, %r20, 0;\n" + ahead)) == {"uninitialised-read"}
    back = f"  @%p6 tcgen05.st.sync.aligned.32x32b.x64.b32 [%r5], {names(64)};\n"
    kept = "  setp.eq.u32 %p6, %r20, 0;\n" + load(64) + back + "  mov.b32 %d0, 0;\n" * 64
    message = planted(kept.replace("setp.eq", "setp.ne")).findings[0].message
    assert "comes from tensor memory" in message


def test_a_in_tensor_memory_that_nobody_wrote():
    body = A_TO_TENSOR + mma("f16", a="[%r40]") + COMMIT + WAIT + load(64)
    assert not planted(body).findings
    never = "".join(line + "\n" for line in body.split("\n") if "tcgen05.st" not in line)
    assert only(planted(never), "uninitialised-read").startswith("`@%p3 tcgen05.mma")
    assert "A that thread (0, 0, 0) of block (0, 0, 0) reads, columns 64 to 72" in only(
        planted(never), "uninitialised-read"
    )


SCALED = """
  @%p3 tcgen05.mma.cta_group::1.kind::mxf8f6f4.block_scale.scale_vec::1X [%r3], %rd4, %rd5, %r22, [%r40], [%r41], %p5;
"""


def scaled(*edits):
    """A product of scaled blocks whose scales are stored, with lines changed."""
    text = SCALES.format(column=64, offset=0) + SCALES.format(column=68, offset=512) + READY + SCALED
    for old, new in edits:
        assert old in text, old
        text = text.replace(old, new)
    said = (64 >> 3) << 17 | 1 << 23 | (128 >> 4) << 24
    kinds = ("f32", "e4m3", "e4m3")
    _, _, data, descriptors = tiles(12, 128, 64, 32, kinds)
    return launch(kernel(text + COMMIT + WAIT + load(64), 64), data, descriptors, said, 64)[0]


def test_scales_that_nobody_wrote():
    assert not scaled().findings
    run = scaled(("  add.u32 %r41, %r3, 68;", "  add.u32 %r41, %r3, 100;"))
    assert "the scales of B that thread (0, 0, 0) of block (0, 0, 0) reads, columns 100 to 102" in only(
        run, "uninitialised-read"
    )


@pytest.mark.parametrize(
    ("missing", "formal"), [("tcgen05.wait::st.sync.aligned", False), ("tcgen05.fence::before_thread_sync", True)]
)
def test_scales_whose_stores_are_not_finished(missing, formal):
    run = scaled((f"  {missing};\n", ""))
    assert kinds_of(run) == {"race"}
    assert "reads column 64 of tensor memory" in (run.formal if formal else run.findings)[0].message


def test_scales_outside_the_allocation():
    run = scaled(("  add.u32 %r41, %r3, 68;", "  add.u32 %r41, %r3, 127;"))
    assert "the scales of B of thread (0, 0, 0) of block (0, 0, 0) reaches columns 127 to 129" in only(
        run, "tensor-memory"
    )


REUSED = """.version 8.7
.target sm_100a
.address_size 64
.shared .align 16 .b8 place[16];
.shared .align 8 .b64 full;
.visible .entry kernel(.param .u64 source, .param .u64 out)
{
  .reg .pred %p<4>;
  .reg .b32 %r<8>;
  .reg .b64 %rd<4>;
  ld.param.u64 %rd0, [source];
  ld.param.u64 %rd1, [out];
  mov.u32 %r0, %tid.x;
  setp.eq.u32 %p0, %r0, 0;
  tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [place], 32;
  bar.sync 0;
  ld.shared.u32 %r1, [place];
  @%p0 mbarrier.init.shared::cta.b64 [full], 1;
  @%p0 fence.mbarrier_init.release.cluster;
  // ordinary
  bar.sync 0;
  @%p0 mbarrier.arrive.expect_tx.shared::cta.b64 _, [full], 16;
  @%p0 cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [place], [%rd0], 16, [full];
WAIT:
  mbarrier.try_wait.parity.shared::cta.b64 %p1, [full], 0;
  @!%p1 bra WAIT;
  ld.shared.u32 %r2, [place];
  mul.wide.u32 %rd2, %r0, 4;
  add.u64 %rd2, %rd2, %rd1;
  st.global.u32 [%rd2], %r2;
  tcgen05.dealloc.cta_group::1.sync.aligned.b32 %r1, 32;
  ret;
}
"""


@pytest.mark.parametrize("ordinary", [False, True])
def test_a_copy_over_the_word_of_an_allocation(ordinary):
    text = REUSED.replace("// ordinary", "@%p0 st.shared.u32 [place+4], %r0;") if ordinary else REUSED
    device = ptx.EmulatedDevice("sm_100a")
    out = device.empty(32, np.uint32)
    given = [device.array(np.full(4, 7, np.uint32)), out]
    run = device.launch(ptx.parse(text).kernels["kernel"], 1, 32, given)
    assert kinds_of(run) == ({"missing-fence"} if ordinary else set())
    assert (out.numpy() == 7).all()


def test_a_commit_on_a_barrier_that_nobody_made():
    run = planted(mma("f16") + COMMIT + COMMIT.replace("[done]", "[done+8]") + WAIT + load(64))
    assert "which was never initialised" in only(run, "mbarrier-misuse")


def test_a_commit_to_blocks_that_the_cluster_has_not():
    spread = "  mov.b16 %h0, 3;\n" + COMMIT.replace(
        ".shared::cluster.b64 [done]", ".shared::cluster.multicast::cluster.b64 [done], %h0"
    )
    run = planted(".reg .b16 %h<1>;\n" + mma("f16") + spread + WAIT + load(64))
    assert "the multicast mask 0x3, and its cluster has 1 block:" in only(run, "misuse")
