"""How what was found is told: once for a pair of lines and a tile, and causes before what follows from them."""

import numpy as np
from tests.npu.small import flag, kinds, line_of, run_kernel

A = np.arange(128, dtype=np.float32).reshape(8, 16) / 64
OUT = np.zeros((8, 16), np.float32)


def test_the_ragged_last_block_is_not_told_again():
    def kernel(core, a, out):
        rows = slice(3 * core.block_idx, min(3 * core.block_idx + 3, 8))
        x = core.tile("UB", (3, 16), "f32", 0, valid=(rows.stop - rows.start, 16), name="x")
        core.tload(x, a[rows])
        flag(core, "MTE2", "V")
        core.texp(x, x)
        core.tabs(x, x)
        flag(core, "V", "MTE3")
        core.tstore(out[rows], x)
        core.pipe_sync()

    run = run_kernel(kernel, A, out=OUT, blocks=3)
    (finding,) = run.findings
    assert (finding.kind, finding.count, finding.where.line) == ("missing-barrier", 3, line_of(kernel, "tabs"))


def test_tiles_of_two_names_are_two_findings():
    def kernel(core, a, out):
        for name, offset in (("x", 0), ("y", 0x200)):
            tile = core.tile("UB", (8, 16), "f32", offset, name=name)
            core.tload(tile, a)
            core.pipe_barrier("ALL")
            core.texp(tile, tile)
            core.tabs(tile, tile)
        flag(core, "V", "MTE3")
        core.tstore(out, tile)
        core.pipe_sync()

    run = run_kernel(kernel, A, out=OUT)
    assert [(f.kind, f.count, f.message.split("'")[1]) for f in run.findings] == [
        ("missing-barrier", 1, "x"),
        ("missing-barrier", 1, "y"),
    ]


def test_a_wait_that_nothing_ends_is_told_before_the_races_behind_it():
    def kernel(core, a, out):
        x = core.tile("UB", (8, 16), "f32", 0, name="x")
        core.tload(x, a)
        core.wait_flag("MTE2", "V", 0)
        core.texp(x, x)
        flag(core, "V", "MTE3")
        core.tstore(out, x)
        core.pipe_sync()

    run = run_kernel(kernel, A, out=OUT)
    assert run.status == "deadlocked"
    assert set(kinds(run)) == {"deadlock", "race"}
    assert run.findings[0].where.line == line_of(kernel, "wait_flag")
