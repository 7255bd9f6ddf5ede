"""Handles outside a kernel, the table of operations, directions, and the commands' own properties."""

import dataclasses
import operator

import numpy as np
import pytest

from kernbench.common.errors import KernelError, MisuseError
from kernbench.common.ipcq_types import DIRECTIONS, OPPOSITE, IpcqRecvCmd, IpcqSendCmd, check_direction
from kernbench.common.pe_commands import (
    HBM,
    OPERATION_NAMES,
    OPERATIONS,
    SCRATCH,
    GemmCmd,
    MathCmd,
    TensorHandle,
    bare_handle,
    running_context,
)
from kernbench.triton_emu import TLContext, run_kernel


def test_a_handle_is_built_by_position_or_by_name():
    first = TensorHandle("k", 128, (2, 3), "f32", 24, None, HBM, True)
    second = TensorHandle(id="k", addr=128, shape=[2, 3], dtype="float32", nbytes=24, data=None, space=HBM, pinned=True)
    for handle in (first, second):
        assert (handle.id, handle.addr, handle.shape, handle.dtype) == ("k", 128, (2, 3), "f32")
        assert (handle.nbytes, handle.data, handle.space, handle.pinned) == (24, None, HBM, True)


def test_a_handle_fills_in_what_is_left_out():
    handle = TensorHandle(addr=64, shape=5)
    assert (handle.shape, handle.dtype, handle.nbytes, handle.space) == ((5,), "f16", 10, SCRATCH)
    assert (handle.ndim, handle.size, handle.numel(), handle.where) == (1, 5, 5, None)


@pytest.mark.parametrize("shape", [5, np.int64(5), (5,), [np.int32(5)]], ids=["int", "numpy", "tuple", "list"])
def test_one_axis_may_be_given_as_a_number(shape):
    assert TensorHandle(shape=shape).shape == (5,)


def test_replace_changes_one_field():
    handle = dataclasses.replace(TensorHandle("k", 128, (2, 3), "f32"), addr=256)
    assert (handle.id, handle.addr, handle.shape, handle.dtype, handle.nbytes) == ("k", 256, (2, 3), "f32", 24)


def test_a_handle_of_an_unknown_type_lists_the_known_ones():
    with pytest.raises(MisuseError, match="unknown element type 'f99'; known: f32"):
        TensorHandle(shape=(2,), dtype="f99")


def test_handles_are_hashable_by_identity():
    one, other = TensorHandle(shape=(2,)), TensorHandle(shape=(2,))
    assert len({one, other}) == 2
    assert {one: 1}[one] == 1


def test_the_text_of_a_handle_says_address_shape_and_type():
    assert repr(TensorHandle("k", 64, (2, 3), "f32")) == "TensorHandle(id='k', addr=0x40, shape=(2, 3), dtype='f32')"


OPERATORS = [operator.add, operator.sub, operator.mul, operator.truediv, operator.lt, operator.eq, operator.ne]


@pytest.mark.parametrize("apply", OPERATORS, ids=lambda f: f.__name__)
def test_an_operator_outside_a_kernel_says_how_to_start_one(apply):
    handle = TensorHandle(shape=(2,))
    with pytest.raises(KernelError, match="no kernel is running") as caught:
        apply(handle, 1.0)
    assert caught.value.kind == "misuse"
    assert "run_kernel" in str(caught.value)


@pytest.mark.parametrize(
    "use",
    [bool, int, float, operator.neg, abs, operator.index, lambda h: h[0], lambda h: h.T, lambda h: h.to("f32"),
     lambda h: h.reshape(2), lambda h: h.item()],
    ids=["bool", "int", "float", "neg", "abs", "index", "getitem", "T", "to", "reshape", "item"],
)  # fmt: skip
def test_every_use_of_a_handle_outside_a_kernel_is_misuse(use):
    with pytest.raises(KernelError, match="no kernel is running") as caught:
        use(TensorHandle(shape=(2,)))
    assert caught.value.kind == "misuse"


def test_the_running_context_is_set_only_while_a_kernel_runs():
    tl = TLContext()

    def kernel(*, tl):
        assert running_context.get() is tl
        raise ValueError("stop")

    assert running_context.get() is None
    with pytest.raises(ValueError, match="stop"):
        run_kernel(kernel, tl)
    assert running_context.get() is None


def test_a_kernel_run_inside_a_kernel_has_its_own_context():
    outer, inner = TLContext(), TLContext()

    def nested(*, tl):
        TensorHandle(addr=1 << 20, shape=(4,)) + 1.0

    def kernel(*, tl):
        run_kernel(nested, inner)
        TensorHandle(addr=1 << 20, shape=(4,)) * 2.0

    run_kernel(kernel, outer)
    assert [c.op for c in outer.commands] == ["mul"]
    assert [c.op for c in inner.commands] == ["add"]


def test_arguments_and_result_pass_through_run_kernel():
    def kernel(a, b, *, c, tl):
        return a, b, c, tl

    tl = TLContext()
    assert run_kernel(kernel, tl, 1, 2, c=3) == (1, 2, 3, tl)


def test_every_operation_has_one_code_and_an_engine():
    assert [OPERATIONS[name].code for name in OPERATION_NAMES] == list(range(len(OPERATION_NAMES)))
    assert {row.engine for row in OPERATIONS.values()} == {"dma", "gemm", "math", "ipcq", "cpu"}
    assert all(name == row.name for name, row in OPERATIONS.items())


def test_a_bare_handle_only_describes():
    handle = bare_handle(7, 64, (2, 3), "bf16", SCRATCH)
    assert (handle.id, handle.addr, handle.shape, handle.dtype, handle.nbytes) == (7, 64, (2, 3), "bf16", 12)
    assert handle.where is None


def test_the_commands_know_their_engine_and_sizes():
    a, b = bare_handle(0, 0, (5, 2, 3), "f16", SCRATCH), bare_handle(1, 64, (5, 3, 4), "f16", SCRATCH)
    out = bare_handle(2, 128, (5, 2, 4), "f32", SCRATCH)
    gemm = GemmCmd("dot", None, a, b, out)
    assert (gemm.m, gemm.k, gemm.n, gemm.engine, gemm.acc) == (2, 3, 4, "gemm", None)
    assert MathCmd("exp", None, (a,), a).engine == "math"
    assert IpcqSendCmd("send", None, "E", a).nbytes == 60
    assert IpcqRecvCmd("recv", None, "W", out).nbytes == 160


def test_commands_are_frozen():
    command = IpcqSendCmd("send", None, "E", bare_handle(0, 0, (2,), "f16", SCRATCH))
    with pytest.raises(dataclasses.FrozenInstanceError):
        command.direction = "W"


def test_directions_come_in_opposite_pairs():
    assert set(DIRECTIONS) == {"N", "S", "E", "W"}
    assert all(OPPOSITE[OPPOSITE[d]] == d != OPPOSITE[d] for d in DIRECTIONS)
    assert [check_direction(d) for d in DIRECTIONS] == list(DIRECTIONS)


@pytest.mark.parametrize("bad", ["X", "east", None, 3, "e"])
def test_an_unknown_direction_lists_the_known_ones(bad):
    with pytest.raises(KernelError, match="known: N, S, E, W") as caught:
        check_direction(bad)
    assert caught.value.kind == "misuse"


def test_numpy_leaves_operators_to_the_handle():
    tl = TLContext()

    def kernel(*, tl):
        x = tl.load(0, shape=(2, 3), dtype="f16")
        return [np.float32(2) * x, np.float64(2) / x, np.int64(2) + x, np.array(2.0) - x]

    results = run_kernel(kernel, tl)
    assert [(r.shape, r.dtype) for r in results] == [((2, 3), "f16")] * 4
    assert [c.op for c in tl.commands] == ["load", "mul", "div", "add", "sub"]
