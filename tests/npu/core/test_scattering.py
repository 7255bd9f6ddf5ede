"""Scatters to device memory by index: what they write, what becomes of wrong indices, and how they are ordered."""

import numpy as np
import pytest
from tests.npu.small import flag, kinds, line_of

from kernbench import npu

SRC = np.arange(1, 65, dtype=np.float32).reshape(4, 16)
GENERATOR = np.random.default_rng(1)


def scattered(indices, out, outside="refuse", add=False, by_rows=False, ordered=True, chip="a5", blocks=1):
    shape = indices.shape

    def kernel(core, src, idx, out):
        tile = core.tile("UB", (4, 16), "f32", 0, name="values")
        places = core.tile("UB", (shape[0], -(-shape[1] // 8) * 8), "i32", 0x400, valid=shape, name="places")
        core.tload(tile, src)
        core.tload(places, idx)
        if ordered:
            flag(core, "MTE2", "V")
        core.mscatter(out, tile, places, outside, add)
        core.pipe_barrier("ALL")

    def orchestrate(rt, src, idx, out):
        args = [npu.IN(src), npu.IN(idx), npu.INOUT(out) if add else npu.OUT(out)]
        rt.submit(aiv0=kernel, args=args, block_num=blocks)

    return kernel, npu.Chip(chip).launch(orchestrate, SRC, indices.astype(np.int32), out)


def test_elements_go_where_indices_say():
    places = GENERATOR.permutation(64).reshape(4, 16)
    _, run = scattered(places, np.zeros(64, np.float32))
    assert not run.findings, run.findings
    expected = np.zeros(64, np.float32)
    expected[places.reshape(-1)] = SRC.reshape(-1)
    assert (run.outputs["out"] == expected).all()


def test_rows_go_where_indices_say():
    _, run = scattered(np.array([[3, 0, 2, 1]]), np.zeros((4, 16), np.float32))
    assert not run.findings, run.findings
    assert (run.outputs["out"][[3, 0, 2, 1]] == SRC).all()
    timed = npu.Chip("a5").retime(run)
    assert timed.metrics["time_ps"] > 0


def test_of_several_for_one_place_the_last_stays_or_all_are_added():
    places = np.zeros((4, 16), np.int64)
    _, run = scattered(places, np.full(1, 5, np.float32), add=True)
    assert run.outputs["out"][0] == 5 + SRC.sum()
    _, run = scattered(places, np.zeros(1, np.float32))
    assert run.outputs["out"][0] == 64


@pytest.mark.parametrize(("outside", "expected"), [("skip", [1, 2, 3]), ("clamp", [15, 2, 16]), ("wrap", [16, 2, 15])])
def test_indices_outside(outside, expected):
    places = np.tile(np.array([0, 1, 2] + [9] * 11 + [-1, 3]), (4, 1)).reshape(4, 16)
    src = SRC[3] - 48
    _, run = scattered(places, np.zeros(3, np.float32), outside)
    assert not run.findings, run.findings
    by_hand = np.zeros(3, np.float32)
    for place, value in zip(places[0], src, strict=True):
        if outside == "skip" and not 0 <= place < 3:
            continue
        by_hand[min(max(place, 0), 2) if outside == "clamp" else place % 3] = value
    assert (by_hand == expected).all()
    assert (run.outputs["out"] - 48 == expected).all()


def test_an_index_outside_that_nobody_allowed_is_a_finding():
    places = np.arange(64).reshape(4, 16)
    kernel, run = scattered(places, np.zeros(60, np.float32))
    (found,) = run.findings
    assert (found.kind, found.where.line) == ("out-of-bounds", line_of(kernel, "mscatter"))
    assert "4 of 64 indices lie outside" in found.message
    assert "the first is 60" in found.message


def test_tiles_that_may_not_be_there_yet_are_a_race():
    _, run = scattered(np.arange(64).reshape(4, 16), np.zeros(64, np.float32), ordered=False)
    assert kinds(run) == ["race"]


def test_places_that_are_not_written_are_told():
    _, run = scattered(np.arange(64).reshape(4, 16), np.zeros(70, np.float32))
    assert kinds(run) == ["output-unwritten"]


@pytest.mark.parametrize(
    ("indices", "out", "chip", "message"),
    [
        (np.zeros((4, 16)), np.zeros(64, np.float32), "a2a3", "chip a2a3 has no such store"),
        (np.zeros((1, 4)), np.zeros((4, 32), np.float32), "a5", "rows as the tile's"),
        (np.zeros((4, 16)), np.zeros(64, np.int32), "a5", "tile and tensor of one type"),
    ],
)
def test_what_does_not_fit_is_refused(indices, out, chip, message):
    _, run = scattered(indices, out, chip=chip)
    assert any(message in f.message for f in run.findings), run.findings
