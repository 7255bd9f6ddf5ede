"""PTX that Triton made from the kernels in kernels.py.txt runs unchanged: right, and with no finding.

sm_80 uses mma.sync, ldmatrix and cp.async, sm_90 wgmma, sm_100 tcgen05 and mbarriers.
"""

from pathlib import Path

import numpy as np
import pytest

from kernbench import ptx

FOLDER = Path(__file__).parent
# bytes of shared memory that Triton's metadata says
SHARED = {
    "matmul": {"sm_80": 16384, "sm_90": 24576, "sm_100": 24592},
    "attn": {"sm_80": 40960, "sm_90": 57344, "sm_100": 57376},
}
ARCHES = {"sm_80": "sm_80", "sm_90": "sm_90a", "sm_100": "sm_100a"}
SCHEDULES = ["canonical", "eager", "reversed"]


def launch(name, target, device, grid, arguments, schedule):
    kernel = ptx.parse((FOLDER / f"{name}_{target}.ptx").read_text()).kernels[name]
    # two pointers to scratch memory, which these kernels do not use
    given = [*arguments, 0, 0]
    return device.launch(kernel, grid, 128, given, SHARED[name][target], schedule=schedule)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("target", ARCHES)
def test_matmul(target, schedule):
    device, rng = ptx.EmulatedDevice(ARCHES[target]), np.random.default_rng(0)
    m, n, k = 128, 128, 144
    a, b = (rng.standard_normal(shape).astype(np.float16) for shape in ((m, k), (k, n)))
    c = device.empty((m, n), np.float16, "c")
    arrays = [device.array(a, "a"), device.array(b, "b"), c]
    run = launch("matmul", target, device, (2, 2), [*arrays, m, n, k, k, n, n], schedule)
    assert run.findings == []
    want = a.astype(np.float64) @ b.astype(np.float64)
    np.testing.assert_allclose(c.numpy(), want, rtol=2e-3, atol=2e-2)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("target", ARCHES)
def test_attention(target, schedule):
    device, rng = ptx.EmulatedDevice(ARCHES[target]), np.random.default_rng(0)
    heads, tokens, d = 2, 128, 64
    q, k, v = (rng.standard_normal((heads, tokens, d)).astype(np.float16) for _ in range(3))
    o = device.empty((heads, tokens, d), np.float16, "o")
    scale = np.float32(d**-0.5 * np.log2(np.e))
    run = launch(
        "attn", target, device, (2, heads), [*(device.array(x) for x in (q, k, v)), o, tokens, scale], schedule
    )
    assert run.findings == []
    s = np.einsum("hid,hjd->hij", *(x.astype(np.float64) for x in (q, k))) * d**-0.5
    s[:, np.triu(np.ones((tokens, tokens), bool), 1)] = -np.inf
    p = np.exp(s - s.max(axis=2, keepdims=True))
    want = (p / p.sum(axis=2, keepdims=True)) @ v.astype(np.float64)
    np.testing.assert_allclose(o.numpy(), want, rtol=5e-3, atol=5e-3)
