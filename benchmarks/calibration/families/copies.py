"""Bulk copies by one thread: latency by size, from HBM and from L2, and how often one can be issued; and clusters."""

from collections.abc import Iterator

from ..case import Case, Data
from ..source import Source, lines, shared

MIB = 1 << 20
SIZES = (256, 1024, 4096, 16384, 32768)
_COPY = "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes"
_BEGUN = lines(
    "mov.u32 %r4, bars;",
    "mov.u32 %r5, tile;",
    "mbarrier.init.shared::cta.b64 [%r4], 1;",
    "fence.mbarrier_init.release.cluster;",
    "mov.u32 %r7, 0;",
    "mov.u64 %d1, 0;",
)
_WAIT = lines(
    "arrived:",
    "mbarrier.try_wait.parity.shared::cta.b64 %p3, [%r4], %r7;",
    "@!%p3 bra arrived;",
    "xor.b32 %r7, %r7, 1;",
)


def latency() -> Iterator[Case]:
    """A copy, and a wait for it: of the same place again, or of places that no launch before has read."""
    for nbytes in SIZES:
        for where, footprint in (("l2", nbytes), ("hbm", 4096 * MIB)):
            yield Case(
                "bulk.latency", _one(nbytes, footprint), {"bytes": nbytes, "from": where}, 1, "copies", block=1,
                turns=(256, 768), data=Data(footprint, "numbers"), small_data=Data(max(4096, 4 * nbytes), "numbers"),
                small_source=_one(nbytes, 4 * nbytes),
            )  # fmt: skip


def _one(nbytes: int, footprint: int) -> Source:
    far = footprint > 4 * nbytes
    # a stride beyond what was fetched beside it
    step = max(nbytes, 64 << 10) if far else nbytes
    # launches begin at different places, or the second one would find in L2 what the first one read
    begin = (
        "mov.u64 %d1, %globaltimer;",
        "shr.u64 %d1, %d1, 5;",
        "mul.lo.u64 %d1, %d1, 0x9E3779B97F4A7C15;",
        "shr.u64 %d1, %d1, 20;",
        f"and.b64 %d1, %d1, {footprint - step};",
    )
    start = lines(*begin) if far else ""
    body = lines(
        f"mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r4], {nbytes};",
        "add.u64 %d2, %data, %d1;",
        f"{_COPY} [%r5], [%d2], {nbytes}, [%r4];",
        _WAIT,
        f"add.u64 %d1, %d1, {step};",
        f"and.b64 %d1, %d1, {footprint - 1};",
    )
    outside = lines(shared(nbytes), ".shared .align 8 .b64 bars[1];")
    return Source(f"bulk_{nbytes}_{footprint}", body, lines(_BEGUN, start), "ld.shared.u32 %result, [%r5];", outside)


def issue() -> Iterator[Case]:
    """Copies of 128 to 2048 bytes, 16 at once before the wait: what each one more costs the thread that issues."""
    for nbytes in (128, 512, 2048):
        for count in (1, 16):
            copies = [f"{_COPY} [%r5+{nbytes * n}], [%data+{nbytes * n}], {nbytes}, [%r4];" for n in range(count)]
            body = lines(f"mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r4], {nbytes * count};", *copies, _WAIT)
            outside = lines(shared(nbytes * 16), ".shared .align 8 .b64 bars[1];")
            finish = "ld.shared.u32 %result, [%r5];"
            made = Source(f"bulk_issue_{nbytes}_{count}", body, _BEGUN, finish, outside)
            parameters = {"bytes": nbytes, "count": count}
            yield Case("bulk.issue", made, parameters, 1, "rounds", block=1, data=Data(32768, "numbers"))


def remote() -> Iterator[Case]:
    """A chase through the shared memory of the other CTA of a cluster of two; and of one's own by the same way."""
    for rank, where in ((0, "own"), (1, "other")):
        step = "ld.shared::cluster.u32 %r1, [%r2];\nadd.u32 %r2, %r6, %r1;"
        setup = lines(
            "mov.u32 %r5, tile;",
            "st.shared.u32 [%r5], 0;",
            "mov.u32 %r8, %cluster_ctarank;",
            f"xor.b32 %r8, %r8, {rank};",
            "mapa.shared::cluster.u32 %r6, %r5, %r8;",
            "mov.u32 %r2, %r6;",
            "barrier.cluster.arrive.aligned;",
            "barrier.cluster.wait.aligned;",
        )
        finish = lines("mov.b32 %result, %r1;", "barrier.cluster.arrive.aligned;", "barrier.cluster.wait.aligned;")
        made = Source(f"remote_{where}", lines(*[step] * 16), setup, finish, shared(128), launch=".reqnctapercluster 2")
        yield Case("cluster.latency", made, {"where": where}, 16, "loads", block=32, grid=2, small_grid=2)
