"""Orchestrations in C++ run against the same runtime; either language submits kernels of the other."""

import numpy as np
import pytest
from tests.npu.cpp.compiled import ORCHESTRATION, kernel, needs_compiler, orchestration
from tests.npu.cpp.test_kernels import python_scale

from kernbench import npu
from kernbench.npu.cpp.compiler import build_kernel
from kernbench.npu.cpp.memory import stored
from kernbench.npu.cpp.orchestration import CppOrchestration
from kernbench.result.run import Status

pytestmark = [needs_compiler, pytest.mark.programs]
X = np.random.default_rng(7).standard_normal((24, 64)).astype(np.float32)


def launch(scale, rounds=3, x=X, **options):
    chip = npu.Chip("a2a3", kernels={0: (scale, "aiv")})
    sizes = np.array([rounds], np.int32)
    run = chip.launch(
        orchestration("x", "out", "sizes", "factor"), x, np.zeros_like(x), sizes, np.float32(0.5), **options
    )
    return chip.retime(run) if run.safe else run


def test_it_submits_tasks_and_reads_values():
    run = launch(kernel("scale"))
    assert run.safe, run.findings
    assert run.status is Status.FINISHED
    np.testing.assert_array_equal(run.outputs["out"], X)
    assert run.metrics["tasks"] == 6
    assert run.metrics["time_ps"] > 0


def test_it_submits_kernels_in_python():
    def scale(core, x, out, bits):
        python_scale(core, x, out, float(np.array(bits, np.uint32).view(np.float32)))

    run = launch(scale)
    assert run.safe, run.findings
    np.testing.assert_array_equal(run.outputs["out"], X)


def test_dependences_are_those_of_the_tensor_map():
    assert [sorted(t.dependences) for t in launch(kernel("scale"), 2).recording.tasks] == [[], [0], [], [2]]


def test_a_view_outside_its_tensor_is_found_at_its_line():
    run = launch(kernel("scale"), rounds=4)
    assert run.status is Status.FAILED
    (finding,) = run.findings
    assert finding.kind == "out-of-bounds"
    assert finding.where.file == str(ORCHESTRATION)
    assert "rt_submit_aiv_task(0, one)" in finding.where.text


def entry(symbol, names, elements=()):
    return CppOrchestration(build_kernel(ORCHESTRATION), ORCHESTRATION, symbol, names, elements)


def test_a_recorded_graph_submits_what_its_function_does():
    chip = npu.Chip("a2a3", kernels={0: (kernel("scale"), "aiv")})
    x = X[:8]
    run = chip.launch(entry("graph", ("x", "out")), x, np.zeros_like(x))
    assert run.safe, run.findings
    np.testing.assert_array_equal(run.outputs["out"], x * np.float32(3))


def test_whole_numbers_of_64_bits_are_read_written_and_made():
    numbers, element = stored(np.array([7, 1 << 40, 0, 0], np.int64))
    assert numbers.shape == (4, 2)
    run = npu.Chip("a2a3").launch(entry("wide", ("numbers",), (element,)), numbers)
    assert not run.findings, run.findings
    found = np.ascontiguousarray(run.outputs["numbers"]).view(np.int64).ravel()
    np.testing.assert_array_equal(found, [7, 1 << 40, 7 + (1 << 40), -1])
