"""Recording: every operation gives the right shape and type, and exactly the commands it costs."""

import operator
from dataclasses import dataclass, field

import numpy as np
import pytest
from tests import sampled

from kernbench.common.errors import KernelError
from kernbench.common.ipcq_types import IpcqRecvCmd, IpcqSendCmd
from kernbench.common.pe_commands import (
    OPERATIONS,
    DmaReadCmd,
    DmaWriteCmd,
    GemmCmd,
    MathCmd,
    TensorHandle,
    WaitCmd,
)
from kernbench.triton_emu import TLContext, run_kernel
from kernbench.triton_emu.tl_context import ELEMENTWISE


@dataclass
class Given:
    """The handles a case works on; `tl` is where it calls."""

    tl: TLContext
    x: TensorHandle = field(init=False)
    y: TensorHandle = field(init=False)
    row: TensorHandle = field(init=False)
    cube: TensorHandle = field(init=False)
    i: TensorHandle = field(init=False)
    b: TensorHandle = field(init=False)

    def __post_init__(self):
        load = self.tl.load
        self.x = load(0x1000, shape=(4, 6), dtype="f16")
        self.y = load(0x2000, shape=(4, 6), dtype="f32")
        self.row = load(0x3000, shape=(1, 6), dtype="bf16")
        self.cube = load(0x4000, shape=(2, 4, 6), dtype="f16")
        self.i = load(0x5000, shape=(4, 6), dtype="i32")
        self.b = load(0x6000, shape=(4, 6), dtype="i8")


def record(body, **context):
    """What `body(given)` returns, and the commands it dispatched."""
    tl = TLContext(**context)
    made = {}

    def kernel(*, tl):
        given = made["given"] = Given(tl)
        made["before"] = len(tl.commands)
        return body(given)

    result = run_kernel(kernel, tl)
    return result, list(tl.commands)[made["before"] :]


def case(name, body, shape, dtype, *ops):
    return pytest.param(body, shape, dtype, ops, id=name)


NO_COMMAND = [
    case("trans", lambda g: g.tl.trans(g.x), (6, 4), "f16"),
    case("T", lambda g: g.x.T, (6, 4), "f16"),
    case("trans method", lambda g: g.cube.trans(2, 0, 1), (6, 2, 4), "f16"),
    case("trans of a sequence", lambda g: g.tl.trans(g.cube, (1, 0, 2)), (4, 2, 6), "f16"),
    case("trans swaps the last two", lambda g: g.cube.T, (2, 6, 4), "f16"),
    case("permute", lambda g: g.tl.permute(g.cube, 0, 2, 1), (2, 6, 4), "f16"),
    case("reshape", lambda g: g.tl.reshape(g.x, (3, 8)), (3, 8), "f16"),
    case("reshape by numbers", lambda g: g.x.reshape(2, 12), (2, 12), "f16"),
    case("reshape with a gap", lambda g: g.x.reshape(-1, 3), (8, 3), "f16"),
    case("reshape to one axis", lambda g: g.x.reshape(-1), (24,), "f16"),
    case("reshape by a numpy number", lambda g: g.x.reshape(np.int64(24)), (24,), "f16"),
    case("view", lambda g: g.tl.view(g.x, 24), (24,), "f16"),
    case("expand_dims", lambda g: g.tl.expand_dims(g.x, 1), (4, 1, 6), "f16"),
    case("expand_dims at several", lambda g: g.tl.expand_dims(g.x, (0, -1, 2)), (1, 4, 1, 6, 1), "f16"),
    case("expand_dims at the end", lambda g: g.tl.expand_dims(g.x, -1), (4, 6, 1), "f16"),
    case("broadcast_to", lambda g: g.tl.broadcast_to(g.row, (4, 6)), (4, 6), "bf16"),
    case("broadcast_to by numbers", lambda g: g.tl.broadcast_to(g.row, 3, 4, 6), (3, 4, 6), "bf16"),
    case("index", lambda g: g.x[1], (6,), "f16"),
    case("index to one element", lambda g: g.x[1, -1], (), "f16"),
    case("slice", lambda g: g.x[1:3, ::2], (2, 3), "f16"),
    case("slice backwards", lambda g: g.x[::-1], (4, 6), "f16"),
    case("new axis", lambda g: g.x[:, None], (4, 1, 6), "f16"),
    case("ellipsis", lambda g: g.cube[..., 0], (2, 4), "f16"),
    case("index in tl", lambda g: g.tl.index(g.cube, (1, slice(2))), (2, 6), "f16"),
    case("cast to the same type", lambda g: g.x.to("float16"), (4, 6), "f16"),
    case("cast in tl to the same type", lambda g: g.tl.cast(g.y, "f32"), (4, 6), "f32"),
]

ONE_COMMAND = [
    case("softmax", lambda g: g.tl.softmax(g.x), (4, 6), "f16", "softmax"),
    case("softmax over rows", lambda g: g.tl.softmax(g.y, 0), (4, 6), "f32", "softmax"),
    case("softmax of integers", lambda g: g.tl.softmax(g.i, 0), (4, 6), "f32", "softmax"),
    case("max", lambda g: g.tl.max(g.x, 1), (4, 1), "f16", "max"),
    case("max from the end", lambda g: g.tl.max(g.x, axis=-2), (1, 6), "f16", "max"),
    case("max of all", lambda g: g.tl.max(g.x), (1, 1), "f16", "max"),
    case("min", lambda g: g.tl.min(g.cube, 0), (1, 4, 6), "f16", "min"),
    case("sum", lambda g: g.tl.sum(g.x, 1), (4, 1), "f16", "sum"),
    case("sum of integers", lambda g: g.tl.sum(g.i, 0), (1, 6), "i32", "sum"),
    case("sum of bytes", lambda g: g.tl.sum(g.b, 0), (1, 6), "i32", "sum"),
    case("sum in a type", lambda g: g.tl.sum(g.x, 1, dtype="f32"), (4, 1), "f32", "sum"),
    case("sum of bytes in a type", lambda g: g.tl.sum(g.b, 1, dtype="i8"), (4, 1), "i8", "sum"),
    case("sum without its axis", lambda g: g.tl.sum(g.x, 1, keep_dims=False), (4,), "f16", "sum"),
    case("sum of all to nothing", lambda g: g.tl.sum(g.x, None, False), (), "f16", "sum"),
    case("argmax", lambda g: g.tl.argmax(g.x, 1), (4, 1), "i32", "argmax"),
    case("argmin", lambda g: g.tl.argmin(g.cube, 2, keep_dims=False), (2, 4), "i32", "argmin"),
    case("where", lambda g: g.tl.where(g.i, g.x, g.y), (4, 6), "f32", "where"),
    case("where with a number", lambda g: g.tl.where(g.i, g.x, -1e4), (4, 6), "f16", "where"),
    case("where with numbers", lambda g: g.tl.where(g.i, 1.0, 0), (4, 6), "f32", "where"),
    case("where with whole numbers", lambda g: g.tl.where(g.i, 1, 0), (4, 6), "i32", "where"),
    case("where stretches", lambda g: g.tl.where(g.i[0:1], g.x, g.row), (4, 6), "f32", "where"),
    case("where of an integer and a float", lambda g: g.tl.where(g.i, g.i, 0.5), (4, 6), "f32", "where"),
    case("cast", lambda g: g.x.to("f32"), (4, 6), "f32", "cast"),
    case("cast in tl", lambda g: g.tl.cast(g.y, "bfloat16"), (4, 6), "bf16", "cast"),
    case("cast of a view", lambda g: g.x.T.to(g.tl.float32), (6, 4), "f32", "cast"),
    case("fma", lambda g: g.tl.fma(g.x, g.row, g.y), (4, 6), "f32", "fma"),
    case("cat", lambda g: g.tl.cat(g.x, g.x), (8, 6), "f16", "cat"),
    case("cat of columns", lambda g: g.tl.cat(g.x, g.y, axis=-1), (4, 12), "f32", "cat"),
    case("full", lambda g: g.tl.full((2, 3), 1.5, "bf16"), (2, 3), "bf16", "full"),
    case("full of one axis", lambda g: g.tl.full(5, 1), (5,), "f32", "full"),
    case("zeros", lambda g: g.tl.zeros((2, 3), g.tl.int8), (2, 3), "i8", "full"),
    case("zeros_like", lambda g: g.tl.zeros_like(g.row), (1, 6), "bf16", "full"),
    case("arange", lambda g: g.tl.arange(2, 7), (5,), "i32", "arange"),
    case("arange from nought", lambda g: g.tl.arange(4), (4,), "i32", "arange"),
    case("neg", lambda g: -g.x, (4, 6), "f16", "neg"),
    case("abs", lambda g: abs(g.i), (4, 6), "i32", "abs"),
    case("invert", lambda g: ~g.i, (4, 6), "i32", "not"),
    case("and", lambda g: g.i & 3, (4, 6), "i32", "and"),
    case("or of masks", lambda g: (g.x > 0) | (g.y > 0), (4, 6), "i1", "gt", "gt", "or"),
    case("xor", lambda g: 1 ^ g.b, (4, 6), "i8", "xor"),
    case("not of a mask", lambda g: ~(g.x > 0), (4, 6), "i1", "gt", "not"),
    case("floordiv", lambda g: g.i // 2, (4, 6), "i32", "floordiv"),
    case("mod", lambda g: g.i % g.b, (4, 6), "i32", "mod"),
    case("div of integers", lambda g: g.i / 2, (4, 6), "f32", "div"),
    case("integer and float number", lambda g: g.b * 0.5, (4, 6), "f32", "mul"),
    case("mask and number", lambda g: (g.x > 0) + 1, (4, 6), "i32", "gt", "add"),
    case("stretch both ways", lambda g: g.row + g.x[:, 0:1], (4, 6), "f32", "add"),
    case("recv", lambda g: g.tl.recv("W", (2, 3), "f32"), (2, 3), "f32", "recv"),
    case("load", lambda g: g.tl.load(64, (2, 3), "f32"), (2, 3), "f32", "load"),
    case("load by default", lambda g: g.tl.load(64), (1,), "f16", "load"),
    case("dot", lambda g: g.tl.dot(g.x, g.y.T), (4, 4), "f32", "dot"),
    case("dot of batches", lambda g: g.tl.dot(g.cube, g.cube.T), (2, 4, 4), "f32", "dot"),
    case("dot of bytes", lambda g: g.tl.dot(g.b, g.b.T), (4, 4), "i32", "dot"),
    case("dot in a type", lambda g: g.tl.dot(g.x, g.x.T, out_dtype="f16"), (4, 4), "f16", "dot"),
    case("dot on top", lambda g: g.tl.dot(g.x, g.x.T, g.tl.zeros((4, 4))), (4, 4), "f32", "full", "dot"),
]


@sampled.each_row([one.values for one in NO_COMMAND + ONE_COMMAND])
def test_shape_type_and_commands(body, shape, dtype, ops):
    result, commands = record(body)
    assert (result.shape, result.dtype) == (shape, dtype)
    assert result.nbytes == int(np.prod(shape)) * {"f32": 4, "i32": 4, "f16": 2, "bf16": 2, "i8": 1, "i1": 1}[dtype]
    assert tuple(c.op for c in commands) == ops
    assert all(c.engine == OPERATIONS[c.op].engine for c in commands)


@pytest.mark.parametrize("name", ELEMENTWISE)
def test_each_elementwise_method_is_one_command(name):
    op, operands, _ = ELEMENTWISE[name]

    def body(g):
        return getattr(g.tl, name)(*(g.x, g.row)[:operands])

    result, (command,) = record(body)
    assert isinstance(command, MathCmd)
    assert (command.op, command.axis) == (op, None)
    assert [h.shape for h in command.operands] == [(4, 6), (1, 6)][:operands]
    assert (result.shape, result.dtype) == ((4, 6), "f16" if operands == 1 else "f32")
    assert (command.out.id, command.out.addr, command.out.shape) == (result.id, result.addr, result.shape)


@pytest.mark.parametrize("name", [n for n, row in ELEMENTWISE.items() if row[1] == 1])
@pytest.mark.parametrize("dtype", ["i32", "i8"])
def test_integers_stay_integers_only_where_that_is_exact(name, dtype):
    result, _ = record(lambda g: getattr(g.tl, name)(g.i if dtype == "i32" else g.b))
    assert result.dtype == (dtype if name in ("abs", "neg", "floor", "ceil") else "f32")


def test_elementwise_methods_on_plain_numbers_are_plain_numbers_and_free():
    values, commands = record(lambda g: (g.tl.maximum(2, 3), g.tl.add(1.5, 2), g.tl.sqrt(4.0), g.tl.exp(0)))
    assert values == (3, 3.5, 2.0, 1.0)
    assert commands == []


def test_a_routine_outside_of_a_launch_is_a_call():
    made, commands = record(lambda g: g.tl.routine(lambda tl, x, y: tl.load(x + y, shape=(4, 4)), g.tl, at=(64, 32)))
    assert [(c.op, c.addr) for c in commands] == [("load", 96)]
    assert made.shape == (4, 4)


def test_every_public_name_is_covered_here():
    covered = {
        *ELEMENTWISE, "trans", "permute", "reshape", "view", "expand_dims", "broadcast_to", "index", "cast", "softmax",
        "max", "min", "sum", "argmax", "argmin", "where", "fma", "cat", "full", "zeros", "zeros_like", "arange", "load",
        "store", "send", "recv", "send_async", "recv_async", "wait", "dot", "program_id", "num_programs", "cdiv",
        "static_assert", "workspace", "element_type", "value_of", "commands", "pending", "scratch_peak", "constexpr",
        "range", "static_range", "routine", "adopt", "device_print", "static_print", "checkpoint",
    }  # fmt: skip
    types = {"float32", "float16", "bfloat16", "float8e4nv", "float8e5", "int32", "int8", "int1"}
    # what kernels know from Triton is tested by values in test_triton_semantics, and by name in test_triton_names
    known_from_triton = {
        "PropagateNan", "advance", "associative_scan", "assume", "broadcast", "clamp", "cumprod", "cumsum",
        "debug_barrier", "device_assert", "flip", "gather", "histogram", "interleave", "join",
        "load_tensor_descriptor", "make_block_ptr", "make_tensor_descriptor", "math", "max_constancy",
        "max_contiguous", "maximum", "minimum", "multiple_of", "pair_uniform_to_normal", "philox", "rand",
        "rand4x", "randint", "randint4x", "randn", "randn4x", "ravel", "reduce", "reduce_or", "slice", "sort",
        "split", "squeeze", "store_tensor_descriptor", "swizzle2d", "tensor", "to_tensor", "topk", "tuple",
        "uint_to_uniform_float", "umulhi", "unsqueeze", "xor_sum",
    }  # fmt: skip
    assert {n for n in dir(TLContext) if not n.startswith("_")} == covered | types | known_from_triton


def test_a_dot_is_one_gemm_command_with_its_sizes():
    _, (command,) = record(lambda g: g.tl.dot(g.x[:3], g.y.T))
    assert isinstance(command, GemmCmd)
    assert (command.m, command.k, command.n, command.acc) == (3, 6, 4, None)
    assert (command.a.shape, command.a.dtype) == ((3, 6), "f16")
    assert (command.b.shape, command.b.dtype) == ((6, 4), "f32")
    assert (command.out.shape, command.out.dtype) == ((3, 4), "f32")


def test_a_batched_dot_is_one_gemm_command():
    _, (command,) = record(lambda g: g.tl.dot(g.cube, g.cube.T))
    assert (command.m, command.k, command.n, command.out.shape) == (4, 6, 4, (2, 4, 4))


def test_a_dot_names_what_it_adds_to():
    def body(g):
        acc = g.tl.zeros((4, 4))
        return acc.addr, g.tl.dot(g.x, g.x.T, acc=acc)

    (addr, _), (_, command) = record(body)
    assert (command.acc.addr, command.acc.shape, command.acc.dtype) == (addr, (4, 4), "f32")


@pytest.mark.parametrize(
    ("axis", "recorded"), [(0, 0), (1, 1), (-1, 1), (-2, 0), (None, None)], ids=["0", "1", "-1", "-2", "all"]
)
@pytest.mark.parametrize("op", ["max", "min", "sum", "argmax", "argmin"])
def test_a_reduction_command_knows_its_axis(op, axis, recorded):
    _, (command,) = record(lambda g: getattr(g.tl, op)(g.x, axis))
    assert isinstance(command, MathCmd)
    assert (command.op, command.axis, command.operands[0].shape) == (op, recorded, (4, 6))


def test_a_softmax_command_knows_its_axis():
    _, (command,) = record(lambda g: g.tl.softmax(g.cube, -2))
    assert (command.op, command.axis) == ("softmax", 1)


@pytest.mark.parametrize("keep", [True, False])
def test_a_reduction_that_drops_its_axis_costs_the_same(keep):
    result, commands = record(lambda g: g.tl.max(g.cube, 1, keep_dims=keep))
    assert [c.op for c in commands] == ["max"]
    assert result.shape == ((2, 1, 6) if keep else (2, 6))


def test_reduced_rows_broadcast_back():
    result, commands = record(lambda g: (g.x - g.tl.max(g.x, 1)) / g.tl.sum(g.x, 1))
    assert result.shape == (4, 6)
    assert [c.op for c in commands] == ["max", "sub", "sum", "div"]


def test_loads_and_stores_are_dma_commands_with_address_and_bytes():
    def body(g):
        x = g.tl.load(0x8000, shape=(3, 5), dtype="bf16")
        g.tl.store(0x9000, x)
        g.tl.store(0xA000, x.to("f32").T)
        return x

    x, (load, store, _, store_wide) = record(body)
    assert isinstance(load, DmaReadCmd)
    assert (load.addr, load.nbytes, load.out.addr, load.out.id) == (0x8000, 30, x.addr, x.id)
    assert isinstance(store, DmaWriteCmd)
    assert (store.addr, store.nbytes, store.src.id, store.src.dtype) == (0x9000, 30, x.id, "bf16")
    assert (store_wide.addr, store_wide.nbytes, store_wide.src.shape) == (0xA000, 60, (5, 3))


def test_a_strided_load_counts_the_elements_of_its_tile():
    _, (load,) = record(lambda g: g.tl.load(0x8000, shape=(2, 3), dtype="f32", strides=(100, 1)))
    assert (load.addr, load.nbytes) == (0x8000, 24)


@pytest.mark.parametrize("pointer", [64, np.int64(64), TensorHandle(addr=64, space="hbm")], ids=["int", "numpy", "hbm"])
def test_an_address_is_a_number_or_a_handle_in_hbm(pointer):
    _, (load,) = record(lambda g: g.tl.load(pointer, shape=(2,)))
    assert load.addr == 64


@pytest.mark.parametrize("direction", ["N", "S", "E", "W"])
def test_messages_are_queue_commands_with_their_direction(direction):
    def body(g):
        g.tl.send(dir=direction, src=g.x)
        return g.tl.recv(dir=direction, shape=(2, 3), dtype="f8e4m3")

    got, (send, recv) = record(body)
    assert isinstance(send, IpcqSendCmd)
    assert isinstance(recv, IpcqRecvCmd)
    assert (send.op, send.direction, send.src.shape, send.nbytes, send.blocking) == (
        "send",
        direction,
        (4, 6),
        48,
        True,
    )
    assert (recv.op, recv.direction, recv.out.id, recv.nbytes, recv.blocking) == ("recv", direction, got.id, 6, True)


def test_asynchronous_messages_give_something_to_wait_on():
    def body(g):
        sending = g.tl.send_async("E", g.x)
        receiving = g.tl.recv_async("W", (2, 3), "f32")
        assert len(g.tl.pending) == 2
        assert not sending.done
        assert not receiving.done
        got = receiving.wait()
        assert sending.wait() is None
        assert sending.done
        assert receiving.done
        assert g.tl.pending == []
        return got

    got, (send, recv, first, second) = record(body)
    assert (got.shape, got.dtype) == ((2, 3), "f32")
    assert isinstance(send, IpcqSendCmd)
    assert isinstance(recv, IpcqRecvCmd)
    assert (send.op, send.blocking, send.direction) == ("send_async", False, "E")
    assert (recv.op, recv.blocking, recv.direction, recv.out.id) == ("recv_async", False, "W", got.id)
    assert isinstance(first, WaitCmd)
    assert isinstance(second, WaitCmd)
    assert (first.request, second.request) == (1, 0)


def test_waiting_for_several_gives_their_handles_in_order_and_twice_costs_nothing():
    def body(g):
        requests = [g.tl.recv_async("W", (2,), "f32"), g.tl.send_async("E", g.x), g.tl.recv_async("E", (3,), "f16")]
        first = g.tl.wait(*requests)
        assert g.tl.wait(*requests) == first
        assert requests[0].wait() is first[0]
        return first

    (one, nothing, other), commands = record(body)
    assert (one.shape, nothing, other.shape) == ((2,), None, (3,))
    assert [c.op for c in commands] == ["recv_async", "send_async", "recv_async", "wait", "wait", "wait"]


def test_a_request_says_what_it_is():
    texts, _ = record(lambda g: [repr(g.tl.send_async("E", g.x)), repr(g.tl.recv_async("W", (2,), "f16"))])
    assert texts[0].startswith("<asynchronous send E of ")
    assert texts[1].startswith("<asynchronous receive W of ")
    assert texts[0].endswith("under way>")


ARITHMETIC = {
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "div": operator.truediv,
    "mod": operator.mod,
    "floordiv": operator.floordiv,
    "and": operator.and_,
    "or": operator.or_,
    "xor": operator.xor,
}
SCALARS = [2, 2.5, True, np.float32(2), np.float16(2), np.int32(2), np.int64(2), np.float64(2), np.array(2.0)]


@pytest.mark.parametrize("scalar", SCALARS, ids=lambda s: f"{type(s).__name__}")
@pytest.mark.parametrize("op", ["add", "sub", "mul", "div", "mod"])
def test_operators_take_numbers_on_either_side(op, scalar):
    apply = ARITHMETIC[op]
    (right, left), commands = record(lambda g: (apply(g.x, scalar), apply(scalar, g.x)))
    for result in (right, left):
        assert (result.shape, result.dtype) == ((4, 6), "f16")
    assert [c.op for c in commands] == [op, op]
    assert [len(c.operands) for c in commands] == [1, 1]


@pytest.mark.parametrize("scalar", [3, np.int64(3), np.int8(3)], ids=["int", "int64", "int8"])
@pytest.mark.parametrize("op", ["floordiv", "and", "or", "xor"])
def test_integer_operators_take_numbers_on_either_side(op, scalar):
    apply = ARITHMETIC[op]
    (right, left), commands = record(lambda g: (apply(g.i, scalar), apply(scalar, g.i)))
    assert {right.dtype, left.dtype} == {"i32"}
    assert [c.op for c in commands] == [op, op]


@pytest.mark.parametrize("op", sorted(ARITHMETIC))
def test_operators_between_handles_list_both_in_order(op):
    result, (command,) = record(lambda g: ARITHMETIC[op](g.i, g.b))
    assert (result.dtype, command.op) == ("f32" if op == "div" else "i32", op)
    assert [h.dtype for h in command.operands] == ["i32", "i8"]


COMPARISONS = {
    "lt": (operator.lt, "gt"),
    "le": (operator.le, "ge"),
    "gt": (operator.gt, "lt"),
    "ge": (operator.ge, "le"),
    "eq": (operator.eq, "eq"),
    "ne": (operator.ne, "ne"),
}


@pytest.mark.parametrize("op", COMPARISONS)
def test_comparisons_give_masks_and_turn_round_for_numbers_on_the_left(op):
    apply, turned = COMPARISONS[op]
    results, commands = record(lambda g: [apply(g.x, g.y), apply(g.x, 2), apply(np.float32(2), g.x), apply(2, g.i)])
    assert [(r.shape, r.dtype, r.nbytes) for r in results] == [((4, 6), "i1", 24)] * 4
    assert [c.op for c in commands] == [op, op, turned, turned]


@pytest.mark.parametrize(
    ("left", "right", "result"),
    [
        ("f16", "f16", "f16"),
        ("f16", "bf16", "f32"),
        ("f8e4m3", "f8e5m2", "f16"),
        ("f8e4m3", "bf16", "bf16"),
        ("i8", "f16", "f16"),
        ("i32", "f32", "f32"),
        ("i8", "i32", "i32"),
    ],
)
def test_elementwise_operations_promote(left, right, result):
    def body(g):
        a, b = g.tl.load(0, (2,), left), g.tl.load(64, (2,), right)
        return [a + b, b + a, g.tl.maximum(a, b), g.tl.where(g.i[0, 0:1], a, b)]

    results, _ = record(body)
    assert {r.dtype for r in results} == {result}


def test_ids_along_the_three_axes():
    tl = TLContext(3, 8, 2, 16, package_id=1, num_packages=4)

    def kernel(*, tl):
        ids = [tl.program_id(axis) for axis in range(3)] + [tl.program_id()]
        return ids, [tl.num_programs(axis) for axis in range(3)] + [tl.num_programs()]

    assert run_kernel(kernel, tl) == ([3, 2, 1, 3], [8, 16, 4, 8])
    assert tl.commands == []


def test_ids_default_to_one_program():
    tl = TLContext()
    assert [tl.program_id(a) for a in range(3)] == [0, 0, 0]
    assert [tl.num_programs(a) for a in range(3)] == [1, 1, 1]


def test_a_kernel_that_returns_at_once_dispatches_nothing():
    def kernel(*, tl):
        if tl.program_id(0) != 0:
            return
        tl.load(0)

    tl = TLContext(pe_id=1, num_programs=2)
    run_kernel(kernel, tl)
    assert tl.commands == []
    assert len(tl.commands) == 0
    assert list(tl.commands) == []
    assert tl.scratch_peak == 0


def test_commands_are_a_sequence():
    tl = TLContext()

    def kernel(*, tl):
        x = tl.load(0, (2,))
        tl.store(64, x + 1.0)

    run_kernel(kernel, tl)
    commands = tl.commands
    assert [c.op for c in commands] == ["load", "add", "store"]
    assert commands[-1].op == "store"
    assert [c.op for c in commands[1:]] == ["add", "store"]
    assert commands != []
    with pytest.raises(IndexError):
        commands[3]
    assert repr(commands) == "<3 commands of cube 0 PE 0>"


def test_small_help_for_kernels_written_for_triton():
    (rounded, constant, numbers, unrolled), commands = record(
        lambda g: (g.tl.cdiv(7, 2), g.tl.constexpr(5), list(g.tl.range(3)), list(g.tl.static_range(1, 3)))
    )
    assert (rounded, constant, numbers, unrolled) == (4, 5, [0, 1, 2], [1, 2])
    record(lambda g: g.tl.static_assert(True, "holds"))
    assert commands == []


def test_workspaces_and_element_types_cost_nothing():
    def body(g):
        return g.tl.workspace((4, 6), "f32"), g.tl.workspace((4, 6), name="second"), g.tl.element_type(0x1000)

    (first, second, kind), commands = record(body)
    assert abs(second - first) >= 96
    assert kind == "f16"
    assert commands == []


def test_a_value_cannot_be_read_while_only_recording():
    with pytest.raises(KernelError) as caught:
        record(lambda g: bool(g.tl.max(g.x)))
    assert caught.value.kind == "value-needed"


@pytest.mark.parametrize("count", [8191, 8192, 8193, 20000])
def test_a_long_recording_keeps_every_row(count):
    tl = TLContext()

    def kernel(*, tl):
        x = tl.load(0, shape=(2, 3), dtype="f16")
        for i in range((count - 1) // 2):
            x = x + 1.0 if i % 3 else x * 2.0
            tl.store(64 * i, x.T)
        if len(tl.commands) < count:
            tl.exp(x)

    run_kernel(kernel, tl)
    commands = list(tl.commands)
    assert len(commands) == len(tl.commands) == count
    assert commands[0].op == "load"
    for i in range((count - 1) // 2):
        math, store = commands[1 + 2 * i], commands[2 + 2 * i]
        assert math.op == ("add" if i % 3 else "mul")
        assert (math.out.id, store.op, store.addr, store.nbytes) == (1 + 2 * i, "store", 64 * i, 12)
        assert (store.src.shape, store.src.addr) == ((3, 2), math.out.addr)
        assert math.operands[0].id == (0 if i == 0 else 2 * i - 1)
    if count % 2 == 0:
        assert commands[-1].op == "exp"
        assert commands[-1].operands[0].shape == (2, 3)
    assert tl.commands[count - 1].op == tl.commands[-1].op == commands[-1].op


def test_a_kernel_that_never_stops_is_stopped():
    def kernel(*, tl):
        x = tl.zeros((2,))
        while True:
            x = x + 1.0

    tl = TLContext(max_steps=10_000)
    with pytest.raises(KernelError, match="10001 commands") as caught:
        run_kernel(kernel, tl)
    assert caught.value.kind == "over-budget"
    assert str(caught.value.where.line) in str(caught.value)
    assert len(tl.commands) == 10_001


def test_a_kernel_may_use_its_whole_budget():
    def kernel(*, tl):
        for _ in range(50):
            tl.zeros((2,))

    tl = TLContext(max_steps=50)
    run_kernel(kernel, tl)
    assert len(tl.commands) == 50
