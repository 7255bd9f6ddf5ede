"""Waiting, leaving and allocating in kernels that nvcc compiled, optimised and for a debugger: the same verdicts."""

from pathlib import Path

import numpy as np
import pytest
from tests.ptx.toolchain import nvcc_ptx

from kernbench import ptx
from kernbench.safety.budget import Budget

T = np.arange(64, dtype="i4")
ZERO, X = np.zeros(1, "i4"), np.arange(64, dtype="i4") * 7 % 11 - 3


@pytest.fixture(scope="module", params=["-O3", "-G"])
def module(request):
    return ptx.parse(nvcc_ptx(Path(__file__).parent / "flow.cu", "sm_80", request.param))


def launch(module, name, grid, block, args):
    """Arguments that are pairs are fresh arrays of a size and a type."""
    device = ptx.EmulatedDevice("sm_80")
    given = [
        device.empty(*a) if isinstance(a, tuple) else device.array(a) if isinstance(a, np.ndarray) else a for a in args
    ]
    run = device.launch(module.kernels[name], grid, block, given, budget=Budget(steps=200_000, seconds=600))
    return run, given


LEFT = np.where(X[:50] < 0, -1, X[:50][X[:50] >= 0].sum())
CLEAN = {
    "poll": (3, 40, [(40, "i4"), ZERO, (80, "i4")], np.tile(3 * T[:40], 2)),
    "leave_early": (1, 64, [X, (50, "i4"), 50], LEFT),
    "chain": (1, 128, [(128, "i4")], 2 ** (np.arange(128) // 32)),
    "half_set": (1, 64, [(64, "i4")], T + 5),
    "bit_fields": (1, 64, [(64, "i4")], (T & 7) + 8 * T + 1024 * 3 * T),
    "lane_lock": (2, 32, [ZERO, ZERO], [992]),
    "gives_up": (1, 32, [ZERO, (32, "i4")], [300] * 32),
    "work_queue": (3, 32, [X[:9], ZERO, (288, "i4"), 9], np.outer(X[:9], np.arange(1, 33)).ravel()),
    "votes_of_the_living": (
        1,
        32,
        [X, np.zeros(32, "i4")],
        np.where(T[:32] < 16, (X[:16] > 6).any() + 2 * (X[:16] > 0).sum(), 0),
    ),
    "angles": (1, 32, [np.zeros(32, "i4"), 20], np.where(T[:32] < 20, 1, 0)),
    "dropped": (1, 32, [(32, "f8"), np.zeros(32, "i4"), 20], np.where(T[:32] < 20, 1, 0)),
    "shared_heap": (1, 64, [(64, "i4")], 2 * (63 - T)),
}


@pytest.mark.parametrize("name", CLEAN)
def test_clean(module, name):
    grid, block, args, expected = CLEAN[name]
    run, given = launch(module, name, grid, block, args)
    assert run.findings == []
    assert run.status == "finished"
    arrays = [a for a in given if not isinstance(a, int)]
    assert arrays[-1].numpy().tolist() == np.asarray(expected).tolist()


OUT = np.zeros(64, "i4")
BUGS = {
    "bug_half_barrier": (1, [OUT], "divergent-barrier", "which went past it and ended at PTX line"),
    "bug_two_barriers": (1, [X, OUT], "divergent-barrier", "reach the barrier without the rest of their warp"),
    "bug_uneven_loop": (1, [np.arange(64, dtype="i4") % 5 + 1, OUT], "divergent-barrier", "which went past it"),
    "bug_mask_of_ended": (1, [X, OUT], "warp-mask", "names lanes 16-31; thread (16, 0, 0) of block (0, 0, 0) ended"),
    "bug_angles": (1, [OUT, 20], "uninitialised-read", "shared memory that nobody wrote (8 bytes, 'given'+160 (0xa0))"),
    "bug_dropped": (1, [(32, "f8"), OUT, 20], "uninitialised-read", "global memory that nobody wrote (8 bytes, "),
    "bug_flag_never_set": (2, [ZERO, OUT], "deadlock", "to change from 0; no instruction of this kernel writes it"),
    "bug_lock_kept": (2, [ZERO, OUT], "deadlock", "waits for 'bug_lock_kept_param_0' at"),
    "bug_endless": (1, [OUT, 7], "endless-loop", "and it reads nothing that another thread could change"),
    "bug_unset_entry": (1, [OUT, 4], "uninitialised-read", "is part of the address, and comes from local memory"),
    "bug_late_use": (1, [OUT], "use-after-free", "memory of malloc(16) by thread"),
}


@pytest.mark.parametrize("name", BUGS)
def test_bugs(module, name):
    grid, args, kind, words = BUGS[name]
    run, _ = launch(module, name, grid, 32, args)
    assert any(found.kind == kind and words in found.message for found in run.findings), run.findings
