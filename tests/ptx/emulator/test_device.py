"""The emulated device: arrays, launches and their refusals, metrics."""

import gc
import weakref
from itertools import chain, repeat
from types import SimpleNamespace

import numpy as np
import pytest
from tests.ptx.emulator.conftest import Lab

from kernbench import ptx
from kernbench.common.errors import MisuseError
from kernbench.ptx.emulator.engine.batch import Batch
from kernbench.ptx.emulator.program import meter
from kernbench.safety.budget import Budget

COPY = """
  mul.wide.u32 %rd1, %r3, 4;
  add.u64 %rd2, %rd1, %rd20;
  add.u64 %rd3, %rd1, %rd21;
  ld.global.f32 %f1, [%rd2];
  fma.rn.f32 %f2, %f1, %f1, %f1;
  st.global.f32 [%rd3], %f2;
"""


def test_arrays_are_copies(lab):
    x = np.arange(4, dtype="f4")
    array = lab.device.array(x, "x")
    x[0] = 9
    assert array.numpy().tolist() == [0, 1, 2, 3]
    assert array.nbytes == 16
    assert array.address % 256 == 0
    array.free()
    with pytest.raises(MisuseError, match="was freed"):
        array.numpy()


def test_memory_is_given_back(lab):
    before = repr(lab.device)
    for _ in range(4):
        lab.device.empty(1 << 24, "u1").free()
    assert repr(lab.device) == before


def test_a_device_has_only_so_much_memory(lab):
    with pytest.raises(MisuseError, match="do not fit the device's memory"):
        lab.device.empty(1 << 40, "u1")


def test_metrics(lab):
    run = lab.launch(COPY, np.zeros(96, "f4"), lab.empty(96, "f4"), grid=3, block=32)
    assert run.metrics["flops"] == 2 * 96
    assert run.metrics["bytes"]["global.read"] == 4 * 96
    assert run.metrics["bytes"]["global.written"] == 4 * 96
    assert run.metrics["instructions_by_kind"]["float"] == 96
    assert run.metrics["thread_instructions"] == 32 * run.metrics["warp_instructions"]


def test_outputs_are_what_was_written(lab):
    run = lab.launch(COPY, np.ones(32, "f4"), lab.device.array(np.zeros(32, "f4"), "y"))
    assert list(run.outputs) == ["y"]
    run = lab.launch(COPY, np.ones(32, "f4"), np.zeros(32, "f4"))
    assert list(run.outputs) == ["array1"]


@pytest.mark.parametrize("grid", [1, 7, 600, (3, 5, 2)])
def test_grids_larger_than_a_batch(lab, grid):
    total = int(np.prod(grid)) * 64
    body = """
  mov.u32 %r4, %ctaid.y;
  mov.u32 %r5, %nctaid.x;
  mov.u32 %r6, %ctaid.z;
  mov.u32 %r7, %nctaid.y;
  mad.lo.u32 %r6, %r6, %r7, %r4;
  mad.lo.u32 %r6, %r6, %r5, %r1;
  mad.lo.u32 %r3, %r6, %r2, %r0;
  mov.u32 %r63, %r3;
"""
    assert (lab.compute(body, grid=grid, block=64) == np.arange(total)).all()


def test_refusals(lab):
    kernel = lab.kernel(COPY, 2)
    x = lab.device.array(np.zeros(32, "f4"))
    other = ptx.EmulatedDevice("sm_100a").array(np.zeros(4))
    for call, message in [
        (lambda: lab.device.launch(kernel, 1, 2000, [x, x]), "block"),
        (lambda: lab.device.launch(kernel, (1, 70000), 32, [x, x]), "grid"),
        (lambda: lab.device.launch(kernel, 1, 32, [x]), "1 arguments for 2 parameters"),
        (lambda: lab.device.launch(kernel, 1, 32, [x, other]), "another device"),
        (lambda: lab.device.launch(kernel, 1, 32, [x, x], 300_000), "shared memory"),
        (lambda: lab.device.launch("text", 1, 32, [x, x]), "is no kernel"),
        (lambda: lab.device.launch(kernel, 1, 32, [x, x], schedule="odd"), "schedule"),
        (lambda: ptx.EmulatedDevice("sm_80").launch(kernel, 1, 32), "does not run on sm_80"),
        (lambda: ptx.EmulatedDevice("sm_1"), "unknown architecture"),
    ]:
        with pytest.raises(MisuseError, match=message):
            call()


def test_the_cost_of_a_thread_does_not_grow_with_the_grid():
    # by the executor it does not, and no launch has a cost of its own
    lab = Lab(ptx.EmulatedDevice("sm_100a", fast_paths="-executor"))
    small = lab.launch(COPY, np.zeros(2048, "f4"), lab.empty(2048, "f4"), grid=32, block=64)
    large = lab.launch(COPY, np.zeros(1 << 16, "f4"), lab.empty(1 << 16, "f4"), grid=1024, block=64)
    assert large.metrics["steps"] <= 4 * small.metrics["steps"]


def test_budget_in_seconds(lab):
    body = "  mov.u32 %r5, 0;\nL:\n  add.u32 %r5, %r5, 1;\n  bra L;"
    run = lab.launch(body, budget=Budget(steps=10**9, seconds=0.2))
    assert run.status == "over budget"
    assert "0.2 seconds" in run.findings[0].message


def test_a_run_tells_its_origin(lab):
    run = lab.launch(COPY, np.zeros(32, "f4"), lab.empty(32, "f4"))
    assert run.origin["kernel"] == "kernel"
    assert run.origin["grid"] == (1, 1, 1)
    assert run.safe
    assert run.to_dict()["status"] == "finished"


@pytest.mark.parametrize(("compiling", "status"), [(0.0, "over budget"), (999.0, "finished")])
def test_seconds_of_compiling_are_not_the_kernels(lab, monkeypatch, compiling, status):
    clock, compiled = chain([0.0], repeat(1000.0)), chain([0.0], repeat(compiling))
    monkeypatch.setattr(meter, "time", SimpleNamespace(monotonic=lambda: next(clock)))
    monkeypatch.setattr(meter, "seconds_compiling", lambda: next(compiled))
    body = "  mov.u32 %r5, 0;\nL:\n  add.u32 %r5, %r5, 1;\n  setp.lt.u32 %p1, %r5, 500;\n  @%p1 bra L;"
    assert lab.launch(body, budget=Budget(steps=10**9, seconds=500)).status == status


ENDINGS = {
    "finishes": COPY,
    "races": "  mov.u32 %r5, buffer;\n  st.shared.u32 [%r5], %r0;",
    "waits for ever": """
  mov.u32 %r5, buffer;
  setp.ne.u32 %p1, %r0, 0;
  @%p1 bra READY;
  mbarrier.init.shared.b64 [%r5], 2;
READY:
  bar.sync 0;
  @%p1 bra DONE;
  mbarrier.arrive.shared.b64 %rd1, [%r5];
WAIT:
  mbarrier.try_wait.shared.b64 %p2, [%r5], %rd1;
  @!%p2 bra WAIT;
DONE:""",
    "never ends": "L:\n  add.u32 %r5, %r5, 1;\n  bra L;",
}


@pytest.mark.sampled(4)
@pytest.mark.parametrize("checks", [True, False])
@pytest.mark.parametrize("body", ENDINGS.values(), ids=ENDINGS)
def test_registers_go_with_their_launch(body, checks, monkeypatch):
    """The next launch takes their memory, which it does not find where only a cycle holds it."""
    lab = Lab(ptx.EmulatedDevice("sm_100a", fast_paths="-executor"))
    taken, make = [], Batch._make_registers

    def made(batch):
        make(batch)
        taken.extend(weakref.ref(bank) for bank in batch.banks.values())

    monkeypatch.setattr(Batch, "_make_registers", made)
    gc.disable()
    try:
        given = (np.zeros(4096, "f4"), lab.empty(4096, "f4"))
        outside = ".shared .align 8 .b8 buffer[16];"
        lab.launch(body, *given, grid=64, block=64, outside=outside, checks=checks, budget=Budget(steps=20_000))
        assert taken
        assert not any(bank() is not None for bank in taken)
    finally:
        gc.enable()


@pytest.mark.sampled(4)
@pytest.mark.parametrize("checks", [True, False])
@pytest.mark.parametrize("body", ENDINGS.values(), ids=ENDINGS)
def test_memory_goes_with_the_last_who_names_it(body, checks):
    """Not only when Python looks for cycles: a process with many devices would grow until then."""
    gc.disable()
    try:
        device = ptx.EmulatedDevice("sm_100a")
        arena = weakref.ref(device._arena)
        lab = Lab(device)
        outside = ".shared .align 8 .b8 buffer[16];"
        given = (np.zeros(4096, "f4"), lab.empty(4096, "f4"))
        run = lab.launch(body, *given, grid=64, block=64, outside=outside, checks=checks, budget=Budget(steps=20_000))
        del device, lab, given
        assert arena() is None
        # what was found stays readable
        assert all(finding.message for finding in run.findings)
        assert run.to_dict()["status"] == run.status
    finally:
        gc.enable()
