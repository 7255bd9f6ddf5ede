"""Clusters: their barrier by size, arrivals at another CTA's mbarrier as a ping-pong, bulk copies that several CTAs
get, and how many bytes a CTA can load of another's shared memory.
"""

from collections.abc import Iterator

from ..case import Case, Data
from ..source import Source, lines, shared

UNROLL = 8
SIZES = (2, 4, 8)
_MEET = lines("barrier.cluster.arrive.aligned;", "barrier.cluster.wait.aligned;")
_COPY = "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes"
# an mbarrier of each CTA, and the next rank's: %r4 and %r6
_BARRIERS = lines(
    "mov.u32 %r4, bars;",
    "setp.eq.u32 %p2, %thread, 0;",
    "@%p2 mbarrier.init.shared::cta.b64 [%r4], 1;",
    "@%p2 fence.mbarrier_init.release.cluster;",
    "mov.u32 %r8, %cluster_ctarank;",
    "mov.u32 %r10, 0;",
    _MEET,
)


def _of(size: int) -> str:
    return f".reqnctapercluster {size}"


def barrier() -> Iterator[Case]:
    """All CTAs of a cluster meet, again and again."""
    for size in SIZES:
        made = Source(f"cluster_barrier_{size}", lines(*[_MEET] * UNROLL), launch=_of(size))
        yield Case("cluster.barrier", made, {"ctas": size}, UNROLL, "barriers", grid=size, small_grid=size)


def _wait(label: str) -> str:
    return lines(
        f"{label}:",
        "mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 %p3, [%r4], %r10;",
        f"@!%p3 bra {label};",
    )


def _loop(label: str, *body: str) -> str:
    return lines(
        f"{label}:",
        '.pragma "nounroll";',
        *body,
        "xor.b32 %r10, %r10, 1;",
        "add.u32 %turn, %turn, 1;",
        "setp.lt.u32 %again, %turn, %turns;",
        f"@%again bra {label};",
    )


def hops() -> Iterator[Case]:
    """A CTA arrives at the mbarrier of the other, which wakes and arrives at that of the first: two hops a turn."""
    arrive = "@%p2 mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r6];"
    roles = lines(
        "setp.ne.u32 %p1, %r8, 0;", "@%p1 bra others;", _loop("ping", arrive, _wait("wait_a")), "bra meet;", "others:",
        _loop("pong", _wait("wait_b"), arrive), "meet:",
    )  # fmt: skip
    setup = lines(_BARRIERS, "xor.b32 %r9, %r8, 1;", "mapa.shared::cluster.u32 %r6, %r4, %r9;")
    outside = ".shared .align 8 .b64 bars[1];"
    made = Source("cluster_hop", setup=setup, finish=_MEET, outside=outside, roles=roles, launch=_of(2))
    yield Case("cluster.hop", made, {}, 2, "hops", grid=2, small_grid=2)


def multicast() -> Iterator[Case]:
    """Every CTA of a cluster gets bytes that L2 holds, then all meet: by a copy of each, or one that the first begins
    for all.
    """
    for nbytes in (1024, 16384):
        for size in (2, 4):
            for by in ("own", "multicast"):
                source = _received(nbytes, size, by)
                parameters = {"bytes": nbytes, "ctas": size, "by": by}
                yield Case(
                    "cluster.multicast", source, parameters, 1, "rounds", grid=size, small_grid=size,
                    data=Data(max(nbytes, 4096), "numbers"),
                )  # fmt: skip


def _received(nbytes: int, size: int, by: str) -> Source:
    copy = f"@%p5 {_COPY} [%r5], [%data], {nbytes}, [%r4];"
    if by == "multicast":
        copy = f"@%p5 {_COPY}.multicast::cluster [%r5], [%data], {nbytes}, [%r4], %h1;"
    body = lines(
        f"@%p2 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r4], {nbytes};",
        _MEET,
        copy,
        _wait("received"),
        "xor.b32 %r10, %r10, 1;",
    )
    who = "setp.lt.and.u32 %p5, %r8, 1, %p2;" if by == "multicast" else "setp.eq.u32 %p5, %thread, 0;"
    setup = lines(_BARRIERS, "mov.u32 %r5, tile;", f"mov.b16 %h1, {(1 << size) - 1};", who)
    outside = lines(shared(nbytes), ".shared .align 8 .b64 bars[1];")
    finish = lines("ld.shared.u32 %result, [%r5];", _MEET)
    return Source(f"multicast_{nbytes}_{size}_{by}", body, setup, finish, outside, launch=_of(size))


def bandwidth() -> Iterator[Case]:
    """16 warps load 16 bytes a lane of the next CTA's shared memory: one cluster, or one on all SMs."""
    tile = 512 * 16
    for size in (2, 4):
        loads = [
            line
            for n in range(UNROLL)
            for line in (
                "ld.volatile.shared::cluster.v4.u32 {%r20, %r21, %r22, %r23}, [%r6];",
                f"xor.b32 %r{30 + n}, %r{30 + n}, %r20;",
            )
        ]
        setup = lines(
            "mov.u32 %r5, tile;",
            "shl.b32 %r7, %thread, 4;",
            "add.u32 %r5, %r5, %r7;",
            "st.shared.v4.u32 [%r5], {%thread, %thread, %thread, %thread};",
            "mov.u32 %r8, %cluster_ctarank;",
            "add.u32 %r9, %r8, 1;",
            f"and.b32 %r9, %r9, {size - 1};",
            "mapa.shared::cluster.u32 %r6, %r5, %r9;",
            *[f"mov.u32 %r{30 + n}, 0;" for n in range(UNROLL)],
            _MEET,
        )
        finish = lines(*[f"add.u32 %result, %result, %r{30 + n};" for n in range(UNROLL)], _MEET)
        made = Source(f"remote_bytes_{size}", lines(*loads), setup, finish, shared(tile), launch=_of(size))
        for where, grid in (("alone", size), ("all", 0)):
            yield Case(
                "cluster.bandwidth", made, {"ctas": size, "where": where}, tile * UNROLL, "bytes", block=512,
                grid=grid, small_grid=size,
            )  # fmt: skip
