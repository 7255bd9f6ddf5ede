"""Looking inside a kernel: what it prints, and a debugger in its own frame."""

import subprocess
import sys
import textwrap

import numpy as np
import pytest

from kernbench import mesh
from kernbench.machine import load
from kernbench.safety.printing import lines_of
from kernbench.triton_emu.tl_context import TLContext, run_kernel


def launch(kernel, x, **options):
    host = mesh.Host(load("small"), ranks=2, install="line")
    return host.launch(kernel, host.shard(x), **options)


def test_values_are_printed_with_rank_and_line():
    def kernel(x_ptr, *, tl):
        x = tl.load(x_ptr, shape=(2, 2))
        tl.device_print("x", x, tl.program_id(0))

    run = launch(kernel, np.arange(8, dtype=np.float32).reshape(4, 2))
    first, number, second, _ = run.views["printf"]
    assert first.startswith("rank 0 at ")
    assert "test_looking_inside.py:" in first
    assert "x[0] f32 [2, 2]\n[[0. 1.]\n [2. 3.]]" in first
    assert number.endswith("x[1] 0")
    assert "[[4. 5.]\n [6. 7.]]" in second
    assert run.safe


def test_bits():
    def kernel(x_ptr, *, tl):
        tl.device_print("bits", tl.load(x_ptr, shape=(1,)), hex=True)

    run = launch(kernel, np.array([1.0, -2.0], np.float32))
    assert [line.split()[-1] for line in run.views["printf"]] == ["[0x3f800000]", "[0xc0000000]"]


def test_large_arrays_are_shown_by_their_corners_and_bf16_as_numbers():
    def kernel(x_ptr, *, tl):
        tl.device_print("x", tl.cast(tl.load(x_ptr, shape=(64, 64)), "bf16"))

    line = launch(kernel, np.full((128, 64), 1.5, np.float32)).views["printf"][0]
    assert "..." in line
    assert "1.5" in line
    assert len(line) < 1000


@pytest.mark.parametrize("hexadecimal", [False, True])
@pytest.mark.parametrize("shape", [(1 << 20, 1 << 13), (2,) * 32, (1 << 33,), (3, 1 << 31)])
def test_views_larger_than_memory_are_shown_by_their_ends(shape, hexadecimal):
    def kernel(x_ptr, *, tl):
        x = tl.cast(tl.load(x_ptr, shape=(1,)), "bf16")
        tl.device_print("x", tl.broadcast_to(tl.reshape(x, (1,) * len(shape)), shape), hex=hexadecimal)

    line, _ = launch(kernel, np.full(2, 1.5, np.float32)).views["printf"]
    assert f"x bf16 {list(shape)}" in line or "x [" in line
    assert "..." in line
    assert ("0x3fc0" if hexadecimal else "1.5") in line
    assert len(line) < 2000


@pytest.mark.parametrize("size", [64, 65, 100, 1000])
def test_corners_are_those_of_the_whole_array(size):
    values = np.arange(3 * size, dtype=np.float32)
    for shape in [(size, 3), (3, size), (3 * size,), (1, size, 3)]:
        (text,) = lines_of("", [(None, values.reshape(shape), "")], False)
        whole = np.array2string(
            values.reshape(shape).astype(np.float64), threshold=64, edgeitems=3, precision=6, floatmode="maxprec"
        )
        assert text.split() == whole.split()


def test_long_texts_are_cut():
    def kernel(x_ptr, *, tl):
        for _ in range(3):
            tl.device_print("long " + "x" * 10_000_000, 10**4000)

    lines = launch(kernel, np.zeros(2, np.float32)).views["printf"]
    assert len(lines) == 6
    assert all(len(line) < 200_000 and "10,000,005 characters in all" in line for line in lines)


def test_printing_costs_no_command():
    def kernel(x_ptr, *, tl):
        x = tl.load(x_ptr, shape=(2,))
        tl.static_print("shape", x.shape)
        tl.device_print("nothing")

    run = launch(kernel, np.zeros(4, np.float32))
    assert run.metrics["commands"] == 2
    assert len(run.views["printf"]) == 4


def test_shapes_where_there_is_no_data():
    def kernel(x_ptr, *, tl):
        tl.device_print("x", tl.load(x_ptr, shape=(2, 3), dtype="f32"))

    tl = TLContext()
    run_kernel(kernel, tl, 0)
    assert tl.core._port.printed == ["x f32 [2, 3] without data"]


@pytest.mark.programs
def test_a_breakpoint_lands_in_the_kernel(tmp_path):
    script = tmp_path / "debugged.py"
    script.write_text(
        textwrap.dedent("""
        import numpy as np
        from kernbench import mesh
        from kernbench.machine import load
        from kernbench.safety.budget import Budget

        def kernel(x_ptr, *, tl):
            mine = tl.load(x_ptr, shape=(2,))
            breakpoint()
            tl.store(x_ptr, mine * 2.0)

        host = mesh.Host(load("small"), ranks=1)
        run = host.launch(kernel, host.shard(np.arange(2.0, dtype=np.float32)), budget=Budget(seconds=5))
        print("ended", run.status)
        """)
    )
    # a person thinks longer than the budget: the watchdog has ended, or it would end the kernel here
    said = (
        "import threading; [t.join() for t in threading.enumerate() if t.name == 'kernbench-watchdog']\n"
        "p mine.shape\np tl.program_id(0)\nc\n"
    )
    done = subprocess.run(
        [sys.executable, str(script)], input=said, capture_output=True, text=True, timeout=900, check=False
    )
    assert "(2,)" in done.stdout, done.stdout + done.stderr
    assert "kernel()" in done.stdout
    assert "ended finished" in done.stdout
