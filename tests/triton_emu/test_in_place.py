"""out=: a result takes over the space of a handle, which then stands for it; whoever still looks at the old value is
told so.
"""

import numpy as np
import pytest

from kernbench import mesh
from kernbench.common.errors import KernelError
from kernbench.common.pe_commands import TensorHandle
from kernbench.triton_emu import TLContext, run_kernel

IN_PLACE = {
    "exp": (lambda tl, x, y: tl.exp(x, out=x), lambda x, y: np.exp(x)),
    "neg": (lambda tl, x, y: tl.neg(x, out=x), lambda x, y: -x),
    "add left": (lambda tl, x, y: tl.add(x, y, out=x), lambda x, y: x + y),
    "add right": (lambda tl, x, y: tl.add(y, x, out=x), lambda x, y: x + y),
    "add itself": (lambda tl, x, y: tl.add(x, x, out=x), lambda x, y: x + x),
    "sub number": (lambda tl, x, y: tl.sub(1.0, x, out=x), lambda x, y: 1 - x),
    "maximum": (lambda tl, x, y: tl.maximum(x, y, out=x), np.maximum),
    "where": (lambda tl, x, y: tl.where(x > y, x, y, out=x), np.maximum),
    "fma": (lambda tl, x, y: tl.fma(x, y, x, out=x), lambda x, y: x * y + x),
    "dot": (lambda tl, x, y: tl.dot(x, y, x, out=x), lambda x, y: x @ y + x),
    "cast": (lambda tl, x, y: tl.cast(tl.cast(x, "f16", out=x), "f32"), lambda x, y: x),
    "cast to the same type": (lambda tl, x, y: tl.cast(y, "f32", out=x), lambda x, y: y),
    "view as operand": (lambda tl, x, y: tl.mul(x.T, y, out=x), lambda x, y: x.T * y),
}


@pytest.mark.parametrize("name", IN_PLACE)
def test_the_handle_stands_for_the_result(name):
    body, reference = IN_PLACE[name]
    x = np.array([[1.0, 2.0], [3.0, 0.5]], np.float32)
    y = np.array([[2.0, -1.0], [0.25, 4.0]], np.float32)
    stays = name == "cast"

    def kernel(x_ptr, y_ptr, o_ptr, again, *, tl):
        a, b = tl.load(x_ptr, shape=(2, 2)), tl.load(y_ptr, shape=(2, 2))
        address = a.addr
        result = body(tl, a, b)
        assert stays or result.addr == address
        tl.store(o_ptr, result)
        tl.store(again, a)

    host = mesh.Host("small", ranks=1)
    outputs = [host.empty((2, 2)), host.empty((2, 2))]
    run = host.launch(kernel, host.replicate(x), host.replicate(y), *outputs)
    assert run.safe, run.findings
    for output in outputs:
        np.testing.assert_allclose(host.gather(output), reference(x, y), rtol=1e-6)


@pytest.mark.parametrize("name", [n for n in IN_PLACE if n != "cast to the same type"])
def test_no_space_is_taken_and_one_command_recorded(name):
    body, _ = IN_PLACE[name]
    tl = TLContext()

    def kernel(*, tl):
        a, b = (tl.load(64 * i, shape=(64, 64), dtype="f32") for i in range(2))
        before = len(tl.commands)
        result = body(tl, a, b)
        return len(tl.commands) - before, result.shape

    count, shape = run_kernel(kernel, tl)
    assert shape == (64, 64)
    extra = {"where": 4096, "cast": 4 * 4096}.get(name, 0)
    assert count == (2 if extra else 1)
    assert tl.scratch_peak == 2 * 4 * 64 * 64 + extra


def test_the_result_may_be_smaller_or_of_another_type():
    def kernel(*, tl):
        x = tl.zeros((8, 8))
        address = x.addr
        made = tl.cast(x, "f16", out=x)
        assert made is x
        assert (x.addr, x.shape, x.dtype, x.nbytes) == (address, (8, 8), "f16", 128)
        row = tl.zeros((1, 8))
        tl.exp(row, out=x)
        assert (x.addr, x.shape, x.dtype) == (address, (1, 8), "f32")

    run_kernel(kernel, TLContext())


STALE = {
    "reshape": lambda tl, x: x.reshape(4),
    "trans": lambda tl, x: x.T,
    "row": lambda tl, x: x[1],
    "built": lambda tl, x: TensorHandle(addr=x.addr, shape=(2, 2), dtype="f32"),
    "view of a view": lambda tl, x: x.reshape(4)[1:3],
}
READS = {
    "operator": lambda tl, v, o: v + 1.0,
    "unary": lambda tl, v, o: tl.exp(v),
    "store": lambda tl, v, o: tl.store(o, v),
    "reduction": lambda tl, v, o: tl.sum(v),
    "dot": lambda tl, v, o: tl.dot(v.reshape(1, -1), v.reshape(-1, 1)),
    "where": lambda tl, v, o: tl.where(v, 1, 0) if v.dtype == "i32" else tl.where(tl.zeros(v.shape, "i1"), v, 0.0),
    "cast": lambda tl, v, o: v.to("f16"),
    "cat": lambda tl, v, o: tl.cat(v, v),
    "softmax": lambda tl, v, o: tl.softmax(v),
    "fma": lambda tl, v, o: tl.fma(v, v, v),
    "value": lambda tl, v, o: float(v.reshape(-1)[0]),
    "send": lambda tl, v, o: tl.send("E", v),
}


def reading_a_stale_view(view, read):
    def kernel(x_ptr, o_ptr, *, tl):
        x = tl.load(x_ptr, shape=(2, 2), dtype="f32")
        old = STALE[view](tl, x)
        tl.exp(x, out=x)
        READS[read](tl, old, o_ptr)
        tl.store(o_ptr, x)

    return kernel


@pytest.mark.parametrize(("view", "read"), [*((v, "operator") for v in STALE), *(("reshape", r) for r in READS)])
def test_reading_a_stale_view_is_reported(view, read):
    host = mesh.Host("small", ranks=1)
    out = host.empty((2, 2))
    run = host.launch(reading_a_stale_view(view, read), host.replicate(np.ones((2, 2), np.float32)), out)
    found = [f for f in run.findings if f.kind == "uninitialised-read"]
    assert len(found) == 1, run.findings
    assert "taken over by a later value (out=)" in found[0].message
    assert "out= returned" in found[0].hint
    assert found[0].where.file == __file__
    assert found[0].where.function == ("<lambda>")
    np.testing.assert_allclose(host.gather(out), np.exp(np.ones((2, 2), np.float32)))


@pytest.mark.parametrize("view", STALE)
def test_reading_a_stale_view_is_an_error_while_recording(view):
    with pytest.raises(KernelError, match="taken over by a later value") as caught:
        run_kernel(reading_a_stale_view(view, "operator"), TLContext(), 0, 64)
    assert caught.value.kind == "uninitialised-read"


def test_a_stale_view_that_nobody_reads_is_no_finding():
    def kernel(x_ptr, o_ptr, *, tl):
        x = tl.load(x_ptr, shape=(4,), dtype="f32")
        views = [x.reshape(2, 2), x[1:]]
        tl.exp(x, out=x)
        assert [v.shape for v in views] == [(2, 2), (3,)]
        fresh = x.reshape(2, 2)
        tl.store(o_ptr, fresh)

    host = mesh.Host("small", ranks=1)
    assert host.launch(kernel, host.replicate(np.ones(4, np.float32)), host.empty((2, 2))).safe


def test_space_taken_over_twice_and_freed_once():
    def kernel(*, tl):
        x = tl.zeros((8, 8))
        address = x.addr
        old = x.reshape(64)
        for _ in range(3):
            x = tl.exp(x, out=x)
        del old
        other = tl.zeros((8, 8))
        assert other.addr != address
        del x
        return address, tl.zeros((8, 8)).addr

    address, reused = run_kernel(kernel, TLContext())
    assert address == reused


def test_writing_over_a_send_under_way_is_a_race():
    def kernel(*, tl):
        if tl.program_id(0) == 0:
            x = tl.full((4,), 1.0)
            sending = tl.send_async("E", x)
            tl.exp(x, out=x)
            sending.wait()
            tl.exp(x, out=x)
        else:
            tl.recv("W", (4,), "f32")

    run = mesh.Host("small", ranks=2).launch(kernel)
    (finding,) = run.findings
    assert (finding.kind, finding.ranks) == ("race", (0,))
    assert finding.where.text == "tl.exp(x, out=x)"
    assert [(o.role, o.where.text) for o in finding.others] == [
        ("the send in flight", 'sending = tl.send_async("E", x)')
    ]


def test_a_cast_to_the_same_type_is_another_handle_on_the_value():
    def kernel(x_ptr, o_ptr, *, tl):
        x = tl.load(x_ptr, shape=(2, 2))
        y = x.to("f32")
        e = tl.exp(y, out=y)
        tl.store(o_ptr, e - x)

    host = mesh.Host("small", ranks=1)
    run = host.launch(kernel, host.replicate(np.ones((2, 2), np.float32)), host.empty((2, 2)))
    assert [f.kind for f in run.findings] == ["uninitialised-read"]


def test_a_reshape_that_moves_elements_is_a_copy_with_space_of_its_own():
    def kernel(x_ptr, o_ptr, *, tl):
        x = tl.load(x_ptr, shape=(2, 3))
        before = len(tl.commands)
        assert tl.reshape(x, (3, 2)).addr == x.addr
        assert len(tl.commands) == before
        moved = tl.reshape(x.T, (6,))
        assert [c.op for c in tl.commands[before:]] == ["copy"]
        assert moved.addr != x.addr
        tl.store(o_ptr, moved)

    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    host = mesh.Host("small", ranks=1)
    o = host.empty((6,))
    assert host.launch(kernel, host.replicate(x), o).safe
    np.testing.assert_array_equal(host.gather(o), x.T.ravel())
