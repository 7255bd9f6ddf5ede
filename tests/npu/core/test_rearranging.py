"""tconcat, tsort32 and tmrgsort against plain NumPy, and what they refuse."""

import numpy as np
import pytest
from tests.npu.small import flag, kinds, run_kernel

from kernbench import npu

RNG = np.random.default_rng(7)


def test_concatenation_of_rows():
    def kernel(core, a, b, out):
        one, two = core.alloc("UB", (4, 16), valid=(4, 5)), core.alloc("UB", (4, 16), valid=(4, 7))
        both = core.alloc("UB", (4, 16), valid=(4, 12))
        core.tload(one, a)
        core.tload(two, b)
        flag(core, "MTE2", "V")
        core.tconcat(both, one, two)
        flag(core, "V", "MTE3")
        core.tstore(out, both)
        core.pipe_sync()

    a, b = (RNG.standard_normal((4, n)).astype(np.float32) for n in (5, 7))
    for chip in ("a2a3", "a5"):
        run = run_kernel(kernel, a, b, out=np.zeros((4, 12), np.float32), chip=chip)
        assert run.findings == []
        assert (run.outputs["out"] == np.concatenate([a, b], axis=1)).all()


@pytest.mark.parametrize("counted", [2, 3])
def test_concatenation_of_as_much_as_the_index_tiles_say(counted):
    def kernel(core, a, counts, out):
        one, both = core.alloc("UB", (4, 8)), core.alloc("UB", (4, 8))
        left, right, total = (core.alloc("UB", (4, 8), "i32", valid=(4, 1)) for _ in range(3))
        core.tload(one, a)
        core.tload(left, counts[:, 0:1])
        core.tload(right, counts[:, 1:2])
        flag(core, "MTE2", "V")
        core.texpands(both, -1.0)
        core.pipe_barrier("V")
        core.tconcat(both, one, one, *([total] if counted == 3 else []), left, right)
        flag(core, "V", "MTE3")
        core.tstore(out, both)
        core.pipe_sync()

    a = np.arange(32, dtype=np.float32).reshape(4, 8)
    counts = np.array([[2, 3], [8, 8], [0, 8], [5, 0]], np.int32)
    run = run_kernel(kernel, a, 4 * counts, out=np.zeros((4, 8), np.float32))
    assert run.findings == []
    wanted = np.full((4, 8), -1, np.float32)
    for row, (left, right) in enumerate(counts):
        joined = [*a[row, :left], *a[row, :right]][:8]
        wanted[row, : len(joined)] = joined
    assert (run.outputs["out"] == wanted).all()


def pairs_of(values, indices):
    """Values and indices as the chip keeps them, eight bytes for each."""
    flat = np.zeros((*values.shape, 8), np.uint8)
    flat[..., : values.dtype.itemsize] = values[..., None].view(np.uint8)
    flat[..., 4:] = indices[..., None].view(np.uint8)
    return flat.reshape(len(values), -1).view(values.dtype)


def by_value(values, indices):
    order = np.lexsort((indices, -values.astype(np.float64)))
    return values[order], indices[order]


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
@pytest.mark.parametrize("columns", [64, 40])
def test_groups_of_32_are_sorted_with_their_indices(dtype, columns):
    per = 8 // np.dtype(dtype).itemsize

    def kernel(core, a, idx, out):
        kind = "f32" if dtype is np.float32 else "f16"
        src, where = core.alloc("UB", (2, 64), kind, valid=(2, columns)), core.alloc("UB", (2, 64), "i32")
        dst = core.alloc("UB", (2, 64 * per), kind, valid=(2, columns * per))
        tmp = core.alloc("UB", (1, 64), kind) if columns % 32 else None
        core.tload(src, a)
        core.tload(where.view(valid=(2, columns)), idx)
        flag(core, "MTE2", "V")
        core.tsort32(dst, src, where.view(valid=(2, columns)), *([tmp] if tmp else []))
        flag(core, "V", "MTE3")
        core.tstore(out, dst)
        core.pipe_sync()

    values = RNG.integers(0, 9, (2, columns)).astype(dtype)
    indices = np.tile(np.arange(columns, dtype=np.int32), (2, 1))
    run = run_kernel(kernel, values, indices, out=np.zeros((2, columns * per), dtype))
    assert run.findings == []
    wanted_values, wanted_indices = values.copy(), indices.copy()
    for row in range(2):
        for first in range(0, columns, 32):
            here = slice(first, first + 32)
            wanted_values[row, here], wanted_indices[row, here] = by_value(values[row, here], indices[row, here])
    assert run.outputs["out"].tobytes() == pairs_of(wanted_values, wanted_indices).tobytes()


def merge(core, a, out, lists, room, exhausted=False, found=None):
    tiles = [core.alloc("UB", (1, n)) for n in lists]
    tmp, dst = core.alloc("UB", (1, sum(lists))), core.alloc("UB", (1, room))
    at = 0
    for tile, n in zip(tiles, lists, strict=True):
        core.tload(tile, a[:, at : at + n])
        at += n
    flag(core, "MTE2", "V")
    taken = core.tmrgsort(dst, tmp, *tiles, exhausted=exhausted)
    if found is not None:
        found.append(taken)
    flag(core, "V", "MTE3", 1)
    core.tstore(out, dst)
    core.pipe_sync()


def lists_of(*sizes, seed=3):
    """Sorted lists of pairs end to end, and the pairs in order."""
    rng, parts, everything = np.random.default_rng(seed), [], []
    for number, size in enumerate(sizes):
        values = np.sort(rng.integers(0, 50, size).astype(np.float32))[::-1].copy()
        indices = (1000 * number + np.arange(size)).astype(np.int32)
        parts.append(pairs_of(values[None], indices[None]))
        everything += [(-v, number, k, i) for k, (v, i) in enumerate(zip(values, indices, strict=True))]
    everything.sort()
    return np.concatenate(parts, axis=1), [(-v, i) for v, _, _, i in everything], [n for _, n, _, _ in everything]


@pytest.mark.parametrize("sizes", [(16, 32), (16, 16, 8), (8, 16, 32, 4)])
def test_lists_are_merged(sizes):
    flat, wanted, _ = lists_of(*sizes)
    lists = [2 * n for n in sizes]
    run = run_kernel(lambda core, a, out: merge(core, a, out, lists, sum(lists)), flat,
                     out=np.zeros((1, sum(lists)), np.float32))  # fmt: skip
    assert run.findings == []
    out = run.outputs["out"][0]
    assert list(zip(out[::2], out.view(np.int32)[1::2], strict=True)) == wanted


def test_the_best_of_a_merge_and_where_a_list_ended():
    flat, wanted, source = lists_of(16, 16)
    top, counts = [], []
    run = run_kernel(lambda core, a, out: merge(core, a, out, [32, 32], 16), flat, out=np.zeros((1, 16), np.float32))
    top = run.outputs["out"][0][::2].tolist()
    assert top == [v for v, _ in wanted[:8]]
    run = run_kernel(lambda core, a, out: merge(core, a, out, [32, 32], 64, True, counts), flat,
                     out=np.zeros((1, 64), np.float32))  # fmt: skip
    assert run.findings == []
    end = min(max(i for i, s in enumerate(source) if s == k) for k in (0, 1))
    assert counts == [(source[: end + 1].count(0), source[: end + 1].count(1))]


def test_four_blocks_of_a_tile_are_merged():
    flat, wanted, _ = lists_of(32, 32, 32, 32)

    def kernel(core, a, out):
        src, dst = core.alloc("UB", (1, 256)), core.alloc("UB", (1, 256))
        core.tload(src, a)
        flag(core, "MTE2", "V")
        core.tmrgsort(dst, src, 64)
        flag(core, "V", "MTE3")
        core.tstore(out, dst)
        core.pipe_sync()

    run = run_kernel(kernel, flat, out=np.zeros((1, 256), np.float32))
    assert run.findings == []
    assert run.outputs["out"][0][::2].tolist() == [v for v, _ in wanted]


def test_a_list_that_is_in_no_order_is_found():
    flat, _, _ = lists_of(16, 16)
    turned = flat.view(np.uint64)[:, ::-1].copy().view(np.float32)
    out = np.zeros((1, 64), np.float32)
    run = run_kernel(lambda core, a, out: merge(core, a, out, [32, 32], 64), turned, out=out)
    assert kinds(run) == ["misuse"]
    assert "list 0 is in no such order" in run.findings[0].message


def test_a_sort_without_its_flag_is_found():
    def kernel(core, a, out):
        src, dst = core.alloc("UB", (1, 256)), core.alloc("UB", (1, 256))
        core.tload(src, a)
        core.tmrgsort(dst, src, 64)
        flag(core, "V", "MTE3")
        core.tstore(out, dst)
        core.pipe_sync()

    assert "race" in kinds(run_kernel(kernel, lists_of(32, 32, 32, 32)[0], out=np.zeros((1, 256), np.float32)))


def refused(attempt, chip="a2a3"):
    def kernel(core, out):
        f32 = lambda *shape: core.alloc("UB", shape)  # noqa: E731
        attempt(core, f32)

    run = run_kernel(kernel, out=np.zeros((1, 8), np.float32), chip=chip)
    return run.findings[0].message


@pytest.mark.parametrize(
    ("attempt", "told"),
    [
        (lambda c, f: c.tconcat(f(4, 8), f(4, 8), f(4, 8)), "room for the columns of a and b"),
        (lambda c, f: c.tconcat(f(4, 32), f(4, 8), f(2, 8)), "as many valid rows as dst"),
        (lambda c, f: c.tconcat(f(4, 32), f(4, 8), c.alloc("UB", (4, 16), "f16")), "of one type"),
        (lambda c, f: c.tconcat(f(4, 32), f(4, 8), f(4, 8), f(4, 8)), "no index tiles, two or three"),
        (lambda c, f: c.tsort32(f(1, 80), f(1, 40), c.alloc("UB", (1, 40), "i32")), "no multiple of 32"),
        (lambda c, f: c.tsort32(f(1, 32), f(1, 32), c.alloc("UB", (1, 32), "i32")), "dst holds pairs of 8 bytes"),
        (lambda c, f: c.tsort32(f(1, 64), f(1, 32), f(1, 32)), "an i32 index for each element"),
        (lambda c, f: c.tmrgsort(f(1, 256), f(1, 256), 32), "a multiple of 64"),
        (lambda c, f: c.tmrgsort(f(1, 64), f(1, 8), f(1, 32), f(1, 32)), "tmp holds all lists"),
        (lambda c, f: c.tmrgsort(f(1, 64), f(1, 64), f(1, 32)), "two to four lists"),
        (lambda c, f: c.tmrgsort(f(2, 64), f(1, 64), f(1, 32), f(1, 32)), "tiles of one row of whole pairs"),
    ],
)
def test_what_has_no_meaning_is_refused(attempt, told):
    assert told in refused(attempt)


def test_on_a5_the_result_of_a_concatenation_is_exactly_its_parts():
    attempt = lambda c, f: c.tconcat(f(4, 32), f(4, 8), f(4, 8))  # noqa: E731
    assert "as many valid columns as a and b together" in refused(attempt, "a5")
    assert npu.load("a2a3").isa.concat == "room"
