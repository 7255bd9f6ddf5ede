"""Views of tensors: what they hold, and when two of them overlap."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from tests import sampled

from kernbench.npu.tasks.tensors import Buffer, covers, overlap, whole

SHAPE = (4, 6, 5)


def tensor():
    return whole(Buffer(0, "t", SHAPE, "i32", np.arange(120, dtype=np.int32), True))


@st.composite
def views(draw):
    view = tensor()
    key = []
    for size in SHAPE:
        if draw(st.booleans()):
            first = draw(st.integers(0, size - 1))
            key.append(slice(first, draw(st.integers(first + 1, size)), draw(st.sampled_from((None, 1, 2, 3)))))
        elif draw(st.booleans()):
            key.append(draw(st.integers(0, size - 1)))
        else:
            key.append(slice(None))
    view = view[tuple(key)]
    return view.T if len(view.shape) > 1 and draw(st.booleans()) else view


def elements(view):
    return set(view.data().reshape(-1).tolist())


BUFFER = tensor().buffer


def on_one_buffer(view):
    view.buffer = BUFFER
    return view


@settings(max_examples=sampled.examples(100, 300))
@given(views().map(on_one_buffer), views().map(on_one_buffer))
def test_overlap_never_misses_and_is_exact_where_strides_match(a, b):
    really = bool(elements(a) & elements(b))
    if really:
        assert overlap(a, b)
    if a.strides == b.strides and sorted(a.strides) == [1, 5, 30]:
        assert overlap(a, b) is really
    if covers(a, b):
        assert elements(b) <= elements(a)


def test_views_hold_what_numpy_says():
    array = np.arange(120).reshape(SHAPE)
    t = tensor()
    assert np.array_equal(t[1, 2:4].data(), array[1, 2:4])
    assert np.array_equal(t[:, 3, 1:].T.data(), array[:, 3, 1:].T)
    assert np.array_equal(t[::3, 1::2, :4:2].data(), array[::3, 1::2, :4:2])
    assert t[3:3:2].shape == (0, 6, 5)
    assert np.array_equal(t[2].reshape(10, 3).data(), array[2].reshape(10, 3))
    assert t[1].extent == (30, 60)


def test_another_buffer_never_overlaps():
    other = whole(Buffer(1, "u", SHAPE, "i32", None, True))
    assert not overlap(tensor(), other)
    assert not covers(tensor(), other)
