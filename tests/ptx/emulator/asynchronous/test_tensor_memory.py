"""Tensor memory: loads and stores of every shape, copies from shared memory, shifts."""

from types import SimpleNamespace

import numpy as np
import pytest
from tests.ptx.emulator.asynchronous.matrices import (
    descriptor,
)
from tests.ptx.emulator.asynchronous.tcgen05 import (
    BASE,
    COMMIT,
    WAIT,
    kernel,
    launch,
    load,
    names,
)

from kernbench.ptx.emulator.asynchronous.matrix.tensor_core import CopyForm
from kernbench.ptx.emulator.asynchronous.matrix.tensor_memory import TensorMemory
from kernbench.ptx.numerics.matrix.instruction import Part

SHAPES = {
    "32x32b": (1, 1, lambda t, i: (t, i)),
    "16x64b": (1, 2, lambda t, i: (t // 4 + 8 * (t % 2), t // 2 % 2 + 2 * i)),
    "16x128b": (2, 4, lambda t, i: (t // 4 + 8 * (i % 2), t % 4 + 4 * (i // 2))),
    "16x256b": (4, 8, lambda t, i: (t // 4 + 8 * (i // 2 % 2), 2 * (t % 4) + i % 2 + 8 * (i // 4))),
    "16x32bx2": (1, 1, lambda t, i: (t % 16, i + 64 * (t // 16))),
}
FILL = """
  // word (lane, column) holds lane << 16 | column, from row stores
  mov.u32 %r30, %r0;
  shl.b32 %r30, %r30, 16;
{sets}
  tcgen05.st.sync.aligned.32x32b.x128.b32 [%r5], {every};
  tcgen05.wait::st.sync.aligned;
"""


def filled():
    sets = "\n".join(f"  or.b32 %d{i}, %r30, {i};" for i in range(128))
    return FILL.format(sets=sets, every=names(128))


def fits(shape, repeat, packed):
    per, step, _ = SHAPES[shape]
    span = repeat * step * (2 if packed else 1) + (64 if shape == "16x32bx2" else 0)
    return span <= 128 and per * repeat <= 128


LOADS = [(s, n, p) for s in SHAPES for n in (1, 2, 4, 16, 32, 64, 128) for p in ("", ".pack::16b") if fits(s, n, p)]


@pytest.mark.sampled(12)
@pytest.mark.parametrize(("shape", "repeat", "pack"), [case for case in LOADS if case[1] in (1, 4) or case[1] >= 32])
def test_loads(shape, repeat, pack):
    per, _, place = SHAPES[shape]
    count = per * repeat
    tail = ", 64" if shape == "16x32bx2" else ""
    text = f"  tcgen05.ld.sync.aligned.{shape}.x{repeat}{pack}.b32 {names(count)}, [%r5]{tail};\n"
    code = kernel(filled() + text, max(count, 128))
    run, words = launch(code, np.zeros(64, np.uint8), (0, 0), 0, 128)
    assert not run.findings, run.findings
    for thread in range(0, 128, 7):
        warp, lane = divmod(thread, 32)
        for i in range(count):
            row, column = place(lane, i)
            if pack:
                column = 2 * column if shape != "16x32bx2" else 2 * i + 64 * (lane // 16)
                assert words[thread, i] == column | (column + 1) << 16
            else:
                assert words[thread, i] == (32 * warp + row) << 16 | column


@pytest.mark.sampled(8)
@pytest.mark.parametrize("repeat", [2, 8])
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("unpack", ["", ".unpack::16b"])
def test_stores(shape, repeat, unpack):
    per, _, place = SHAPES[shape]
    count = per * repeat
    tail = ", 32" if shape == "16x32bx2" else ""
    sets = "\n".join(f"  mad.lo.u32 %d{i}, %r0, 256, {i + 0x10000 * (i + 1)};" for i in range(count))
    text = f"{sets}\n  tcgen05.st.sync.aligned.{shape}.x{repeat}{unpack}.b32 [%r5]{tail}, {names(count)};\n"
    body = filled() + text + "  tcgen05.wait::st.sync.aligned;\n" + load(128)
    run, words = launch(kernel(body, 128), np.zeros(64, np.uint8), (0, 0), 0, 128)
    assert not run.findings, run.findings
    want = (np.arange(128, dtype=np.uint32)[:, None] << 16) | np.arange(128, dtype=np.uint32)[None]
    for thread in range(128):
        warp, lane = divmod(thread, 32)
        for i in range(count):
            value = (thread * 256 + i + 0x10000 * (i + 1)) & 0xFFFFFFFF
            width = 2 if unpack else 1
            row, column = place(lane, i) if shape != "16x32bx2" else (lane % 16, i)
            first = width * column + (32 * (lane // 16) if shape == "16x32bx2" else 0)
            if unpack:
                want[32 * warp + row, first] = value & 0xFFFF
                want[32 * warp + row, first + 1] = value >> 16
            else:
                want[32 * warp + row, first] = value
    np.testing.assert_array_equal(words, want)


@pytest.mark.parametrize(("split", "row", "column"), [(5, 0, 5), (16 << 16, 16, 0), (16 << 16 | 9, 16, 9)])
def test_the_halves_of_a_split_load_are_an_address_apart(split, row, column):
    text = f"  tcgen05.ld.sync.aligned.16x32bx2.x4.b32 {names(4)}, [%r5], {split};\n"
    run, words = launch(kernel(filled() + text, 128), np.zeros(64, np.uint8), (0, 0), 0, 128)
    assert not run.findings, run.findings
    thread, i = np.arange(128)[:, None], np.arange(4)
    upper = thread // 16 % 2
    rows, columns = thread // 32 * 32 + thread % 16 + row * upper, i + column * upper
    np.testing.assert_array_equal(words[:, :4], rows << 16 | columns)


def test_a_split_load_beyond_the_lanes_of_its_warp():
    text = f"  tcgen05.ld.sync.aligned.16x32bx2.x1.b32 {names(1)}, [%r5], {32 << 16};\n"
    run, _ = launch(kernel(filled() + text, 128), np.zeros(64, np.uint8), (0, 0), 0, 128)
    assert [finding.kind for finding in run.findings] == ["tensor-memory"]


def copied(shape, data, stride=128, leading=2048, columns=8, more=""):
    """What columns 0.. hold after a copy."""
    text = f"  @%p3 tcgen05.cp.cta_group::1.{shape} [%r3], %rd4;\n{more}"
    body = filled() + "  tcgen05.fence::before_thread_sync;\n  bar.sync 0;\n  tcgen05.fence::after_thread_sync;\n"
    body += text + COMMIT + WAIT + load(columns)
    run, words = launch(kernel(body, 128), data, (descriptor(BASE, leading, stride, 0, True), 0), 0, 128)
    assert not run.findings, run.findings
    return words[:, :columns]


def test_copies():
    data = np.random.default_rng(9).integers(0, 256, 4096).astype(np.uint8)
    # rows of 16 bytes, eight in a core matrix; the second 16 bytes of each row lie 2048 on
    rows = np.concatenate([data[:2048].reshape(128, 16), data[2048:].reshape(128, 16)], axis=1).view(np.uint32)
    np.testing.assert_array_equal(copied("128x256b", data), rows)
    np.testing.assert_array_equal(copied("128x128b", data, columns=4), rows[:, :4])
    four = copied("32x128b.warpx4", data, columns=4)
    np.testing.assert_array_equal(four, np.tile(rows[:32, :4], (4, 1)))
    two = copied("64x128b.warpx2::02_13", data, columns=4)
    np.testing.assert_array_equal(two, np.tile(rows[:64, :4], (2, 1)))
    pairs = copied("64x128b.warpx2::01_23", data, columns=4)
    order = [0, 0, 1, 1]
    np.testing.assert_array_equal(pairs, np.concatenate([rows[32 * q : 32 * q + 32, :4] for q in order]))
    few = copied("4x256b", data)
    np.testing.assert_array_equal(few[::32], rows[:4])


def test_copy_unpacks():
    data = np.random.default_rng(10).integers(0, 256, 4096).astype(np.uint8)
    words = copied("128x128b.b8x16.b4x16_p64", data, columns=4)
    packed = data[:2048].reshape(128, 16)[:, :8]
    want = np.stack([packed & 15, packed >> 4], axis=-1).reshape(128, 16)
    np.testing.assert_array_equal(np.ascontiguousarray(words).view(np.uint8), want)
    words = copied("128x128b.b8x16.b6x16_p32", data, columns=4)
    rows = data[:2048].reshape(128, 16)[:, :12]
    bits = np.unpackbits(rows, axis=1, bitorder="little").reshape(128, 16, 6)
    want = np.packbits(np.pad(bits, ((0, 0), (0, 0), (0, 2))), axis=2, bitorder="little")[:, :, 0]
    np.testing.assert_array_equal(np.ascontiguousarray(words).view(np.uint8), want)


@pytest.mark.parametrize("quarter", [0, 2])
def test_shift(quarter):
    """31 of the 32 rows of one warp go one lane down (.31x256b); no other row does."""
    data = np.random.default_rng(11).integers(0, 256, 4096).astype(np.uint8)
    more = f"  add.u32 %r9, %r3, {32 * quarter << 16};\n  @%p3 tcgen05.shift.cta_group::1.down [%r9];\n"
    plain, shifted = copied("128x256b", data), copied("128x256b", data, more=more)
    first = 32 * quarter
    plain[first + 1 : first + 32] = plain[first : first + 31].copy()
    np.testing.assert_array_equal(shifted, plain)


AGAIN = """
  bar.sync 0;
  @%p2 tcgen05.dealloc.cta_group::1.sync.aligned.b32 %r3, 128;
  @%p2 tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [slot], 128;
  bar.sync 0;
  tcgen05.ld.sync.aligned.32x32b.x4.b32 {every}, [%r5];
"""


def test_what_was_stored_is_gone_when_columns_are_allocated_again():
    code = kernel(filled() + AGAIN.format(every=names(4)), 128)
    run, words = launch(code, np.zeros(64, np.uint8), (0, 0), 0, 128)
    assert [finding.kind for finding in run.findings] == ["uninitialised-read"]
    assert (words[:, :4] == 0xFFFFFFFF).all()


@pytest.mark.parametrize("how", ["write", "add"])
def test_what_products_and_copies_wrote_is_gone_when_columns_are_allocated_again(how):
    memory, part = TensorMemory(SimpleNamespace(ctas=2)), Part((0, 4), (0, 32), (0, 8))
    assert memory.allocate(1, 32, None) == 0
    values = np.ones((1, 128, 8), np.float32)
    memory.add(np.array([1]), part, 0, values) if how == "add" else memory.write(np.array([1]), part, 0, values)
    memory.words[1] &= np.uint32(7)
    assert memory.free(1, 0, 32)
    assert memory.allocate(1, 32, None) == 0
    assert (memory.words[1, :, :, :32] == 0xFFFFFFFF).all()


@pytest.mark.parametrize(("shape", "filled"), [("b4x16_p64", 8), ("b6x16_p32", 12)])
def test_padding_of_what_is_unpacked_need_not_be_written(shape, filled):
    """Of 16 bytes the first 8 or 12 hold elements: copies of narrow elements leave the rest as it is."""
    form = CopyForm(128, 16, "", {8: 4, 12: 6}[filled], None)
    tiles = form.tiles(np.array([descriptor(BASE, 2048, 128, 0, True)], np.uint64))
    assert [one.filled for one in tiles] == [filled], shape
