"""Shared memory: latency, bank conflicts, widths, ldmatrix and stmatrix, and the fence before asynchronous readers."""

from collections.abc import Iterator

import numpy as np

from ..case import Case
from ..source import Source, lines, shared

UNROLL = 32
_TILE = "mov.u32 %r300, tile;"
_LINE = 512


def filled(words: int) -> str:
    """Every word of the tile is zero, by all threads."""
    return lines(
        _TILE,
        "mov.u32 %r301, %thread;",
        "fill:",
        "mad.lo.u32 %r302, %r301, 4, %r300;",
        "st.shared.u32 [%r302], 0;",
        "add.u32 %r301, %r301, %threads;",
        f"setp.lt.u32 %p0, %r301, {words};",
        "@%p0 bra fill;",
        "bar.sync 0;",
    )


def latency() -> Iterator[Case]:
    """A chase of one lane: each load's address is the value of the one before, plus the tile's."""
    body = lines(*["ld.shared.u32 %r1, [%r2];\nadd.u32 %r2, %r300, %r1;"] * UNROLL)
    # a further addition to each load is a cost that is known
    setup = lines(filled(1024), "mov.u32 %r2, %r300;")
    made = Source("shared_latency", body, setup, "mov.b32 %result, %r1;", shared(4096))
    yield Case("shared.latency", made, {}, UNROLL, "loads", expected=np.zeros(32, np.uint32))
    matrix = "ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r1, %r4, %r5, %r6}, [%r2];\nadd.u32 %r2, %r3, %r1;"
    setup = lines(filled(1024), "and.b32 %r3, %lane, 31;", "mad.lo.u32 %r3, %r3, 16, %r300;", "mov.u32 %r2, %r3;")
    made = Source("ldmatrix_latency", lines(*[matrix] * UNROLL), setup, "mov.b32 %result, %r1;", shared(4096))
    yield Case("shared.ldmatrix_latency", made, {}, UNROLL, "loads", expected=np.zeros(32, np.uint32))


def conflicts() -> Iterator[Case]:
    """Loads of one word a lane, `ways` of which lie in one bank; of 4, 8 and 16 bytes."""
    for ways in (1, 2, 4, 8, 16, 32):
        place = lines(filled(2048), f"mul.lo.u32 %r2, %lane, {4 * ways};", "and.b32 %r2, %r2, 4095;")
        yield from _loads("shared.conflict", place, "u32", {"ways": ways})
    for width, kind in ((4, "u32"), (8, "v2.u32"), (16, "v4.u32")):
        place = lines(filled(2048), f"mul.lo.u32 %r2, %lane, {width};")
        yield from _loads("shared.width", place, kind, {"width": width})


def broadcasts() -> Iterator[Case]:
    """Loads of which some lanes want the same bytes, neighbours or every so many: passes, and the way to a sub-core."""
    for width, kind in ((4, "u32"), (8, "v2.u32"), (16, "v4.u32")):
        for together in (2, 4, 8, 16, 32):
            place = lines(filled(2048), f"div.u32 %r2, %lane, {together};", f"mul.lo.u32 %r2, %r2, {width};")
            yield from _loads("shared.broadcast", place, kind, {"width": width, "together": together})
    # two and four groups of lanes that take turns, and groups whose bytes lie in the same banks
    for groups, apart in ((2, 16), (4, 16), (8, 16), (2, 128), (4, 128)):
        place = lines(filled(2048), f"rem.u32 %r2, %lane, {groups};", f"mul.lo.u32 %r2, %r2, {apart};")
        yield from _loads("shared.interleaved", place, "v4.u32", {"groups": groups, "apart": apart})


def _loads(name: str, place: str, kind: str, parameters: dict[str, float | str]) -> Iterator[Case]:
    count = {"u32": 1, "v2.u32": 2, "v4.u32": 4}[kind]
    body: list[str] = []
    for load in range(UNROLL):
        into = [f"%r{16 + count * (load % 8) + part}" for part in range(count)]
        target = into[0] if count == 1 else f"{{{', '.join(into)}}}"
        body.append(f"ld.volatile.shared.{kind} {target}, [%r3+{_LINE * (load % 4)}];")
        if load % 8 == 7:
            body += [f"xor.b32 %result, %result, %r{16 + count * part};" for part in range(8)]
    made = Source(
        "_".join(
            (name.replace(".", "_"), *(f"{value:g}" for value in parameters.values() if not isinstance(value, str)))
        ),
        lines(*body),
        lines(place, "add.u32 %r3, %r2, %r300;"),
        outside=shared(8192),
    )
    for warps in (4, 16):
        yield Case(
            name, made, {**parameters, "warps": warps}, UNROLL * warps, "loads of an SM", block=32 * warps,
            expected=np.zeros(32 * warps, np.uint32),
        )  # fmt: skip


def matrices() -> Iterator[Case]:
    """Throughput of ldmatrix.x4 and stmatrix.x4 of 1 to 4 warps."""
    place = lines(filled(2048), "mad.lo.u32 %r3, %lane, 16, %r300;", "mov.u32 %r4, 0;", "mov.u32 %r5, 0;")
    own = lines(place, "mad.lo.u32 %r3, %warp, 512, %r3;", "mov.u32 %r6, 0;", "mov.u32 %r7, 0;")
    loads: list[str] = []
    for step in range(UNROLL):
        into = ", ".join(f"%r{16 + 4 * (step % 8) + part}" for part in range(4))
        loads.append(f"ldmatrix.sync.aligned.m8n8.x4.shared.b16 {{{into}}}, [%r3+{_LINE * (step % 8)}];")
        if step % 8 == 7:
            loads += [f"xor.b32 %result, %result, %r{16 + 4 * part};" for part in range(8)]
            # nobody knows that the result is zero: the same load twice would be one
            loads.append("add.u32 %r3, %r3, %result;")
    stores = ["stmatrix.sync.aligned.m8n8.x4.shared.b16 [%r3], {%r4, %r5, %r6, %r7};"] * UNROLL
    for warps in (1, 4, 8):
        for name, body in (("ldmatrix", loads), ("stmatrix", stores)):
            made = Source(f"{name}_rate", lines(*body), own, outside=shared(8192))
            yield Case(
                f"shared.{name}", made, {"warps": warps}, UNROLL * warps, "instructions of an SM", block=32 * warps,
                expected=np.zeros(32 * warps, np.uint32),
            )  # fmt: skip


def fences() -> Iterator[Case]:
    """fence.proxy.async after 0 to 16 stores of 16 bytes a lane."""
    place = lines(filled(2048), "mad.lo.u32 %r3, %lane, 16, %r300;")
    for stores in (0, 8, 16):
        body = [f"st.shared.v4.u32 [%r3+{512 * (n % 4)}], {{%turn, %turn, %turn, %turn}};" for n in range(stores)]
        made = Source(f"fence_{stores}", lines(*body, "fence.proxy.async.shared::cta;"), place, outside=shared(8192))
        yield Case("shared.proxy_fence", made, {"stores": stores}, 1, "fences")
