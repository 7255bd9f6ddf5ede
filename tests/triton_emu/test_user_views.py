"""Handles a kernel builds itself: views that work everywhere, see the bytes at their address and keep them alive."""

import copy
import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests import sampled

from kernbench import mesh
from kernbench.common.dtypes import DTYPES, dtype_name
from kernbench.common.pe_commands import TensorHandle
from kernbench.triton_emu import TLContext, run_kernel

BUILDERS = {
    "by position": lambda x: TensorHandle("v", x.addr, (6, 4), "f16"),
    "by position with bytes": lambda x: TensorHandle("v", x.addr, (6, 4), "f16", 48),
    "by position with data": lambda x: TensorHandle("v", x.addr, (6, 4), "f16", 48, x.data),
    "by name": lambda x: TensorHandle(id="v", addr=x.addr, shape=(6, 4), dtype="f16"),
    "by name with data": lambda x: TensorHandle(id="v", addr=x.addr, shape=(6, 4), dtype="f16", nbytes=48, data=x.data),
    "replace": lambda x: dataclasses.replace(x, id="v", shape=(6, 4)),
    "replace without data": lambda x: dataclasses.replace(x, id="v", shape=(6, 4), data=None),
    "replace with another type and back": lambda x: dataclasses.replace(
        dataclasses.replace(x, dtype="i8", shape=(48,)), id="v", dtype="f16", shape=(6, 4)
    ),
}
builders = pytest.mark.parametrize("build", BUILDERS.values(), ids=BUILDERS)


@builders
def test_a_view_works_in_every_operation_while_recording(build):
    tl = TLContext()

    def kernel(*, tl):
        x = tl.load(0, shape=(4, 6), dtype="f16")
        view = build(x)
        assert (view.id, view.addr, view.shape, view.dtype, view.nbytes) == ("v", x.addr, (6, 4), "f16", 48)
        assert len(tl.commands) == 1
        results = [view + 1.0, 2.0 - view, view * view, tl.dot(x, view), tl.dot(view, x), tl.max(view, 0), view.T + x]
        results += [tl.softmax(view), tl.where(view > 0, view, 0.0), view.to("f32"), view[1:3], view.reshape(24)]
        results.append(tl.cat(view, view))
        tl.store(0x100, view)
        tl.send("E", view)
        tl.send_async("W", view).wait()
        return [r.shape for r in results]

    shapes = run_kernel(kernel, tl)
    assert shapes == [
        (6, 4), (6, 4), (6, 4), (4, 4), (6, 6), (1, 4), (4, 6),
        (6, 4), (6, 4), (6, 4), (2, 4), (24,), (12, 4),
    ]  # fmt: skip
    assert [c.op for c in tl.commands] == [
        "load", "add", "sub", "mul", "dot", "dot", "max", "add", "softmax", "gt", "where", "cast", "cat",
        "store", "send", "send_async", "wait",
    ]  # fmt: skip
    add, gemm = tl.commands[1], tl.commands[4]
    assert (add.operands[0].shape, add.operands[0].addr) == ((6, 4), tl.commands[0].out.addr)
    assert (gemm.m, gemm.k, gemm.n) == (4, 6, 4)
    store, send = tl.commands[13], tl.commands[14]
    assert (store.addr, store.nbytes, store.src.shape) == (0x100, 48, (6, 4))
    assert (send.nbytes, send.src.shape) == (48, (6, 4))


def launch(kernel, array, shape, dtype=None, **options):
    """Run `kernel(x_ptr, o_ptr)` on one rank; the output and the run."""
    host = mesh.Host("small", ranks=1, **options)
    out = host.empty(shape, dtype or dtype_name(array.dtype))
    run = host.launch(kernel, host.replicate(array), out)
    return host.gather(out), run


def numbers(*shape, dtype=np.float16):
    return np.arange(1, 1 + int(np.prod(shape))).reshape(shape).astype(dtype)


@builders
def test_a_view_sees_the_bytes_behind_it(build):
    x = numbers(4, 6)

    def kernel(x_ptr, o_ptr, *, tl):
        view = build(tl.load(x_ptr, shape=(4, 6)))
        tl.store(o_ptr, view)
        tl.store(o_ptr + 48, view + 1.0)
        tl.store(o_ptr + 96, tl.maximum(view.T, 5.0))

    got, run = launch(kernel, x, (72,))
    assert run.safe, run.findings
    rows = x.reshape(6, 4)
    np.testing.assert_array_equal(got, np.concatenate([rows.ravel(), rows.ravel() + 1, np.maximum(rows.T, 5).ravel()]))


@settings(max_examples=sampled.examples(20, 40))
@given(st.integers(0, 4), st.integers(1, 3), st.integers(0, 7), st.booleans())
def test_an_offset_view_sees_its_own_part(start, rows, column, with_data):
    x = numbers(8, 8)

    def kernel(x_ptr, o_ptr, *, tl):
        tile = tl.load(x_ptr, shape=(8, 8))
        offset = 2 * (8 * start + column)
        data = tile.data if with_data else None
        tl.store(o_ptr, TensorHandle(addr=tile.addr + offset, shape=(rows, 8), dtype="f16", data=data))

    first = 8 * start + column
    got, run = launch(kernel, x, (rows, 8))
    assert run.safe, run.findings
    np.testing.assert_array_equal(got.ravel(), x.ravel()[first : first + 8 * rows])


def test_a_view_moved_by_replace_sees_the_new_place():
    """Walking over the rows of a tile by changing only the address."""
    x = numbers(3, 8)

    def kernel(x_ptr, o_ptr, *, tl):
        tile = tl.load(x_ptr, shape=(3, 8))
        row = dataclasses.replace(tile, shape=(1, 8))
        for i in range(3):
            tl.store(o_ptr + 16 * (2 - i), dataclasses.replace(row, addr=tile.addr + 16 * i))

    got, run = launch(kernel, x, (3, 8))
    assert run.safe, run.findings
    np.testing.assert_array_equal(got, x[::-1])


def test_a_view_moved_to_another_value_sees_that_value():
    x = numbers(2, 8)

    def kernel(x_ptr, o_ptr, *, tl):
        first = tl.load(x_ptr, shape=(1, 8))
        second = tl.load(x_ptr + 16, shape=(1, 8))
        tl.store(o_ptr, dataclasses.replace(first, addr=second.addr))

    got, run = launch(kernel, x, (1, 8))
    assert run.safe, run.findings
    np.testing.assert_array_equal(got, x[1:])


def test_data_given_in_another_order_is_taken_as_it_is():
    x = numbers(4, 6)

    def kernel(x_ptr, o_ptr, *, tl):
        tile = tl.load(x_ptr, shape=(4, 6))
        tl.store(o_ptr, TensorHandle(addr=tile.addr, shape=(6, 4), dtype="f16", data=tile.data.T))

    got, run = launch(kernel, x, (6, 4))
    assert run.safe, run.findings
    np.testing.assert_array_equal(got, x.T)


@pytest.mark.parametrize("dtype", ["i8", "i32", "f32", "bf16", "f16", "f8e5m2"])
def test_a_view_may_read_the_bytes_as_another_type(dtype):
    x = numbers(4, 8)
    wanted = x.ravel().view(DTYPES[dtype].numpy)

    def kernel(x_ptr, o_ptr, *, tl):
        tile = tl.load(x_ptr, shape=(4, 8))
        tl.store(o_ptr, TensorHandle(addr=tile.addr, shape=wanted.shape, dtype=dtype))

    got, run = launch(kernel, x, wanted.shape, dtype)
    # as integers, or as what they are; one float type for another is a mistake, though the bytes are the same
    assert [f.kind for f in run.findings] == ([] if dtype in ("i8", "i32", "f16") else ["type-confusion"])
    assert got.tobytes() == wanted.tobytes()


def test_a_view_of_a_computed_value_sees_it_in_row_major_order():
    x = numbers(4, 6)

    def kernel(x_ptr, o_ptr, *, tl):
        value = tl.load(x_ptr, shape=(4, 6)).T + 0.0
        tl.store(o_ptr, TensorHandle(addr=value.addr, shape=(24,), dtype="f16"))

    got, run = launch(kernel, x, (24,))
    assert run.safe, run.findings
    np.testing.assert_array_equal(got, x.T.ravel())


def test_a_view_of_a_view_sees_the_same_memory():
    x = numbers(4, 6)

    def kernel(x_ptr, o_ptr, *, tl):
        part = tl.load(x_ptr, shape=(4, 6))[2:]
        inner = TensorHandle(addr=part.addr + 4, shape=(2, 2), dtype="f16")
        tl.store(o_ptr, TensorHandle(addr=inner.addr, shape=(4,), dtype="f16"))

    got, run = launch(kernel, x, (4,))
    assert run.safe, run.findings
    np.testing.assert_array_equal(got, x.ravel()[14:18])


def views_that_outlive(tl, x):
    """Every way to hold on to memory without the first handle."""
    return [
        TensorHandle(addr=x.addr, shape=(24,), dtype="f16"),
        dataclasses.replace(x, shape=(24,)),
        x.reshape(24),
        x.T.T.reshape(24),
        x[0:4].reshape(24),
    ]


@pytest.mark.parametrize("which", range(5))
def test_a_view_outlives_the_handle_it_was_made_from(which):
    x = numbers(4, 6)

    def kernel(x_ptr, o_ptr, *, tl):
        tile = tl.load(x_ptr, shape=(4, 6))
        view = views_that_outlive(tl, tile)[which]
        address = tile.addr
        del tile
        fillers = [tl.full((4, 6), -1.0, "f16") for _ in range(20)]
        assert address not in [f.addr for f in fillers]
        again = TensorHandle(addr=address, shape=(24,), dtype="f16")
        tl.store(o_ptr, view)
        tl.store(o_ptr + 48, again)

    got, run = launch(kernel, x, (2, 24))
    assert run.safe, run.findings
    np.testing.assert_array_equal(got, [x.ravel(), x.ravel()])


def test_memory_goes_back_when_the_last_view_goes():
    def kernel(*, tl):
        tile = tl.zeros((4, 6))
        view = TensorHandle(addr=tile.addr, shape=(24,), dtype="f32")
        address = tile.addr
        del tile
        between = tl.zeros((4, 6))
        del view
        after = tl.zeros((4, 6))
        return address, between.addr, after.addr

    address, between, after = run_kernel(kernel, TLContext())
    assert between != address
    assert after == address


def test_pinned_memory_stays_until_the_kernel_returns():
    def kernel(*, tl):
        tile = tl.zeros((4, 6))
        address = tile.addr
        TensorHandle(addr=address, shape=(24,), dtype="f32", pinned=True)
        del tile
        return address, [tl.zeros((4, 6)).addr for _ in range(10)]

    address, others = run_kernel(kernel, TLContext())
    assert address not in others


def test_pinned_memory_stays_pinned_when_a_result_takes_it_over():
    def kernel(*, tl):
        tile = tl.zeros((4, 6))
        address = tile.addr
        TensorHandle(addr=address, shape=(24,), dtype="f32", pinned=True)
        tl.exp(tile, out=tile)
        del tile
        return address, [tl.zeros((4, 6)).addr for _ in range(10)]

    address, others = run_kernel(kernel, TLContext())
    assert address not in others


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy])
def test_a_copied_handle_keeps_the_memory_alive(copied):
    def kernel(*, tl):
        tile = tl.zeros((4, 6))
        other = copied(tile)
        address = tile.addr
        del tile
        fresh = tl.zeros((4, 6))
        return address, other.addr, fresh.addr

    address, other, fresh = run_kernel(kernel, TLContext())
    assert other == address
    assert fresh != address


def test_a_view_of_nothing_is_reported_when_it_is_read():
    x = numbers(8)

    def kernel(x_ptr, o_ptr, *, tl):
        stray = TensorHandle(addr=1 << 20, shape=(8,), dtype="f16")
        tl.store(o_ptr, stray)

    got, run = launch(kernel, x, (8,))
    (finding,) = run.findings
    assert finding.kind == "uninitialised-read"
    assert "no value lies at scratch address 0x100000" in finding.message
    assert finding.where.text == "tl.store(o_ptr, stray)"
    assert np.isnan(got).all()


@pytest.mark.parametrize("extra", [1, 24])
def test_a_view_past_the_end_of_its_value_is_reported(extra):
    def kernel(x_ptr, o_ptr, *, tl):
        tile = tl.load(x_ptr, shape=(24,))
        beside = tl.load(x_ptr, shape=(24,))
        tl.store(o_ptr, TensorHandle(addr=tile.addr, shape=(24 + extra,), dtype="f16"))
        return beside

    _, run = launch(kernel, numbers(24), (24 + extra,))
    assert [f.kind for f in run.findings] == ["uninitialised-read"]


def test_a_view_of_freed_memory_is_reported():
    def kernel(x_ptr, o_ptr, *, tl):
        tile = tl.load(x_ptr, shape=(8,))
        address = tile.addr
        del tile
        tl.store(o_ptr, TensorHandle(addr=address, shape=(8,), dtype="f16"))

    _, run = launch(kernel, numbers(8), (8,))
    assert [f.kind for f in run.findings] == ["uninitialised-read"]


def test_a_view_of_nothing_is_no_error_while_recording():
    tl = TLContext()
    run_kernel(lambda *, tl: TensorHandle(addr=1 << 20, shape=(8,)) + 1.0, tl)
    assert [c.op for c in tl.commands] == ["add"]


def test_a_handle_on_hbm_reads_the_tensor():
    x = numbers(3, 4)

    def kernel(x_ptr, o_ptr, *, tl):
        tl.store(o_ptr, TensorHandle(addr=x_ptr, shape=(3, 4), dtype="f16", space="hbm"))

    got, run = launch(kernel, x, (3, 4))
    assert run.safe, run.findings
    np.testing.assert_array_equal(got, x)


@pytest.mark.parametrize(
    ("look", "mirror"),
    [
        (lambda h: h.T, lambda a: a.T),
        (lambda h: h[1], lambda a: a[1]),
        (lambda h: h[:, 1], lambda a: a[:, 1]),
        (lambda h: h.T.reshape(12), lambda a: a.T.reshape(12)),
        (lambda h: h[::-1, ::2], lambda a: a[::-1, ::2]),
    ],
    ids=["trans", "row", "column", "reshaped", "strided"],
)
def test_views_of_a_handle_on_hbm_read_the_right_elements(look, mirror):
    x = numbers(3, 4)

    def kernel(x_ptr, o_ptr, *, tl):
        tl.store(o_ptr, look(TensorHandle(addr=x_ptr, shape=(3, 4), dtype="f16", space="hbm")) + 0.0)

    got, run = launch(kernel, x, mirror(x).shape)
    assert run.safe, run.findings
    np.testing.assert_array_equal(got, mirror(x))


def test_handles_built_before_the_kernel_work_inside_it():
    """A test may build handles first and pass them in; they are told apart by their own shapes."""
    large, small = TensorHandle("a", 0, (4, 4), "f16"), TensorHandle("b", 64, (2, 2), "f32")
    tl = TLContext()

    def kernel(a, b, *, tl):
        return [a + a, b + b, tl.dot(a, a), tl.max(b, 1)]

    results = run_kernel(kernel, tl, large, small)
    assert [(r.shape, r.dtype) for r in results] == [((4, 4), "f16"), ((2, 2), "f32"), ((4, 4), "f32"), ((2, 1), "f32")]
    add, other, gemm, reduction = tl.commands
    assert [h.shape for h in add.operands] == [(4, 4), (4, 4)]
    assert [h.shape for h in other.operands] == [(2, 2), (2, 2)]
    assert (gemm.m, gemm.k, gemm.n) == (4, 4, 4)
    assert reduction.operands[0].addr == 64


def test_handles_built_before_the_kernel_work_when_methods_are_called_on_tl():
    tl = TLContext()
    handle = TensorHandle("a", 0, (4, 4), "f16")
    assert tl.exp(handle).shape == (4, 4)
    tl.store(64, handle)
    tl.send("E", handle)
    assert [c.op for c in tl.commands] == ["exp", "store", "send"]
    assert tl.commands[0].operands[0].shape == tl.commands[1].src.shape == tl.commands[2].src.shape == (4, 4)


@pytest.mark.parametrize("shapes_only", [False, True])
def test_an_integer_view_can_be_branched_on(shapes_only):
    taken = []

    def kernel(x_ptr, *, tl):
        tile = tl.load(x_ptr, shape=(4,))
        second = TensorHandle(addr=tile.addr + 4, shape=(1,), dtype="i32")
        taken.append(int(second))

    host = mesh.Host("small", ranks=1, shapes_only=shapes_only)
    run = host.launch(kernel, host.replicate(np.array([5, 6, 7, 8], np.int32)))
    assert run.safe, run.findings
    assert taken == [6]


@pytest.mark.parametrize(("offset", "kinds"), [(0, []), (8, []), (3, ["misaligned"])])
def test_a_view_begins_where_an_element_can(offset, kinds):
    def kernel(x_ptr, o_ptr, *, tl):
        tile = tl.load(x_ptr, shape=(4, 8))
        tl.store(o_ptr, TensorHandle(addr=tile.addr + offset, shape=(8,), dtype="f16"))

    _, run = launch(kernel, numbers(4, 8), (8,))
    assert [f.kind for f in run.findings] == kinds
