"""The way of a batch from the ways of its pieces: exact counts, and the launches that are divided because of it."""

import numpy as np
import pytest
from benchmarks.ptx_jobs import differences

from kernbench.ptx.emulator.engine import launch as launching
from kernbench.ptx.emulator.engine import splitting, ways
from kernbench.ptx.emulator.engine.ways import ARRIVED, WOKEN, merged_steps

pytestmark = pytest.mark.fast_paths

# blocks 0 to 4, of which 3 stands before 2; a block has one instruction for each place of a decimal number
RANKS, SIZES = (0, 1, 3, 2, 4), (1, 10, 100, 1000, 10000)


@pytest.mark.parametrize(
    ("pieces", "steps"),
    [
        # the same way is the way of the batch
        ([[0, 1, 4], [0, 1, 4]], 10011),
        # one turn more of a loop is run by one piece alone
        ([[0, 1, 1, 4], [0, 1, 4]], 10021),
        # two ways around a branch, and the block behind it, where the first to come waits for the other
        ([[0, 2, 4], [0, 3, 4]], 11101),
        # who is stuck goes on when all are: the second piece runs its loop first
        ([[0, WOKEN, 4], [0, 1, 1, WOKEN, 4]], 10021),
        # what is complete is woken before anything arrives
        ([[0, ARRIVED, WOKEN, 4], [0, WOKEN, 1, ARRIVED, WOKEN, 4]], 10011),
        # a piece that has ended holds nobody up
        ([[0], [0, ARRIVED, WOKEN, 1]], 11),
        ([[0, 1]], 11),
        ([], 0),
    ],
)
def test_how_many_instructions_a_batch_runs(pieces, steps):
    assert merged_steps(pieces, RANKS, SIZES) == steps


# as many turns as the block has a number, with a barrier of the block in each
LOOP = """
  mov.u32 %r10, 0;
AGAIN:
  bar.sync 0;
  add.u32 %r10, %r10, 1;
  setp.le.u32 %p1, %r10, %r1;
  @%p1 bra AGAIN;
  mul.wide.u32 %rd0, %r3, 4;
  add.u64 %rd0, %rd0, %rd20;
  st.global.u32 [%rd0], %r10;"""


@pytest.mark.parametrize("jobs", [2, 4, 16])
def test_blocks_that_do_not_run_alike_are_counted_as_one_batch(lab, jobs, monkeypatch):
    monkeypatch.setattr(splitting, "WORTH", 0.0)
    monkeypatch.setattr(splitting, "FIXED_THREADS", 0)
    splitting.forget()
    one = lab.launch(LOOP, np.zeros(512, np.uint32), grid=16)
    lab.device.close()
    two = lab.launch(LOOP, np.zeros(512, np.uint32), grid=16, jobs=jobs)
    assert differences(one, two) == []
    assert lab.device.division.parts == jobs


def test_ways_that_are_too_long_are_given_up(lab, monkeypatch):
    monkeypatch.setattr(splitting, "WORTH", 0.0)
    monkeypatch.setattr(splitting, "FIXED_THREADS", 0)
    # the clock is looked at now and then, and the length of a way with it
    monkeypatch.setattr(launching, "MOST", 5)
    monkeypatch.setattr(ways, "MOST", 5)
    splitting.forget()
    long = LOOP.replace("setp.le.u32 %p1, %r10, %r1", "add.u32 %r11, %r1, 80;\n  setp.le.u32 %p1, %r10, %r11")
    one = lab.launch(long, np.zeros(512, np.uint32), grid=16)
    lab.device.close()
    two = lab.launch(long, np.zeros(512, np.uint32), grid=16, jobs=4)
    assert differences(one, two) == []
    assert lab.device.division.parts == 1
