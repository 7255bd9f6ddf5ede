"""Blocks are looked at a stretch after the other: wherever a stretch ends, the same is found, with the same digest."""

import numpy as np
import pytest
from tests.npu import random_kernels
from tests.npu.small import kinds, run_kernel

from kernbench.npu.isa.model import load
from kernbench.npu.order import stretches
from kernbench.npu.order.relation import order_digest

SEEDS = range(24)
ROWS = 16


def outcome(program):
    run = random_kernels.launch(program, "canonical")
    digest = order_digest(run.recording, load("a2a3")) if run.recording.count else ""
    return [repr(finding) for finding in run.findings], run.status, digest


@pytest.mark.parametrize("rows", [1, 7, 40])
def test_random_programs_give_the_same_wherever_stretches_end(rows, monkeypatch):
    programs = [random_kernels.make(seed, random_kernels.planted_bug(seed) if seed % 2 else "") for seed in SEEDS]
    whole = [outcome(program) for program in programs]
    assert any(findings for findings, *_ in whole)
    monkeypatch.setattr(stretches, "ROWS", rows)
    assert [outcome(program) for program in programs] == whole


def races(core, x, y):
    rows = slice(ROWS * core.block_idx, ROWS * (core.block_idx + 1))
    tile = core.tile("UB", (ROWS, 16), "f32", 0, name="x")
    core.tload(tile, x[rows])
    if core.block_idx == 2:
        # nothing makes it wait for the load, nor the store for it
        core.texp(tile, tile)
    core.set_flag("MTE2", "MTE3", 0)
    core.wait_flag("MTE2", "MTE3", 0)
    core.tstore(y[rows], tile)
    core.pipe_sync()


@pytest.mark.parametrize("rows", [1, 4, 1 << 15])
def test_a_race_is_found_in_its_own_block_only(rows, monkeypatch):
    """Each block begins with the same rows: what one has written or set is not there for the next."""
    monkeypatch.setattr(stretches, "ROWS", rows)
    x = np.ones((4 * ROWS, 16), np.float32)
    run = run_kernel(races, x, out=np.zeros_like(x), blocks=4)
    assert kinds(run) == ["race"]
    assert all("block 2" in finding.message for finding in run.findings)
    assert sum(finding.count for finding in run.findings) == 2


def test_more_violations_than_there_is_room_for_are_the_first_ones(monkeypatch):
    """What is beyond the room for them is left out, in whichever stretch it was found."""
    monkeypatch.setattr(stretches, "ROWS", 1)
    monkeypatch.setattr(stretches, "MOST", 3)

    def kernel(core, x, y):
        rows = slice(ROWS * core.block_idx, ROWS * (core.block_idx + 1))
        core.tstore(y[rows], core.tile("UB", (ROWS, 16), "f32", 64 * core.block_idx, name="x"))
        core.pipe_sync()

    x = np.ones((5 * ROWS, 16), np.float32)
    run = run_kernel(kernel, x, out=np.zeros_like(x), blocks=5)
    assert kinds(run) == ["uninitialised-read"]
    assert sum(finding.count for finding in run.findings) == 3
