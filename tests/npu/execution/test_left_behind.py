"""A launch leaves nothing behind: a process may run thousands of them."""

import gc

import numpy as np
import pytest
from tests.npu.small import kinds

from kernbench import npu
from kernbench.npu import IN, MTE2, MTE3, OUT, UB
from kernbench.npu.core.transfers import KernelCore


def copy(core, x, y):
    tile, mine = core.tile(UB, (2, 8), "i32"), slice(2 * core.block_idx, 2 * core.block_idx + 2)
    core.tload(tile, x[mine])
    core.set_flag(MTE2, MTE3, 0)
    core.wait_flag(MTE2, MTE3, 0)
    core.tstore(y[mine], tile)
    core.pipe_sync()


def fails(core, x, y):
    copy(core, x, y)
    if core.block_idx:
        raise ValueError("of no use")


def waits(core, x, y):
    copy(core, x, y)
    core.twait(y[0, 0], 7)


def fails_beside_a_wait(core, x, y):
    fails(core, x, y) if core.block_idx else waits(core, x, y)


def launch(kernel):
    def orchestrate(rt, x, y):
        for _ in range(2):
            rt.submit(aiv0=kernel, args=[IN(x), OUT(y)], block_num=2)

    x = np.arange(32, dtype=np.int32).reshape(4, 8)
    return npu.Chip("a2a3").launch(orchestrate, x, np.zeros_like(x))


def cores():
    """Cores of launches that are still in memory."""
    gc.collect()
    # not isinstance, which asks a weak proxy for the class of what may be gone
    return sum(issubclass(type(one), KernelCore) for one in gc.get_objects())


@pytest.mark.parametrize(
    ("kernel", "expected"),
    [(copy, []), (fails, ["kernel-error"]), (waits, ["deadlock"]), (fails_beside_a_wait, ["kernel-error"])],
)
def test_a_launch_leaves_no_core_behind(kernel, expected):
    before = cores()
    assert set(expected) <= set(kinds(launch(kernel)))
    assert cores() == before


def test_a_kernel_that_will_not_be_ended_is_left_where_it_is():
    def stubborn(core, x, y):
        try:
            waits(core, x, y)
        except BaseException:
            core.twait(y[0, 0], 7)

    def either(core, x, y):
        fails(core, x, y) if core.block_idx else stubborn(core, x, y)

    run = launch(either)
    assert "kernel-error" in kinds(run)
