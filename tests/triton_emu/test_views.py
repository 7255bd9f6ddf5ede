"""Views see what NumPy sees, at the address of their first element."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from tests import sampled
from tests.triton_emu.values import SMALL, evaluate, exact, normal, rounded, same, seeds

from kernbench import mesh
from kernbench.common.dtypes import dtype_name
from kernbench.common.errors import KernelError
from kernbench.triton_emu import TLContext, run_kernel


@settings(max_examples=sampled.examples(20, 60))
@given(st.data(), st.sampled_from(["f16", "f8e4m3", "f32", "i32"]), seeds)
def test_chains_of_views_see_what_numpy_sees(data, dtype, seed):
    x = normal(seed, data.draw(hnp.array_shapes(min_dims=1, max_dims=3, max_side=5)), dtype)
    steps, mirror = [], x
    for _ in range(data.draw(st.integers(1, 4))):
        kind = data.draw(st.sampled_from(["index", "trans", "reshape", "expand"]))
        if kind == "index" and mirror.ndim:
            step = data.draw(hnp.basic_indices(mirror.shape, allow_newaxis=True, allow_ellipsis=True))
            mirror = mirror[step]
        elif kind == "trans" and mirror.ndim:
            step = data.draw(st.permutations(range(mirror.ndim)))
            mirror = mirror.transpose(step)
        elif kind == "expand":
            step = data.draw(st.integers(-mirror.ndim - 1, mirror.ndim))
            mirror = np.expand_dims(mirror, step)
        else:
            kind, step = "reshape", data.draw(st.sampled_from([(-1,), (1, mirror.size), (mirror.size, 1)]))
            if mirror.size == 0 and -1 in step:
                step = (0,)
            mirror = mirror.reshape(step)
        mirror = np.asarray(mirror)
        steps.append((kind, step))

    def body(tl, handle):
        for kind, step in steps:
            if kind == "index":
                handle = handle[step]
            elif kind == "trans":
                handle = tl.trans(handle, *step)
            elif kind == "expand":
                handle = tl.expand_dims(handle, step)
            else:
                handle = handle.reshape(step)
        return [handle, -handle]

    seen, computed = evaluate(body, x)
    assert seen.shape == mirror.shape
    same(seen, mirror)
    same(computed, -exact(mirror))


@settings(max_examples=sampled.examples(30, 60))
@given(st.data())
def test_the_address_of_a_view_is_that_of_its_first_element(data):
    shape = data.draw(hnp.array_shapes(min_dims=1, max_dims=3, max_side=5))
    array = np.zeros(shape, np.float16)
    index = data.draw(hnp.basic_indices(shape, allow_newaxis=True))
    mirror = array[index]

    def kernel(*, tl):
        # taken twice: what is known of the first goes for the second
        values = [tl.load(0, shape=shape, dtype="f16") for _ in range(2)]
        views = [(x, x[index]) for x in values]
        return [(view.addr - x.addr, view.shape, view.strides, view.nbytes) for x, view in views]

    first, again = run_kernel(kernel, TLContext())
    assert first == again
    offset, seen, _, _ = first
    assert seen == mirror.shape
    if isinstance(mirror, np.ndarray) and mirror.size:
        assert offset == mirror.__array_interface__["data"][0] - array.__array_interface__["data"][0]


def test_parts_that_look_alike_are_told_apart():
    """The same slice of other shapes and strides, a number and a slice, a truth value and a number."""

    def kernel(*, tl):
        x, wide = tl.zeros((4, 6)), tl.zeros((4, 8))
        views = [x[1:3], wide[1:3], tl.trans(wide)[1:3], x[1], x[1:2], x[-3:-1], x[:, 1], x[None, 1], x[..., 1]]
        with pytest.raises(KernelError, match="is no index"):
            x[True]
        with pytest.raises(KernelError, match="slice 1:7"):
            x[1:7]
        return [(view.shape, view.strides) for view in views]

    assert run_kernel(kernel, TLContext()) == [
        ((2, 6), None),
        ((2, 8), None),
        ((2, 4), (1, 8)),
        ((6,), None),
        ((1, 6), None),
        ((2, 6), None),
        ((4,), (6,)),
        ((1, 6), None),
        ((4,), (6,)),
    ]


def test_broadcast_views_repeat():
    x = normal(0, (3, 1), "f16")
    got = evaluate(lambda tl, x: [tl.broadcast_to(x, (2, 3, 4)), tl.broadcast_to(x, 3, 4) + 1.0], x)
    same(got[0], np.broadcast_to(x, (2, 3, 4)))
    same(got[1], rounded(exact(np.broadcast_to(x, (3, 4))) + 1, "f16"))


def test_indexing_by_a_value_the_kernel_read():
    x = normal(0, (4, 3), "f32")
    picked = evaluate_with_reads(lambda tl, x: x[tl.argmax(x[:, 0], 0)], x)
    same(picked, x[np.argmax(x[:, 0])])


def evaluate_with_reads(body, x):
    """Like `evaluate`, for a body that reads values back, which recording cannot."""

    def kernel(x_ptr, o, *, tl):
        tl.store(o, body(tl, tl.load(x_ptr, shape=x.shape)))

    host = mesh.Host(SMALL, ranks=1)
    out = host.empty(x.shape[1:], dtype_name(x.dtype))
    run = host.launch(kernel, host.replicate(x), out)
    assert run.safe, [str(f) for f in run.findings]
    return host.gather(out)
