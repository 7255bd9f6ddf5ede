"""FIFOs between cores in C++: slots in tensors of another element type, flags between cores, on both chips."""

from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from tests import sampled
from tests.npu.cpp.compiled import needs_compiler

from kernbench import npu
from kernbench.npu.cpp.compiler import build_kernel
from kernbench.npu.cpp.kernel import CppKernel

pytestmark = [needs_compiler, pytest.mark.programs]
SOURCE = Path(__file__).parent / "fifo.cpp"
ROUNDS = 5
rng = np.random.default_rng(11)
X = rng.standard_normal((ROUNDS, 16, 16)).astype(ml_dtypes.bfloat16)
B = rng.standard_normal((16, 16)).astype(ml_dtypes.bfloat16)


def launch(chip, mistake=0, slot_words=512, **options):
    aic, aiv = (CppKernel(build_kernel(SOURCE, core, chip), SOURCE, f"stream_{core}") for core in ("aic", "aiv"))

    def orchestrate(rt, x, b, out):
        made = [npu.CREATE((slot_words,), "i32", "down"), npu.CREATE((slot_words,), "i32", "up")]
        rt.submit(aic=aic, aiv=aiv, args=[npu.IN(x), npu.IN(b), *made, npu.OUT(out), ROUNDS, mistake])

    machine = npu.Chip(chip)
    run = machine.launch(orchestrate, X, B, np.zeros((ROUNDS, 16, 16), np.float32), **options)
    return machine.retime(run) if run.safe else run


@pytest.mark.parametrize("chip", sampled.some(["a2a3", "a5"], 1))
def test_messages_arrive_in_order_and_safely(chip):
    run = launch(chip)
    assert run.safe, run.findings
    once = (X.astype(np.float32) @ B.astype(np.float32)).astype(ml_dtypes.bfloat16).astype(np.float32)
    np.testing.assert_allclose(run.outputs["out"], once @ B.astype(np.float32), rtol=2e-2, atol=2e-2)
    assert run.metrics["time_ps"] > 0
    reversed_run = launch(chip, schedule="reversed")
    assert reversed_run.safe
    np.testing.assert_array_equal(reversed_run.outputs["out"], run.outputs["out"])


@pytest.mark.parametrize("chip", ["a2a3", "a5"])
def test_a_pop_that_does_not_wait_is_found(chip):
    kinds = {finding.kind for finding in launch(chip, mistake=1).findings}
    assert kinds & {"race", "uninitialised-read"}


def test_slots_past_the_end_of_their_tensor_are_found_in_the_elements_they_are_used_as():
    finding = next(f for f in launch("a2a3", slot_words=256).findings if f.kind == "out-of-bounds")
    assert "TPUSH<Down" in finding.where.text
    assert finding.where.function == "cube"
