"""Latency of global memory: chases over footprints from L1 to beyond the TLB, and L2 lines as each SM sees them."""

from collections.abc import Iterator
from dataclasses import replace

from ..case import Case, Data
from ..source import Source, lines

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30
UNROLL = 16
FOOTPRINTS = (16 * KIB, 64 * KIB, 128 * KIB, 4 * MIB, 16 * MIB, 24 * MIB, 32 * MIB, 48 * MIB, 64 * MIB, 128 * MIB, GIB)
_SMALL = Data(4096, "chase", 128)


def chases() -> Iterator[Case]:
    """One lane follows offsets; .ca asks L1 as well, .cg only L2. Large steps leave the reach of the TLBs."""
    yield from (_chase("ca", nbytes, 128) for nbytes in FOOTPRINTS[:3])
    yield from (_chase("cg", nbytes, 128) for nbytes in FOOTPRINTS[3:])
    yield from (_chase("cg", places * 2 * MIB, 2 * MIB) for places in (16, 64, 512, 4096))


def _chase(cache: str, nbytes: int, stride: int) -> Case:
    """Warm-up is the first launch: turns are such that the whole footprint is read, up to 64 MiB."""
    step = lines(f"ld.global.{cache}.u32 %r1, [%d1];", "cvt.u64.u32 %d2, %r1;", "add.u64 %d1, %data, %d2;")
    made = Source(f"chase_{cache}", lines(*[step] * UNROLL), "mov.u64 %d1, %data;", "mov.b32 %result, %r1;")
    places = nbytes // stride
    once = max(64, min(places // UNROLL, 65536))
    return Case(
        "latency.global",
        made,
        {"cache": cache, "bytes": nbytes, "stride": stride},
        UNROLL,
        "loads",
        block=1,
        turns=(once, 2 * once),
        data=Data(nbytes, "chase", stride),
        small_data=_SMALL,
    )


MAPPED = 64


def l2_map() -> Iterator[Case]:
    """Every SM loads each of 64 lines several times from L2 and keeps the least latency: two halves show as two values.

    `sink` has a word for each thread: the least cycles of the thread's line, all of one warp's lanes in turn.
    """
    body = lines(
        "and.b32 %r1, %turn, 63;",
        "mad.wide.u32 %d1, %r1, 32768, %data;",
        # the value, which is zero, decides a branch: the clock is not read before it has come
        "ld.global.cg.u32 %r2, [%d1];",
        "setp.ne.u32 %p2, %r2, 0;",
        "@%p2 bra done;",
        "mov.u64 %d2, %clock64;",
        "ld.volatile.global.u32 %r3, [%d1];",
        "setp.ne.u32 %p2, %r3, 0;",
        "@%p2 bra done;",
        "mov.u64 %d5, %clock64;",
        "sub.u64 %d6, %d5, %d2;",
        "cvt.u32.u64 %r5, %d6;",
        "mad.wide.u32 %d7, %cta, 256, %sink;",
        "mad.wide.u32 %d7, %r1, 4, %d7;",
        "setp.gt.u32 %p1, %turn, 63;",
        "@%p1 ld.global.u32 %r6, [%d7];",
        "@!%p1 mov.u32 %r6, -1;",
        "min.u32 %r5, %r5, %r6;",
        "st.global.u32 [%d7], %r5;",
    )
    # the result, which every kernel stores last, is the first of them again
    finish = lines("mad.wide.u32 %mine, %cta, 256, %sink;", "ld.global.u32 %result, [%mine];")
    made = Source("l2_map", body, finish=finish)
    case = Case(
        "latency.l2_map",
        made,
        {"lines": MAPPED},
        1,
        "loads",
        block=1,
        grid=0,
        turns=(4 * MAPPED, 8 * MAPPED),
        data=Data(MAPPED * 32768, "zeros"),
        small=2 * MAPPED,
    )
    yield replace(case, sink_words=MAPPED)


def atomics() -> Iterator[Case]:
    """Atomics: the latency of one lane, and rates on one address, on one line, and on many lines, from all SMs."""
    # its address is what the one before gave, which is always zero, as nobody knows
    chain = lines("atom.global.or.b32 %r1, [%d1], 0;", "cvt.u64.u32 %d2, %r1;", "add.u64 %d1, %data, %d2;")
    setup = "mov.u64 %d1, %data;"
    made = Source("atomic_latency", lines(*[chain] * UNROLL), setup, "mov.b32 %result, %r1;")
    yield Case("atomic.latency", made, {}, UNROLL, "atomics", block=1, data=Data(4096, "zeros"))
    for spread, place in (
        ("one address", "mov.u64 %d1, %data;"),
        ("one line", "mad.wide.u32 %d1, %lane, 4, %data;"),
        ("a line each SM", "mad.wide.u32 %d1, %cta, 128, %data;"),
        ("a line each warp", "mad.wide.u32 %d1, %id, 4, %data;"),
    ):
        many = Source(
            "atomic_rate_" + spread.replace(" ", "_"), lines(*["red.global.add.u32 [%d1], 1;"] * UNROLL), place
        )
        yield Case(
            "atomic.rate", many, {"spread": spread}, UNROLL, "warp instructions of a warp", block=256, grid=0,
            turns=(16, 48), data=Data(1 * MIB, "zeros"), by_time=True, small_data=Data(64 * KIB, "zeros"),
        )  # fmt: skip
