"""A PTX device as a bench sees it."""

import numpy as np
import pytest

from kernbench import ptx
from kernbench.common.errors import MisuseError
from kernbench.ptx.emulator.memory import arena
from kernbench.result.run import Status
from kernbench.safety.budget import Budget


def fill(value):
    def program(ctx):
        ctx.store(ctx.pointer("out_ptr", "f32"), value, ctx.global_index())

    return ptx.PtxKernel("fill").param("u64", "out_ptr").build(program)


def test_launches_are_remembered_and_added_up():
    host = ptx.Host()
    a, b = host.empty(64, "f32", "a"), host.empty(64, "f32", "b")
    first = host.launch(fill(1.0), 2, 32, [a])
    second = host.launch(fill(2.0), 2, 32, [b], outputs=[a, b])
    assert len(host.launches) == 2
    assert first.safe
    assert set(first.outputs) == {"a"}
    assert {name: array[0] for name, array in second.outputs.items()} == {"a": 1.0, "b": 2.0}
    total = host.totals()
    assert total["thread_instructions"] == 2 * first.metrics["thread_instructions"]
    assert total["bytes"] == {name: 2 * count for name, count in first.metrics["bytes"].items()}


def test_outputs_that_are_asked_for_are_not_copied_twice(monkeypatch):
    host, read = ptx.Host(), []
    whole = host.device.read
    monkeypatch.setattr(host.device, "read", lambda allocation: read.append(allocation) or whole(allocation))
    # another array may have the same name
    a, b, other = (host.empty(64, "f32", name) for name in ("a", "b", "b"))
    host.launch(fill(1.0), 2, 32, [a], outputs=[a])
    assert len(read) == 1
    run = host.launch(fill(2.0), 2, 32, [b], outputs=[a, b])
    assert len(read) == 3
    assert {name: array[0] for name, array in run.outputs.items()} == {"a": 1.0, "b": 2.0}
    host.launch(fill(3.0), 2, 32, [other], outputs=[other])
    assert run.outputs["b"][0] == 2.0
    # what a launch has not written is read as it is now, whatever an earlier one gave back
    again = host.launch(fill(4.0), 2, 32, [other], outputs=[b])
    assert again.outputs["b"][0] == 2.0
    assert again.outputs["b"] is not run.outputs["b"]


def test_an_array_where_another_one_was_does_not_hold_what_a_launch_gave_of_that(monkeypatch):
    monkeypatch.setattr(arena, "_QUARANTINE", 0)
    host = ptx.Host()
    first = host.empty(64, "f32", "first")
    run = host.launch(fill(1.0), 2, 32, [first], outputs=[first])
    first.free()
    second = host.empty(64, "f32", "second")
    assert second.address == first.address
    assert run.outputs["first"][0] == 1.0
    np.testing.assert_array_equal(host.device.output(second), second.numpy())


def test_schedule_and_budget_hold_for_every_launch():
    def forever(ctx):
        with ctx.loop():
            ctx.nanosleep(1)

    host = ptx.Host(budget=Budget(steps=1000, seconds=600))
    host.schedule = "reversed"
    run = host.launch(ptx.PtxKernel("forever").build(forever), 1, 32)
    assert run.status is not Status.FINISHED
    assert run.origin["schedule"] == "reversed"


def test_halves_have_their_own_type():
    host = ptx.Host()
    assert host.empty((2, 3), "f16").dtype == np.float16
    assert host.empty(4, "bf16").dtype.name == "bfloat16"


def test_what_a_host_refuses():
    with pytest.raises(MisuseError, match="unknown device 'gpu'; known: emulator, cuda"):
        ptx.Host("gpu")
    host = ptx.Host()
    host.shapes_only = False
    with pytest.raises(MisuseError, match="PTX runs on data"):
        host.shapes_only = True


@pytest.mark.parametrize(
    ("dtype", "wanted"),
    [("u32", "uint32"), ("f64", "float64"), ("int64", "int64"), (np.uint8, "uint8"), ("half", "f2")],
)
def test_arrays_have_every_element_type_of_ptx(dtype, wanted):
    assert ptx.Host().empty(4, dtype, "a").dtype == np.dtype(wanted)


def test_an_unknown_element_type_is_told_with_the_known_ones():
    with pytest.raises(MisuseError, match=r"unknown element type 'q9'; known: f32, .* u64"):
        ptx.Host().empty(4, "q9")
