"""Loops over rows that our own pass compiles give what numba's give, to the bit."""

import numpy as np
import pytest
from tests.sampled import some

from kernbench.common.native.entry import kind_of, layout_is_known
from kernbench.common.native_loops import RowLoop
from kernbench.ptx.numerics import approximate, compare
from kernbench.ptx.numerics.conversion import convert, packed
from kernbench.ptx.numerics.floats import arithmetic, extremes, half
from kernbench.ptx.numerics.integers import arithmetic as integers
from kernbench.ptx.numerics.integers import bitwise

pytestmark = pytest.mark.skipif(
    not layout_is_known(), reason="objects of this Python lie in memory otherwise than they are read: numba compiles"
)

LANES = 3000
# loops, and the bits of their rows, the last of which is written
LOOPS = {
    # functions within functions, zeros with signs, a rounding of its own
    "fma.rm.f32": (lambda: arithmetic.arithmetic("fma", "f32", "rm"), (32, 32, 32, 32)),
    "fma.rp.f64": (lambda: arithmetic.arithmetic("fma", "f64", "rp"), (64, 64, 64, 64)),
    "div.rn.ftz.f32": (lambda: arithmetic.arithmetic("div", "f32", "rn", ftz=True, sat=True), (32, 32, 32)),
    "sqrt.rz.f32": (lambda: arithmetic.arithmetic("sqrt", "f32", "rz"), (32, 32)),
    # whole numbers of fewer bits than they are computed with
    "mad.hi.s32": (lambda: integers.multiply_add("s32", "hi", sat=True), (32, 32, 32, 32)),
    "mul.wide.s16": (lambda: integers.multiply("s16", "wide"), (16, 16, 32)),
    "div.u32": (lambda: integers.divide("div", "u32"), (32, 32, 32)),
    # instructions of the processor
    "bfind.s64": (lambda: bitwise.find_leading("s64"), (64, 32)),
    "popc.b32": (lambda: bitwise.bit_count("popc", 32), (32, 32)),
    "cvt.rni.s32.f32": (lambda: convert.convert("s32", "f32", "rni"), (32, 32)),
    # narrow floats
    "cvt.e4m3x2.f32": (lambda: packed.convert("e4m3x2", "f32", satfinite=True), (32, 32, 16)),
    "fma.bf16": (lambda: half.arithmetic("fma", "bf16", relu=True), (16, 16, 16, 16)),
    "setp.leu.f16": (lambda: compare.compare("leu", "f16"), (16, 16, 1)),
    "min.NaN.f32": (lambda: extremes.extreme("min", "f32", nan=True), (32, 32, 32)),
    # tables, and room for a block of lanes
    "div.full.f32": (lambda: approximate.divide("full", False), (32, 32, 32)),
    "ex2.approx.f32": (lambda: approximate.approximate("ex2", "f32", False), (32, 32)),
}
# values of floats at which something changes, as bits of 64; their upper halves are such values of 32 bits, nearly
EDGES = [0, 1, 0x3FF << 52, 0x7FF << 52, 0x7FF8 << 48, (0x7FF << 52) + 1, 1 << 52, (1 << 52) - 1, (0x7FF << 52) - 1]


def rows(widths):
    """Bits drawn at random, edges with either sign, and small numbers, in turn."""
    draw = np.random.default_rng(96)
    edges = np.array([*EDGES, *(edge | 1 << 63 for edge in EDGES)], np.uint64)
    for bits in widths:
        kinds = draw.integers(0, 3, LANES)
        drawn = draw.integers(0, 1 << 64, LANES, np.uint64)
        edge = edges[draw.integers(0, edges.size, LANES)] >> np.uint64(64 - bits)
        row = np.choose(kinds, [drawn, edge, draw.integers(0, 70, LANES, np.uint64)])
        yield row.astype(f"u{bits // 8}") if bits > 1 else (row & np.uint64(1)).astype(bool)


@pytest.mark.parametrize("name", some(list(LOOPS), 3))
def test_a_loop_gives_what_numbas_does(name):
    make, widths = LOOPS[name]
    loop = make()
    assert isinstance(loop, RowLoop)
    found, expected = list(rows(widths)), list(rows(widths))
    loop(*found)
    loop.by_numba(*expected)
    assert found[-1].tobytes() == expected[-1].tobytes()


@pytest.mark.parametrize("name", list(LOOPS))
def test_a_loop_is_compiled_without_numba(name, caplog):
    make, widths = LOOPS[name]
    loop = make()
    with caplog.at_level("INFO", "kernbench.common"):
        made = loop._made("loop_of_a_test", tuple(map(kind_of, rows(widths))))
    assert made.code
    assert caplog.messages == []


def test_numbers_and_rows_with_gaps_are_read_by_every_lane():
    loop = integers.multiply("u32", "hi")
    rows = np.arange(20, dtype=np.uint32)[::2] << 28, np.uint32(1 << 30)
    found, expected = np.zeros(10, np.uint32), np.zeros(10, np.uint32)
    loop(*rows, found)
    expected[:] = rows[0].astype(np.uint64) * (1 << 30) >> 32
    assert found.tolist() == expected.tolist()


def test_a_signed_quotient_is_numbas(caplog):
    with caplog.at_level("INFO", "kernbench.common"):
        made = integers.divide("div", "s64")._made("loop_of_a_test", (kind_of(np.zeros(1, np.uint64)),) * 3)
    assert made.code
    assert "a signed quotient" in caplog.text
