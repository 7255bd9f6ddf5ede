"""Numbers the kernel reads back to branch on, with data and without; and what a receive without a type becomes."""

import numpy as np
import pytest

from kernbench import mesh
from kernbench.common.errors import KernelError
from kernbench.common.pe_commands import ReadValueCmd
from kernbench.result.run import Status
from kernbench.triton_emu import TLContext, run_kernel


def read_on_one_rank(body, array, **options):
    """What `body(tl, handle)` returns inside a launch over `array`, and the run."""
    seen = []

    def kernel(x_ptr, *, tl):
        seen.append(body(tl, tl.load(x_ptr, shape=array.shape)))

    host = mesh.Host("small", ranks=1, **options)
    run = host.launch(kernel, host.replicate(array))
    return (seen[0] if seen else None), run


READS = {
    "value_of": (lambda tl, x: tl.value_of(x[1]), 2.5),
    "item": (lambda tl, x: x[1].item(), 2.5),
    "float": (lambda tl, x: float(x[1]), 2.5),
    "int": (lambda tl, x: int(x[1]), 2),
    "bool": (lambda tl, x: bool(x[0]), False),
    "if": (lambda tl, x: "yes" if tl.max(x) > 2 else "no", "yes"),
    "not": (lambda tl, x: not (x[0:1] > 0), True),
    "reduced": (lambda tl, x: float(tl.sum(x)), 6.5),
    "kept": (lambda tl, x: tl.sum(x.reshape(1, 3), 1).item(), 6.5),
}


@pytest.mark.parametrize("name", READS)
def test_one_element_reads_back_as_a_number(name):
    body, wanted = READS[name]
    value, run = read_on_one_rank(body, np.array([0.0, 2.5, 4.0], np.float32))
    assert run.safe, run.findings
    assert value == wanted
    assert type(value) is type(wanted)
    reads = [c for c in run.recording.streams[0] if c.op == "read_value"]
    assert len(reads) == 1
    assert isinstance(reads[0], ReadValueCmd)
    assert (reads[0].engine, reads[0].src.size) == ("cpu", 1)


def test_a_value_serves_as_a_count_and_as_a_shape():
    def body(tl, x):
        total = 0
        for _ in range(x[0]):
            total += 1
        return total, tl.zeros((x[1], 2)).shape

    value, run = read_on_one_rank(body, np.array([3, 5], np.int32))
    assert run.safe, run.findings
    assert value == (3, (5, 2))


@pytest.mark.parametrize("use", [bool, int, float, lambda h: h.item()], ids=["bool", "int", "float", "item"])
def test_several_elements_have_no_single_value(use):
    tl = TLContext()
    with pytest.raises(KernelError, match=r"shape \(3,\) has no single value") as caught:
        run_kernel(lambda *, tl: use(tl.zeros((3,))), tl)
    assert caught.value.kind == "shape"


def branch(tl, x):
    largest = tl.max(x * 2)
    return "large" if largest > 3 else "small"


def test_recording_has_no_values_to_branch_on():
    with pytest.raises(KernelError, match="carries no data") as caught:
        run_kernel(lambda *, tl: branch(tl, tl.load(64, shape=(3,))), TLContext())
    assert caught.value.kind == "value-needed"
    assert caught.value.where.text == 'return "large" if largest > 3 else "small"'
    assert "the memory at 0x40" in str(caught.value)


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_without_data_a_float_to_branch_on_is_a_finding_that_names_the_tensor(dtype):
    value, run = read_on_one_rank(branch, np.array([1, 2, 3], dtype), shapes_only=True)
    assert value is None
    assert run.status is Status.FAILED
    (finding,) = run.findings
    assert finding.kind == "value-needed"
    assert "'x'" in finding.message
    assert "largest > 3" in finding.message
    assert finding.where.text == 'return "large" if largest > 3 else "small"'
    assert finding.hint


@pytest.mark.parametrize("dtype", [np.int32, np.int8, np.bool_])
def test_without_data_an_integer_still_decides(dtype):
    def body(tl, x):
        return "yes" if tl.max(x) else "no"

    assert [read_on_one_rank(body, np.array(v, dtype), shapes_only=True)[0] for v in ([0, 1], [0, 0])] == ["yes", "no"]


def test_without_data_integers_compute():
    value, run = read_on_one_rank(branch, np.array([1, 2], np.int32), shapes_only=True)
    assert run.safe, run.findings
    assert value == "large"


def test_without_data_an_integer_that_was_overwritten_is_not_read_as_it_was():
    """Either the new number, or the finding that it is not known."""
    seen = []

    def kernel(x_ptr, *, tl):
        tl.store(x_ptr, tl.load(x_ptr, shape=(1,)) + 1)
        seen.append(int(tl.load(x_ptr, shape=(1,))))

    host = mesh.Host("small", ranks=1, shapes_only=True)
    run = host.launch(kernel, host.replicate(np.array([5], np.int32)))
    assert seen == [6] or [f.kind for f in run.findings] == ["value-needed"]


def test_without_data_the_name_is_found_through_views_and_several_loads():
    def kernel(weights_ptr, bias_ptr, *, tl):
        w, b = tl.load(weights_ptr, shape=(2, 2)), tl.load(bias_ptr, shape=(2,))
        if tl.max(tl.dot(w.T, w) + b) > 0:
            return

    host = mesh.Host("small", ranks=1, shapes_only=True)
    tensors = host.replicate(np.ones((2, 2), np.float16)), host.replicate(np.ones(2, np.float16))
    (finding,) = host.launch(kernel, *tensors).findings
    assert "'bias', 'weights'" in finding.message


def test_without_data_the_same_commands_are_recorded():
    def body(tl, x):
        y = tl.softmax(tl.dot(x, x.T))
        return [tl.sum(y, 1), tl.where(y > 0, y, 0.0), tl.cat(y, y), y.to("f16"), tl.arange(0, 4)]

    array = np.ones((4, 4), np.float16)
    streams = [read_on_one_rank(body, array, shapes_only=only)[1].recording.streams[0] for only in (False, True)]
    with_data, without = ([(c.op, c.out.shape, c.out.dtype, c.out.addr) for c in stream] for stream in streams)
    assert with_data == without


def between_two_ranks(receive):
    """Rank 0 sends f32, rank 1 receives it by `receive(tl)`, which returns what it saw."""
    seen = []

    def kernel(*, tl):
        if tl.program_id(0) == 0:
            tl.send("E", tl.full((4,), 1.0001))
        else:
            seen.extend(receive(tl))

    run = mesh.Host("small", ranks=2).launch(kernel)
    assert run.safe, run.findings
    return seen


def test_a_receive_without_a_type_takes_the_messages():
    def receive(tl):
        got = tl.recv("W", (4,))
        return [got.dtype, (got + got).dtype, (got + got).data.tolist()]

    assert between_two_ranks(receive) == ["f32", "f32", (np.full(4, 1.0001, np.float32) * 2).tolist()]


@pytest.mark.parametrize("before", [False, True])
def test_an_asynchronous_receive_disturbs_no_other_value(before):
    def receive(tl):
        half = tl.zeros((4,), "f16")
        if before:
            half + half
        got = tl.recv_async("W", (4,), "f32").wait()
        return [got.dtype, got.nbytes, (got + got).dtype, (half + half).dtype, (got + got).data.tolist()]

    wanted = ["f32", 16, "f32", "f16", (np.full(4, 1.0001, np.float32) * 2).tolist()]
    assert between_two_ranks(receive) == wanted
