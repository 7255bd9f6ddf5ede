"""Words that lie far apart, in L2 and beyond it; and lines of L2 that many SMs read at once."""

from collections.abc import Iterator
from dataclasses import replace

from ..case import Case, Data
from ..source import Source, lines
from .bandwidth import BEYOND, MIB, read_source
from .patterns import BLOCK, FOOTPRINT, SMALL, UNROLL, strided


def _case(act: str, stride: int, nbytes: int, grid: int = 0, per_sm: int = 8) -> Case:
    # a turn that takes long needs no more of them
    turns = (16, 48) if nbytes == FOOTPRINT else (8, 24)
    # a turn of one CTA writes no word twice
    small = min(max(SMALL, UNROLL * BLOCK * stride), MIB)
    varied: dict[str, float | str] = {"act": act, "stride": stride, "bytes": nbytes, "sms": grid or "all"}
    return Case(
        "scattered", strided(act, stride, nbytes), varied,
        UNROLL * BLOCK // 32, "warp instructions of a CTA", block=BLOCK, grid=grid, grid_per_sm=per_sm, turns=turns,
        data=Data(nbytes, "numbers"), by_time=True, small_data=Data(small, "numbers"),
        small_source=strided(act, stride, small),
    )  # fmt: skip


def beyond() -> Iterator[Case]:
    """Memory: what a word costs that is alone in its sector, its pair of sectors, its line and so on."""
    for act, strides in (("load", (4, 32, 64, 128, 256, 1024, 4096)), ("store", (32, 64, 128, 512))):
        for stride in strides:
            yield _case(act, stride, BEYOND)


def inside() -> Iterator[Case]:
    """L2: strides beyond a line by all SMs, and all of them by one SM."""
    for act in ("load", "store"):
        for stride in (64, 256, 512):
            yield _case(act, stride, FOOTPRINT)
        for stride in (4, 32, 64, 128, 512):
            yield _case(act, stride, FOOTPRINT, 1)


def _columns(act: str, side: int) -> Source:
    """Tiles of 32 x 32 words of a square matrix, lanes down a column: as a transposition without shared memory does."""
    body = ["div.u32 %r1, %r9, %r8;", "rem.u32 %r2, %r9, %r8;", "mad.lo.u32 %r2, %r2, 32, %lane;"]
    body += ["mad.lo.u32 %r1, %r1, 32, %warp;", f"mad.lo.u32 %r3, %r2, {side}, %r1;"]
    for step in range(4):
        body += [f"add.u32 %r4, %r3, {8 * step};", f"and.b32 %r4, %r4, {side * side - 1};"]
        body.append("mad.wide.u32 %d5, %r4, 4, %data;")
        load = f"ld.global.u32 %r{10 + step}, [%d5];\nxor.b32 %result, %result, %r{10 + step};"
        body.append(load if act == "load" else "st.global.u32 [%d5], %turn;")
    setup = lines("mov.u32 %r9, %cta;", "mov.u32 %r7, %nctaid.x;", f"mov.u32 %r8, {side // 32};")
    return Source(f"columns_{act}_{side}", lines(*body, "add.u32 %r9, %r9, %r7;"), setup)


def columns() -> Iterator[Case]:
    """Columns of matrices that L2 holds and that it does not."""
    for act in ("load", "store"):
        for side in (2048, 8192):
            yield Case(
                "columns", _columns(act, side), {"act": act, "side": side}, 32, "warp instructions of a CTA",
                block=BLOCK, grid=0, grid_per_sm=8, turns=(16, 48), data=Data(4 * side * side, "numbers"), by_time=True,
                small_data=Data(4 * 64 * 64, "numbers"), small_source=_columns(act, 64),
            )  # fmt: skip


def shared_lines() -> Iterator[Case]:
    """CTAs that read the same lines at the same time: `by` neighbours, or CTAs that are so many apart."""
    block, unroll, nbytes = 512, 8, 16 * MIB
    piece = block * 16 * unroll
    for form, by in (*(("neighbours", by) for by in (1, 2, 4, 16, 132)), *(("apart", by) for by in (2, 4, 16))):
        for cache in ("cg",):
            made = read_source(nbytes, unroll, block, cache)
            number = f"div.u32 %cta, %cta, {by};" if form == "neighbours" else f"rem.u32 %cta, %cta, {264 // by};"
            # the results still lie by CTA
            setup = lines("mov.u32 %r91, %cta;", number, made.setup, "mov.u32 %cta, %r91;")
            source = replace(made, name=f"shared_lines_{form}_{by}", setup=setup)
            yield Case(
                "l2.shared", source, {"form": form, "by": by}, piece, "bytes of a CTA", block=block, grid=0,
                grid_per_sm=2, turns=(32, 96), data=Data(nbytes, "numbers"), by_time=True,
            )  # fmt: skip


def shared_misses() -> Iterator[Case]:
    """CTAs that read the same lines of memory at the same time, with few bytes under way: what sharing a miss costs."""
    for by, block, unroll in ((1, 128, 1), (4, 128, 1), (4, 128, 4), (16, 128, 1)):
        made, small = read_source(BEYOND, unroll, block), read_source(256 << 10, unroll, block)
        number = lines("mov.u32 %r91, %cta;", f"div.u32 %cta, %cta, {by};")
        made, small = (
            replace(one, name=f"shared_{one.name}_{by}", setup=lines(number, one.setup, "mov.u32 %cta, %r91;"))
            for one in (made, small)
        )
        piece = block * unroll * 16
        yield Case(
            "hbm.shared", made, {"by": by, "flying": piece}, piece, "bytes of a CTA", block=block, grid=0,
            turns=(512, 1536), data=Data(BEYOND, "numbers"), by_time=True, small_data=Data(256 << 10, "numbers"),
            small_source=small,
        )  # fmt: skip


def l2_flying() -> Iterator[Case]:
    """L2 by bytes that an SM has under way: how its answers get later under load."""
    for block, unroll in ((32, 1), (128, 1), (128, 2), (256, 2), (512, 2), (512, 4), (1024, 4)):
        piece = block * unroll * 16
        turns = max(32, min(1024, 64 * MIB // (piece * 132)))
        yield Case(
            "l2.flying", read_source(16 * MIB, unroll, block), {"flying": piece}, piece, "bytes of a CTA",
            block=block, grid=0, turns=(turns, 3 * turns), data=Data(16 * MIB, "numbers"), by_time=True,
            small_data=Data(256 << 10, "numbers"), small_source=read_source(256 << 10, unroll, block),
        )  # fmt: skip
    # half-words and words of lanes, as narrow loads have
    for kind, width in (("u16", 2), ("u32", 4)):
        yield _narrow(kind, width)


def _narrow(kind: str, width: int) -> Case:
    """Eight loads of a narrow type under way, side by side."""
    nbytes = 16 * MIB
    piece = BLOCK * width * UNROLL
    target = "%h" if width == 2 else "%r"
    loads = [f"ld.global.cg.{kind} {target}{n}, [%d5+{BLOCK * width * n}];" for n in range(UNROLL)]
    folds = [
        f"cvt.u32.u16 %r30, %h{n};\nxor.b32 %result, %result, %r30;" if width == 2
        else f"xor.b32 %result, %result, %r{n};" for n in range(UNROLL)
    ]  # fmt: skip
    setup = lines(
        f"mul.wide.u32 %d1, %cta, {piece};",
        f"mad.wide.u32 %d2, %thread, {width}, %data;",
        "mov.u32 %r90, %nctaid.x;",
        f"mul.wide.u32 %d3, %r90, {piece};",
    )
    body = lines("add.u64 %d5, %d2, %d1;", *loads, *folds, "add.u64 %d1, %d1, %d3;", f"and.b64 %d1, %d1, {nbytes - 1};")
    return Case(
        "l2.narrow", Source(f"narrow_{kind}", body, setup), {"width": width}, piece, "bytes of a CTA", block=BLOCK,
        grid=0, grid_per_sm=8, turns=(64, 192), data=Data(nbytes, "numbers"), by_time=True,
    )  # fmt: skip


WORD_ACTS = {
    "load": "ld.global.cg.u32 %r{n}, [%d3];\nxor.b32 %result, %result, %r{n};",
    "store": "st.global.u32 [%d3], %turn;",
    "red": "red.global.add.u32 [%d3], 1;",
}


def _random(act: str, nbytes: int) -> Source:
    """Each lane takes words that look random, eight a turn; no word comes again before all have come."""
    bits = (nbytes // 4).bit_length() - 1
    body: list[str] = []
    for step in range(UNROLL):
        body += ["mul.lo.u32 %r92, %r91, 739982445;", f"and.b32 %r92, %r92, {nbytes // 4 - 1};"]
        body += [f"shr.u32 %r93, %r92, {bits // 2};", "xor.b32 %r92, %r92, %r93;", "mul.lo.u32 %r92, %r92, 695872825;"]
        body += [f"and.b32 %r92, %r92, {nbytes // 4 - 1};", f"shr.u32 %r93, %r92, {bits // 2};"]
        body += ["xor.b32 %r92, %r92, %r93;", "mad.wide.u32 %d3, %r92, 4, %data;", WORD_ACTS[act].format(n=step)]
        body.append("add.u32 %r91, %r91, %r90;")
    setup = lines("mov.u32 %r90, %nctaid.x;", "mul.lo.u32 %r90, %r90, %threads;", "mov.u32 %r91, %id;")
    return Source(f"random_{act}_{nbytes}", lines(*body), setup)


def words() -> Iterator[Case]:
    """Words at random, in what L2 holds, holds in part and does not hold: loads, stores, atomics without result."""
    for act in WORD_ACTS:
        for mib in (4, 16, 32, 64, 128, 256):
            yield Case(
                "random.words", _random(act, mib * MIB), {"act": act, "bytes": mib * MIB}, UNROLL * BLOCK // 32,
                "warp instructions of a CTA", block=BLOCK, grid=0, grid_per_sm=8, turns=(8, 24),
                data=Data(mib * MIB, "numbers"), by_time=True, small_data=Data(SMALL, "numbers"),
                small_source=_random(act, SMALL),
            )  # fmt: skip
