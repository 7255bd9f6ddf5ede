"""Stopping inside a kernel from the command line, on every target."""

import json
import subprocess
import sys

import numpy as np
import pytest
from typer.testing import CliRunner

from kernbench.cli import app
from kernbench.common.errors import BenchError

RACE = """
.version 8.0
.target sm_90
.address_size 64
.visible .entry turn(.param .u64 out)
{
    .reg .pred %p<2>;
    .reg .b32 %r<8>;
    .reg .f32 %f<4>;
    .reg .b64 %rd<4>;
    .shared .align 4 .b32 tile[64];
    mov.u32 %r1, %tid.x;
    mul.lo.u32 %r2, %r1, 4;
    mov.u32 %r3, tile;
    add.u32 %r3, %r3, %r2;
    cvt.rn.f32.u32 %f1, %r1;
    mov.u32 %r5, 0;
again:
    st.shared.u32 [%r3], %r1;
    add.u32 %r5, %r5, 1;
    setp.lt.u32 %p1, %r5, 3;
    @%p1 bra again;
    xor.b32 %r4, %r2, 128;
    mov.u32 %r6, tile;
    add.u32 %r6, %r6, %r4;
    ld.shared.u32 %r7, [%r6];
    ld.param.u64 %rd1, [out];
    mul.wide.u32 %rd2, %r1, 4;
    add.u64 %rd1, %rd1, %rd2;
    st.global.u32 [%rd1], %r7;
    ret;
}
"""


def line_of(text, part):
    return next(number for number, line in enumerate(text.splitlines(), 1) if part in line)


@pytest.fixture
def command(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def run(*arguments, code=0):
        before = sys.gettrace()
        result = CliRunner().invoke(app, [str(a) for a in arguments], env={"COLUMNS": "160"})
        assert sys.gettrace() is before
        assert result.exit_code == code, result.output
        return result

    return run


@pytest.fixture
def mine(command, tmp_path):
    """A bench as `kernbench new` makes it, and where a part of it stands."""

    def make(target, old="", new=""):
        command("new", target, "mine")
        file = tmp_path / "mine.py"
        text = file.read_text()
        assert old in text
        file.write_text(text.replace(old, new))
        return lambda part: line_of(file.read_text(), part)

    return make


def refused(command, *arguments):
    result = command(*arguments, code=1)
    assert isinstance(result.exception, BenchError)
    return str(result.exception)


def test_a_mesh_kernel_stops_at_a_line_with_its_handles(command, mine, tmp_path):
    line = mine("mesh")("o = o * shrink")
    shown = command("run", "mine.py", "--stop-at", f"mine.py:{line}#2", "--dump", "d.npz", "--json", "r.json").output
    assert f"mine.py:{line}" in shown
    assert "rank" in shown
    assert "shrink" in shown
    with np.load(tmp_path / "d.npz") as held:
        assert held["step"] == 1
        assert held["p"].shape == (32, 32)
        np.testing.assert_allclose(held["p"], np.exp(held["s"] - held["new"]), rtol=1e-6)
    view = json.loads((tmp_path / "r.json").read_text())["views"]["stopped"]
    assert view["where"]["line"] == line
    assert view["who"].startswith("rank ")


def test_a_statement_of_several_lines_is_reached_once(command, mine, tmp_path):
    several = "        s = tl.dot(\n            q,\n            tl.trans(k),\n        ) * d**-0.5\n"
    line = mine("mesh", "        s = tl.dot(q, tl.trans(k)) * d**-0.5\n", several)("s = tl.dot(")
    command("run", "mine.py", "--stop-at", f"mine.py:{line}#3", "--dump", "d.npz")
    with np.load(tmp_path / "d.npz") as held:
        assert held["step"] == 2
    told = refused(command, "run", "mine.py", "--stop-at", f"mine.py:{line}#5")
    assert "4 is the most any did" in told


def test_a_comprehension_is_one_visit_of_its_line(command, mine):
    line = mine("mesh", "m = new\n", "m = [new for _ in range(9)][0]\n")("[new for")
    told = refused(command, "run", "mine.py", "--stop-at", f"mine.py:{line}#5")
    assert "4 is the most any did" in told


def test_a_launch_that_needs_what_a_stopped_one_did_not_make_is_no_error(command, mine):
    back = "return torch.launch(ring, q, k, v, o, p.S, p.d, p.n_ranks)"
    more = f"run = {back[7:]}\n    if run.status != 'finished':\n        raise ValueError('no output')\n    return run"
    line = mine("mesh", back, more)("o = o * shrink")
    assert "shrink" in command("run", "mine.py", "--stop-at", f"mine.py:{line}").output


def test_nothing_is_launched_after_a_stopped_kernel(command, mine):
    back = "    return torch.launch(ring, q, k, v, o, p.S, p.d, p.n_ranks)"
    second = back.replace("q, k, v, o", "o, k, v, torch.empty(o.shape, 'f32', axis=0)")
    more = f"    {back[11:]}\n{second}"
    line = mine("mesh", back, more)("o = o * shrink")
    shown = command("run", "mine.py", "--stop-at", f"mine.py:{line}").output
    assert "shrink" in shown
    assert "uninitialised-read" not in shown


@pytest.mark.programs
@pytest.mark.parametrize(("target", "line"), [("mesh", "m = new\n"), ("npu", "core.tmuls(s_ub, s_ub, scale)\n")])
def test_leaving_the_debugger_ends_the_run(target, line, mine, tmp_path):
    mine(target, line, f"breakpoint(); {line}")
    call = [sys.executable, "-m", "kernbench", "run", "mine.py"]
    done = subprocess.run(call, cwd=tmp_path, input="q\n", capture_output=True, text=True, timeout=900, check=False)
    assert done.stdout.count("(Pdb)") == 1, done.stdout + done.stderr
    assert "kernel-error" not in done.stdout
    assert done.returncode


def test_a_finding_stops_the_mesh_kernel_that_makes_it(command, mine):
    line = mine("mesh", "tl.load(v_ptr, ", "tl.load(v_ptr + 64, ")("v_ptr + 64")
    shown = command("run", "mine.py", "--stop-at", "finding", code=1).output
    assert "out-of-bounds" in shown
    assert f"mine.py:{line}" in shown
    assert "stopped to look inside" in shown


def test_an_error_of_the_kernel_shows_the_frame_it_ended_in(command, mine):
    line = mine("mesh", "m = new\n", "m = new.nothing\n")("new.nothing")
    shown = command("run", "mine.py", "--stop-at", "finding", code=1).output
    assert f"mine.py:{line}" in shown
    assert "│ shrink" in shown


def test_a_finding_of_the_whole_run_stops_at_the_line_it_names(command, mine):
    line = mine("npu", "    core.wait_flag(MTE2, V, 0)\n", "")("core.tmuls")
    shown = command("run", "mine.py", "--stop-at", "finding", code=1).output
    assert "race, found when the run was over" in shown
    assert f"mine.py:{line}" in shown


def test_an_npu_kernel_stops_with_its_tiles_by_name_and_place(command, mine, tmp_path):
    line = mine("npu")("core.trowsum")
    shown = command("run", "mine.py", "--stop-at", f"mine.py:{line}", "--dump", "d.npz").output
    assert "aiv0 of task 1 (softmax), block 0" in shown
    assert "f32 at UB 0x0" in shown
    with np.load(tmp_path / "d.npz") as held:
        np.testing.assert_array_equal(held["s_ub"], held["core.s@UB+0x0"])
        assert held["s_ub"].max() == 1
        assert np.isnan(held["p_ub"]).all()


def test_a_ptx_bench_stops_at_the_line_of_its_builder(command, mine):
    line = mine("ptx")("total.set")
    shown = command("run", "mine.py", "--stop-at", f"mine.py:{line}#3").output
    assert "warp 0 of block" in shown
    assert f"mine.py:{line}" in shown


def test_a_source_line_of_ptx_is_reached_once_a_round(command, mine, tmp_path):
    line = mine("ptx")("total.set")
    command("run", "mine.py", "--stop-at", f"mine.py:{line}#7", "--dump", "d.npz")
    told = refused(command, "run", "mine.py", "--stop-at", f"mine.py:{line}#101")
    assert "100 is the most any did" in told


def test_ptx_stops_with_registers_and_shared_memory(command, tmp_path):
    (tmp_path / "k.ptx").write_text(RACE)
    line = line_of(RACE, "xor.b32")
    shown = command("ptx", "run", "k.ptx", "--block", 64, "--stop-at", line, "--dump", "d.npz").output
    assert "warp 0 of block (0, 0, 0)" in shown
    assert "xor.b32 %r4, %r2, 128;" in shown
    with np.load(tmp_path / "d.npz") as held:
        np.testing.assert_array_equal(held["%r1"], np.arange(32))
        np.testing.assert_array_equal(held["%f1"], np.arange(32, dtype=np.float32))
        np.testing.assert_array_equal(held["shared tile"], np.arange(64))
        assert held["active lanes"].all()


def test_ptx_counts_the_times_a_warp_reaches_a_line(command, tmp_path):
    (tmp_path / "k.ptx").write_text(RACE)
    line = line_of(RACE, "setp.lt")
    command("ptx", "check", "k.ptx", "--block", 64, "--stop-at", f"{line}#2", "--dump", "d.npz")
    with np.load(tmp_path / "d.npz") as held:
        assert (held["%r5"] == 2).all()
    told = refused(command, "ptx", "run", "k.ptx", "--block", 64, "--stop-at", f"{line}#4")
    assert "no program reached it 4 times; 3 is the most any did" in told


def test_ptx_stops_at_the_instruction_of_a_finding(command, tmp_path):
    (tmp_path / "k.ptx").write_text(RACE)
    shown = command("ptx", "run", "k.ptx", "--block", 64, "--stop-at", "finding", code=1).output
    assert "race" in shown
    assert "ld.shared.u32 %r7, [%r6];" in shown
    assert "shared tile" in shown


def test_a_line_that_is_never_reached_is_told_with_those_nearby(command, mine, tmp_path):
    mine("mesh")
    (tmp_path / "k.ptx").write_text(RACE)
    told = refused(command, "run", "mine.py", "--stop-at", "mine.py:1000")
    assert "mine.py:1000 was never reached; the nearest lines that were: " in told
    assert "files of kernels that did: mine.py" in refused(command, "run", "mine.py", "--stop-at", "other.py:5")
    assert "the run has no findings" in refused(command, "run", "mine.py", "--stop-at", "finding")
    last = line_of(RACE, "ret;")
    told = refused(command, "ptx", "run", "k.ptx", "--block", 64, "--stop-at", 900)
    assert told.endswith(f"the nearest lines that were: {last - 2}, {last - 1}, {last}")


def test_options_that_make_no_sense_are_refused(command, mine):
    mine("mesh")
    assert "--stop-at" in refused(command, "run", "mine.py", "--dump", "d.npz")
    assert "is wanted" in str(command("run", "mine.py", "--stop-at", f"mine.py:{'9' * 5000}", code=1).exception)
    assert "choose a panel" in refused(command, "run", "milestone_gqa_llama70b", "--stop-at", "finding")


def test_runs_that_are_not_asked_to_stop_are_as_before(command, mine):
    mine("mesh")
    assert "1 of 1 right and safe" in command("run", "mine.py").output


TENSOR = """
.version 8.8
.target sm_100a
.address_size 64
.visible .entry keep()
{
    .reg .b32 %r<4>;
    .shared .align 4 .b32 slot;
    mov.u32 %r1, slot;
    tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%r1], 32;
    bar.sync 0;
    ld.shared.b32 %r2, [slot];
    mov.u32 %r3, %laneid;
    tcgen05.st.sync.aligned.32x32b.x1.b32 [%r2], {%r3};
    tcgen05.wait::st.sync.aligned;
    tcgen05.dealloc.cta_group::1.sync.aligned.b32 %r2, 32;
    tcgen05.relinquish_alloc_permit.cta_group::1.sync.aligned;
    ret;
}
"""


def test_tensor_memory_is_shown_where_it_is_allocated(command, tmp_path):
    (tmp_path / "k.ptx").write_text(TENSOR)
    line = line_of(TENSOR, "tcgen05.dealloc")
    command("ptx", "run", "k.ptx", "--block", 32, "--stop-at", line, "--dump", "d.npz")
    with np.load(tmp_path / "d.npz") as held:
        words = held["tensor memory 0 to 31"]
    assert words.shape == (128, 32)
    np.testing.assert_array_equal(words[:32, 0], np.arange(32))
    assert (words[32:] == 0xFFFFFFFF).all()
    command("ptx", "run", "k.ptx", "--block", 32, "--stop-at", line + 1, "--dump", "e.npz")
    with np.load(tmp_path / "e.npz") as held:
        assert [name for name in held if name.startswith("tensor")] == []
