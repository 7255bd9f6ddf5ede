"""Programs of CUDA C++ built by nvcc, and `kernbench cuda check`; skipped where there is no nvcc.

nvcc takes a second and more for each: `make test` runs one with the runtime linked in and one with the shared runtime,
`make test-doors` all of them.
"""

import json
import re
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest
from typer.testing import CliRunner

from kernbench.cli import app
from kernbench.common.errors import BenchError, MisuseError
from kernbench.ptx.doors import cuda_source
from kernbench.ptx.front.commands.cuda import arguments_toml

pytestmark = pytest.mark.programs

SOURCE = Path(__file__).parent / "program.cu"
LONG = pytest.mark.named
RACED = next(n for n, line in enumerate(SOURCE.read_text().splitlines(), 1) if "raced on" in line)


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """Builds the program with flags, once under a name."""
    nvcc = cuda_source.find_nvcc()
    if nvcc is None:
        pytest.skip("nvcc is not installed")
    folder = tmp_path_factory.mktemp("programs")

    def build(name: str, *flags: str, sources: tuple[Path, ...] = (SOURCE,)) -> Path:
        made = folder / name
        if made.exists():
            return made
        command = [nvcc, "-lineinfo", *flags, "-o", str(made), *map(str, sources)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
        if done.returncode:
            pytest.skip(f"nvcc builds no program here: {done.stderr[:200]}")
        return made

    return build


PTX = "-gencode=arch=compute_90a,code=compute_90a"


def test_a_program_with_the_runtime_linked_in_runs(run_program, built):
    result = run_program(built("linked", PTX, "-cudart=static"))
    assert result.out.splitlines() == ["sum on the device 256"] * 2 + ["sum 256 launches 5 sm_90"], result.err
    assert result.code == 0
    assert [launch["title"] for launch in result.launches] == ["reduce<128>"] * 2
    assert result.findings == []


PADDED = """
#include <cstdio>
struct Pair { bool flag; long value; };
__global__ void fill(Pair *p) { p[threadIdx.x].flag = threadIdx.x % 2; p[threadIdx.x].value = threadIdx.x; }
__global__ void load(const Pair *p, long *out) {
  unsigned long long words[2];
  const Pair *at = p + threadIdx.x;
  asm("ld.global.v2.u64 {%0, %1}, [%2];" : "=l"(words[0]), "=l"(words[1]) : "l"(at));
  Pair pair;
  memcpy(&pair, words, sizeof pair);
  out[threadIdx.x] = pair.flag ? pair.value : -1;
}
int main(int count, char **) {
  Pair *p; long *out, host[32];
  cudaMalloc(&p, 32 * sizeof *p); cudaMalloc(&out, sizeof host);
  if (count == 1) fill<<<1, 32>>>(p);
  load<<<1, 32>>>(p, out);
  cudaMemcpy(host, out, sizeof host, cudaMemcpyDeviceToHost);
  printf("%ld %ld\\n", host[2], host[3]);
}
"""


@LONG
def test_the_padding_of_a_struct_may_be_loaded_and_what_nobody_wrote_not(run_program, built, tmp_path):
    source = tmp_path / "padded.cu"
    source.write_text(PADDED)
    program = built("padded", PTX, sources=(source,))
    result = run_program(program)
    assert (result.out, result.findings) == ("-1 3\n", []), result.err
    unwritten = run_program(program, "without")
    assert {finding["kind"] for finding in unwritten.findings} == {"uninitialised-read"}


TAIL = """
#include <cstdio>
__global__ void ones(float *x, int n) { int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) x[i] = 1; }
int main(int count, char **) {
  float *x, host[100];
  cudaMalloc(&x, sizeof host);
  ones<<<count == 1 ? 100 / 64 : 2, 64>>>(x, 100);
  cudaMemcpy(host, x, sizeof host, cudaMemcpyDeviceToHost);
  printf("%d\\n", host[0] == 1);
}
"""


@LONG
def test_what_no_block_wrote_is_found_at_the_line_that_copies_it_to_the_host(run_program, built, tmp_path):
    source = tmp_path / "tail.cu"
    source.write_text(TAIL)
    program = built("tail", PTX, "-g", sources=(source,))
    assert run_program(program, "covered").of_host == []
    (found,) = run_program(program).of_host
    assert (found.kind, found.where.function, found.where.line) == ("uninitialised-read", "main", 8)
    assert "nobody wrote 144 of the 400 bytes" in found.message
    assert "'ones' (grid 1) wrote 256 of its 400 bytes" in found.hint


def test_a_race_is_found_at_its_line_with_the_shared_runtime(run_program, built):
    result = run_program(built("shared", PTX, "-cudart=shared", "-DRACE"))
    assert "sum 256 launches 5 sm_90" in result.out, result.err
    assert {finding["kind"] for finding in result.findings} == {"race"}
    assert (Path(result.findings[0]["where"]["file"]).name, result.findings[0]["where"]["line"]) == (
        "program.cu",
        RACED,
    )


FEATURES = """
add 42
part 64
symbols 41 128 69
groups 32640 clusters 11 10 11 10
memory 6 6
add 42
add 42
graphs 7 2
add 42
add 42
nodes 4 0
6 7 8 3 4 5 1 2 cudaSuccess cudaErrorInvalidValue cudaErrorInvalidValue
streams 5 1
functions 4 1 1 0 13
cudaMallocArray(&array, &format, 8, 8): cudaErrorNotSupported
cudaIpcGetMemHandle(&handle, x): cudaErrorNotSupported
cudaMemcpy(x, nullptr, 16, cudaMemcpyHostToDevice): cudaErrorInvalidValue
cudaMemset(nullptr, 0, 16): cudaErrorInvalidValue
cudaSetDevice(1): cudaErrorInvalidDevice
cudaDeviceEnablePeerAccess(1, 0): cudaErrorPeerAccessUnsupported
refused cudaErrorInvalidConfiguration
threads 197
"""


@LONG
def test_a_program_of_two_files_has_what_programs_use_of_cuda(run_program, built):
    sources = SOURCE.with_name("features.cu"), SOURCE.with_name("parts.cu")
    result = run_program(built("features", PTX, "-std=c++17", "-rdc=true", sources=sources))
    version = re.search(r"^functions .* (1\d)$", result.out, re.MULTILINE)
    assert result.out.replace(version[0] if version else "", "functions 4 1 1 0 13") == FEATURES.lstrip(), result.err
    assert (result.code, result.findings) == (0, [])
    batch, *others = result.err.splitlines()
    assert re.fullmatch(r"kernbench: a copy or fill of 800 bytes at 0x\w+ begins 24 bytes into .*, which has 32", batch)
    assert others == [
        "kernbench: cudaMallocArray is not emulated; it returns cudaErrorNotSupported: "
        "CUDA arrays, textures and surfaces are not there; use linear memory and pointers",
        "kernbench: cudaIpcGetMemHandle is not emulated; it returns cudaErrorNotSupported: "
        "memory is not shared between processes; use one process, or copy through the host",
        "kernbench: a copy or fill of 16 bytes at 0x0, which is a null pointer",
        "kernbench: a copy or fill of 16 bytes at 0x0, which is a null pointer",
        "kernbench: 'add' is refused: its block has 2048 in x: 1 to 1024 are allowed",
    ]


PROGRAMS = """
sum 500500
scan 136 392
parts 11 11 10
jacobi no error 0.375 0.0625
poly 0 120 917506
others 10 11 39 fib 55 sym 32 7 no error
capture 0 nodes 4 5 10 hits 10
outer 9 then 11
update 0 1011
staged 510 waited 63 wmma 1 cudaSuccess
"""


@LONG
def test_programs_as_people_write_them_run_on_an_older_gpu(run_program, built):
    flags = "-gencode=arch=compute_80,code=compute_80", "-std=c++17", "-cudart=shared"
    result = run_program(built("programs", *flags, sources=(SOURCE.with_name("programs.cu"),)), arch="sm_80")
    assert result.out == PROGRAMS.lstrip(), result.err
    assert (result.code, result.findings, result.err) == (0, [], "")


def test_every_function_of_the_systems_runtime_is_there(library):
    nvcc, lister = cuda_source.find_nvcc(), shutil.which("nm")
    found = sorted(Path(nvcc).resolve().parent.parent.glob("**/libcudart.so.1[23]")) if nvcc else []
    if not found or lister is None:
        pytest.skip("there is no shared CUDA runtime, or no nm")
    listed = [subprocess.run([lister, "-D", path], capture_output=True, text=True, check=True).stdout for path in found]
    ours = subprocess.run([lister, "-D", library / found[0].name], capture_output=True, text=True, check=True).stdout
    wanted, given = (
        {line.split()[-1].partition("@")[0] for line in text.splitlines() if " T " in line}
        for text in (listed[0], ours)
    )
    assert {name for name in wanted if name.startswith("cuda")} - given == set()


@LONG
def test_a_program_without_ptx_is_refused_with_the_flag_that_adds_it(run_program, built):
    result = run_program(built("cubin", "-gencode=arch=compute_90a,code=sm_90a"))
    assert result.code == 1
    assert "compile with -gencode arch=compute_90a,code=compute_90a" in result.err
    assert "no kernel image is available" in result.out


IGNORING = """
#include <cstdio>
__global__ void add(float *x) { x[threadIdx.x] += 1; }
int main(int count, char **words) {
  float *x;
  cudaMallocManaged(&x, 128 * sizeof *x);
  for (int i = 0; i < 128; i++) x[i] = 0;
  add<<<dim3(1, count > 1 ? 70000 : 1), 128>>>(x);
  if (count > 2) printf("%s\\n", cudaGetErrorString(cudaGetLastError()));
  add<<<1, 128>>>(x);
  if (count > 2) printf("%s\\n", cudaGetErrorString(cudaGetLastError()));
  cudaDeviceSynchronize();
  printf("%g\\n", *x);
}
"""


@pytest.fixture
def ignoring(built, tmp_path):
    """A program that passes over the errors of its launches, built with flags."""
    source = tmp_path / "ignoring.cu"
    source.write_text(IGNORING)
    return lambda name, *flags: built(name, *flags, sources=(source,))


@LONG
@pytest.mark.parametrize("code", ["arch=compute_90a,code=sm_90a", "arch=compute_100a,code=compute_100a"])
def test_launches_whose_refusal_a_program_passes_over_are_in_the_verdict(ignoring, code, tmp_path):
    program = ignoring(f"ignoring-{code[-6:]}", f"-gencode={code}")
    words = ["exec", "--json", str(tmp_path / "out.json"), "--junit", str(tmp_path / "out.xml"), "--html"]
    done = CliRunner().invoke(app, [*words, str(tmp_path / "out.html"), "--", str(program)], env={"COLUMNS": "200"})
    assert done.exit_code == 1
    assert "sm_90a: no findings, but 2 launches were refused" in done.stderr
    assert "add, launch 1 and 1 more: refused: the program has" in done.stderr
    assert "compile with -gencode arch=compute_90a,code=compute_90a" in done.stderr
    document = json.loads((tmp_path / "out.json").read_text())
    assert (document["exit_code"], document["safe"]) == (0, False)
    assert [run["status"] for run in document["kernels"][0]["runs"]] == ["refused"] * 2
    assert "compile with -gencode" in document["kernels"][0]["runs"][1]["error"]
    assert "compile with -gencode" in (tmp_path / "out.xml").read_text()
    assert "compile with -gencode" in (tmp_path / "out.html").read_text()


@LONG
def test_each_launch_of_a_kernel_without_ptx_gets_the_same_error(run_program, ignoring):
    result = run_program(ignoring("ignoring-sm_90a", "-gencode=arch=compute_90a,code=sm_90a"), "1", "2")
    assert result.out.splitlines()[:2] == ["no kernel image is available for execution on the device"] * 2


@LONG
def test_a_grid_that_no_gpu_takes_is_refused_and_the_program_may_ask(run_program, ignoring):
    program = ignoring("ignoring-grid", PTX)
    result = run_program(program, "grid")
    assert [launch["status"] for launch in result.launches] == ["refused", "finished"]
    assert result.launches[0]["error"] == "its grid has 70000 in y: 1 to 65535 are allowed"
    result = run_program(program, "grid", "asks")
    assert result.out.splitlines() == ["invalid configuration argument", "no error", "1"]


TEXTURE = """
__global__ void fetch(cudaTextureObject_t from, float *y) { y[threadIdx.x] = tex1Dfetch<float>(from, threadIdx.x); }
int main() {
  float *y;
  cudaMalloc(&y, 128);
  fetch<<<1, 32>>>(0, y);
  fetch<<<1, 16>>>(0, y);
}
"""


@LONG
def test_each_launch_of_a_kernel_that_cannot_run_is_refused_with_the_reason(run_program, built, tmp_path):
    source = tmp_path / "texture.cu"
    source.write_text(TEXTURE)
    result = run_program(built("texture", PTX, sources=(source,)))
    assert [launch["status"] for launch in result.launches] == ["refused"] * 2
    assert all("textures and surfaces are not supported" in launch["error"] for launch in result.launches)


LAUNCHING = """
__global__ void inner(int *y) { y[threadIdx.x] = threadIdx.x; }
__global__ void outer(int *y, int depth) {
  inner<<<1, 32>>>(y);
  if (depth) outer<<<1, 1>>>(y, depth - 1);
}
int main() {
  int *y;
  cudaMalloc(&y, 128);
  outer<<<1, 1>>>(y, 1);
}
"""


@LONG
def test_a_kernel_that_launches_kernels_is_found_at_its_line(run_program, built, tmp_path):
    source = tmp_path / "launching.cu"
    source.write_text(LAUNCHING)
    result = run_program(built("launching", PTX, "-rdc=true", "-lcudadevrt", sources=(source,)))
    assert result.findings, result.err
    assert all("dynamic parallelism) are not emulated" in finding["hint"] for finding in result.findings)
    assert {finding["where"]["line"] for finding in result.findings} == {4, 5}


KINDS = ["device as host", "host as device", "rows to the host"]
REFUSED = ["pinned as device", "device as pinned", "managed as pinned", "from null", "to null", *KINDS, "after reset"]
FREES = """
pinned as device: {0}
device as pinned: {0}
managed as pinned: {0}
from null: {0}
to null: {0}
device as host: {0}
host as device: {0}
rows to the host: {0}
managed as either: 0
pinned as either: 0
copy: 0
pinned: 0
device: 0
managed: 0
nothing: 0
reset: 0
after reset: {0}
1 3
"""


@LONG
@pytest.mark.parametrize("runtime", ["shared", "static"])
def test_frees_and_copies_that_cuda_refuses_are_found_at_their_lines(run_program, built, runtime):
    source = SOURCE.with_name("frees.cu")
    program = built(f"frees-{runtime}", PTX, "-g", f"-cudart={runtime}", sources=(source,))
    result = run_program(program)
    assert result.out == FREES.lstrip().format(1), result.err
    assert [one.kind for one in result.of_host] == ["misuse"] * 3 + ["out-of-bounds"] * 2 + ["misuse"] * 4
    if shutil.which("addr2line") is not None:
        lines = source.read_text().splitlines()
        assert all(f'"{call}"' in lines[one.where.line - 1] for call, one in zip(REFUSED, result.of_host, strict=True))
    result = run_program(program, "asks")
    assert result.out == FREES.lstrip().format("cudaErrorInvalidValue"), result.err
    assert (result.of_host, result.refusals_seen) == ([], 9)


RESET = """
#include <cstdio>
__device__ int plain = 5;
__constant__ int fixed = 6;
__managed__ int managed = 7;
__global__ void change() { plain += fixed; managed += 1; }

static void show(const char *when) {
  int value;
  cudaMemcpyFromSymbol(&value, plain, sizeof value);
  printf("%s: %d %d\\n", when, value, managed);
}

int main() {
  int other = 10;
  cudaStream_t stream;
  cudaEvent_t event;
  cudaStreamCreate(&stream);
  cudaEventCreate(&event);
  cudaMemcpyToSymbol(fixed, &other, sizeof other);
  change<<<1, 1, 0, stream>>>();
  cudaStreamSynchronize(stream);
  show("before");
  cudaDeviceReset();
  printf("%s, %s\\n", cudaGetErrorName(cudaStreamSynchronize(stream)), cudaGetErrorName(cudaEventRecord(event)));
  cudaGetLastError();
  show("reset");
  change<<<1, 1>>>();
  cudaDeviceSynchronize();
  show("after");
}
"""


@LONG
@pytest.mark.parametrize("runtime", ["shared", "static"])
def test_a_reset_of_the_device_takes_all_of_its_context_along(run_program, built, runtime, tmp_path):
    source = tmp_path / "reset.cu"
    source.write_text(RESET)
    result = run_program(built(f"reset-{runtime}", PTX, f"-cudart={runtime}", sources=(source,)))
    handles = "cudaErrorInvalidResourceHandle, cudaErrorInvalidResourceHandle"
    assert result.out.splitlines() == ["before: 15 8", handles, "reset: 5 7", "after: 11 8"], result.err
    assert (result.code, result.findings) == (0, [])


def test_a_runtime_that_is_linked_in_without_symbols_is_refused_with_the_remedy(run_program, built):
    linked, strip = built("linked", PTX, "-cudart=static"), shutil.which("strip")
    if strip is None:
        pytest.skip("there is no strip")
    stripped = linked.with_name("stripped")
    subprocess.run([strip, "-o", stripped, linked], check=True)
    result = run_program(stripped)
    assert result.code == 1
    assert result.err.count("link with -cudart shared, or do not strip the program") == 1


@LONG
def test_cuda_check_compiles_a_template_and_finds_the_race(built, tmp_path):
    arguments = ["cuda", "check", str(SOURCE), "-k", "reduce<64>", "--block", "64"]
    arguments += ["--arg", "float[64]", "--arg", "float[1]=empty"]
    clean = CliRunner().invoke(app, arguments)
    assert clean.exit_code == 0, clean.output
    raced = CliRunner().invoke(app, [*arguments, "--option=-DRACE"])
    assert raced.exit_code == 1
    assert f"program.cu:{RACED}: race" in raced.output


TEMPLATES = """
enum class Op { Add, Mul };
namespace inner {
template <Op op, typename T = float> __global__ void apply(T *x) {
  x[threadIdx.x] = op == Op::Add ? x[threadIdx.x] + 1 : x[threadIdx.x] * 2;
}
}
"""


@LONG
def test_a_template_is_found_however_its_arguments_are_written(built, tmp_path):
    file = tmp_path / "templates.cu"
    file.write_text(TEMPLATES)
    arguments = ["cuda", "check", str(file), "--block", "8", "--arg", "float[8]", "-k"]
    done = CliRunner().invoke(app, [*arguments, "inner::apply<Op::Mul>"])
    assert done.exit_code == 0, done.output
    assert "inner::apply<(Op)1, float>" in done.output
    missed = CliRunner().invoke(app, [*arguments, "apply<Op::Mul>"])
    assert missed.exit_code != 0
    assert "a kernel in a namespace is named with it: --kernel 'my_namespace::apply<Op::Mul>'" in str(missed.exception)


def fake_nvcc(folder, body):
    script = folder / "nvcc"
    script.write_text(f"#!/bin/sh\n{body}\n")
    script.chmod(0o755)
    return str(script)


def test_the_compiler_says_which_symbol_a_template_has(tmp_path, monkeypatch):
    made = ".global .align 8 .u64 kernbench_kernel = _Z1fIL2Op1EEvPf;\n.visible .entry _Z1fIL2Op1EEvPf()\n{ ret; }\n"
    (tmp_path / "made.ptx").write_text(made)
    copies = 'while [ "$1" != "-o" ]; do shift; done; cp "$(dirname "$0")/made.ptx" "$2"'
    monkeypatch.setattr(cuda_source, "find_nvcc", lambda: fake_nvcc(tmp_path, copies))
    compiled = cuda_source.compile_to_ptx(SOURCE, "sm_90a", "f<Op::Mul>")
    assert compiled.kernel == "_Z1fIL2Op1EEvPf"
    assert compiled.text == "\n.visible .entry _Z1fIL2Op1EEvPf()\n{ ret; }\n"


@pytest.mark.parametrize(
    ("said", "remedy"),
    [
        ("x.cu:1:10: fatal error: mine.h: No such file or directory", "mine.h lies is said with --option -IFOLDER"),
        ('using.cu(2): error: identifier "f" is undefined', "--kernel 'my_namespace::f<4>'"),
        ("x.cu(1): error: expected a ';'", "expected a ';'"),
    ],
)
def test_what_a_compiler_does_not_find_is_told_with_the_remedy(said, remedy, tmp_path, monkeypatch):
    (tmp_path / "said").write_text(said)
    monkeypatch.setattr(cuda_source, "find_nvcc", lambda: fake_nvcc(tmp_path, 'cat "$(dirname "$0")/said" >&2; exit 2'))
    with pytest.raises(BenchError, match="does not compile") as problem:
        cuda_source.compile_to_ptx(SOURCE, "sm_90a", "f<4>")
    assert str(problem.value).endswith(remedy)


def test_arguments_are_described_by_type():
    text = arguments_toml(["float[4,100]", "half[64]=zeros", "i32[2]=7", "1000", "0.5", "0xfe", "float[2]=1e-3"])
    wanted = [
        {"dtype": "f32", "shape": [4, 100], "fill": "normal"},
        {"dtype": "f16", "shape": [64], "fill": "zeros"},
        {"dtype": "i32", "shape": [2], "fill": 7},
        {"value": 1000},
        {"value": 0.5},
        {"value": 0xFE},
        {"dtype": "f32", "shape": [2], "fill": 0.001},
    ]
    assert tomllib.loads(text) == {"args": {str(number): argument for number, argument in enumerate(wanted)}}
    with pytest.raises(MisuseError, match=r"write a number, or an array as in float\[4,100\]"):
        arguments_toml(["float[4"])
    with pytest.raises(MisuseError, match="unknown type 'flat'"):
        arguments_toml(["flat[4]"])


def test_without_a_compiler_it_says_what_to_install(monkeypatch):
    monkeypatch.setattr(cuda_source, "find_nvcc", lambda: None)
    monkeypatch.setattr(cuda_source, "find_nvrtc", lambda: None)
    with pytest.raises(BenchError, match=r"put nvcc on PATH.*pip install nvidia-cuda-nvrtc"):
        cuda_source.compile_to_ptx(SOURCE, "sm_90a")
    with pytest.raises(BenchError, match="there is no such file"):
        cuda_source.compile_to_ptx(SOURCE.with_name("nothing.cu"), "sm_90a")
