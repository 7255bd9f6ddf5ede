"""Memory dependences: loads and stores with a common byte, of which one writes, keep their order, and no others."""

from itertools import pairwise, product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests import sampled

from kernbench import machine, mesh
from kernbench.mesh.time import conflicts as module
from kernbench.mesh.time import time_recording
from kernbench.mesh.time.conflicts import find_conflicts, layout, normal_form, overlaps
from kernbench.result.recording import Pattern, Tables

SMALL = machine.load("small")


def touched(pattern, address=0):
    """All bytes, by enumeration."""
    steps, step = pattern.strides, pattern.itemsize
    if steps is None:
        steps = []
        for size in reversed(pattern.shape):
            steps.insert(0, step)
            step *= size
    starts = (
        sum(i * s for i, s in zip(index, steps, strict=True)) for index in product(*(range(n) for n in pattern.shape))
    )
    return {address + start + byte for start in starts for byte in range(pattern.itemsize)}


@st.composite
def patterns(draw):
    shape = tuple(draw(st.lists(st.integers(0, 5), max_size=3)))
    itemsize = draw(st.sampled_from([1, 2, 4]))
    strides = draw(st.none() | st.tuples(*(st.integers(-12, 12) for _ in shape)))
    return Pattern(shape, None if strides is None else tuple(s * itemsize for s in strides), itemsize)


@given(patterns())
def test_the_normal_form_has_the_same_bytes(pattern):
    low, high, run, axes = normal_form(pattern)
    starts = (
        sum(n * step for n, (_, step) in zip(index, axes, strict=True))
        for index in product(*(range(c) for c, _ in axes))
    )
    found = {low + start + byte for start in starts for byte in range(run)}
    assert found == touched(pattern)
    assert not found or (min(found), max(found) + 1) == (low, high)


@given(patterns(), patterns(), st.integers(-80, 80))
def test_two_patterns_overlap_where_they_have_a_byte_in_common(one, other, distance):
    tables = Tables(patterns=[one, other])
    forms = layout(tables)
    if not one.nbytes or not other.nbytes:
        return
    between = distance + int(forms.low[1] - forms.low[0])
    hit, left = overlaps(0, 1, between, forms.arrays, np.zeros((4, 9), np.int64), 1 << 40)
    assert hit == bool(touched(one) & touched(other, distance))
    assert left > 0


def accesses():
    return st.lists(st.tuples(st.integers(0, 60), st.integers(0, 4), st.booleans()), min_size=1, max_size=14)


def conflicts_of(forms, drawn):
    address, pattern, is_store = (np.array(column) for column in zip(*drawn, strict=True))
    commands = np.arange(len(drawn)) * 2 + 1
    found = find_conflicts(
        address.astype(np.int64), pattern, is_store, commands, 2 * len(drawn), layout(Tables(patterns=forms))
    )
    assert (found.tile[::2] == -1).all()
    return found, found.tile[1::2]


def as_pairs(found, tile, drawn):
    pairs = set()
    for (i, a), (j, b) in product(enumerate(tile), repeat=2):
        together = a >= 0 and b >= 0 and (a == b or b in found.neighbours[found.offsets[a] : found.offsets[a + 1]])
        if i < j and together and (drawn[i][2] or drawn[j][2]):
            pairs.add((i, j))
    return pairs


def obvious_pairs(forms, drawn):
    sets = [touched(forms[p], a) for a, p, _ in drawn]
    return {
        (i, j)
        for i, j in product(range(len(drawn)), repeat=2)
        if i < j and (drawn[i][2] or drawn[j][2]) and sets[i] & sets[j]
    }


@settings(max_examples=sampled.examples(30, 60))
@given(st.lists(patterns(), min_size=5, max_size=5), accesses())
def test_conflicts_are_the_pairs_that_enumeration_finds(forms, drawn):
    assert as_pairs(*conflicts_of(forms, drawn), drawn) == obvious_pairs(forms, drawn)


def test_more_pairs_than_there_was_room_for(monkeypatch):
    monkeypatch.setattr(module, "_FIRST_PAIRS", 1)
    forms = [Pattern((8,), None, 1)]
    drawn = [(i, 0, True) for i in range(12)]
    assert as_pairs(*conflicts_of(forms, drawn), drawn) == obvious_pairs(forms, drawn)


def test_a_cluster_too_tangled_to_look_at_is_kept_in_order_as_a_whole(monkeypatch):
    """A column of each of many rows: none overlap, and all bounding intervals do."""
    rows, columns = 4, 40
    forms = [Pattern((rows,), (columns,), 1), Pattern((7,), None, 1)]
    drawn = [(i, 0, True) for i in range(columns)] + [(1000, 1, True), (1001, 1, True), (2000, 1, True)]
    found, tile = conflicts_of(forms, drawn)
    assert as_pairs(found, tile, drawn) == obvious_pairs(forms, drawn) == {(columns, columns + 1)}
    monkeypatch.setattr(module, "_LOOKS", 2)
    monkeypatch.setattr(module, "_LOOKS_PER_TILE", 2)
    # the loop with these constants, not the one that was kept
    monkeypatch.setattr(module, "_sweep", module._sweep.py_func)
    found, tile = conflicts_of(forms, drawn)
    assert set(tile[:columns]) == {0}
    assert as_pairs(found, tile, drawn) >= obvious_pairs(forms, drawn)
    assert tile[columns] != tile[columns + 2]


# In time


def spans(kernel, channels=2):
    """When each load and store of one program starts and ends."""
    described = SMALL.override({"dma.channels": channels})
    host = mesh.Host(described, ranks=1)
    tensors = [host.replicate(np.ones((64, 64), np.float32), name="x"), host.empty((64, 64), "f32", name="o")]
    run = host.launch(kernel, *tensors)
    assert not run.findings or {f.kind for f in run.findings} == {"output-unwritten"}, run.findings
    times = time_recording(run.recording, described).times
    stream = run.recording.streams[0]
    return [(int(times.start[i]), int(times.finish[i])) for i, c in enumerate(stream) if c.op in ("load", "store")]


def long_value(tl, shape=(64, 64)):
    """A value that takes long to compute."""
    value = tl.full(shape, 1.0, "f32")
    for _ in range(3):
        value = tl.exp(value)
    return value


def in_order(found):
    return all(end <= start for (_, end), (start, _) in pairwise(found))


def write_after_write(x, o, *, tl):
    tl.store(o, long_value(tl))
    tl.store(o, tl.full((64, 64), 2.0, "f32"))


def write_after_write_of_one_byte_range(x, o, *, tl):
    tl.store(o, long_value(tl), strides=(64, 1))
    tl.store(o + 63 * 64 * 4 + 63 * 4, tl.full((1,), 2.0, "f32"))


def write_after_read(x, o, *, tl):
    tl.load(x, shape=(64, 64))
    tl.store(x + 256, tl.full((1, 64), 2.0, "f32"))


def read_after_write(x, o, *, tl):
    tl.store(o + 512, long_value(tl, (8, 64)))
    tl.load(o + 512 + 7 * 256, shape=(1, 4))


def through_a_clipped_tile(x, o, *, tl):
    tile = tl.make_block_ptr(o, (64, 64), (64, 1), (60, 60), (8, 8))
    tl.store(tile, long_value(tl, (8, 8)), boundary_check=(0, 1))
    tl.store(o + (63 * 64 + 63) * 4, tl.full((1,), 2.0, "f32"))


@pytest.mark.parametrize(
    "kernel",
    [
        write_after_write,
        write_after_write_of_one_byte_range,
        write_after_read,
        read_after_write,
        through_a_clipped_tile,
    ],
    ids=lambda kernel: kernel.__name__,
)
@pytest.mark.parametrize("channels", [1, 2, 3])
def test_accesses_to_common_bytes_keep_their_order(kernel, channels):
    assert in_order(spans(kernel, channels))


def columns_beside_each_other(x, o, *, tl):
    tl.store(o, long_value(tl, (64, 32)), strides=(64, 1))
    tl.store(o + 32 * 4, tl.full((64, 32), 2.0, "f32"), strides=(64, 1))


def interleaved_heads(x, o, *, tl):
    """Heads 0, 2, ... and 1, 3, ... of [64, 8, 8]."""
    tl.store(o, long_value(tl, (64, 4, 8)), strides=(64, 16, 1))
    tl.store(o + 32, tl.full((64, 4, 8), 2.0, "f32"), strides=(64, 16, 1))


def outside_a_clipped_tile(x, o, *, tl):
    """The whole tile would reach the rows that the second store writes."""
    tile = tl.make_block_ptr(o, (8, 64), (64, 1), (4, 0), (8, 8))
    tl.store(tile, long_value(tl, (8, 8)), boundary_check=(0,))
    tl.store(o + 8 * 256, tl.full((8, 8), 2.0, "f32"), strides=(64, 1))


def two_loads(x, o, *, tl):
    one = tl.load(x, shape=(64, 64))
    tl.load(x, shape=(64, 64))
    del one


@pytest.mark.parametrize(
    "kernel",
    [columns_beside_each_other, interleaved_heads, outside_a_clipped_tile, two_loads],
    ids=lambda kernel: kernel.__name__,
)
def test_accesses_without_a_common_byte_do_not_wait(kernel):
    first, second = spans(kernel)
    assert second[0] < first[1]


def test_what_a_store_overwrites_need_not_be_waited_for_again():
    """Stores to one tile: each waits for the one before it on the other channel, and for no other."""

    def kernel(x, o, *, tl):
        value = tl.full((64, 64), 1.0, "f32")
        for _ in range(20):
            tl.store(o, value)

    host = mesh.Host(SMALL, ranks=1)
    run = host.launch(kernel, host.empty((64, 64), "f32"), host.empty((64, 64), "f32"))
    graph = time_recording(run.recording, SMALL).lowered.graph
    assert int((graph.kinds == 8).sum()) == 19
