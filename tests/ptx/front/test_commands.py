"""`kernbench ptx`: info, emit, check and run of a PTX file, with arguments from a TOML file or made up."""

import json

import numpy as np
import pytest
from tests.ptx.emulator.asynchronous.kernels import STORE
from typer.testing import CliRunner

from kernbench.cli import app
from kernbench.common.errors import BenchError, KernbenchError
from kernbench.ptx.front.launch_file import read_launch_file

SAXPY = """.version 7.0
.target sm_80
.address_size 64
.visible .entry saxpy(.param .u64 x, .param .u64 y, .param .f32 a, .param .u32 n)
{
    .reg .pred %p;
    .reg .f32 %f<4>;
    .reg .b32 %r<5>;
    .reg .b64 %rd<6>;
    mov.u32 %r1, %ctaid.x;
    mov.u32 %r2, %ntid.x;
    mov.u32 %r3, %tid.x;
    mad.lo.u32 %r4, %r1, %r2, %r3;
    ld.param.u32 %r1, [n];
    setp.ge.u32 %p, %r4, %r1;
    @%p bra DONE;
    ld.param.u64 %rd1, [x];
    ld.param.u64 %rd2, [y];
    ld.param.f32 %f1, [a];
    mul.wide.u32 %rd3, %r4, 4;
    add.u64 %rd4, %rd1, %rd3;
    add.u64 %rd5, %rd2, %rd3;
    ld.global.f32 %f2, [%rd4];
    ld.global.f32 %f3, [%rd5];
    fma.rn.f32 %f3, %f1, %f2, %f3;
    st.global.f32 [%rd5], %f3;
DONE:
    ret;
}
"""
LAUNCH = """
grid = [4]
block = [64]
[args.x]
file = "x.npy"
[args.1]
dtype = "f32"
shape = [200]
fill = "zeros"
expect = "want.npy"
[args.a]
value = 2.0
[args.n]
value = 200
"""


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "saxpy.ptx").write_text(SAXPY)
    (tmp_path / "launch.toml").write_text(LAUNCH)
    x = np.random.default_rng(0).standard_normal(200).astype(np.float32)
    np.save(tmp_path / "x.npy", x)
    np.save(tmp_path / "want.npy", 2 * x)
    return tmp_path


def kernbench(*arguments, code=0):
    done = CliRunner().invoke(app, ["ptx", *map(str, arguments)], env={"COLUMNS": "200", "NO_COLOR": "1"})
    if done.exception is not None and not isinstance(done.exception, (SystemExit, KernbenchError)):
        raise done.exception
    if isinstance(done.exception, KernbenchError):
        assert code == 2, done.exception
        return str(done.exception)
    assert done.exit_code == code, done.output
    return done.output


def test_info_shows_parameters_and_instructions(folder):
    told = kernbench("info", folder / "saxpy.ptx")
    assert "version 7.0, target sm_80" in told
    assert "kernel saxpy" in told
    assert "18 instructions: ld 6, " in told


def test_mutants_are_told_apart_or_harmless(folder):
    (folder / "store.ptx").write_text(STORE)
    (folder / "store.toml").write_text(
        'grid = [1]\nblock = [128]\n[arrays.out]\ndtype = "u32"\nshape = [32, 32]\nfill = "empty"\n'
        '[args.map]\ntensor_map = { array = "out", dims = [32, 32], strides = [128], box = [32, 8] }\n'
    )
    told = kernbench("mutate", folder / "store.ptx", "-l", folder / "store.toml", "--json", folder / "out.json")
    assert told.splitlines()[-1] == "9 mutants of 'kernel': 7 found, 2 harmless"
    assert "dropped" not in told
    saved = json.loads((folder / "out.json").read_text())
    assert saved["counts"] == {"found": 7, "harmless": 2}
    assert saved["verdicts"][0]["text"] == "fence.proxy.async.shared::cta;"


def test_show_prints_rows_block_by_block(folder):
    text = kernbench("show", "--program", folder / "saxpy.ptx")
    head, *lines = text.splitlines()
    assert head.startswith("kernel saxpy: ")
    assert int(head.split()[2]) == sum(not line.startswith("      ") for line in lines)
    assert "  flow.branch (True, False, 1) | %p | to block 2 | line 16: @%p bra DONE;" in lines
    assert "  loads_stores.store_global (4, 4, 1, 1) | %f3, %rd5 | line 26: st.global.f32 [%rd5], %f3;" in lines
    assert max(map(len, lines)) <= 120
    assert text == kernbench("show", "--program", folder / "saxpy.ptx", "--kernel", "saxpy")


def test_show_says_in_one_line_why_there_are_no_rows(folder):
    (folder / "unset.ptx").write_text(SAXPY.replace("    ld.param.f32 %f1, [a];\n", ""))
    assert kernbench("show", "--program", folder / "unset.ptx") == (
        "kernel saxpy: not run by the executor: registers that may be read before they are set\n"
    )


def test_show_names_what_is_wrong_with_what_it_is_given(folder):
    assert "--program" in kernbench("show", folder / "saxpy.ptx", code=2)
    assert "No such file" in kernbench("show", "--program", folder / "other.ptx", code=2)
    assert "unknown kernel 'axpy'" in kernbench("show", "--program", folder / "saxpy.ptx", "-k", "axpy", code=2)
    (folder / "wrong.ptx").write_text(SAXPY.replace("%f1, [a]", "%q1, [a]"))
    assert "wrong.ptx:19:" in kernbench("show", "--program", folder / "wrong.ptx", code=2)


def test_emit_is_stable(folder):
    once = kernbench("emit", folder / "saxpy.ptx")
    (folder / "again.ptx").write_text(once)
    assert kernbench("emit", folder / "again.ptx") == once
    kernbench("emit", folder / "saxpy.ptx", "--out", folder / "out.ptx")
    assert (folder / "out.ptx").read_text() == once


def test_run_is_right_and_safe(folder):
    told = kernbench(
        "run", folder / "saxpy.ptx", "-l", folder / "launch.toml", "-o", folder / "o.npz", "--json", folder / "r.json"
    )
    assert "right: yes   safe: yes" in told
    assert "wrote y: 200 float32" in told
    np.testing.assert_array_equal(np.load(folder / "o.npz")["y"], np.load(folder / "want.npy"))
    assert json.loads((folder / "r.json").read_text())["safe"] is True


def test_a_wrong_expectation_is_told(folder):
    np.save(folder / "want.npy", np.ones(200))
    assert "WRONG" in kernbench("run", folder / "saxpy.ptx", "-l", folder / "launch.toml", code=1)


def test_a_missing_bound_is_found(folder):
    (folder / "launch.toml").write_text(LAUNCH.replace("value = 200", "value = 256"))
    told = kernbench("run", folder / "saxpy.ptx", "-l", folder / "launch.toml", code=1)
    line = 1 + SAXPY.splitlines().index("    ld.global.f32 %f2, [%rd4];")
    assert f"\n{folder / 'saxpy.ptx'}:{line}: out-of-bounds" in told
    assert "ld.global.f32 %f2, [%rd4];" in told
    assert "800 bytes" in told


DYNAMIC = """.version 8.0
.target sm_90
.address_size 64
.extern .shared .align 16 .b8 room[];
.visible .entry fill()
{
    .reg .b32 %r<2>;
    mov.u32 %r1, room;
    st.shared.b32 [%r1+65536], %r1;
    ret;
}
"""


def test_shared_memory_that_nobody_describes_is_all_there_is(tmp_path):
    file = tmp_path / "fill.ptx"
    file.write_text(DYNAMIC)
    told = kernbench("check", file)
    assert "made up: 232,448 bytes of dynamic shared memory, all that a block may have (--shared)" in told
    assert "made up: a block of 32 threads (--block; blocks of the grid: 1, --grid)" in told
    assert "a block of" not in kernbench("check", file, "--block", 32)
    assert "outside the block's 65536 bytes of shared memory" in kernbench("check", file, "--shared", 65536, code=1)
    launch = tmp_path / "fill.toml"
    launch.write_text("shared_bytes = 0")
    assert "outside the block's 0 bytes" in kernbench("check", file, "--launch", launch, code=1)


def test_a_finding_of_a_launch_that_was_made_up_says_that_it_was(tmp_path):
    file = tmp_path / "fill.ptx"
    file.write_text(DYNAMIC)
    note = "part of this launch was made up"
    assert note not in kernbench("check", file)
    assert note in kernbench("check", file, "--shared", 65536, code=1)
    assert note not in kernbench("check", file, "--shared", 65536, "--block", 32, code=1)


def test_check_makes_up_what_nobody_describes(folder):
    told = kernbench("check", folder / "saxpy.ptx", "--grid", "2", "--block", "32", "--elements", "100")
    assert "good PTX for sm_80: saxpy" in told
    assert "safe: yes" in told


T_MAP = '[args.x]\ntensor_map = {{ array = "t", dims = [4], strides = [], box = [4], {} }}\n[arrays.t]\nshape = [4]'


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ("grid = [0]", "one to three whole numbers"),
        ("grids = [1]", "unknown key 'grids'"),
        ("[args.z]\nvalue = 1", "unknown parameter of saxpy 'z'"),
        ("[args.z]\nvalue = 1\nshape = [4]", "[args.z] value stands alone, without shape; an array of one number"),
        ("[args.x]\nshapes = [1]", "unknown key 'shapes'"),
        ('[args.x]\nfill = "lots"\nshape = [4]', "unknown fill 'lots'"),
        (
            '[args.x]\ndtype = "u8"\nfill = 1e9\nshape = [4]',
            "fill = 1000000000.0: uint8 holds whole numbers from 0 to 255",
        ),
        ('[args.x]\ndtype = "f16"\nfill = 1e9\nshape = [4]', "float16 holds numbers up to 65504"),
        ('[args.x]\ndtype = "i32"\nfill = inf\nshape = [4]', "fill = inf: int32 holds whole numbers"),
        ('[args.x]\ndtype = "i32"\nfill = nan\nshape = [4]', "fill = nan: int32 holds whole numbers"),
        ('[args.x]\nfill = ["ones"]\nshape = [4]', "unknown fill \"['ones']\""),
        ('[args.x]\ndtype = ["f32"]\nshape = [4]', "unknown dtype \"['f32']\""),
        ('[args.x]\ndtype = "f7"\nshape = [4]', "unknown dtype 'f7'"),
        ("[args.x]\nshape = [-1]", "whole numbers are wanted"),
        ("[args.x]\nshape = [1000000, 1000000]", "more than 16 GiB"),
        ('[args.x]\nfile = "absent.npy"', "absent.npy"),
        ('[args.x]\npointers = ["nobody"]', "unknown array 'nobody'"),
        ('[args.x]\npointers = ["x"]', "points to itself"),
        ("[args.x]\npointers = 5", "a list of arrays' names is wanted"),
        ('[args.x]\nbytes = "xyz"', "hexadecimal digits"),
        ("[args.x]\ntensor_map = { dims = [1] }", "needs array, dims, strides and box"),
        (T_MAP.format('swizle = "128B"'), "[args.x] unknown key of a tensor map 'swizle'"),
        (T_MAP.format('offset = "0"'), "tensor_map = {"),
        (T_MAP.format('swizzle = ["128B"]'), "tensor_map = {"),
        ("args = 3", "tables are wanted"),
        ("kernel = 7", "a name is wanted"),
        ('kernel = "other"', "unknown kernel 'other'"),
        ("= nonsense", "launch.toml"),
    ],
)
def test_bad_launch_files_are_refused(folder, change, words):
    (folder / "launch.toml").write_text(change)
    assert words in kernbench("run", folder / "saxpy.ptx", "-l", folder / "launch.toml", code=2)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["info", "absent.ptx"], "absent.ptx"),
        (["run", "saxpy.ptx", "--elements", "1000000000000"], "would have more than 16 GiB"),
        (["check", "bench.py"], "bench.py is no PTX: run a bench with kernbench run bench.py"),
        (["check", "kernel.cu"], "compile it first with nvcc -ptx -lineinfo kernel.cu"),
        (["run", "saxpy.ptx", "--grid", "1,2,3,4"], "one to three whole numbers"),
        (["run", "saxpy.ptx", "--device", "tpu"], "emulator or cuda"),
        (["run", "saxpy.ptx", "--arch", "sm_70"], "sm_80"),
        (["run", "saxpy.ptx", "--out", "no/such/o.npz"], "there is no folder"),
    ],
)
def test_misuse(folder, monkeypatch, arguments, words):
    monkeypatch.chdir(folder)
    assert words in kernbench(*arguments, code=2)


def test_text_that_is_no_ptx_is_told_at_its_line(folder):
    (folder / "bad.ptx").write_text(SAXPY.replace("ret;", "ret,;"))
    told = kernbench("check", folder / "bad.ptx", code=2)
    assert f"{folder / 'bad.ptx'}:28:8: expected an operand" in told


def test_an_endless_kernel_is_stopped(folder):
    (folder / "loop.ptx").write_text(SAXPY.replace("DONE:\n    ret;", "DONE:\n    bra DONE;"))
    told = kernbench("run", folder / "loop.ptx", "--max-seconds", "600", code=1)
    assert "endless-loop" in told


def test_a_budget_of_instructions(folder):
    counts = "DONE:\n    add.u32 %r1, %r1, 1;\n    bra DONE;"
    (folder / "count.ptx").write_text(SAXPY.replace("DONE:\n    ret;", counts))
    told = kernbench("check", folder / "count.ptx", "--budget", "5000", code=1)
    assert "over-budget" in told
    assert "5,000 steps" in told


def test_binary_garbage_is_no_launch_file(tmp_path):
    (tmp_path / "bad.toml").write_bytes(bytes(range(256)))
    with pytest.raises(BenchError, match=r"bad\.toml"):
        read_launch_file(tmp_path / "bad.toml")


def test_a_file_without_end_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("kernbench.ptx.front.commands.launching.MOST_CHARACTERS", 1 << 20)
    (tmp_path / "long.ptx").write_text("\n" * ((1 << 20) + 1))
    result = CliRunner().invoke(app, ["ptx", "check", str(tmp_path / "long.ptx")])
    assert isinstance(result.exception, BenchError)
    assert "at most 1 MiB are read" in str(result.exception)
