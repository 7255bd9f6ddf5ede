"""Which elements of device memory blocks from a number on touched, against what the blocks themselves noted."""

from random import Random

import numpy as np
import pytest
from tests import sampled
from tests.npu.small import flag

from kernbench import npu
from kernbench.npu.tasks.footprint import footprints

ROWS, COLUMNS, BLOCKS = 64, 8, 6
NOTHING = np.empty((0, 2), np.int64)


class Noting:
    """Kernels that copy random rows of `y` onto rows of their own, and note which."""

    def __init__(self, random):
        self.random = random
        self.read, self.written, self.begun = [], [], 0

    def copies(self, core, x, y):
        block, self.begun = self.begun, self.begun + 1
        tile = core.tile("UB", (2, COLUMNS), "f32", 0)
        own = slice(ROWS // BLOCKS * core.block_idx, ROWS // BLOCKS * core.block_idx + 2)
        for number in range(self.random.randrange(3)):
            at = self.random.randrange(own.start, own.stop) if number else own.start
            rows = slice(at, at + 2)
            core.tload(tile, (x if self.random.random() < 0.5 else y)[rows])
            flag(core, "MTE2", "MTE3")
            self.note(self.read, block, rows)
            core.tstore(y[own], tile)
            flag(core, "MTE3", "MTE2")
            self.note(self.written, block, own)
        core.pipe_sync()

    def note(self, where, block, rows):
        where.append((block, set(range(rows.start * COLUMNS, rows.stop * COLUMNS))))


def elements(spans):
    found = [set(range(begin, end)) for begin, end in spans.tolist()]
    assert sum(map(len, found)) == len(set().union(*found)), "stretches have nothing in common"
    assert spans[:, 0].tolist() == sorted(spans[:, 0].tolist())
    return set().union(*found)


def since(noted, first):
    return set().union(*(which for block, which in noted if block >= first))


@pytest.mark.parametrize("seed", range(sampled.examples(12, 200)))
def test_stretches_are_those_that_blocks_touched(seed):
    noting = Noting(Random(seed))

    def orchestrate(rt, x, y):
        for _ in range(3):
            rt.submit(aiv0=noting.copies, args=[npu.IN(x), npu.INOUT(y)], block_num=BLOCKS)

    x = np.ones((ROWS, COLUMNS), np.float32)
    chip = npu.Chip("a2a3", jobs=1)
    assert chip.launch(orchestrate, x, np.zeros_like(x)).safe
    context = chip.division._context
    for first in (0, 1, 7, 12, 17, 18):
        found = footprints(context, first)
        written, read = since(noting.written, first), since(noting.read, first)
        assert elements(found.writes.get(1, NOTHING)) == written
        assert 0 not in found.writes
        # what was written again after it was read is among what was written
        assert elements(found.reads.get(0, NOTHING)) | elements(found.reads.get(1, NOTHING)) | written >= read


def test_what_the_orchestrator_read_counts():
    def orchestrate(rt, x, y):
        assert rt.read(x, 2, 3) == 1
        assert rt.read(x, 2, 4) == 1

    x = np.ones((ROWS, COLUMNS), np.float32)
    chip = npu.Chip("a2a3", jobs=1)
    chip.launch(orchestrate, x, np.zeros_like(x))
    context = chip.division._context
    assert {number: spans.tolist() for number, spans in footprints(context, 0).reads.items()} == {
        0: [[2 * COLUMNS + 3, 2 * COLUMNS + 5]]
    }


def test_blocks_of_which_several_read_an_element_are_found_by_the_last_of_them():
    def reads(core, x, y):
        tile = core.tile("UB", (1, COLUMNS), "f32", 0)
        if core.block_idx in (1, 3):
            core.tload(tile, y[5:6])

    def writes(core, x, y):
        core.tstore(y[5:7], core.tile("UB", (2, COLUMNS), "f32", 0))
        core.pipe_sync()

    def orchestrate(rt, x, y):
        rt.submit(aiv0=writes, args=[npu.IN(x), npu.OUT(y)], block_num=1)
        rt.submit(aiv0=reads, args=[npu.IN(x), npu.IN(y)], block_num=5)

    x = np.ones((ROWS, COLUMNS), np.float32)
    chip = npu.Chip("a2a3", jobs=1)
    chip.launch(orchestrate, x, np.zeros_like(x))
    context = chip.division._context
    row = [[5 * COLUMNS, 6 * COLUMNS]]
    # blocks are counted over both tasks: of the second, 1 and 3 are the launch's 2 and 4
    assert [footprints(context, first).reads.get(1, NOTHING).tolist() for first in (2, 4, 5)] == [row, row, []]
