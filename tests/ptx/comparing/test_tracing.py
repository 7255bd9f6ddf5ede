"""A kernel with a record of its results: it computes what it computed, and an assembler takes it."""

import numpy as np
import pytest
from tests import sampled
from tests.ptx.builder.samples import SAMPLES
from tests.ptx.gpu.test_kernels import inputs
from tests.ptx.toolchain import needs_ptxas

from kernbench import ptx
from kernbench.ptx.comparing.registers import private_registers
from kernbench.ptx.comparing.tracing import empty_rows, ended, traced
from kernbench.ptx.launching.device_base import kernel_of, launch_shape

HEAD = ".version 8.0\n.target sm_90\n.address_size 64\n"


def results(kernel, grid, block, args, rows=None):
    device = ptx.EmulatedDevice()
    given = [device.empty(*arg) if isinstance(arg, tuple) else arg for arg in args]
    given = [device.array(arg) if isinstance(arg, np.ndarray) else arg for arg in given]
    kept = [array for array in given if hasattr(array, "numpy")]
    record = [] if rows is None else [device.array(rows)]
    run = device.launch(kernel, grid, block, [*given, *record])
    assert not run.findings, run.findings
    return [array.numpy() for array in (*kept, *record)]


# products of tiles are in test_search; compiling their loops takes longest
@pytest.mark.parametrize("name", sampled.some([name for name in SAMPLES if name != "mma_tile"], 3))
def test_a_record_changes_no_result(name):
    kernel = kernel_of(SAMPLES[name]())
    grid, block, args = inputs(name)
    blocks, threads, _ = launch_shape(grid, block, None, kernel)
    with_record = traced(kernel, threads)
    rows = empty_rows(int(np.prod(blocks) * np.prod(threads)))
    *outputs, record = results(with_record.kernel, grid, block, args, rows)
    for one, other in zip(results(kernel, grid, block, args), outputs, strict=True):
        np.testing.assert_array_equal(one, other)
    counts = ended(record)[:, 0]
    assert counts.min() > 0, "every thread wrote how many results it had"
    assert max(one.number for one in with_record.results) == len(with_record.results)


@pytest.mark.programs
@needs_ptxas
@pytest.mark.parametrize("name", ["softmax", "mma_tile", "collatz"])
def test_an_assembler_takes_it(name):
    kernel = kernel_of(SAMPLES[name]())
    plain = traced(kernel, (128, 1, 1))
    for watched in (None, plain.results[-1].number):
        ptx.assemble(traced(kernel, (128, 1, 1), watched=watched).kernel.emit(), "sm_90a")


def test_what_a_device_chooses_is_private():
    text = (
        HEAD
        + """.visible .entry k(.param .u64 x, .param .u32 n)
{
  .reg .pred %p<3>; .reg .b32 %r<9>; .reg .b64 %rd<9>; .reg .f32 %f<3>;
  .shared .align 8 .b8 tile[64]; .shared .align 8 .b64 full;
  ld.param.u64 %rd1, [x]; ld.param.u32 %r1, [n];
  mov.u32 %r2, tile; add.u32 %r3, %r2, %r1;
  ld.shared.f32 %f1, [%r3];
  mov.u32 %r4, %clock; mov.u32 %r5, %tid.x;
  mbarrier.try_wait.shared.b64 %p1, [full], %rd2;
  atom.global.add.u32 %r6, [%rd1], 1;
  ld.acquire.gpu.global.u32 %r7, [%rd1];
  setp.eq.u32 %p2, %r7, 0;
  ld.global.u64 %rd3, [%rd1];
  ret;
}"""
    )
    function = ptx.parse(text).kernels["k"].function
    assert private_registers(function) == {"%r2", "%r3", "%r4", "%p1", "%r6", "%r7", "%p2"}
    assert private_registers(function, ("x",), loads_addresses=True) >= {"%rd1", "%rd3"}
