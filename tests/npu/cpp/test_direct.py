"""FIFOs in C++ from one core's memory into another's (a5): right and safe, and with a wait or a flag left out."""

import ml_dtypes
import numpy as np
import pytest
from tests.npu.cpp.compiled import HERE, line_of, needs_compiler

from kernbench import npu
from kernbench.npu.cpp.compiler import build_kernel
from kernbench.npu.cpp.kernel import CppKernel

pytestmark = [needs_compiler, pytest.mark.programs]
FILE = HERE / "direct.cpp"
ROUNDS, N = 5, 32
NO_WAIT, NO_FLAG = 1, 2
rng = np.random.default_rng(11)
X = rng.standard_normal((ROUNDS, N, N)).astype(ml_dtypes.bfloat16)
B = rng.standard_normal((N, N)).astype(ml_dtypes.bfloat16)


def launch(mistake=0, **options):
    aic, aiv = (CppKernel(build_kernel(FILE, core, "a5"), FILE, f"direct_{core}") for core in ("aic", "aiv"))

    def orchestrate(rt, x, b, out):
        rt.submit(aic=aic, aiv=aiv, args=[npu.IN(x), npu.IN(b), npu.OUT(out), ROUNDS, mistake], block_num=1)

    machine = npu.Chip("a5")
    run = machine.launch(orchestrate, X, B, np.zeros((ROUNDS, N, N), np.float32), **options)
    return machine.retime(run) if run.safe else run


@pytest.mark.parametrize("schedule", ["canonical", "reversed", 5])
def test_messages_arrive_and_are_freed(schedule):
    run = launch(schedule=schedule)
    assert run.safe, run.findings
    once = (X.astype(np.float32) @ B.astype(np.float32)).astype(ml_dtypes.bfloat16).astype(np.float32)
    np.testing.assert_allclose(run.outputs["out"], once @ B.astype(np.float32), rtol=2e-2, atol=2e-2)
    assert run.metrics["time_ps"] > 0


def test_a_pop_that_does_not_wait():
    found = launch(NO_WAIT).findings
    assert {f.kind for f in found} & {"race", "uninitialised-read"}
    assert any(f.where.line == line_of("// the message is read", FILE) for f in found)


def test_a_push_of_what_may_not_be_there_yet_is_a_race_at_its_line():
    found = [f for f in launch(NO_FLAG).findings if f.kind == "race"]
    assert any(f.where.line == line_of("// the reply", FILE) and "tsend on pipe MTE3" in f.message for f in found)
