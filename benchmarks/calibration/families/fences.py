"""fence.proxy.async: behind stores of shared memory, by warps, and between those stores and what reads them."""

from collections.abc import Iterator

from ..case import Case, Data
from ..source import Source, lines, shared
from .shared_memory import filled
from .tensor_cores import ONES, TILE, descriptors, tile_filled

FENCE = "fence.proxy.async.shared::cta;"
_OWN = 2048
# bytes of A of the first 64 x 64 elements, which stores fill
_A = 8192


def _stores(count: int, value: str = "%turn") -> list[str]:
    """Of 16 bytes a lane, into the 2 KiB of a warp."""
    return [f"st.shared.v4.u32 [%r3+{512 * (n % 4)}], {{{value}, {value}, {value}, {value}}};" for n in range(count)]


def _own(first: str) -> str:
    return lines("mad.lo.u32 %r3, %lane, 16, " + first + ";", f"mad.lo.u32 %r3, %warp, {_OWN}, %r3;")


def by_warps() -> Iterator[Case]:
    """Stores, a fence, a barrier: all that can be left out left out once."""
    for warps in (1, 4, 8):
        for stores in (0, 1, 4, 8, 16):
            for kind, after in (("none", []), ("fence", [FENCE]), ("both", [FENCE, "bar.sync 0;"])):
                if (stores == 0 and kind == "none") or (warps == 1 and kind == "both"):
                    continue
                made = Source(
                    f"fence_{kind}_{stores}_{warps}",
                    lines(*_stores(stores), *after),
                    lines(filled(warps * _OWN // 4), _own("%r300")),
                    outside=shared(warps * _OWN),
                )
                varied: dict[str, float | str] = {"behind": kind, "stores": stores, "warps": warps}
                yield Case("fence.stores", made, varied, 1, "turns", block=32 * warps)


def _chain(parts: str, products: int) -> Source:
    """What a warpgroup stores it multiplies, and the sums are what it stores next.

    Parts: s stores, m stmatrix, f fence, b barrier, w products and the wait for them.
    """
    sums = ", ".join(f"%f{i}" for i in range(32))
    text: list[str] = []
    if "s" in parts or "m" in parts:
        text += [f"mul.rn.f32 %f{100 + i}, %f{i}, %f200;" for i in range(32)]
        text += [f"cvt.rn.bf16x2.f32 %r{16 + i}, %f{101 + 2 * i}, %f{100 + 2 * i};" for i in range(16)]
    for n in range(4):
        four = ", ".join(f"%r{16 + 4 * n + part}" for part in range(4))
        if "s" in parts:
            text.append(f"st.shared.v4.u32 [%r3+{512 * n}], {{{four}}};")
        if "m" in parts:
            text.append(f"stmatrix.sync.aligned.m8n8.x4.shared.b16 [%r3+{512 * n}], {{{four}}};")
    text += [FENCE] if "f" in parts else []
    text += ["bar.sync 0;"] if "b" in parts else []
    if "w" in parts:
        shape = "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16"
        text.append("wgmma.fence.sync.aligned;")
        text += [f"{shape} {{{sums}}}, %d80, %d81, {'%p8' if n == 0 else '%p9'}, 1, 1, 0, 0;" for n in range(products)]
        text += ["wgmma.commit_group.sync.aligned;", "wgmma.wait_group.sync.aligned 0;"]
    begun = [f"mov.f32 %f{i}, 0f3F800000;" for i in range(32)]
    begun += [f"mov.b32 %r{16 + i}, {ONES};" for i in range(16)]
    setup = lines(
        tile_filled(TILE // 4, "ones"), descriptors(), *begun, _own("%r200"), "setp.eq.u32 %p9, 0, 0;",
        "setp.ne.u32 %p8, 0, 0;", "ld.global.f32 %f201, [%data];", "mul.f32 %f200, %f201, 0f3C800000;",
    )  # fmt: skip
    kept = [f"mov.b32 %r240, %f{i};\nxor.b32 %result, %result, %r240;" for i in range(32)]
    name = f"chain_{parts}_{products}"
    return Source(name, lines(*text), setup, lines(*kept), shared(TILE))


def chains() -> Iterator[Case]:
    """A warpgroup whose products are stored and multiplied again; parts of it; and 2 products or 8."""
    for parts in ("w", "fw", "fbw", "sf", "sfb", "sfbw", "mf", "mfb", "mfbw"):
        for products in (2, 8):
            if "w" in parts or products == 2:
                yield Case(
                    "fence.chain", _chain(parts, products), {"parts": parts, "products": products}, 1, "turns",
                    block=128, data=Data(4096, "ones"),
                )  # fmt: skip


def _bulk(parts: str) -> Source:
    """Stores of a warpgroup, a fence and a barrier, and a bulk store by one thread, whose reads are waited for."""
    text = _stores(4) if "s" in parts else []
    text += [FENCE] if "f" in parts else []
    text += ["bar.sync 0;"] if "b" in parts else []
    if "c" in parts:
        text += [
            f"@%p1 cp.async.bulk.global.shared::cta.bulk_group [%d1], [%r300], {_A};",
            "@%p1 cp.async.bulk.commit_group;",
            "@%p1 cp.async.bulk.wait_group.read 0;",
            "bar.sync 0;",
            f"add.u64 %d2, %d2, {_A};",
            f"and.b64 %d2, %d2, {(1 << 20) - 1};",
            "add.u64 %d1, %d2, %data;",
        ]
    setup = lines(
        filled(_A // 4), FENCE, "bar.sync 0;", _own("%r300"), "setp.eq.u32 %p1, %thread, 0;",
        "mov.u64 %d1, %data;", "mov.u64 %d2, 0;",
    )  # fmt: skip
    finish = "@%p1 cp.async.bulk.wait_group 0;"
    return Source(f"bulk_{parts}", lines(*text), setup, finish, shared(_A))


def copies() -> Iterator[Case]:
    """The same with a bulk store in place of products."""
    for parts in ("c", "fbc", "sfb", "sfbc"):
        yield Case("fence.bulk", _bulk(parts), {"parts": parts}, 1, "turns", block=128, data=Data(1 << 20, "numbers"))
