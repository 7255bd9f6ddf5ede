"""Moves into the memory of another core of the cluster, and single elements of tiles: right, safe and timed; and with
what keeps them apart left out."""

import numpy as np
import pytest
from tests.npu.small import flag, kinds, line_of, run_kernel

from kernbench import npu

N = 32
rng = np.random.default_rng(4)
A = rng.standard_normal((N, N)).astype(np.float16)
B = rng.standard_normal((N, N)).astype(np.float16)


def cube(core, a, b, out, mistake):
    near = [core.tile("L1", (N, N), "f16", at, name=f"near{at}") for at in (0x0, 0x1000)]
    left, right = (core.tile(space, (N, N), "f16", 0) for space in ("L0A", "L0B"))
    total = core.tile("L0C", (N, N), "f32", 0)
    back = core.tile("L1", (N, N), "f16", 0x2000, name="back")

    def multiply(first):
        core.tmov(left, first)
        core.tmov(right, near[1])
        flag(core, "MTE1", "M")
        core.tmatmul(total, left, right)
        flag(core, "M", "FIX")

    core.tload(near[0], a)
    core.tload(near[1], b)
    flag(core, "MTE2", "MTE1")
    multiply(near[0])
    for lane in (0, 1):
        half = core.tile(f"AIV{lane}.UB", (N // 2, N), "f32", 0, name="half")
        core.tsend(half, total, lane * N // 2)
        if mistake != "unsaid":
            core.set_intra_block("FIX", 16 * lane)
    core.pipe_barrier("ALL")
    for lane in (0, 1):
        core.wait_intra_block("MTE1", 16 * lane + 1)
    multiply(back)
    core.tstore(out, total)


def vector(core, a, b, out, mistake):
    half = core.tile("UB", (N // 2, N), "f32", 0, name="half")
    rounded = core.tile("UB", (N // 2, N), "f16", 0x2000, name="rounded")
    if mistake == "own":
        core.texpands(half, 0.0)
    if mistake != "unsaid":
        core.wait_intra_block("V", 0)
    core.tcvt(rounded, half)  # reads what the cube sent
    flag(core, "V", "MTE3")
    there = core.tile("AIC.L1", (N // 2, N), "f16", 0x2000 + core.sub_block_id * N // 2 * N * 2, name="back")
    core.tsend(there, rounded)
    core.set_intra_block("V" if mistake == "early" else "MTE3", 1)


def launched(mistake="", chip="a5", **options):
    def orchestrate(rt, a, b, out):
        def on_cube(core, *given):
            cube(core, *given, mistake)
            core.pipe_sync()

        def on_vector(core, *given):
            vector(core, *given, mistake)

        rt.submit(aic=on_cube, aiv=on_vector, args=[npu.IN(a), npu.IN(b), npu.OUT(out)])

    machine = npu.Chip(chip)
    run = machine.launch(orchestrate, A, B, np.zeros((N, N), np.float32), **options)
    return machine.retime(run) if run.safe else run


@pytest.mark.parametrize("schedule", ["canonical", "reversed", 3])
def test_what_one_core_sends_another_has(schedule):
    run = launched(schedule=schedule)
    assert run.safe, run.findings
    once = (A.astype(np.float32) @ B.astype(np.float32)).astype(np.float16).astype(np.float32)
    np.testing.assert_allclose(run.outputs["out"], once @ B.astype(np.float32), rtol=1e-3, atol=1e-2)
    assert run.metrics["time_ps"] > 0


def test_a_tile_that_is_read_before_it_was_sent():
    run = launched("unsaid")
    assert set(kinds(run)) & {"race", "uninitialised-read"}
    assert any(f.where.line == line_of(vector, "reads what the cube sent") for f in run.findings)


def test_a_flag_of_another_pipe_than_the_one_that_sends():
    found = [f for f in launched("early").findings if f.kind == "race"]
    assert "tsend on pipe MTE3 of aiv" in found[0].message
    assert "set_intra_block(MTE3, flag)" in found[0].hint


def test_a_tile_that_its_own_core_writes_at_the_same_time():
    found = [f for f in launched("own").findings if f.kind == "race"]
    assert any("texpands" in f.message and "tsend on pipe FIX of aic" in f.message for f in found)


def test_chips_whose_cores_reach_no_others():
    assert "misuse" in kinds(launched(chip="a2a3"))


def test_a_tile_past_the_end_of_the_other_memory():
    def far(core, out):
        core.tile("AIV0.UB", (16, 64), "f32", offset=(256 << 10) - 1024)

    def idle(core, out):
        pass

    def orchestrate(rt, out):
        rt.submit(aic=far, aiv=idle, args=[npu.OUT(out)])

    run = npu.Chip("a5").launch(orchestrate, np.zeros((8, 64), np.float32))
    assert "tile-bounds" in kinds(run)


X = rng.standard_normal((8, 64)).astype(np.float32)


def one_element(core, x, out, ordered=True, at=(3, 5), loads=True):
    tile = core.tile("UB", (8, 64), "f32", 0, name="tile")
    if loads:
        core.tload(tile, x)
        flag(core, "MTE2", "S")
    core.set_value(tile, *at, 42.0)
    if ordered:
        flag(core, "S", "MTE3")
    core.tstore(out, tile)
    core.pipe_sync()


def test_one_element_becomes_a_number():
    run = run_kernel(one_element, X, out=np.zeros_like(X))
    assert run.safe, run.findings
    expected = X.copy()
    expected[3, 5] = 42
    np.testing.assert_array_equal(run.outputs["out"], expected)
    assert npu.Chip("a2a3").retime(run).metrics["time_ps"] > 0


@pytest.mark.parametrize(
    ("change", "kind"),
    [
        ({"ordered": False}, "race"),
        # the others stay as they were
        ({"loads": False}, "uninitialised-read"),
        ({"at": (8, 0)}, "out-of-bounds"),
    ],
)
def test_an_element_that_is_not_ordered_alone_or_outside(change, kind):
    def kernel(core, x, out):
        one_element(core, x, out, **change)

    assert kind in kinds(run_kernel(kernel, X, out=np.zeros_like(X)))
