"""Absurd sizes: a clear refusal, or work in waves; never the computer's memory."""

import numpy as np
import pytest
from tests import sampled
from tests.ptx.corpus import kernel_text

from kernbench import ptx
from kernbench.common.errors import MisuseError
from kernbench.ptx.emulator.engine.schedule import schedule_of
from kernbench.ptx.emulator.engine.waves import Waves
from kernbench.ptx.emulator.lanes.clusters import cluster_members
from kernbench.ptx.emulator.memory.pages import allocation
from kernbench.result.run import Status
from kernbench.safety.budget import Budget


def launch(text, grid=1, block=32, **options):
    device = ptx.EmulatedDevice("sm_100a")
    return device.launch(ptx.parse(text).kernels["k"], grid, block, [0], **options)


@pytest.mark.parametrize("size", [1 << 40, 1 << 37])
def test_a_global_array_that_does_not_fit(size):
    text = kernel_text("ld.global.u8 %r1, [g];", before=f".global .b8 g[{size}];")
    with pytest.raises(
        ptx.PtxError, match=r"line 4: there is no room for 'g': [\d,]+ bytes do not fit the device's memory"
    ):
        launch(text)


def test_a_local_array_that_does_not_fit():
    text = kernel_text(f".local .b8 l[{1 << 40}]; ld.local.u8 %r1, [l];")
    with pytest.raises(ptx.PtxError, match="line 7: 'l' ends at byte 1,099,511,627,776 of the local memory of 'k'"):
        launch(text)


def test_a_shared_array_that_does_not_fit():
    text = kernel_text(f".shared .b8 s[{1 << 30}]; ld.shared.u8 %r1, [s];")
    with pytest.raises(
        ptx.PtxError, match="line 7, column 13: shared variables of 'k' up to 's' have 1,073,741,824 bytes"
    ):
        launch(text)


def test_more_than_the_computer_has_free(monkeypatch):
    monkeypatch.setattr(allocation, "free_bytes", lambda: 1 << 20)
    with pytest.raises(MisuseError, match=r"needs 268,435,456 bytes of this computer, and 1,048,576 are free"):
        ptx.EmulatedDevice("sm_90a").array(np.ones(1 << 28, np.uint8))
    text = kernel_text(".local .b8 l[500000]; st.local.u8 [l], 1;")
    with pytest.raises(MisuseError, match="'k' with 1024 threads that run together needs"):
        launch(text, block=1024)


@pytest.mark.parametrize("schedule", sampled.some(["canonical", "reversed", 3], 2))
def test_the_largest_grid_runs_until_its_budget_ends(schedule):
    run = launch(
        kernel_text("mov.u32 %r1, 1;"), ((1 << 31) - 1, 65535, 65535), schedule=schedule, budget=Budget(steps=400)
    )
    assert run.status is Status.OVER_BUDGET


@pytest.mark.parametrize("schedule", ["canonical", "reversed", 5])
@pytest.mark.parametrize(("grid", "cluster"), [((7, 3, 2), (1, 1, 1)), ((8, 4, 6), (2, 4, 3))])
def test_every_block_comes_once_and_clusters_stay_together(schedule, grid, cluster):
    waves = Waves(grid, cluster, 3, schedule_of(schedule))
    seen, size = [], int(np.prod(cluster))
    while waves.left:
        expected, before = waves.following, waves.left
        batch = waves.take()
        assert len(batch) == expected == before - waves.left
        seen.extend(batch.tolist())
    assert sorted(seen) == list(range(int(np.prod(grid))))
    for members in np.array(seen).reshape(-1, size):
        places = [(n % grid[0], n // grid[0] % grid[1], n // (grid[0] * grid[1])) for n in members.tolist()]
        assert len({tuple(p // c for p, c in zip(place, cluster, strict=True)) for place in places}) == 1


def test_members_of_a_cluster_by_rank():
    assert cluster_members((4, 4, 1), (2, 2, 1), np.array([3])).tolist() == [[10, 11, 14, 15]]
