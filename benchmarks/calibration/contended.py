"""Fits of what many share: L2 by lines and by parts of sectors, atomics, memory that is read in pieces, tensor cores
beside which other pipes work. Each step takes what earlier ones found as given, as in `fit`.
"""

from collections.abc import Iterator
from dataclasses import replace
from math import exp

from .results import Results, Row, bytes_per_ns, clock, line, per_turn, per_turn_of, per_work
from .steps import Fitted, Known, found_from

LANES, SECTOR, LINE = 32, 32, 128
# of a row of `cold.rows`
ROW_BYTES = 512
# of answers that lie evenly, by how much of their spread the last of 4 and of 2 is later than one alone
LAST_OF_4, LAST_OF_2 = 4 / 5 - 1 / 2, 2 / 3 - 1 / 2


def each(row: Row) -> float:
    """Cycles of the whole GPU for one warp instruction."""
    return per_turn(row) / (float(row["work"]) * float(row["ctas"]))


def product_clock(results: Results, known: Known) -> Iterator[Fitted]:
    """The clock of kernels that multiply matrices, on one SM or on all."""
    rows = [row for kind in ("wgmma", "mma") for row in results.of("clock.kind", kind=kind)]
    yield found_from("clock.products", [clock(row) for row in rows], rows, "clock.kind")


def lines_of_l2(results: Results, known: Known) -> Iterator[Fitted]:
    """Words that are alone in their lines; lines that neighbours read; parts of sectors that are stored."""
    rows = [results.one("strided.load", stride=128)]
    rows += [row for stride in (256, 512) for row in _scattered(results, "load", stride)]
    yield found_from("l2.lines_per_cycle", [LANES / each(row) for row in rows], rows, "strided.load, scattered")
    turns = {by: per_turn(row) for by, row in results.varied("l2.shared", "by", form="neighbours")}
    shared = [by for by, half in ((2, 1), (4, 2), (16, 4)) if turns[by] < 0.8 * turns[half]]
    most = float(max(shared, default=1))
    yield Fitted("l2.merged", most, most, most, "l2.shared: as long as more of them take less time", 0.0, len(turns))
    row = results.one("scattered", act="store", stride=4, sms=1)
    yield found_from("l2.sm_write_bytes_per_cycle", [LINE / per_work(row)], [row], "scattered stores of one SM")
    dense, alone = (results.one("strided.store", stride=stride) for stride in (32, 128))
    by_line = (each(alone) - each(dense)) / (LANES - LANES * SECTOR / LINE)
    by_sector = each(dense) / LANES - by_line * SECTOR / LINE
    yield found_from("l2.store_sector", [by_sector], [dense, alone], "strided.store of 32 bytes, less its lines")
    yield found_from("l2.store_line", [by_line], [dense, alone], "strided.store of 128 bytes less of 32")


def _scattered(results: Results, act: str, stride: int) -> list[Row]:
    least = min(row["parameters"]["bytes"] for row in results.of("scattered"))
    return results.of("scattered", act=act, stride=stride, sms="all", bytes=least)


def contended_atomics(results: Results, known: Known) -> Iterator[Fitted]:
    """One word for all lanes; words of lines of their own; sectors that are spread."""

    def of(kind: str, words: int, stride: int) -> Row:
        return results.one("contention.global", kind=kind, words=words, stride=stride)

    one = of("red.u32", 1, 4)
    again = each(one) / LANES
    yield found_from("l2.atomic_interval", [again], [one], "contention.global on one word")
    row = of("red.f32", 1, 4)
    yield found_from("l2.atomic_float", [each(row) / LANES], [row], "contention.global of f32 on one word")
    for name, kinds in (("sector", ("red.f32", "red.v4.f32", "red.u32")), ("result", ("atom.u32", "", "atom.u32"))):
        rows = [(results.one("contention.rows", kind=kind, rows=4096, sms="all"), sectors)
                for kind, sectors in zip(kinds, (4, 16), strict=False) if kind]  # fmt: skip
        rows.append((of(kinds[2], 65536, 32), LANES))
        values = [each(row) / sectors for row, sectors in rows]
        yield found_from(f"l2.atomic_{name}", values, [row for row, _ in rows], "contention on many rows and words")
    rows_apart = {words: of("red.u32", words, LINE) for words in (8, 64, 4096)}
    at_once = {words: LANES * again / each(row) for words, row in rows_apart.items()}
    near = [words / at_once[words] for words in (8, 64)]
    yield found_from("l2.atomic_lines", near, [rows_apart[8], rows_apart[64]], "contention.global on 8 and 64 lines")
    yield found_from("l2.atomic_units", [at_once[4096]], [rows_apart[4096]], "contention.global on 4096 lines")


def missed_atomics(results: Results, known: Known) -> Iterator[Fitted]:
    """Reductions to rows that nothing holds, by how many there are: what a launch takes besides cancels."""
    cycles = known["clock.most"] / 1e3
    values, rows = [], []
    for act in ("red.u32", "red.f32", "red.v4.f32"):
        few = results.one("cold.rows", act=act, rows=1 << 14)
        for many in results.of("cold.rows", act=act, rows=1 << 17):
            sectors = ROW_BYTES / SECTOR * ((1 << 17) - (1 << 14))
            values.append((many["ns"] - few["ns"]) * cycles / sectors)
            rows.append(many)
    found = found_from("l2.atomic_missed", values, [], "cold.rows of reductions, by rows")
    yield replace(found, points=len(rows) + 3)


def rewritten_sectors(results: Results, known: Known) -> Iterator[Fitted]:
    """Stores of words at random to tables larger than L2, less a launch and what had to be written back first: memory's
    time against that of reading and writing as much.
    """
    cycle = known["hbm.bandwidth"] * 1e3 / known["clock.most"]
    read, write = 1 / (cycle * known["hbm.read_share"]), 1 / (cycle * known["hbm.write_share"])
    # half of what moves is read, and half is written
    both = 2 / (cycle * known["hbm.copy_share"])
    rows = [row for row in results.of("cold.words", act="store", words=1 << 20) if row["parameters"]["mib"] >= 64]
    values = []
    for row in rows:
        sectors = row["parameters"]["mib"] * (1 << 20) / SECTOR
        touched = sectors * (1 - exp(-row["parameters"]["words"] / sectors))
        dirty = known["l2.dirty"] * known["l2.turnover"] * write
        taken = (row["ns"] - known["launch.empty"]) * known["clock.most"] / 1e3 - known["launch.first"] - dirty
        plain = touched * known["hbm.granule"] / known["hbm.scattered"] * max(both, read + write)
        values.append(min(plain / taken, 1.0))
    found = found_from("hbm.rewritten", values, [], "cold.words: stores to tables larger than L2")
    yield replace(found, points=len(rows))


def pieces_of_memory(results: Results, known: Known) -> Iterator[Fitted]:
    """Words 32 and 64 bytes apart, and further; loads that wait for one another."""
    most = max(row["parameters"]["bytes"] for row in results.of("scattered"))
    by_stride = dict(results.varied("scattered", "stride", act="load", bytes=most))
    pairs = float(SECTOR * round(per_turn(by_stride[64]) / per_turn(by_stride[32])))
    yield Fitted("hbm.granule", pairs, pairs, pairs, "scattered: 64 bytes apart against 32", 0.0, 2)
    far = [by_stride[stride] for stride in (128, 256, 1024, 4096)]
    shares = [per_turn(by_stride[64]) / per_turn(row) for row in far]
    yield found_from("hbm.scattered", [min(share, 1.0) for share in shares], far, "scattered: 128 bytes apart and more")
    one, four = (results.one("hbm.width", width=4, warps=warps, loads=loads) for warps, loads in ((64, 1), (16, 4)))
    spread = (per_turn(four) - per_turn(one)) / LAST_OF_4
    yield found_from("hbm.spread", [max(spread, 0.0)], [one, four], "hbm.width: four loads of a line against one")
    alone, two = (results.one("l2.flying", flying=flying) for flying in (2048, 4096))
    spread = (per_turn(two) - per_turn(alone)) / LAST_OF_2
    yield found_from("l2.spread", [max(spread, 0.0)], [alone, two], "l2.flying: two loads against one")


def under_load(results: Results, known: Known) -> Iterator[Fitted]:
    """How loads of one or two lines take longer as more of the bandwidth is used: in proportion to its cube."""
    peak = known["hbm.bandwidth"] * known["hbm.read_share"]
    rows = [row for row in results.of("hbm.width", loads=1) if row["parameters"]["width"] <= 8]
    points = [(min(bytes_per_ns(row) / peak, 1.0) ** 3, per_turn(row)) for row in rows]
    slope, _, at = line(points)
    off = max(abs(at(x) - y) / y for x, y in points)
    yield Fitted(
        "hbm.loaded", max(slope, 0.0), max(slope, 0.0) * 0.7, max(slope, 0.0) * 1.1, "hbm.width", off, len(rows)
    )


def beside_products(results: Results, known: Known) -> Iterator[Fitted]:
    """Instructions of a warpgroup beside products: its rate by that of the same alone, at one warp a sub-core; and how
    much later products are done beside instructions of the FMA pipe.
    """
    for pipe in ("fma", "minmax", "mufu"):
        row = results.one("wgmma.beside", beside=pipe)
        alone = per_work(results.one(f"throughput.{pipe}", warps=4))
        beside = per_turn_of(row, slice(4, 8)) / row["parameters"]["instructions"]
        yield found_from(f"tensor.beside_{pipe}", [min(alone / beside, 1.0)], [row], "wgmma.beside")
    fma, none = (results.one("wgmma.beside", beside=name) for name in ("fma", "none"))
    later = per_turn_of(fma, slice(4)) - per_turn_of(none, slice(4))
    taken = max(later, 0.0) / fma["parameters"]["instructions"]
    yield found_from("tensor.taken_by_fma", [taken], [fma, none], "wgmma.beside: products beside FMA and alone")
