"""C++ kernels that scatter by index, and that count and poll values in device memory past the cache."""

import numpy as np
import pytest
from tests.npu.cpp.compiled import HERE, line_of, needs_compiler

from kernbench import npu
from kernbench.npu.cpp.compiler import build_kernel
from kernbench.npu.cpp.kernel import CppKernel

pytestmark = [needs_compiler, pytest.mark.programs]
FILE = HERE / "memory.cpp"
SRC = np.arange(256, dtype=np.float32).reshape(8, 32)


def kernel(name, chip):
    return CppKernel(build_kernel(FILE, "aiv", chip), FILE, name, name)


def scattered(name, indices, out, direction=npu.OUT):
    made = kernel(name, "a5")

    def orchestrate(rt, src, idx, out):
        rt.submit(aiv0=made, args=[npu.IN(src), npu.IN(idx), direction(out)])

    return npu.Chip("a5").launch(orchestrate, SRC, indices.astype(np.int32), out)


def test_elements_and_rows_go_where_indices_say():
    places = np.random.default_rng(2).permutation(256).reshape(8, 32)
    run = scattered("elements", places, np.zeros((8, 32), np.float32))
    assert not run.findings, run.findings
    assert (run.outputs["out"].reshape(-1)[places.reshape(-1)] == SRC.reshape(-1)).all()
    order = np.array([[5, 0, 7, 2, 1, 3, 6, 4]])
    run = scattered("rows", order, np.zeros((8, 32), np.float32))
    assert not run.findings, run.findings
    assert (run.outputs["out"][order[0]] == SRC).all()
    assert npu.Chip("a5").retime(run).metrics["time_ps"] > 0


def test_elements_are_added():
    run = scattered("added", np.zeros((8, 32)), np.ones((8, 32), np.float32), npu.INOUT)
    assert not run.findings, run.findings
    assert run.outputs["out"][0, 0] == 1 + SRC.sum()


def test_a_scatter_that_nothing_makes_wait_and_an_index_outside():
    run = scattered("unordered", np.arange(256).reshape(8, 32), np.zeros((8, 32), np.float32))
    assert {f.kind for f in run.findings} == {"race"}
    run = scattered("elements", np.arange(1, 257).reshape(8, 32), np.zeros((8, 32), np.float32))
    found = next(f for f in run.findings if f.kind == "out-of-bounds")
    assert found.where.line == line_of("MSCATTER<mode", FILE)


def passed_on(name, chip="a2a3", sync_start=True):
    made = kernel(name, chip)

    def orchestrate(rt, rows, signals, out):
        args = [npu.INOUT(rows), npu.INOUT(signals), npu.OUT(out)]
        rt.submit(aiv0=made, args=args, block_num=8, sync_start=sync_start)

    return npu.Chip(chip).launch(orchestrate, SRC * 0, np.zeros(8, np.int32), SRC * 0)


@pytest.mark.parametrize("name", ["counted", "slots"])
@pytest.mark.parametrize("chip", ["a2a3", "a5"])
def test_a_loop_that_reads_until_all_have_come_waits_for_them(name, chip):
    run = passed_on(name, chip)
    assert not run.findings, run.findings
    assert (run.outputs["out"][:, 0] == [1, 2, 3, 4, 5, 6, 7, 0]).all()


def test_a_loop_that_one_too_few_end_is_a_race():
    assert "race" in {f.kind for f in passed_on("counted_short").findings}


def test_a_loop_that_waits_for_one_too_many_is_a_deadlock_at_its_line():
    (found,) = [f for f in passed_on("counted_long").findings if f.kind == "deadlock"]
    assert found.where.line == line_of("ld_dev(reinterpret_cast<uint32_t *>(signals), 0))", FILE)
    assert "nobody changes it any more" in found.message
