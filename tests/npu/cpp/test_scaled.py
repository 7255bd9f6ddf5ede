"""C++ kernels that multiply scaled blocks: against float64, and with a flag that is set before the scales are moved."""

import ml_dtypes
import numpy as np
from tests.npu.cpp.compiled import HERE, line_of, needs_compiler

from kernbench import npu
from kernbench.npu.cpp.compiler import build_kernel
from kernbench.npu.cpp.kernel import CppKernel

pytestmark = needs_compiler
FILE = HERE / "scaled.cpp"
M, K, N = 32, 128, 32
S = K // 32


def launched(name):
    rng = np.random.default_rng(3)
    a = rng.standard_normal((M, K)).astype(ml_dtypes.float8_e4m3fn)
    b = rng.standard_normal((K, N)).astype(ml_dtypes.float8_e4m3fn)
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
    left = a.astype(np.float64) * np.repeat(2.0 ** (a_scale.astype(np.float64) - 127), 32, axis=1)
    right = b.astype(np.float64) * np.repeat(2.0 ** (b_scale.astype(np.float64) - 127), 32, axis=0)
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
