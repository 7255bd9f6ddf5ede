"""Parts of Triton's language that reach the GPU by more than plain loads and stores: each runs, and is checked."""

from importlib import import_module

import pytest

from kernbench.ptx.doors.summary import read_session

triton = pytest.importorskip("triton", reason="Triton is not installed: make test-doors installs it")
torch = pytest.importorskip("torch", reason="torch is not installed: make test-doors installs it")
tl = pytest.importorskip("triton.language")
tuning = pytest.importorskip("kernbench.ptx.doors.triton_door.tuning")
pytestmark = pytest.mark.filterwarnings("ignore")

VERSION = tuple(int(part) for part in triton.__version__.split(".")[:2])
try:
    from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait
except ImportError:
    gdc_wait = gdc_launch_dependents = None


@triton.heuristics({"EVEN": lambda given: given["n"] % given["B"] == 0})
@triton.jit
def doubled(x, y, n, B: tl.constexpr, EVEN: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    if EVEN:
        tl.store(y + i, 2 * tl.load(x + i))
    else:
        tl.store(y + i, 2 * tl.load(x + i, mask=i < n), mask=i < n)


@triton.jit
def looped(x, y, n, B: tl.constexpr):
    first = tl.program_id(0) * n
    for start in range(0, n, B):
        i = first + start + tl.arange(0, B)
        tl.store(y + i, 2 * tl.load(x + i))


@triton.jit
def dependent(x, y, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    gdc_wait()
    value = tl.load(x + i)
    gdc_launch_dependents()
    tl.store(y + i, value + 1)


@triton.jit
def specialised(a, b, c, K, M: tl.constexpr, N: tl.constexpr, B: tl.constexpr):
    total = tl.zeros((M, N), tl.float32)
    for k in tl.range(0, K, B, warp_specialize=True):
        total = tl.dot(a.load([0, k]), b.load([0, k]).T, total)
    tl.store(c + tl.arange(0, M)[:, None] * N + tl.arange(0, N)[None, :], total)


@triton.jit
def summed(x, total, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    tl.atomic_add(total, tl.sum(tl.load(x + i, mask=i < n, other=0.0)))


@triton.jit
def added(pair, y, B: tl.constexpr):
    i = tl.arange(0, B)
    tl.store(y + i, tl.load(pair[0] + i) + tl.load(pair[1] + i))


@triton.jit
def turned(x, room, y, N: tl.constexpr, WAIT: tl.constexpr):
    i, j = tl.arange(0, N)[:, None], tl.arange(0, N)[None, :]
    tl.store(room + i * N + j, tl.load(x + i * N + j))
    if WAIT:
        tl.debug_barrier()
    tl.store(y + i * N + j, tl.load(room + (i + 1) % N * N + j))


@triton.jit
def multiplied(a, b, c, N: tl.constexpr):
    i, j = tl.arange(0, N)[:, None], tl.arange(0, N)[None, :]
    tl.store(c + i * N + j, tl.dot(tl.load(a + i * N + j), tl.load(b + i * N + j)))


def test_a_barrier_that_is_left_out_between_a_store_and_a_load_of_another_row(emulated):
    session = emulated()
    x = torch.randn(32, 32, device="cuda")
    room, y = torch.empty_like(x), torch.empty_like(x)
    turned[(1,)](x, room, y, N=32, WAIT=True)
    torch.testing.assert_close(y, x.roll(-1, 0))
    session.assert_safe()
    turned[(1,)](x, room, y, N=32, WAIT=False)
    (found,) = session.findings
    assert (found.kind, found.where.text) == ("race", "tl.store(y + i * N + j, tl.load(room + (i + 1) % N * N + j))")
    assert found.others[0].where.text == "tl.store(room + i * N + j, tl.load(x + i * N + j))"
    assert "tl.debug_barrier" in found.hint


def test_clusters_of_blocks(emulated):
    session = emulated()
    a, b = (torch.randn(64, 64, device="cuda", dtype=torch.float16) for _ in range(2))
    c = torch.empty(64, 64, device="cuda")
    multiplied[(1,)](a, b, c, N=64, num_ctas=2)
    torch.testing.assert_close(c, a.float() @ b.float(), atol=1e-2, rtol=1e-2)
    # one program is a cluster of two blocks
    assert session.launches[0].grid == (2, 1, 1)
    session.assert_safe()


def test_heuristics_choose_before_the_launch(emulated):
    session = emulated()
    for n in (256, 200):
        x, y = torch.randn(n, device="cuda"), torch.empty(n, device="cuda")
        doubled[(2,)](x, y, n, B=128)
        torch.testing.assert_close(y, 2 * x)
    assert [launch.details["constants"]["EVEN"] for launch in session.launches] == [True, False]
    session.assert_safe()


# 3.4 passes its own gdc_wait an argument that it does not take
@pytest.mark.skipif(
    gdc_wait is None or VERSION == (3, 4), reason="this Triton has no programmatic dependent launch that compiles"
)
def test_programmatic_dependent_launch(emulated):
    session = emulated()
    x = torch.randn(256, device="cuda")
    y, z = torch.empty_like(x), torch.empty_like(x)
    dependent[(2,)](x, y, B=128, launch_pdl=True)
    dependent[(2,)](y, z, B=128, launch_pdl=True)
    torch.testing.assert_close(z, x + 2)
    session.assert_safe()


@pytest.mark.skipif(VERSION < (3, 5), reason="this Triton specialises warps of Blackwell kernels in another way")
def test_warp_specialisation(emulated):
    descriptors = pytest.importorskip("triton.tools.tensor_descriptor", reason="this Triton has no host descriptors")
    session = emulated("sm_100a")
    a, b = (torch.randn(128, 128, device="cuda", dtype=torch.float16) for _ in range(2))
    c = torch.empty(128, 128, device="cuda")
    maps = [descriptors.TensorDescriptor.from_tensor(one, [128, 64]) for one in (a, b)]
    specialised[(1,)](*maps, c, 128, M=128, N=128, B=64, num_warps=4)
    torch.testing.assert_close(c, a.float() @ b.float().T, atol=2e-2, rtol=2e-2)
    (launch,) = session.launches
    # warps of their own for copies and products come on top of num_warps
    assert launch.block[0] > 128
    session.assert_safe()


def test_atomics_of_many_programs(emulated):
    session = emulated()
    x, total = torch.ones(1000, device="cuda"), torch.zeros(1, device="cuda")
    summed[(8,)](x, total, 1000, B=128)
    assert total.item() == 1000
    session.assert_safe()


@pytest.mark.skipif(VERSION < (3, 3), reason="this Triton passes no tuples")
def test_tuples_of_pointers(emulated):
    session = emulated()
    x, z = torch.randn(64, device="cuda"), torch.randn(64, device="cuda")
    y = torch.empty_like(x)
    added[(1,)]((x, z), y, B=64)
    torch.testing.assert_close(y, x + z)
    session.assert_safe()


def chosen(warps, sizes, **options):
    """An autotuner around heuristics, as libraries stack them: which fit is known before, EVEN after it chose."""
    configs = [triton.Config({"B": size}, num_warps=warps, num_stages=3) for size in sizes]
    kernel = triton.heuristics({"EVEN": lambda given: given["n"] % given["B"] == 0})(doubled.fn)
    return triton.autotune(configs=configs, key=["n"], **options)(kernel)


def test_an_autotuner_around_heuristics_says_what_it_chose(emulated, tmp_path):
    session = emulated(folder=tmp_path / "records")
    kernel = chosen(1, (64, 128, 32))
    for n in (256, 200):
        x, y = torch.randn(n, device="cuda"), torch.empty(n, device="cuda")
        kernel[lambda meta, n=n: (triton.cdiv(n, meta["B"]),)](x, y, n)
        torch.testing.assert_close(y, 2 * x)
    constants = [launch.details["constants"] for launch in session.launches]
    assert [(one["B"], one["EVEN"]) for one in constants] == [(64, True), (64, False)]
    assert (
        read_session(tmp_path / "records").kernels[0].tuned
        == ["B 64, num_warps 1, num_stages 3 of 3 configurations (the first that fits)"] * 2
    )


def test_the_configuration_with_the_shortest_predicted_time(emulated, tmp_path):
    """A block of one warp that copies 32 elements at a time takes far longer than many of 128."""
    session = emulated(folder=tmp_path / "records", best_config=True)
    n = 4096
    x, y = torch.randn(n, device="cuda"), torch.empty(n, device="cuda")
    kernel = triton.autotune(configs=[triton.Config({"B": 32}), triton.Config({"B": 1024})], key=["n"])(looped)
    for _ in range(2):
        kernel[(4,)](x, y, n // 4)
    torch.testing.assert_close(y, 2 * x)
    # each was timed once, without checks, and what was chosen is checked
    found = [(one.details["constants"]["B"], one.treatment) for one in session.launches]
    assert found == [(32, "unchecked"), (1024, "unchecked"), (1024, "checked"), (1024, "checked")]
    tuned = read_session(tmp_path / "records").kernels[0].tuned
    assert len(tuned) == 1
    assert "B 1024" in tuned[0]
    assert "the shortest predicted time" in tuned[0]
    assert "2 were timed" in tuned[0]


def test_where_no_gpu_is_known_the_first_that_fits_is_taken(emulated, tmp_path, monkeypatch):
    monkeypatch.setattr(tuning, "gpu_that_runs", lambda arch, name: None)
    session = emulated(folder=tmp_path / "records", best_config=True)
    x, y = torch.randn(256, device="cuda"), torch.empty(256, device="cuda")
    chosen(1, (64, 128))[lambda meta: (triton.cdiv(256, meta["B"]),)](x, y, 256)
    assert [launch.details["constants"]["B"] for launch in session.launches] == [64]
    assert read_session(tmp_path / "records").kernels[0].tuned[0].endswith("(the first that fits: none could be timed)")


GLUON = """
import torch
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.ampere import async_copy as cp


@gluon.jit
def through(x, y, WAIT: gl.constexpr, B: gl.constexpr):
    layout: gl.constexpr = gl.BlockedLayout([1], [32], [4], [0])
    wide: gl.constexpr = gl.BlockedLayout([4], [32], [4], [0])
    room = gl.allocate_shared_memory(gl.float32, [B], gl.SwizzledSharedLayout(1, 1, 1, [0]))
    cp.async_load(room, x + gl.arange(0, B, layout=layout))
    cp.commit_group()
    if WAIT:
        cp.wait_group(0)
    gl.store(y + gl.arange(0, B, layout=wide), room.load(wide) + 1)
"""


def test_a_wait_that_is_left_out_of_gluon_code(emulated, tmp_path, monkeypatch):
    ampere = pytest.importorskip("triton.experimental.gluon.language.nvidia.ampere", reason="this Triton has no Gluon")
    if not hasattr(ampere.async_copy, "async_load"):
        pytest.skip("Gluon's copies had another name in this Triton")
    (tmp_path / "by_copies.py").write_text(GLUON)
    monkeypatch.syspath_prepend(tmp_path)
    session = emulated()
    kernel = import_module("by_copies").through
    x, y = torch.randn(512, device="cuda"), torch.empty(512, device="cuda")
    kernel[(1,)](x, y, WAIT=True, B=512, num_warps=4)
    torch.testing.assert_close(y, x + 1)
    session.assert_safe()
    kernel[(1,)](x, y, WAIT=False, B=512, num_warps=4)
    lines = GLUON.splitlines()
    for found in session.findings:
        assert "room.load(wide)" in lines[found.where.line - 1]
        assert any("cp.async_load" in lines[other.where.line - 1] for other in found.others)
    assert [found.kind for found in session.findings] == ["in-flight"]


def test_tritons_own_sanitizer_has_memory_and_agrees(emulated, tmp_path, monkeypatch):
    """Kernels that Triton instruments need memory, which its driver gives by itself."""
    ampere = pytest.importorskip("triton.experimental.gluon.language.nvidia.ampere", reason="this Triton has no Gluon")
    drivers = import_module("triton.backends.driver")
    if not hasattr(drivers.GPUDriver, "allocate_default_profile_scratch") or not hasattr(
        ampere.async_copy, "async_load"
    ):
        pytest.skip("this Triton instruments nothing, or asks the program for memory")
    (tmp_path / "instrumented_copies.py").write_text(GLUON)
    monkeypatch.syspath_prepend(tmp_path)
    session = emulated()
    x, y = torch.randn(512, device="cuda"), torch.empty(512, device="cuda")
    with triton.knobs.compilation.scope():
        triton.knobs.compilation.instrumentation_mode = "consan"
        kernel = import_module("instrumented_copies").through
        kernel[(1,)](x, y, WAIT=True, B=512, num_warps=4)
        torch.testing.assert_close(y, x + 1)
        session.assert_safe()
        kernel[(1,)](x, y, WAIT=False, B=512, num_warps=4)
    told = {found.kind: found.message for found in session.findings}
    assert "in-flight" in told
    assert "Accessing buffer with pending access" in told["trap"]


def test_products_of_cublas_are_there_to_compare_with(emulated):
    session = emulated()
    cublas = getattr(getattr(import_module("triton._C.libtriton"), "nvidia", None), "cublas", None)
    if cublas is None:
        pytest.skip(f"Triton {triton.__version__} has no cuBLAS")
    blas = cublas.CublasLt(torch.empty(64, dtype=torch.uint8, device="cuda"))
    a, b = torch.randn(4, 6, device="cuda").half(), torch.randn(5, 6, device="cuda").half()
    c, d = torch.empty(4, 5, dtype=torch.float16, device="cuda"), torch.empty(4, 5, dtype=torch.float16, device="cuda")
    blas.matmul(a, b, c)
    torch.testing.assert_close(c, (a.float() @ b.float().T).half())
    blas.gemm(a, b, c, d, 2.0, 1.0)
    torch.testing.assert_close(d, 3 * c, atol=2e-2, rtol=2e-3)
    with pytest.raises(RuntimeError, match="compare with torch"):
        blas.block_scaled_matmul_mxfp8(a, b, c, a, b)
    with pytest.raises(RuntimeError, match="K dimensions must match"):
        blas.matmul(a, b[:, :2], c)
    assert session.findings == []


@triton.jit
def once(value):
    return value


@triton.jit
def twice(value):
    return 2 * value


def made_of(operation):
    """A kernel of the same name and line for each function."""

    @triton.jit
    def made(x, y, n, B: tl.constexpr):
        i = tl.program_id(0) * B + tl.arange(0, B)
        tl.store(y + i, operation(tl.load(x + i)), mask=i < n)

    return made


def test_a_kernel_is_its_function_with_what_it_calls_whatever_it_is_compiled_for(emulated, tmp_path):
    session = emulated(folder=tmp_path / "records", first=2)
    x, y = torch.randn(64, device="cuda"), torch.empty(64, device="cuda")
    for kernel in map(made_of, (once, twice)):
        for size in (32, 64):
            kernel[(1,)](x, y, size, B=size)
        kernel[(1,)](x.half(), y, 64, B=64)
    assert [launch.treatment for launch in session.launches] == ["checked", "checked", "unchecked"] * 2
    first, second = read_session(tmp_path / "records").kernels
    assert [len(one.launches) for one in (first, second)] == [3, 3]
    assert first.identity.source == second.identity.source
    assert (first.identity.file, first.identity.source.text) == (__file__, "def made(x, y, n, B: tl.constexpr):")
    assert first.title.startswith("made@test_triton_features.py:")
    assert first.title != second.title


def test_variants_of_a_kernel_have_times_of_their_own(emulated):
    emulated(time=True)
    x, y = torch.randn(4096, device="cuda"), torch.empty(4096, device="cuda")

    def milliseconds(n, size):
        return triton.testing.do_bench(lambda: looped[(1,)](x, y, n, B=size))

    assert milliseconds(4096, 128) > milliseconds(4096, 1024)
    assert milliseconds(4096, 128) > milliseconds(1024, 128)
