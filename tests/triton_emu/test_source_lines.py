"""Every handle and every command knows the kernel's own line, also through helpers, views and operators."""

import functools
import inspect

from kernbench import mesh
from kernbench.common.pe_commands import TensorHandle
from kernbench.triton_emu import TLContext, run_kernel


def line_of(function, marker):
    """The number of the line of `function` that ends in the comment `# marker`."""
    lines, first = inspect.getsourcelines(function)
    (found,) = [first + i for i, line in enumerate(lines) if line.rstrip().endswith(f"# {marker}")]
    return found


def check(location, function, marker):
    assert (location.file, location.line, location.function) == (__file__, line_of(function, marker), function.__name__)


def record(kernel, *args):
    tl = TLContext()
    return run_kernel(kernel, tl, *args), tl.commands


def every_operation(*, tl):
    x = tl.load(0, shape=(4, 4), dtype="f16")  # load
    tl.exp(x)  # exp
    x + 1.0  # add
    2 * x  # mul
    -x  # neg
    mask = x > 0  # gt
    tl.max(x, 1)  # max
    tl.sum(x, 1, keep_dims=False)  # sum
    tl.softmax(x)  # softmax
    tl.where(mask, x, 0.0)  # where
    x.to("f32")  # cast
    tl.fma(x, x, x)  # fma
    tl.cat(x, x)  # cat
    tl.arange(0, 4)  # arange
    tl.dot(x, x)  # dot
    tl.maximum(x, 1.0)  # maximum
    tl.send("E", x)  # send
    tl.recv("W", (4, 4), "f16")  # recv
    going = tl.send_async("E", x)  # send_async
    coming = tl.recv_async("W", (4, 4), "f16")  # recv_async
    going.wait()  # wait
    tl.wait(coming)  # wait again
    tl.store(64, x)  # store


def test_every_command_knows_its_line():
    _, commands = record(every_operation)
    seen = []
    for command in commands:
        marker = "wait again" if "wait" in seen and command.op == "wait" else command.op
        check(command.where, every_operation, marker)
        assert command.where.text.endswith(f"# {marker}")
        seen.append(marker)
    assert len(seen) == 23


def scaled(x, tl):
    y = x * 2.0  # in the helper
    return tl.exp(y)  # returned


def test_lines_in_a_helper_are_the_helpers():
    def kernel(*, tl):
        return scaled(tl.load(0, shape=(2,)), tl)  # calls

    result, (load, mul, exp) = record(kernel)
    check(load.where, kernel, "calls")
    check(mul.where, scaled, "in the helper")
    check(exp.where, scaled, "returned")
    check(result.where, scaled, "returned")


def made_here(x, tl):
    view = TensorHandle(addr=x.addr, shape=(2, 2), dtype="f16")
    return view, x.T, x[0], x.reshape(4), tl.broadcast_to(x[0], (3, 2))


def test_a_view_points_to_the_line_that_made_its_value():
    def kernel(*, tl):
        x = tl.zeros((2, 2), "f16")  # made
        return [x, *made_here(x, tl)]

    handles, commands = record(kernel)
    assert len(commands) == 1
    for handle in handles:
        check(handle.where, kernel, "made")


def test_a_handle_points_to_its_line_after_an_in_place_result():
    def kernel(*, tl):
        x = tl.zeros((2, 2))  # first
        before = x.where
        tl.exp(x, out=x)  # second
        return before, x.where

    (before, after), _ = record(kernel)
    check(before, kernel, "first")
    check(after, kernel, "second")


def test_a_handle_nobody_computed_has_no_line():
    def kernel(*, tl):
        return TensorHandle(addr=1 << 30, shape=(2,)).where, TensorHandle(addr=64, shape=(2,), space="hbm").where

    locations, _ = record(kernel)
    assert locations == (None, None)


def test_a_request_points_to_the_line_that_started_it():
    def kernel(*, tl):
        going = tl.send_async("E", tl.zeros((2,)))  # go
        coming = tl.recv_async("E", (2,), "f16")  # come
        got = tl.wait(going, coming)[1]
        return going.where, coming.where, got.where

    (go, come, got), _ = record(kernel)
    check(go, kernel, "go")
    check(come, kernel, "come")
    check(got, kernel, "come")


def test_lines_hold_in_comprehensions_lambdas_and_library_calls():
    def kernel(*, tl):
        parts = [tl.full((2,), i) for i in range(3)]  # comprehension
        total = functools.reduce(tl.maximum, parts)  # reduced
        double = lambda x: x * 2.0  # noqa: E731 # lambda
        return double(total), sum(parts)  # summed

    _, commands = record(kernel)
    wanted = ["comprehension"] * 3 + ["reduced"] * 2 + ["lambda"] + ["summed"] * 3
    assert [c.where.line for c in commands] == [line_of(kernel, m) for m in wanted]
    assert {c.where.file for c in commands} == {__file__}


def test_two_operations_on_one_line_share_it_and_loops_come_back_to_it():
    def kernel(*, tl):
        x = tl.zeros((2,))
        for _ in range(5):
            x = tl.exp(x) + 1.0  # loop
        return x

    _, commands = record(kernel)
    assert [c.where.line for c in commands][1:] == [line_of(kernel, "loop")] * 10
    assert len({id(c.where) for c in commands[1:]}) == 1


def test_lines_stay_right_past_the_packing_of_rows():
    def kernel(*, tl):
        first = tl.zeros((2,))  # early
        for _ in range(9000):
            last = first + 1.0  # late
        views = [last[i % 2] for i in range(9000)]
        return first, last, views

    (first, last, views), commands = record(kernel)
    check(first.where, kernel, "early")
    check(last.where, kernel, "late")
    check(views[0].where, kernel, "late")
    check(views[-1].where, kernel, "late")
    check(commands[0].where, kernel, "early")
    check(commands[9000].where, kernel, "late")


def test_lines_are_the_same_inside_a_launch():
    def kernel(x_ptr, o_ptr, *, tl):
        x = tl.load(x_ptr, shape=(4,))  # read
        y = scaled(x, tl)
        tl.store(o_ptr, y)  # written

    host = mesh.Host("small", ranks=1)
    run = host.launch(kernel, host.replicate([0.5, 1.0, 1.5, 2.0], "f32"), host.empty((4,)))
    load, mul, exp, store = run.recording.streams[0]
    check(load.where, kernel, "read")
    check(mul.where, scaled, "in the helper")
    check(exp.where, scaled, "returned")
    check(store.where, kernel, "written")
