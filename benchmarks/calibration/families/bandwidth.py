"""Bandwidth: L2 by footprint and by SMs, HBM by bytes under way for loads, cp.async and bulk copies, writes, copies."""

from collections.abc import Iterator

from ..case import Case, Data
from ..source import Source, lines, shared

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30
# far beyond L2, and a power of two: offsets are masked
BEYOND = 4 * GIB
_SMALL = Data(256 * KIB, "numbers")


def _start(piece: int, footprint: int) -> str:
    """%d1: the CTA's place, which is inside the footprint however many CTAs there are, %d3: how far a turn goes."""
    return lines(
        f"mul.wide.u32 %d1, %cta, {piece};",
        f"and.b64 %d1, %d1, {footprint - 1};",
        "mov.u32 %r90, %nctaid.x;",
        f"mul.wide.u32 %d3, %r90, {piece};",
    )


def _next(mask: int) -> str:
    return lines("add.u64 %d1, %d1, %d3;", f"and.b64 %d1, %d1, {mask};")


def read_source(nbytes: int, unroll: int, block: int, cache: str = "cg", width: int = 16) -> Source:
    """Each thread has `unroll` loads of 16 bytes (or fewer) under way; the CTA goes on by all CTAs' pieces."""
    words = width // 4
    piece = block * width * unroll
    kind = {1: "u32", 2: "v2.u32", 4: "v4.u32"}[words]
    into = [", ".join(f"%r{words * n + part}" for part in range(words)) for n in range(unroll)]
    loads = [
        f"ld.global.{cache}.{kind} {into[n] if words == 1 else f'{{{into[n]}}}'}, [%d5+{width * block * n}];"
        for n in range(unroll)
    ]
    folds = [f"xor.b32 %result, %result, %r{words * n + part};" for n in range(unroll) for part in range(words)]
    # what a turn loads is used by the next one, so that an assembler cannot wait for some before it starts the others
    body = lines(*folds, "add.u64 %d5, %d2, %d1;", *loads, _next(nbytes - 1))
    begun = [f"mov.u32 %r{n}, 0;" for n in range(words * unroll)]
    setup = lines(_start(piece, nbytes), f"mad.wide.u32 %d2, %thread, {width}, %data;", *begun)
    return Source(f"reads_{nbytes}_{unroll}_{block}_{cache}_{width}", body, setup, lines(*folds))


def _read_case(name: str, nbytes: int, unroll: int, block: int, grid: int, parameters: dict[str, float | str]) -> Case:
    piece = block * 16 * unroll
    ctas = grid or 132
    turns = max(8, min(4096, (256 * MIB if grid != 1 else 16 * MIB) // (piece * ctas)))
    return Case(
        name, read_source(nbytes, unroll, block), parameters, piece, "bytes of a CTA", block=block, grid=grid,
        turns=(turns, 3 * turns), data=Data(nbytes, "numbers"), by_time=True, small_data=_SMALL,
        small_source=read_source(_SMALL.nbytes, unroll, block),
    )  # fmt: skip


def l2() -> Iterator[Case]:
    """All SMs read a footprint again and again; and 1 to all SMs one that fits."""
    for mib in (4, 16, 32, 64, 128):
        yield _read_case("bandwidth.l2", mib * MIB, 8, 1024, 0, {"bytes": mib * MIB, "sms": "all"})
    for sms in (1, 2, 8, 32, 66, 100):
        yield _read_case("bandwidth.l2", 16 * MIB, 8, 1024, sms, {"bytes": 16 * MIB, "sms": sms})


def l1() -> Iterator[Case]:
    """One SM reads 64 KiB through L1."""
    made = read_source(64 * KIB, 8, 512, "ca")
    yield Case(
        "bandwidth.l1", made, {}, 512 * 16 * 8, "bytes of an SM", block=512, turns=(64, 192),
        data=Data(64 * KIB, "numbers"),
    )  # fmt: skip


def hbm_reads() -> Iterator[Case]:
    """Plain loads, by bytes an SM has under way: threads x loads x 16."""
    for block, unroll in ((128, 1), (128, 2), (256, 2), (512, 2), (512, 4), (1024, 4), (1024, 8)):
        flying = block * unroll * 16
        yield _read_case("bandwidth.hbm", BEYOND, unroll, block, 0, {"by": "ld", "flying": flying})


def hbm_widths() -> Iterator[Case]:
    """As many bytes under way in loads of other widths: an instruction is done when the last of its lines is there."""
    for width, block, per_sm, unroll in (
        (4, 512, 4, 1), (4, 512, 2, 2), (4, 256, 2, 4), (8, 512, 2, 1), (16, 512, 1, 1), (16, 128, 1, 4),
        (4, 512, 4, 2), (8, 512, 4, 1), (16, 1024, 1, 1), (4, 512, 2, 1),
    ):  # fmt: skip
        piece = block * width * unroll
        turns = max(64, 256 * MIB // (piece * per_sm * 132))
        yield Case(
            "hbm.width", read_source(BEYOND, unroll, block, "cg", width),
            {"width": width, "warps": block * per_sm // 32, "loads": unroll}, piece, "bytes of a CTA", block=block,
            grid=0, grid_per_sm=per_sm, turns=(turns, 3 * turns), data=Data(BEYOND, "numbers"), by_time=True,
            small_data=_SMALL, small_source=read_source(_SMALL.nbytes, unroll, block, "cg", width),
        )  # fmt: skip


def hbm_writes() -> Iterator[Case]:
    """Stores of 16 bytes a lane, and copies."""
    block, unroll = 512, 4
    piece = block * 16 * unroll
    turns = 256 * MIB // (piece * 264)
    for name, work in (("write", piece), ("copy", 2 * piece)):
        yield Case(
            "bandwidth.hbm", _writes(name, block, unroll, BEYOND), {"by": name, "flying": piece}, work,
            "bytes of a CTA", block=block, grid=0, grid_per_sm=2, turns=(turns, 3 * turns),
            data=Data(BEYOND, "numbers"), by_time=True, small_data=_SMALL,
            small_source=_writes(name, block, unroll, _SMALL.nbytes),
        )  # fmt: skip


def _writes(name: str, block: int, unroll: int, nbytes: int) -> Source:
    piece = block * 16 * unroll
    stores = [f"st.global.v4.u32 [%d5+{16 * block * n}], {{%turn, %turn, %turn, %turn}};" for n in range(unroll)]
    footprint = nbytes if name == "write" else nbytes // 2
    setup = lines(_start(piece, footprint), "mad.wide.u32 %d2, %thread, 16, %data;")
    start = "add.u64 %d5, %d2, %d1;"
    if name == "write":
        return Source(f"hbm_write_{nbytes}", lines(start, *stores, _next(nbytes - 1)), setup)
    body = lines(start, *_copied(block, unroll, nbytes // 2), _next(nbytes // 2 - 1))
    return Source(f"hbm_copy_{nbytes}", body, setup)


def _copied(block: int, unroll: int, half: int) -> list[str]:
    """From the first half of the footprint to the second."""
    groups = [f"{{%r{4 * n}, %r{4 * n + 1}, %r{4 * n + 2}, %r{4 * n + 3}}}" for n in range(unroll)]
    loads = [f"ld.global.v4.u32 {group}, [%d5+{16 * block * n}];" for n, group in enumerate(groups)]
    stores = [f"st.global.v4.u32 [%d6+{16 * block * n}], {group};" for n, group in enumerate(groups)]
    return [*loads, f"add.u64 %d6, %d5, {half};", *stores]


def hbm_mixes() -> Iterator[Case]:
    """Arrays that lie at an odd distance from each other: some are read, some written, side by side."""
    block, unroll = 512, 2
    piece = block * 16 * unroll
    turns = 256 * MIB // (piece * 264)
    for reads, writes in ((1, 1), (2, 1), (3, 1), (1, 2), (1, 0), (0, 1)):
        made, small = (_mixed(block, unroll, reads, writes, nbytes) for nbytes in (BEYOND, _SMALL.nbytes))
        yield Case(
            "hbm.mix", made, {"reads": reads, "writes": writes}, piece * (reads + writes), "bytes of a CTA",
            block=block, grid=0, grid_per_sm=2, turns=(turns, 3 * turns), data=Data(BEYOND, "numbers"), by_time=True,
            small_data=_SMALL, small_source=small,
        )  # fmt: skip


def _mixed(block: int, unroll: int, reads: int, writes: int, nbytes: int) -> Source:
    """Each array has a quarter of the memory less a piece, so that no two begin alike."""
    piece = block * 16 * unroll
    apart = nbytes // 4 - piece * 3 // 2
    mask = nbytes // 8 - 1
    body = ["add.u64 %d5, %d2, %d1;"]
    for array in range(reads):
        for n in range(unroll):
            first = 4 * (unroll * array + n)
            group = ", ".join(f"%r{first + part}" for part in range(4))
            body.append(f"ld.global.v4.u32 {{{group}}}, [%d5+{16 * block * n}];")
        body.append(f"add.u64 %d5, %d5, {apart};")
    body += [f"xor.b32 %result, %result, %r{n};" for n in range(4 * unroll * reads)]
    for _ in range(writes):
        stored = "{%result, %result, %turn, %turn}"
        body += [f"st.global.v4.u32 [%d5+{16 * block * n}], {stored};" for n in range(unroll)]
        body.append(f"add.u64 %d5, %d5, {apart};")
    setup = lines(_start(piece, nbytes // 8), "mad.wide.u32 %d2, %thread, 16, %data;")
    return Source(f"hbm_mix_{reads}_{writes}_{nbytes}", lines(*body, _next(mask)), setup)


def hbm_cp_async() -> Iterator[Case]:
    """cp.async of 16 bytes a lane into a ring of groups: `stages` of 4 KiB for each SM."""
    block, turns = 256, 4096
    for stages in (1, 2, 4, 8, 16, 32):
        flying = 16 * block * stages
        yield Case(
            "bandwidth.hbm", _cp_async(block, stages, BEYOND), {"by": "cp.async", "flying": flying}, 16 * block,
            "bytes of a CTA", block=block, grid=0, turns=(turns, 3 * turns), data=Data(BEYOND, "numbers"),
            by_time=True, shared_bytes=flying if flying > 48 << 10 else 0, small_data=_SMALL,
            small_source=_cp_async(block, stages, _SMALL.nbytes), small=stages + 1,
        )  # fmt: skip


def _cp_async(block: int, stages: int, nbytes: int) -> Source:
    piece = 16 * block
    body = lines(
        f"and.b32 %r1, %turn, {stages - 1};",
        f"mad.lo.u32 %r2, %r1, {piece}, %r3;",
        "add.u64 %d5, %d2, %d1;",
        "cp.async.cg.shared.global [%r2], [%d5], 16;",
        "cp.async.commit_group;",
        f"cp.async.wait_group {stages - 1};",
        _next(nbytes - 1),
    )
    setup = lines(
        _start(piece, nbytes),
        "mad.wide.u32 %d2, %thread, 16, %data;",
        "mov.u32 %r4, tile;",
        "mad.lo.u32 %r3, %thread, 16, %r4;",
    )
    finish = lines("cp.async.wait_all;", "ld.shared.u32 %result, [%r3];")
    return Source(f"hbm_cp_async_{stages}_{nbytes}", body, setup, finish, shared(stages * piece))


def hbm_bulk() -> Iterator[Case]:
    """Bulk copies of `box` bytes, `stages` under way, by one thread that waits and issues again."""
    for box, stages in ((2048, 2), (2048, 8), (4096, 4), (4096, 8), (8192, 4), (8192, 8), (16384, 4), (16384, 8)):
        yield _bulk(box, stages)


def _bulk(box: int, stages: int) -> Case:
    turns = max(64, 256 * MIB // (box * 132) // 2)
    return Case(
        "bandwidth.hbm", _bulk_source(box, stages, BEYOND), {"by": "bulk", "flying": box * stages, "box": box}, box,
        "bytes of a CTA", block=1, grid=0, turns=(turns, 3 * turns), data=Data(BEYOND, "numbers"), by_time=True,
        shared_bytes=box * stages if box * stages > 48 << 10 else 0, small_data=_SMALL,
        small_source=_bulk_source(box, stages, _SMALL.nbytes), small=stages + 1,
    )  # fmt: skip


def _bulk_source(box: int, stages: int, nbytes: int) -> Source:
    barrier = f"mad.lo.u32 %r3, %r1, 8, %r4;\nmad.lo.u32 %r2, %r1, {box}, %r5;"
    issue = lines(
        f"mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r3], {box};",
        "add.u64 %d5, %data, %d1;",
        f"cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r2], [%d5], {box}, [%r3];",
        _next(nbytes - 1),
    )
    first = lines(
        "fill:",
        '.pragma "nounroll";',
        barrier,
        issue,
        "add.u32 %r1, %r1, 1;",
        f"setp.lt.u32 %p4, %r1, {stages};",
        "@%p4 bra fill;",
        "mov.u32 %r1, 0;",
        "mov.u32 %r7, 0;",
    )
    step = lines(
        "add.u32 %r1, %r1, 1;",
        f"setp.eq.u32 %p4, %r1, {stages};",
        "@%p4 mov.u32 %r1, 0;",
        "@%p4 xor.b32 %r7, %r7, 1;",
    )
    begun = [f"mbarrier.init.shared::cta.b64 [%r4+{8 * n}], 1;" for n in range(stages)]
    names = ("mov.u32 %r5, tile;", "mov.u32 %r4, bars;", "mov.u32 %r1, 0;")
    setup = lines(_start(box, nbytes), *names, *begun, "fence.mbarrier_init.release.cluster;", first)
    drained = lines(
        "mov.u32 %r9, 0;",
        "drain:",
        '.pragma "nounroll";',
        barrier,
        _waited("last"),
        step,
        "add.u32 %r9, %r9, 1;",
        f"setp.lt.u32 %p5, %r9, {stages};",
        "@%p5 bra drain;",
        "ld.shared.u32 %result, [%r5];",
    )
    outside = lines(shared(box * stages), f".shared .align 8 .b64 bars[{stages}];")
    body = lines(barrier, _waited("arrived"), issue, step)
    return Source(f"hbm_bulk_{box}_{stages}_{nbytes}", body, setup, drained, outside)


def _waited(label: str) -> str:
    return lines(f"{label}:", "mbarrier.try_wait.parity.shared::cta.b64 %p3, [%r3], %r7;", f"@!%p3 bra {label};")
