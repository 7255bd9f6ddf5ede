"""What compilers leave in their caches, launched by their own metadata."""

import json

import numpy as np
import pytest
from typer.testing import CliRunner

from kernbench.cli import app
from kernbench.common.errors import BenchError
from kernbench.ptx.doors.terms.blame import triton
from kernbench.ptx.front.artefact import read_artefact

TEXT = """.version 8.0
.target sm_90
.address_size 64
.visible .entry twice(.param .u64 .ptr .global .align 1 twice_param_0, .param .u64 .ptr .global .align 1 twice_param_1,
                      .param .u32 twice_param_2, .param .u64 twice_param_3, .param .u64 twice_param_4)
.reqntid 64
{
  .reg .b32 %r<6>;
  .reg .b16 %h<3>;
  .reg .b64 %rd<8>;
  .reg .pred %p<2>;
  ld.param.u64 %rd1, [twice_param_0];
  ld.param.u64 %rd2, [twice_param_1];
  ld.param.u32 %r1, [twice_param_2];
  mov.u32 %r2, %tid.x;
  mov.u32 %r3, %ctaid.x;
  mad.lo.u32 %r4, %r3, 64, %r2;
  setp.ge.u32 %p1, %r4, %r1;
  @%p1 ret;
  mul.wide.u32 %rd3, %r4, 2;
  add.s64 %rd4, %rd1, %rd3;
  add.s64 %rd5, %rd2, %rd3;
  ld.global.b16 %h1, [%rd4];
  add.f16 %h2, %h1, %h1;
  st.global.b16 [%rd5], %h2;
  ret;
}
"""
TTIR = """module {
  tt.func public @twice(%x: !tt.ptr<f16> {tt.divisibility = 16 : i32} loc("x"(#loc)), %y: !tt.ptr<f16> loc("y"(#loc)), \
%n: i32 loc("n"(#loc))) attributes {noinline = false} {
"""
METADATA = {"name": "twice", "num_warps": 2, "num_ctas": 1, "shared": 512, "global_scratch_size": 0}
METADATA |= {"profile_scratch_size": 0, "target": {"backend": "cuda", "arch": 90, "warp_size": 32}}


@pytest.fixture
def cache(tmp_path):
    folder = tmp_path / "HASH"
    folder.mkdir()
    (folder / "twice.ptx").write_text(TEXT)
    (folder / "twice.json").write_text(json.dumps(METADATA))
    (folder / "__grp__twice.json").write_text("{}")
    (folder / "twice.ttir").write_text(TTIR)
    return folder


def launch(*arguments):
    return CliRunner().invoke(app, ["ptx", "launch", *map(str, arguments)])


def test_a_folder_of_tritons_cache(cache, tmp_path):
    np.save(tmp_path / "x.npy", np.arange(100, dtype=np.float16))
    np.save(tmp_path / "y2.npy", 2 * np.arange(100, dtype=np.float16))
    (tmp_path / "l.toml").write_text(
        'grid = [2]\n[args.x]\nfile = "x.npy"\n[args.y]\ndtype = "f16"\nshape = [100]\nfill = "empty"\n'
        'expect = "y2.npy"\n[args.n]\nvalue = 100\n'
    )
    result = launch(cache, "--launch", tmp_path / "l.toml")
    assert result.exit_code == 0, result.output
    assert "right: yes   safe: yes" in result.output
    assert "wrote y: 100 float16" in result.output
    assert "made up" not in result.output


def test_the_time_of_a_launch_of_tritons_cache(cache):
    result = launch(cache, "--grid", "2", "--elements", "128", "--time")
    assert result.exit_code == 0, result.output
    assert "predicted for h200" in result.output
    assert "where the warps spend their cycles:" in result.output


def test_faults_that_triton_alone_can_cause_are_known_by_its_release(cache):
    assert read_artefact(cache).compiler is None
    (cache / "twice.json").write_text(json.dumps(METADATA | {"triton_version": "3.6.0"}))
    assert read_artefact(cache).compiler == triton("3.6.0")
    # in assembly programs write what they want; Gluon, in which they write fences, leaves no such file
    (cache / "twice.ttir").write_text(TTIR + 'tt.elementwise_inline_asm "..."')
    assert read_artefact(cache).compiler is None
    (cache / "twice.ttir").unlink()
    assert read_artefact(cache).compiler is None


@pytest.mark.parametrize("name", ["twice.ptx", "twice.json", ""])
def test_what_is_not_said_is_made_with_the_types_of_the_source(cache, name):
    result = launch(cache / name, "--grid", "2", "--elements", "128")
    assert result.exit_code == 0, result.output
    assert "wrote y: 128 float16" in result.output
    assert "not described, so made up: x: 128 random f16" in result.output
    assert "made up: n: 128" in result.output


def test_names_of_the_ptx_go_before_what_the_metadata_says(cache, tmp_path):
    (tmp_path / "l.toml").write_text('[args.twice_param_1]\ndtype = "f16"\nshape = [70]\nfill = "zeros"\n')
    result = launch(cache, "--launch", tmp_path / "l.toml", "--elements", "64")
    assert "wrote y: 70 float16" in result.output


def test_metadata(cache):
    found = read_artefact(cache)
    assert (found.kernel, found.threads, found.shared_bytes, found.scratch) == ("twice", 64, 512, (0, 0))
    assert found.arguments == (("x", "!tt.ptr<f16>"), ("y", "!tt.ptr<f16>"), ("n", "i32"))


def test_ptx_without_metadata(tmp_path):
    file = tmp_path / "kernel.sm_90a.ptx"
    file.write_text(TEXT)
    result = launch(file, "--grid", "1", "--elements", "64")
    assert "not described, so made up" in result.output


def test_what_nobody_types_is_made_as_the_kernel_takes_it(tmp_path):
    file = tmp_path / "kernel.ptx"
    file.write_text(TEXT.replace("twice_param", "p"))
    assert "made up: p_0: 64 random f16" in launch(file, "--grid", "1", "--elements", "64").output


def test_misuse(cache, tmp_path):
    (tmp_path / "empty").mkdir()
    with pytest.raises(BenchError, match="holds 0 PTX files"):
        read_artefact(tmp_path / "empty")
    with pytest.raises(BenchError, match=rf"below it: {cache.name}/twice.ptx"):
        read_artefact(cache.parent)
    with pytest.raises(BenchError, match="there is no"):
        read_artefact(tmp_path / "nothing")
    (cache / "twice.json").write_text("[1, 2")
    with pytest.raises(BenchError, match=r"twice\.json"):
        read_artefact(cache)
    (cache / "twice.json").write_text("{}")
    with pytest.raises(BenchError, match="no num_warps"):
        read_artefact(cache)


CUTE = """.version 8.8
.target sm_90a
.address_size 64
.visible .entry kernel_add(.param .align 8 .b8 kernel_add_param_0[8], .param .align 8 .b8 kernel_add_param_1[8])
.reqntid 128, 1, 1
{
  .reg .b32 %r<5>;
  .reg .b64 %rd<6>;
  .reg .f32 %f<3>;
  ld.param.b64 %rd1, [kernel_add_param_0];
  ld.param.b64 %rd2, [kernel_add_param_1];
  mov.u32 %r1, %tid.x;
  mov.u32 %r2, %ctaid.x;
  mad.lo.u32 %r3, %r2, 128, %r1;
  mul.wide.u32 %rd3, %r3, 4;
  add.s64 %rd4, %rd1, %rd3;
  add.s64 %rd5, %rd2, %rd3;
  ld.global.f32 %f1, [%rd4];
  add.f32 %f2, %f1, %f1;
  st.global.f32 [%rd5], %f2;
  ret;
}
"""
MLIR = """!memref_gmem_f32_ = !cute.memref<f32, gmem, align<16>, "(4,128):(128,1)">
module attributes {gpu.container_module} {
    cuda.kernel @kernel_add(%arg0: !memref_gmem_f32_, %arg1: !memref_gmem_f32_) attributes {cutlass_launch_facts = \
{cluster_launch = false, exact_block_dim = array<i64: 128, 1, 1>, exact_grid_dim = array<i64: 4, 1, 1>}, gpu.kernel} {
"""


@pytest.fixture
def cute(tmp_path):
    folder = tmp_path / "dump"
    folder.mkdir()
    (folder / "host.sm_90a.ptx").write_text(CUTE)
    (folder / "cute_dsl_host.mlir").write_text(MLIR)
    return folder


def test_a_folder_of_cute_dsl_says_grid_and_tensors(cute):
    found = read_artefact(cute)
    assert (found.kernel, found.threads, found.grid) == ("kernel_add", 128, (4, 1, 1))
    assert found.arrays == ((0, "f32", 512), (1, "f32", 512))
    shown = launch(cute)
    assert shown.exit_code == 0, shown.output
    assert "safe: yes" in shown.output


def test_what_is_not_known_is_written_as_a_file_to_fill_in(cute, tmp_path):
    (cute / "cute_dsl_host.mlir").unlink()
    file = tmp_path / "launch.toml"
    shown = launch(cute, "--write-launch", file)
    assert shown.exit_code == 0, shown.output
    text = file.read_text()
    assert "block = [128, 1, 1]" in text
    assert 'dtype = "f32"   # where it is a pointer' in text
    file.write_text(text.replace("grid = [1]", "grid = [8]"))
    shown = launch(cute, "--launch", file)
    assert shown.exit_code == 0, shown.output
    # nine blocks read past the arrays that the file describes
    assert launch(cute, "--launch", file, "--grid", "9").exit_code == 1
