"""C++ kernels are executed and checked as Python ones are, each finding at its C++ line; what goes wrong in the process
in which they run stays there.
"""

import numpy as np
import pytest
from tests.npu.cpp.compiled import KERNELS, kernel, line_of, needs_compiler
from tests.npu.small import kinds, run_kernel

from kernbench import npu
from kernbench.result.run import Status
from kernbench.safety.budget import Budget

pytestmark = [needs_compiler, pytest.mark.programs]
rng = np.random.default_rng(5)
X = rng.standard_normal((8, 64)).astype(np.float32)
EMPTY = np.zeros((8, 64), np.float32)


def launch(name, *more, out=EMPTY, budget=None, **options):
    # compiled before the launch, whose budget of seconds is for kernels
    made = kernel(name)

    def orchestrate(rt, x, out):
        rt.submit(aiv0=made, args=[npu.IN(x), npu.OUT(out), *more])

    return npu.Chip("a2a3").launch(orchestrate, X, out, budget=budget, **options)


def only(run):
    (finding,) = run.findings
    assert finding.where.file == str(KERNELS)
    return finding


def test_a_kernel_computes_and_is_safe_and_timed():
    made = kernel("scale")

    def orchestrate(rt, x, out):
        rt.submit(aiv0=made, args=[npu.IN(x), npu.OUT(out), 3.0], block_num=4)

    chip = npu.Chip("a2a3")
    x = rng.standard_normal((32, 64)).astype(np.float32)
    run = chip.launch(orchestrate, x, np.zeros_like(x))
    assert run.safe, run.findings
    assert run.status is Status.FINISHED
    np.testing.assert_array_equal(run.outputs["out"], x * np.float32(3))
    assert chip.retime(run).metrics["time_ps"] > 0


def python_scale(core, x, out, factor):
    rows = slice(8 * core.block_idx, 8 * core.block_idx + 8)
    tile = core.tile("UB", (8, 64), "f32", offset=0)
    core.tload(tile, x[rows])
    core.set_flag("MTE2", "V", 0)
    core.wait_flag("MTE2", "V", 0)
    core.tmuls(tile, tile, factor)
    core.set_flag("V", "MTE3", 0)
    core.wait_flag("V", "MTE3", 0)
    core.tstore(out[rows], tile)
    core.pipe_sync()


def test_it_is_recorded_as_the_same_kernel_in_python():
    def under(function):
        def orchestrate(rt, x, out):
            rt.submit(aiv0=function, args=[npu.IN(x), npu.OUT(out), 3.0], block_num=4)

        chip = npu.Chip("a5")
        x = np.arange(32 * 64, dtype=np.float32).reshape(32, 64)
        run = chip.retime(chip.launch(orchestrate, x, np.zeros_like(x)))
        rows = run.recording.array()
        return [rows[name].tolist() for name in ("op", "lane", "pipe", "w", "a", "b", "c", "x")], run.metrics["time_ps"]

    assert under(kernel("scale")) == under(python_scale)


def test_row_forms_and_scratch_tiles():
    run = run_kernel(kernel("exponents"), X, out=EMPTY)
    assert run.safe, run.findings
    np.testing.assert_allclose(run.outputs["out"], np.exp(X - X.max(1, keepdims=True)), rtol=1e-6)


def test_a_barrier_that_the_chips_compiler_refuses():
    finding = only(run_kernel(kernel("exponents"), X, out=EMPTY, chip="a5"))
    assert finding.kind == "misuse"
    assert finding.where.text == "pipe_barrier(PIPE_V);"
    assert "pipe_barrier(V): the compiler of a5 refuses it; it takes M, MTE2, MTE3 and ALL" in finding.message
    assert finding.hint == "leave it out: on a5 dependent operations of V are in order"


@pytest.mark.parametrize("schedule", ["canonical", "reversed", 3])
def test_a_missing_flag_is_a_race_at_the_line(schedule):
    finding = only(launch("no_flag", schedule=schedule))
    assert finding.kind == "race"
    assert finding.where.line == line_of("// the race")
    assert finding.where.function == "no_flag"
    assert "'tile'" in finding.message
    assert finding.where.text.startswith("TMULS(tile, tile")


def test_a_store_past_a_tensor():
    run = launch("past_the_tensor")
    (finding,) = [f for f in run.findings if f.kind == "out-of-bounds"]
    assert finding.where.line == line_of("// the copy's store")
    assert "elements 64 to 575" in finding.message


def test_a_tile_past_its_memory():
    run = launch("past_the_memory")
    assert kinds(run) == ["tile-bounds"]
    assert "'tile'" in run.findings[0].message


def test_tiles_that_overlap_in_part():
    finding = only(launch("overlapping"))
    assert finding.kind == "tile-overlap"
    assert finding.where.line == line_of("// torn")


@pytest.mark.parametrize("name", ["endless", "chatty"])
def test_a_kernel_without_an_end_is_stopped_at_its_line(name):
    run = launch(name, budget=Budget(steps=2000, seconds=2))
    assert run.status is Status.OVER_BUDGET
    assert kinds(run) == ["over-budget"]
    assert "// for ever" in run.findings[0].where.text
    assert run.findings[0].where.function == name


def test_a_crash_is_a_finding_of_the_kernel_and_the_next_launch_runs():
    finding = only(launch("crash"))
    assert finding.kind == "kernel-error"
    assert finding.where.line == line_of("// the crash")
    assert "segmentation fault" in finding.message
    assert launch("scale", 2.0).safe


def indirect(flushes, table):
    made = kernel("indirect")

    def orchestrate(rt, x, out, table):
        rt.submit(aiv0=made, args=[npu.IN(x), npu.OUT(out), npu.INOUT(table), flushes])

    return npu.Chip("a2a3").launch(orchestrate, np.tile(X, (2, 1)), EMPTY, np.array(table, np.int32))


def test_values_that_a_kernel_reads_and_writes_through_pointers():
    run = indirect(1, [0, 8, 0, 0])
    assert run.safe, run.findings
    np.testing.assert_array_equal(run.outputs["out"], X)
    assert run.outputs["table"].tolist() == [0, 8, 9, 0]


def test_a_value_that_stays_in_the_cache():
    run = indirect(0, [0, 8, 0, 0])
    # nor is the table ever written, which it is declared as
    assert kinds(run) == ["argument-direction", "unflushed-write"]
    assert run.outputs["table"].tolist() == [0, 8, 0, 0]


def test_an_index_that_leads_outside():
    run = indirect(1, [0, 9, 0, 0])
    assert "out-of-bounds" in kinds(run)


def test_a_function_that_is_not_there_is_refused():
    run = launch("nowhere")
    assert kinds(run) == ["misuse"]
    assert "no function nowhere" in run.findings[0].message
