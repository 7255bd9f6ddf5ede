"""The chunk-output kernel for sm_90a on the GPU: right, and the same as on the emulator."""

import numpy as np
import pytest
from tests.benches.chunk_output.problem import Problem

from kernbench.bench import find, run_bench
from kernbench.benches.chunk_output.layout import Layout
from kernbench.benches.chunk_output.sm90 import HopperChunkOutput

pytestmark = pytest.mark.gpu
BENCH = find("gated_delta_rule_chunk_output")
PANELS = [name for name in BENCH.panels if name.startswith("sm_90a")]
SHAPES = [
    ((200, 0, 64, 1, 130), Layout(2, 4, 128, 128), 1, 2, 2),
    ((200, 0, 64, 1, 130), Layout(1, 3, 128, 64, "padded"), 2, 2, 1),
    ((700, 64, 3), Layout(1, 1, 64, 64), 1, 6, 3),
    ((0, 70, 0, 0, 128, 3), Layout(1, 1, 64, 256), 1, 2, 2),
    ((63, 65), Layout(1, 1, 192, 192), 1, 1, 1),
    ((64, 66), Layout(1, 1, 256, 64), 1, 2, 1),
]


@pytest.mark.parametrize(("panel", "size"), [*((panel, None) for panel in PANELS), *((p, "4096") for p in PANELS[:2])])
def test_it_is_right_on_the_gpu(panel, size):
    run = run_bench(BENCH, panel, {"device": "cuda"}, size=size)
    assert run.right, run.comparison[0].reason
    assert run.metrics["gpu_time_ns"] > 0


@pytest.mark.parametrize(("lengths", "layout", "blocks", "stages", "groups"), SHAPES)
def test_both_devices_agree(lengths, layout, blocks, stages, groups):
    problem, way = Problem(lengths, layout), HopperChunkOutput(layout, stages, groups)
    emulated = problem.launch(way, blocks, device="emulator", exact=True)[0].outputs["o"]
    real = problem.launch(way, blocks, device="cuda")[0].outputs["o"]
    np.testing.assert_array_equal(emulated.view(np.uint16), real.view(np.uint16))


def test_rows_of_the_next_sequence_are_left_alone():
    problem = Problem((70, 70), Layout(1, 1, 64, 64))
    for name in ("q", "k", "v_new"):
        problem.given[name] = problem.given[name].copy()
        problem.given[name][70:] = np.nan
    run, _ = problem.launch(HopperChunkOutput(problem.layout), device="cuda")
    assert np.isfinite(run.outputs["o"][:70].astype(np.float32)).all()
    assert np.isnan(run.outputs["o"][70:].astype(np.float32)).all()


def test_it_gives_the_same_bits_every_time():
    problem = Problem((4096,), Layout(1, 2, 128, 128))
    way = HopperChunkOutput(problem.layout)
    results = {problem.launch(way, 7, device="cuda")[0].outputs["o"].tobytes() for _ in range(5)}
    assert len(results) == 1
