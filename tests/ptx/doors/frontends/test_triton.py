"""Triton kernels through its own driver: arguments of every kind arrive, and findings stand at the Python lines."""

import inspect
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

triton = pytest.importorskip("triton", reason="Triton is not installed: make test-doors installs it")
torch = pytest.importorskip("torch", reason="torch is not installed: make test-doors installs it")
tl = pytest.importorskip("triton.language")
pytestmark = pytest.mark.filterwarnings("ignore")


@triton.jit
def add(x, y, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(y + i, tl.load(x + i, mask=i < n) + 1, mask=i < n)


@triton.jit
def unmasked(x, y, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(y + i, tl.load(x + i) + 1, mask=i < n)


@triton.jit
def racing(x, B: tl.constexpr):
    i = tl.arange(0, B)
    tl.store(x + i, tl.load(x + i) + tl.program_id(0))


@triton.jit
def printing(x):
    tl.device_print("x is", tl.load(x))


@triton.jit
def asserting(x, B: tl.constexpr):
    tl.device_assert(tl.load(x + tl.arange(0, B)) < 3, "too big")


@triton.jit
def gathering(table, y, B: tl.constexpr):
    rows = tl.load(table + tl.program_id(0)).to(tl.pointer_type(tl.float32))
    i = tl.arange(0, B)
    tl.store(y + tl.program_id(0) * B + i, tl.load(rows + i))


@triton.jit
def scalars(y, half, single, double, small, large, flag, nothing, one):
    tl.store(y, half.to(tl.float64))
    tl.store(y + 1, single.to(tl.float64))
    tl.store(y + 2, double.to(tl.float64))
    tl.store(y + 3, small.to(tl.float64))
    tl.store(y + 4, large.to(tl.float64))
    tl.store(y + 5, flag.to(tl.float64))
    if nothing is None:
        tl.store(y + 6, one * 1.0)


@triton.jit
def from_descriptor(source, y, M: tl.constexpr, N: tl.constexpr):
    tile = source.load([0, 16])
    tl.store(y + tl.arange(0, M)[:, None] * N + tl.arange(0, N)[None, :], tile)


@triton.jit
def own_descriptor(x, y, rows, cols, M: tl.constexpr, N: tl.constexpr):
    source = tl.make_tensor_descriptor(x, [rows, cols], [cols, 1], [M, N])
    target = tl.make_tensor_descriptor(y, [rows, cols], [cols, 1], [M, N])
    target.store([0, 0], source.load([0, 0]))


@triton.jit
def product(a, b, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    total = tl.zeros((BM, BN), tl.float32)
    for k in range(0, K, BK):
        inner = k + tl.arange(0, BK)
        total += tl.dot(tl.load(a + m[:, None] * K + inner[None, :]), tl.load(b + inner[:, None] * N + n[None, :]))
    tl.store(c + m[:, None] * N + n[None, :], total)


def line_of(kernel, text):
    """The line of this file on which a kernel says something."""
    source, first = inspect.getsourcelines(kernel.fn)
    return first + next(number for number, line in enumerate(source) if text in line)


@pytest.fixture
def session(emulated):
    return emulated()


def test_a_kernel_runs_and_says_where_it_was_launched(session):
    base = torch.randn(1000, device="cuda")
    x, y = base[100:600], torch.empty(500, device="cuda")
    add[(2,)](x, y, 500, B=256)
    torch.testing.assert_close(y, x + 1)
    (launch,) = session.launches
    assert (launch.title, launch.grid, launch.ok) == ("add", (2, 1, 1), True)
    assert launch.site.file == __file__
    assert launch.site.text == "add[(2,)](x, y, 500, B=256)"
    assert launch.details["constants"]["B"] == 256
    session.assert_safe()


def test_what_was_compiled_is_text_and_a_binary(session):
    x, y = torch.randn(500, device="cuda"), torch.empty(500, device="cuda")
    compiled = add[(2,)](x, y, 500, B=256)
    # tests look for instructions in the text, as Triton's own do
    assert "ld.global" in compiled.asm["ptx"]
    assert isinstance(compiled.asm["cubin"], bytes)
    assert compiled.kernel == compiled.asm["cubin"]


def test_machine_code_is_shown_where_triton_has_its_programs(session):
    x, y = torch.randn(500, device="cuda"), torch.empty(500, device="cuda")
    compiled = add[(2,)](x, y, 500, B=256)
    if not (Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "ptxas").exists():
        pytest.skip("this Triton came without ptxas")
    assert "LDG" in compiled.asm["sass"]


def test_findings_stand_at_the_line_of_the_kernel(session):
    x, y = torch.zeros(500, device="cuda"), torch.empty(500, device="cuda")
    unmasked[(2,)](x, y, 500, B=256)
    (finding,) = session.findings
    assert (finding.kind, finding.where.file) == ("out-of-bounds", __file__)
    assert finding.where.line == line_of(unmasked, "tl.load")
    # the argument's name, not the tensor's
    assert "'x', which has 2000 bytes" in finding.message


def test_a_race_between_programs(session):
    racing[(4,)](torch.zeros(128, device="cuda", dtype=torch.int32), B=128)
    (finding,) = session.findings
    assert (finding.kind, finding.where.line) == ("race", line_of(racing, "tl.store"))


def test_reads_of_what_empty_gave(session):
    x = torch.empty(128, device="cuda")
    x[:100] = 1
    y = torch.empty_like(x)
    add[(1,)](x, y, 100, B=128)
    assert not session.findings
    add[(1,)](x, y, 128, B=128)
    assert [finding.kind for finding in session.findings] == ["uninitialised-read"]


def test_a_tensor_of_the_host_is_refused_as_by_a_gpu(session):
    with pytest.raises(ValueError, match=r"Pointer argument \(at 0\) cannot be accessed from Triton \(cpu tensor\?\)"):
        add[(1,)](torch.zeros(128), torch.zeros(128), 128, B=128)


def test_device_print_and_assert(session, capsys):
    printing[(1,)](torch.tensor([7], device="cuda"))
    assert "x is: 7" in capsys.readouterr().out
    asserting[(1,)](torch.arange(4, device="cuda"), B=4, debug=True)
    (finding,) = session.findings
    assert (finding.kind, finding.where.line) == ("trap", line_of(asserting, "device_assert"))


def test_tables_of_pointers(session):
    rows = [torch.randn(64, device="cuda") for _ in range(3)]
    table = torch.tensor([row.data_ptr() for row in rows], dtype=torch.int64, device="cuda")
    y = torch.empty(192, device="cuda")
    gathering[(3,)](table, y, B=64)
    torch.testing.assert_close(y, torch.cat(rows))
    session.assert_safe()


def test_numbers_of_all_kinds(session):
    y = torch.empty(7, device="cuda", dtype=torch.float64)
    scalars[(1,)](y, 0.5, 1.25, 3.0, -5, 1 << 40, True, None, 1)
    assert y.tolist() == [0.5, 1.25, 3.0, -5.0, float(1 << 40), 1.0, 1.0]
    session.assert_safe()


def test_descriptors_of_the_host(session):
    descriptors = pytest.importorskip("triton.tools.tensor_descriptor", reason="this Triton has no host descriptors")
    x = torch.randn(64, 64, device="cuda", dtype=torch.float16)
    y = torch.empty(32, 32, device="cuda", dtype=torch.float16)
    from_descriptor[(1,)](descriptors.TensorDescriptor.from_tensor(x, [32, 32]), y, M=32, N=32)
    torch.testing.assert_close(y, x[:32, 16:48])
    session.assert_safe()


@pytest.mark.skipif(not hasattr(tl, "make_tensor_descriptor"), reason="this Triton has no device descriptors")
def test_descriptors_of_the_device_in_the_programs_own_scratch(session):
    asked = []

    def allocate(size, align, stream):
        asked.append(size)
        return torch.empty(size, dtype=torch.int8, device="cuda")

    triton.set_allocator(allocate)
    x = torch.randn(32, 32, device="cuda", dtype=torch.float16)
    y = torch.empty_like(x)
    own_descriptor[(1,)](x, y, 32, 32, M=32, N=32)
    torch.testing.assert_close(y, x)
    assert asked
    if triton.__version__.startswith("3.4."):
        # the tile comes to where the descriptor was made, and nothing orders stores before the copy; 3.5 writes a fence
        assert {finding.kind for finding in session.findings} == {"missing-fence"}
    else:
        session.assert_safe()


@pytest.mark.parametrize("options", [{}, {"num_ctas": 2}, {"num_warps": 8}], ids=["plain", "cluster", "eight warps"])
def test_matrix_products(emulated, options):
    # 3.5 and 3.6 leave out a fence on sm_90
    emulated("sm_90a" if "num_ctas" in options else "sm_80")
    a, b = (torch.randn(64, 64, device="cuda", dtype=torch.float16) for _ in range(2))
    c = torch.empty(64, 64, device="cuda")
    product[(1, 1)](a, b, c, 64, 64, 64, BM=64, BN=64, BK=32, **options)
    torch.testing.assert_close(c, a.float() @ b.float(), atol=1e-2, rtol=1e-2)


def tuned(*sizes, reset=(), kept=None):
    configs = [triton.Config({"B": size}, num_warps=1) for size in sizes]
    rules = {"early_config_prune": lambda configs, *_, **__: configs[:kept]}
    return triton.autotune(configs=configs, key=["n"], reset_to_zero=list(reset), prune_configs_by=rules)(add)


def test_an_autotuner_takes_the_first_that_fits(emulated, tmp_path):
    session = emulated(folder=tmp_path / "records")
    x, y = torch.zeros(128, device="cuda"), torch.empty(128, device="cuda")
    kernel = tuned(64, 128, 32)
    kernel[lambda meta: (triton.cdiv(128, meta["B"]),)](x, y, 128)
    kernel[lambda meta: (triton.cdiv(128, meta["B"]),)](x, y, 128)
    assert [launch.details["constants"]["B"] for launch in session.launches] == [64, 64]
    written = (next((tmp_path / "records").iterdir())).read_text()
    assert re.search(r'"event": "autotune".*"chosen": "B 64, num_warps 1.*"of": 3', written)


def test_all_configurations_on_demand(emulated):
    session = emulated(all_configs=True)
    x, y = torch.zeros(128, device="cuda"), torch.empty(128, device="cuda")
    tuned(64, 128, 32)[lambda meta: (triton.cdiv(128, meta["B"]),)](x, y, 128)
    assert [launch.details["constants"]["B"] for launch in session.launches] == [64, 128, 32, 64]


@pytest.mark.parametrize(
    ("options", "kept", "how"),
    [
        ({}, None, "all were run"),
        ({"skip": ("add",)}, None, "none of 3 were run: 3 were left out by the options of this run"),
        ({}, 2, "2 of 3 were run: 1 did not fit or were left out by the kernel's own rules"),
        ({}, 1, "1 of 3 were run: 2 did not fit or were left out by the kernel's own rules"),
    ],
)
def test_an_autotuner_counts_the_configurations_that_ran(emulated, tmp_path, options, kept, how):
    emulated(all_configs=True, folder=tmp_path / "records", **options)
    x, y = torch.zeros(128, device="cuda"), torch.empty(128, device="cuda")
    tuned(64, 128, 32, kept=kept)[lambda meta: (triton.cdiv(128, meta["B"]),)](x, y, 128)
    noted = [json.loads(line) for line in next((tmp_path / "records").iterdir()).read_text().splitlines()]
    assert [note["how"] for note in noted if note.get("event") == "autotune"] == [how]


def test_an_autotuner_chooses_anew_in_each_session(tmp_path, monkeypatch):
    if not hasattr(triton.runtime.autotuner.Autotuner, "check_disk_cache"):
        pytest.skip("this release keeps no times of autotuners")
    from kernbench import ptx

    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    for options, sizes in (({}, [64]), ({"all_configs": True}, [64, 128, 64])):
        with ptx.emulated("sm_90a", **options) as session:
            x, y = torch.zeros(128, device="cuda"), torch.empty(128, device="cuda")
            configs = [triton.Config({"B": size}, num_warps=1) for size in (64, 128)]
            kernel = triton.autotune(configs=configs, key=["n"], cache_results=True)(add)
            kernel[lambda meta: (triton.cdiv(128, meta["B"]),)](x, y, 128)
        assert [launch.details["constants"]["B"] for launch in session.launches] == sizes
    assert not list(tmp_path.rglob("*.autotune.json"))


def test_too_much_shared_memory_is_what_an_autotuner_understands(emulated):
    errors = pytest.importorskip("triton.runtime.errors")
    emulated("sm_86")
    a = torch.randn(128, 128, device="cuda", dtype=torch.float16)
    c = torch.empty(128, 128, device="cuda")
    with pytest.raises(errors.OutOfResources, match="shared memory"):
        product[(1, 1)](a, a, c, 128, 128, 128, BM=128, BN=128, BK=64, num_stages=5)


def test_benchmarks_run_once(session):
    x, y = torch.zeros(128, device="cuda"), torch.empty(128, device="cuda")
    assert triton.testing.do_bench(lambda: add[(1,)](x, y, 128, B=128), quantiles=[0.5, 0.2]) == [1.0, 1.0]
    assert len(session.launches) == 1


def test_benchmarks_give_predicted_times_where_launches_have_them(emulated):
    session = emulated(time=True)
    x, y = torch.zeros(128, device="cuda"), torch.empty(128, device="cuda")
    once = triton.testing.do_bench(lambda: add[(1,)](x, y, 128, B=128))
    (launch,) = session.launches
    assert once == pytest.approx(1e-9 * launch.predicted["time_ps"])
    twice = triton.testing.do_bench(lambda: [add[(1,)](x, y, 128, B=128) for _ in range(2)])
    assert once < twice < 2 * once
    # operators of torch run on this computer
    assert triton.testing.do_bench(lambda: x + y) == 1.0


def test_kernels_inside_autograd(session):
    class AddOne(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            y = torch.empty_like(x)
            add[(1,)](x, y, 128, B=128)
            return y

        @staticmethod
        def backward(ctx, gradient):
            result = torch.empty_like(gradient)
            add[(1,)](gradient.contiguous(), result, 128, B=128)
            return result

    x = torch.randn(128, device="cuda", requires_grad=True)
    AddOne.apply(x).sum().backward()
    assert set(x.grad.tolist()) == {2.0}
    session.assert_safe()


def test_two_architectures_one_after_the_other(emulated):
    for arch in ("sm_80", "sm_100a"):
        session = emulated(arch)
        x, y = torch.zeros(128, device="cuda"), torch.empty(128, device="cuda")
        add[(1,)](x, y, 128, B=128)
        assert session.launches[0].run.origin["arch"] == arch


def test_triton_is_left_as_it_was(emulated, tmp_path):
    from triton.backends import backends

    from kernbench import ptx

    before = triton.testing.do_bench, backends["nvidia"], triton.runtime.autotuner.Autotuner.run
    with ptx.emulated():
        x = torch.zeros(128, device="cuda")
        add[(1,)](x, x, 128, B=128)
        assert backends["nvidia"] is not before[1]
    assert (triton.testing.do_bench, backends["nvidia"], triton.runtime.autotuner.Autotuner.run) == before


GLUON = """
@gluon.jit
def gluon_add(x, y, n, B: gl.constexpr):
    layout: gl.constexpr = gl.BlockedLayout([1], [32], [4], [0])
    i = gl.program_id(0) * B + gl.arange(0, B, layout)
    gl.store(y + i, gl.load(x + i, mask=i < n) + 1, mask=i < n)
"""


def test_gluon(session, tmp_path, monkeypatch):
    pytest.importorskip("triton.experimental.gluon", reason="this Triton has no Gluon")
    head = "from triton.experimental import gluon\nfrom triton.experimental.gluon import language as gl\n"
    (tmp_path / "written_in_gluon.py").write_text(head + GLUON)
    monkeypatch.syspath_prepend(tmp_path)
    from importlib import import_module

    kernel = import_module("written_in_gluon").gluon_add
    x, y = torch.randn(200, device="cuda"), torch.empty(200, device="cuda")
    kernel[(2,)](x, y, 200, 128, num_warps=4)
    torch.testing.assert_close(y, x + 1)
    session.assert_safe()


def test_the_same_kernel_in_two_files_has_lines_in_both(session, tmp_path, monkeypatch):
    from importlib import import_module

    text = "import triton\nimport triton.language as tl\n\n\n" + inspect.getsource(unmasked.fn)
    monkeypatch.syspath_prepend(tmp_path)
    for name in ("first_copy", "second_copy"):
        (tmp_path / f"{name}.py").write_text(text)
        x = torch.zeros(100, device="cuda")
        import_module(name).unmasked[(1,)](x, torch.empty(100, device="cuda"), 100, B=128)
    assert [Path(finding.where.file).stem for finding in session.findings] == ["first_copy", "second_copy"]


@pytest.mark.programs
def test_a_program_that_compiled_a_kernel_says_nothing_of_leaks(tmp_path):
    file = tmp_path / "program.py"
    file.write_text("""
import torch, triton, triton.language as tl
@triton.jit
def one(x): tl.store(x, 1.)
x = torch.zeros(1, device="cuda")
one[(1,)](x)
""")
    given = {**os.environ, "TRITON_CACHE_DIR": str(tmp_path / "triton")}
    words = [sys.executable, "-m", "kernbench", "exec", "--", sys.executable, "-W", "ignore", str(file)]
    done = subprocess.run(words, capture_output=True, text=True, env=given, check=False)
    assert (done.returncode, "leaked" in done.stderr) == (0, False)
