"""C++ kernels that multiply scaled blocks: against float64, and with a flag that is set before the scales are moved."""

import ml_dtypes
import numpy as np
import pytest
from tests.npu.cpp.compiled import HERE, line_of, needs_compiler

from kernbench import npu
from kernbench.npu.cpp.compiler import build_kernel
from kernbench.npu.cpp.kernel import CppKernel

pytestmark = [needs_compiler, pytest.mark.programs]
FILE = HERE / "scaled.cpp"
M, K, N = 32, 128, 64
S = K // 32


E2M1 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6])
E1M2 = np.arange(8) / 4


def eight_bits(rng, shape):
    """What is stored, and its values."""
    made = rng.standard_normal(shape).astype(ml_dtypes.float8_e4m3fn)
    return made, made.astype(np.float64)


def four_bits(table):
    def made(rng, shape):
        codes = rng.integers(0, 16, shape).astype(np.uint8)
        values = np.concatenate([table, -table])[codes]
        return (codes[:, ::2] | codes[:, 1::2] << 4).view(np.int8), values

    return made


def launched(name, operands=eight_bits):
    rng = np.random.default_rng(3)
    (a, a_values), (b, b_values) = operands(rng, (M, K)), operands(rng, (K, N))
    # every scale is another one
    a_scale = rng.integers(122, 132, (M, S)).astype(np.uint8)
    b_scale = rng.integers(122, 132, (S, N)).astype(np.uint8)
    by_rows = a_scale.reshape(M // 16, 16, S // 2, 2).transpose(0, 2, 1, 3)
    by_columns = b_scale.reshape(S // 2, 2, N // 16, 16).transpose(2, 0, 3, 1)
    stored = [np.ascontiguousarray(one).view(np.int8).reshape(-1) for one in (by_rows, by_columns)]

    def orchestrate(rt, a, a_scale, b, b_scale, out):
        kernel = CppKernel(build_kernel(FILE, "aic", "a5"), FILE, name, name)
        rt.submit(aic=kernel, args=[npu.IN(a), npu.IN(a_scale), npu.IN(b), npu.IN(b_scale), npu.OUT(out)])

    run = npu.Chip("a5").launch(orchestrate, a, stored[0], b, stored[1], np.zeros((M, N), np.float32))
    left = a_values * np.repeat(2.0 ** (a_scale.astype(np.float64) - 127), 32, axis=1)
    right = b_values * np.repeat(2.0 ** (b_scale.astype(np.float64) - 127), 32, axis=0)
    return run, left @ right


def test_scales_are_loaded_from_their_own_layouts():
    run, expected = launched("scaled")
    assert not run.findings, run.findings
    assert np.allclose(run.outputs["out"], expected, rtol=1e-5, atol=1e-4)
    assert npu.Chip("a5").retime(run).metrics["time_ps"] > 0


def test_scales_that_may_not_be_there_yet_are_a_race():
    run, _ = launched("early")
    assert {f.kind for f in run.findings} == {"race"}
    assert run.findings[0].where.line == line_of("TMATMUL_MX(", FILE)


@pytest.mark.parametrize(("name", "table"), [("scaled_e2m1", E2M1), ("scaled_e1m2", E1M2)])
def test_operands_of_four_bits_lie_two_in_a_byte_along_their_rows(name, table):
    run, expected = launched(name, four_bits(table))
    assert not run.findings, run.findings
    assert np.allclose(run.outputs["out"], expected, rtol=1e-5, atol=1e-4)
    assert {f.kind for f in launched("early_e2m1", four_bits(E2M1))[0].findings} == {"race"}
