"""What a GPU and CUDA do beside running kernels: one device, pinned memory, memory that ends, and errors that stay."""

import threading

import pytest

from kernbench import ptx

triton = pytest.importorskip("triton", reason="Triton is not installed: make test-doors installs it")
torch = pytest.importorskip("torch", reason="torch is not installed: make test-doors installs it")
tl = pytest.importorskip("triton.language")
pytestmark = pytest.mark.filterwarnings("ignore")


@triton.jit
def add(x, y, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(y + i, tl.load(x + i, mask=i < n) + 1, mask=i < n)


@triton.jit
def asserting(x, B: tl.constexpr):
    tl.device_assert(tl.load(x + tl.arange(0, B)) < 3, "too big")


@pytest.fixture
def session(emulated):
    return emulated()


ELSEWHERE = [
    lambda: torch.zeros(3, device="cuda:7"),
    lambda: torch.zeros(3, device=torch.device("cuda", 1)),
    lambda: torch.zeros(3).cuda(3),
    lambda: torch.zeros(3).to("cuda:1"),
    lambda: torch.zeros(3).to(1),
    lambda: torch.zeros(3, device="cuda").new_zeros(3, device="cuda:1"),
    lambda: torch.cuda.set_device(3),
    lambda: torch.cuda.device(3).__enter__(),
    lambda: torch.cuda.synchronize(2),
    lambda: torch.cuda.current_stream(1),
    lambda: torch.cuda.Stream(device=1),
    lambda: torch.Generator("cuda:7"),
    lambda: torch.Generator(device=torch.device("cuda", 1)),
    lambda: torch.Generator(3),
    lambda: torch.cuda.get_rng_state(1),
    lambda: torch.cuda.memory_allocated(2),
    lambda: torch.cuda.mem_get_info(1),
]


@pytest.mark.parametrize("call", ELSEWHERE)
def test_a_second_gpu_is_refused_in_cudas_words(session, call):
    with pytest.raises(RuntimeError, match="invalid device ordinal"):
        call()


def test_the_first_gpu_has_many_names(session):
    for device in ("cuda", "cuda:0", 0, torch.device("cuda"), torch.device("cuda", 0)):
        assert torch.zeros(3, device=device).is_cuda
        assert torch.Generator(device).device.type == "cuda"
        torch.cuda.set_device(device)
    with torch.cuda.device(-1), torch.cuda.device_of(torch.zeros(3)):
        assert torch.cuda.current_device() == 0
    with pytest.raises(AssertionError, match="Invalid device id"):
        torch.cuda.get_device_properties(1)


@pytest.mark.parametrize("make", [lambda: torch.ones(128, pin_memory=True), lambda: torch.ones(128).pin_memory()])
def test_kernels_reach_pinned_memory_of_the_host(session, make):
    x = make()
    assert (x.is_pinned(), x.is_cuda, x.device.type) == (True, False, "cpu")
    y = torch.empty(128, pin_memory=True)
    add[(1,)](x, y, 128, B=128)
    assert y.tolist() == [2.0] * 128
    # what the host writes later is seen, also through a view
    x += 1
    add[(1,)](x[64:], y, 64, B=64)
    assert y.tolist() == [3.0] * 64 + [2.0] * 64
    assert not session.findings
    # its end is an end
    add[(1,)](x, torch.empty(256, device="cuda"), 129, B=256)
    assert {finding.kind for finding in session.findings} == {"out-of-bounds"}


def test_what_was_copied_is_as_it_was(session):
    x = torch.arange(12.0).reshape(3, 4).t()
    pinned = x.pin_memory()
    assert pinned.is_pinned()
    assert not x.is_pinned()
    assert pinned.pin_memory() is pinned
    torch.testing.assert_close(pinned, x)
    torch.testing.assert_close(pinned.cuda(non_blocking=True).cpu(), x)
    with pytest.raises(RuntimeError, match="only dense CPU tensors can be pinned"):
        x.cuda().pin_memory()
    address = pinned.data_ptr()
    del pinned
    assert not session.memory.reaches(address)


def test_other_memory_of_the_host_stays_refused(session):
    with pytest.raises(ValueError, match="cannot be accessed from Triton"):
        add[(1,)](torch.ones(128), torch.ones(128, pin_memory=True), 128, B=128)


@pytest.mark.parametrize("count", [1 << 50, 40 << 30])
def test_memory_that_a_gpu_does_not_have(session, count):
    with pytest.raises(torch.OutOfMemoryError, match=r"CUDA out of memory. Tried to allocate .*smaller problem"):
        torch.empty(count, device="cuda")


def test_after_a_failed_assertion_every_later_call_fails(session):
    x, y = torch.arange(4, device="cuda"), torch.ones(128, device="cuda")
    asserting[(1,)](x, B=4, debug=True)
    for call in (
        torch.cuda.synchronize,
        lambda: y + 1,
        lambda: y.cpu(),
        lambda: y.sum().item(),
        lambda: y.tolist(),
        lambda: str(y),
        lambda: f"{y[0]}",
        lambda: torch.zeros(3, device="cuda"),
        lambda: torch.zeros(3).cuda(),
        lambda: add[(1,)](y, y, 128, B=128),
        torch.cuda.Event().synchronize,
    ):
        with pytest.raises(RuntimeError, match="CUDA error: device-side assert triggered"):
            call()
    # the host goes on, and what was found stays
    assert (torch.ones(3) + 1).tolist() == [2, 2, 2]
    assert str(torch.ones(1)) == "tensor([1.])"
    assert [finding.kind for finding in session.findings] == ["trap"]


def test_a_program_that_is_to_keep_going_does(emulated):
    session = emulated(keep_going=True)
    asserting[(1,)](torch.arange(4, device="cuda"), B=4, debug=True)
    torch.cuda.synchronize()
    y = torch.ones(128, device="cuda")
    add[(1,)](y, y, 128, B=128)
    assert y.tolist() == [2.0] * 128
    assert len(session.launches) == 2


def test_a_new_session_has_a_gpu_again(emulated):
    emulated()
    asserting[(1,)](torch.arange(4, device="cuda"), B=4, debug=True)
    with pytest.raises(RuntimeError, match="device-side assert"):
        torch.cuda.synchronize()
    emulated()
    torch.cuda.synchronize()


def test_a_grid_that_no_gpu_takes_is_in_the_verdict(session):
    y = torch.ones(128, device="cuda")
    wrong = r"CUDA error: invalid configuration argument: grid \(1, 70000, 1\): y is 70000, allowed are 1 to 65535"
    with pytest.raises(RuntimeError, match=wrong):
        add[(1, 70000)](y, y, 128, B=128)
    assert [(launch.title, launch.status) for launch in session.launches] == [("add", "refused")]


@triton.jit
def gathering(x, index, y, B: tl.constexpr):
    i = tl.arange(0, B)
    tl.store(y + i, tl.load(x + 64 * tl.load(index + i)))


def test_a_row_that_leads_into_another_tensor_is_out_of_bounds(session):
    x, others = torch.randn(64, device="cuda"), torch.randn(1 << 18, device="cuda")
    y = torch.empty(64, device="cuda")
    row = (others.data_ptr() - x.data_ptr()) // 256 + 1
    index = torch.full((64,), row, device="cuda", dtype=torch.int32)
    gathering[(1,)](x, index, y, B=64)
    (finding,) = session.findings
    assert finding.kind == "out-of-bounds"
    assert f"offset {256 * row} of 'x', which has 256 bytes" in finding.message
    assert "in 'float32[262144]'" in finding.message


def test_an_empty_tensor_is_named(session):
    add[(1,)](torch.empty(0, device="cuda"), torch.empty(128, device="cuda"), 128, B=128)
    (finding,) = session.findings
    assert "from the null pointer that 'x' is: an empty array has no address" in finding.message


def test_advice_on_memory_that_nobody_wrote_is_in_the_front_ends_words(session):
    add[(1,)](torch.empty(128, device="cuda"), torch.empty(128, device="cuda"), 128, B=128)
    (finding,) = session.findings
    assert "torch.zeros" in finding.hint
    assert "barrier" not in finding.hint


def test_a_session_inside_another_knows_what_nobody_wrote(session):
    def launch():
        add[(1,)](torch.empty(128, device="cuda"), torch.zeros(128).cuda(), 128, B=128)

    with ptx.emulated("sm_80") as inner:
        launch()
        on_a_thread = threading.Thread(target=launch)
        on_a_thread.start()
        on_a_thread.join()
    assert [finding.kind for finding in inner.findings] == ["uninitialised-read"] * 2
    assert not session.launches
    launch()
    assert [finding.kind for finding in session.findings] == ["uninitialised-read"]


def test_an_assertion_of_triton_has_no_function(session):
    asserting[(1,)](torch.arange(4, device="cuda"), B=4, debug=True)
    assert "assertion 'too big' failed at" in session.findings[0].message


@triton.jit
def shifting(x, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(x + i, tl.load(x + i + 1, mask=i < n), mask=i < n)


def test_a_race_within_blocks_and_between_them_is_not_mended_by_a_barrier(session):
    shifting[(4,)](torch.ones(513, device="cuda"), 512, B=128)
    (finding,) = session.findings
    assert finding.kind == "race"
    assert finding.hint.startswith("let one block own each element")


def test_a_tensor_is_resized(session):
    x = torch.arange(4.0, device="cuda")
    assert x.resize_(200).is_cuda
    assert x[:4].tolist() == [0, 1, 2, 3]
    y = torch.empty(200, device="cuda")
    add[(1,)](x, y, 4, B=16)
    assert not session.findings
    add[(1,)](x, y, 200, B=256)
    assert {finding.kind for finding in session.findings} == {"uninitialised-read"}
    out = torch.empty(0, device="cuda")
    torch.add(y[:4], 1, out=out)
    assert out.tolist() == [2, 3, 4, 5]


@pytest.mark.parametrize("names", [["CUDA"], ["CPU", "CUDA"]])
def test_torchs_profiler_of_a_gpu_runs_and_has_no_times_of_one(session, names):
    from torch.profiler import ProfilerActivity, profile

    x = torch.ones(8, device="cuda")
    with profile(activities=[getattr(ProfilerActivity, name) for name in names], record_shapes=True) as profiled:
        y = x + x
    averages = profiled.key_averages()
    assert y.tolist() == [2.0] * 8
    assert "aten::add" in averages.table(sort_by="cuda_time_total", row_limit=20)
    assert sum(event.self_device_time_total for event in averages) == 0
