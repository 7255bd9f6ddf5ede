"""Looking inside an npu kernel: what it prints, and a debugger in its own frame."""

import subprocess
import sys
import textwrap

import numpy as np
import pytest

from kernbench import npu
from kernbench.npu import IN, MTE2, MTE3, OUT, UB, V


def launch(inside, **options):
    def double(core, x, y):
        tile, mine = core.tile(UB, (2, 8), "f32", name="x"), slice(2 * core.sub_block_id, 2 * core.sub_block_id + 2)
        core.tload(tile, x[mine])
        core.set_flag(MTE2, V, 0)
        core.wait_flag(MTE2, V, 0)
        core.tadd(tile, tile, tile)
        inside(core, tile, y)
        core.set_flag(V, MTE3, 0)
        core.wait_flag(V, MTE3, 0)
        core.tstore(y[mine], tile)
        core.pipe_sync()

    def orchestrate(rt, x, y):
        rt.submit(aiv=double, args=[IN(x), OUT(y)])

    x = np.arange(32, dtype=np.float32).reshape(4, 8)
    return npu.Chip("a2a3").launch(orchestrate, x, np.zeros_like(x), **options)


def nothing(core, tile, y):
    pass


def test_tiles_are_printed_with_core_and_line():
    run = launch(lambda core, tile, y: core.tprint("doubled", tile, core.block_idx))
    tile, number = run.views["printf"][:2]
    assert tile.startswith("aiv0 of task 0 (double), block 0 at ")
    assert "test_looking_inside.py:" in tile
    assert "doubled[0] 'x' (2x8 f32 at UB 0x0)\n[[ 0.  2." in tile
    assert number.endswith("doubled[1] 0")
    assert run.safe


def test_a_tile_may_be_printed_alone_and_in_hexadecimal():
    run = launch(lambda core, tile, y: core.tprint(tile, hex=True))
    assert "0x40000000" in run.views["printf"][0]


def test_without_data_the_tile_is_told_by_what_it_is():
    run = launch(lambda core, tile, y: core.tprint("t", tile), shapes_only=True)
    assert run.views["printf"][0].endswith("t 'x' (2x8 f32 at UB 0x0) without data")


def test_printing_and_naming_leave_no_rows():
    def tell(core, tile, y):
        core.tprint(tile)
        core.checkpoint("x", tile)

    assert launch(tell).metrics["rows"] == launch(nothing).metrics["rows"]
    assert "printf" not in launch(nothing).views


def test_a_checkpoint_of_something_else_is_a_finding():
    (finding,) = launch(lambda core, tile, y: core.checkpoint("x", 3)).findings
    assert "a tile is wanted" in finding.message


@pytest.mark.programs
def test_breakpoint_lands_in_the_kernels_frame(tmp_path):
    script = tmp_path / "stops.py"
    script.write_text(
        textwrap.dedent("""
            import numpy as np
            from kernbench import npu
            from kernbench.npu import IN, OUT, UB
            from kernbench.safety.budget import Budget

            def kernel(core, x, y):
                tile = core.tile(UB, (2, 8), "f32", name="x")
                core.tload(tile, x)
                breakpoint()
                core.pipe_barrier("ALL")
                core.tstore(y, tile)

            def orchestrate(rt, x, y):
                rt.submit(aiv=kernel, args=[IN(x), OUT(y)])

            x = np.ones((2, 8), np.float32)
            run = npu.Chip("a2a3").launch(orchestrate, x, x, budget=Budget(seconds=5))
            print("ended", run.status, run.outputs["y"].sum())
        """)
    )
    # a person thinks longer than the budget: the watchdog has ended, or it would end the kernel here
    answers = (
        "import threading; [t.join() for t in threading.enumerate() if t.name == 'kernbench-watchdog']\n"
        "p tile.data.sum(), core.sub_block_id\nc\nc\n"
    )
    told = subprocess.run(
        [sys.executable, str(script)], input=answers, capture_output=True, text=True, timeout=900, check=False
    ).stdout
    # before Python 3.13 the debugger stops at the line after it
    assert "-> breakpoint()" in told or "-> core.pipe_barrier" in told
    assert "16.0" in told
    assert "ended finished 16.0" in told
