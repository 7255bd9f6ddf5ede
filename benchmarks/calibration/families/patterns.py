"""Accesses that are not in one piece: global loads and stores by the stride of lanes, and atomics."""

from collections.abc import Iterator

from ..case import Case, Data
from ..source import Source, lines, shared
from .shared_memory import filled

KIB, MIB = 1 << 10, 1 << 20
UNROLL = 8
FOOTPRINT = 16 * MIB
SMALL = 64 * KIB
BLOCK = 256


def strided(act: str, stride: int, nbytes: int) -> Source:
    """A warp's instruction covers 32 strides; the next one is as far on, and so is the next turn for all CTAs."""
    piece = BLOCK * stride
    mask = nbytes - 1
    body: list[str] = []
    for step in range(UNROLL):
        body += ["add.u64 %d5, %d1, %d2;", f"and.b64 %d5, %d5, {mask};", "add.u64 %d5, %d5, %data;"]
        load = f"ld.global.cg.u32 %r{step}, [%d5];\nxor.b32 %result, %result, %r{step};"
        body.append(load if act == "load" else "st.global.u32 [%d5], %turn;")
        body.append("add.u64 %d1, %d1, %d3;")
    setup = lines(
        f"mul.wide.u32 %d1, %cta, {piece};",
        f"mul.wide.u32 %d2, %thread, {stride};",
        "mov.u32 %r90, %nctaid.x;",
        f"mul.wide.u32 %d3, %r90, {piece};",
    )
    return Source(f"strided_{act}_{stride}_{nbytes}", lines(*body), setup)


def strides() -> Iterator[Case]:
    """Words of lanes that lie 4 to 128 bytes apart, in a footprint that L2 holds, by all SMs."""
    for act in ("load", "store"):
        for stride in (4, 8, 16, 32, 128):
            yield Case(
                f"strided.{act}", strided(act, stride, FOOTPRINT), {"stride": stride}, UNROLL * BLOCK // 32,
                "warp instructions of a CTA", block=BLOCK, grid=0, grid_per_sm=8, turns=(32, 96),
                data=Data(FOOTPRINT, "numbers"), by_time=True, small_data=Data(SMALL, "numbers"),
                small_source=strided(act, stride, SMALL),
            )  # fmt: skip


def spread_atomics() -> Iterator[Case]:
    """Reductions of words in global memory that look random, within 1 KiB to 4 MiB, by all SMs."""
    for size in (KIB, 64 * KIB, 4 * MIB):
        body = [
            "mad.lo.u32 %r1, %r1, 1664525, 1013904223;", "shr.u32 %r2, %r1, 8;", f"and.b32 %r2, %r2, {size - 4};",
            "cvt.u64.u32 %d2, %r2;", "add.u64 %d3, %data, %d2;", "red.global.add.u32 [%d3], 1;",
        ]  # fmt: skip
        made = Source(f"atomic_random_{size}", lines(*body * UNROLL), "mad.lo.u32 %r1, %id, 1103515245, 12345;")
        yield Case(
            "atomic.random", made, {"bytes": size}, UNROLL * BLOCK // 32, "warp instructions of a CTA", block=BLOCK,
            grid=0, grid_per_sm=8, turns=(8, 24), data=Data(size, "zeros"), by_time=True,
        )  # fmt: skip


def shared_atomics() -> Iterator[Case]:
    """Reductions in shared memory: a word of each lane, one word of all, words that look random in 1 KiB."""
    places = {
        "lanes": "and.b32 %r2, %lane, 31;",
        "one": "mov.u32 %r2, 0;",
        "random": "mad.lo.u32 %r1, %r1, 1664525, 1013904223;\nshr.u32 %r2, %r1, 24;",
    }
    setup = lines(filled(256), "mad.lo.u32 %r1, %id, 1103515245, 12345;")
    for spread, place in places.items():
        body = lines(place, "mad.lo.u32 %r3, %r2, 4, %r300;", "red.shared.add.u32 [%r3], %turn;")
        made = Source(f"shared_atomic_{spread}", lines(*[body] * UNROLL), setup, outside=shared(1024))
        for warps in (1, 8):
            yield Case(
                "shared.atomic", made, {"spread": spread, "warps": warps}, UNROLL * warps, "instructions of an SM",
                block=BLOCK if warps == 8 else 32,
            )  # fmt: skip
