"""Products of scaled blocks against float64, what chips have them, and what is refused."""

import ml_dtypes
import numpy as np
import pytest
from tests.npu.small import flag, kinds, run_kernel

from kernbench import npu

E2M1 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6])
E1M2 = np.arange(8) / 4
M, K, N = 16, 128, 32


def load(core, space, tensor, shape, dtype, valid=None):
    near = core.alloc("L1", shape, dtype, valid=valid)
    tile = core.alloc(space, shape, dtype, valid=valid)
    core.tload(near, tensor)
    flag(core, "MTE2", "MTE1", ("L0A", "L0B", "L0A_MX", "L0B_MX").index(space))
    core.tmov(tile, near)
    return tile


def product(a_type="f8e4m3", b_type="f8e4m3", four=(None, None), twice=False, synced=True):
    per = 2 if four[0] else 1

    def kernel(core, a, a_scale, b, b_scale, out):
        left = load(core, "L0A", a, (M, K // per), a_type)
        right = load(core, "L0B", b, (K // per, N), b_type)
        a_mx = load(core, "L0A_MX", a_scale, (M, 32), "i8", (M, K // 32))
        b_mx = load(core, "L0B_MX", b_scale, (K // 32, N), "i8")
        dst = core.alloc("L0C", (M, N))
        if synced:
            flag(core, "MTE1", "M")
        core.tmatmul_mx(dst, left, a_mx, right, b_mx, *four)
        if twice:
            core.pipe_barrier("M")
            core.tmatmul_mx_acc(dst, left, a_mx, right, b_mx, *four)
        flag(core, "M", "FIX")
        core.tstore(out, dst)
        core.pipe_sync()

    return kernel


def launch(kernel, arrays, chip="a5"):
    def orchestrate(rt, a, a_scale, b, b_scale, out):
        given = [npu.IN(t) for t in (a, a_scale, b, b_scale)]
        rt.submit(aic=kernel, args=[*given, npu.OUT(out)])

    return npu.Chip(chip).launch(orchestrate, *arrays, np.zeros((M, N), np.float32))


def scales(rng, shape):
    return rng.integers(120, 134, shape).astype(np.uint8)


def expanded(scale, axis):
    return np.repeat(2.0 ** (scale.astype(np.float64) - 127), 32, axis=axis)


@pytest.mark.parametrize("twice", [False, True])
@pytest.mark.parametrize("kinds_of", [("f8e4m3", "f8e4m3"), ("f8e4m3", "f8e5m2"), ("f8e5m2", "f8e4m3")])
def test_operands_of_eight_bits(kinds_of, twice):
    rng = np.random.default_rng(1)
    numpy = {"f8e4m3": ml_dtypes.float8_e4m3fn, "f8e5m2": ml_dtypes.float8_e5m2}
    a = rng.standard_normal((M, K)).astype(numpy[kinds_of[0]])
    b = rng.standard_normal((K, N)).astype(numpy[kinds_of[1]])
    sa, sb = scales(rng, (M, K // 32)), scales(rng, (K // 32, N))
    run = launch(product(*kinds_of, twice=twice), (a, sa.view(np.int8), b, sb.view(np.int8)))
    assert run.findings == []
    wanted = (a.astype(float) * expanded(sa, 1)) @ (b.astype(float) * expanded(sb, 0))
    np.testing.assert_allclose(run.outputs["out"], wanted * (1 + twice), rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize(("kind", "table"), [("f4e2m1", E2M1), ("f4e1m2", E1M2)])
def test_operands_of_four_bits(kind, table):
    rng = np.random.default_rng(2)
    values = np.concatenate([table, -table])
    a, b = rng.integers(0, 16, (M, K)), rng.integers(0, 16, (K, N))
    packed_a = (a[:, ::2] | a[:, 1::2] << 4).astype(np.uint8).view(np.int8)
    packed_b = (b[::2] | b[1::2] << 4).astype(np.uint8).view(np.int8)
    sa, sb = scales(rng, (M, K // 32)), scales(rng, (K // 32, N))
    arrays = (packed_a, sa.view(np.int8), packed_b, sb.view(np.int8))
    run = launch(product("i8", "i8", (kind, kind)), arrays)
    assert run.findings == []
    wanted = (values[a] * expanded(sa, 1)) @ (values[b] * expanded(sb, 0))
    np.testing.assert_allclose(run.outputs["out"], wanted, rtol=1e-4, atol=1e-3)
    assert npu.Chip("a5").retime(run).metrics["busy_ps"]["cube"] > 0


def arrays():
    ones = np.ones((M, K), ml_dtypes.float8_e4m3fn), np.ones((K, N), ml_dtypes.float8_e4m3fn)
    return ones[0], np.full((M, K // 32), 127, np.int8), ones[1], np.full((K // 32, N), 127, np.int8)


def test_only_a5_has_them():
    run = launch(product(), arrays(), "a2a3")
    assert run.status == "failed"
    assert "unknown memory of an aic 'L0A_MX'; known: L1, L0A, L0B, L0C" in run.findings[0].message


def test_scales_that_are_still_on_their_way_are_found():
    assert "race" in kinds(launch(product(synced=False), arrays()))


@pytest.mark.parametrize(
    ("attempt", "told"),
    [
        (lambda c, t: c.tmatmul_mx(*t[:2], t[2].view(valid=(16, 1)), *t[3:]), "scales [m, k / 32]"),
        (lambda c, t: c.tmatmul_mx(t[0], t[1], t[4], t[3], t[2]), "its scales in L0A_MX"),
        (lambda c, t: c.tmatmul_mx(*t, "f4e2m1", "f4e2m1"), "an operand is f8e4m3 or f8e5m2, or i8 with a_type="),
        (lambda c, t: c.tmatmul_mx_bias(*t, c.alloc("L1", (1, 32), "f16")), "bias is a row of f32 in L1"),
    ],
)
def test_what_has_no_meaning_is_refused(attempt, told):
    def kernel(core, out):
        tiles = [
            core.alloc("L0C", (M, N)),
            core.alloc("L0A", (M, K), "f8e4m3"),
            core.alloc("L0A_MX", (M, 32), "i8", valid=(M, K // 32)),
            core.alloc("L0B", (K, N), "f8e4m3"),
            core.alloc("L0B_MX", (K // 32, N), "i8"),
        ]
        attempt(core, tiles)

    run = run_kernel(kernel, out=np.zeros((M, N), np.float32), lane="aic", chip="a5")
    assert told in run.findings[0].message
