"""torch on a CPU build, with tensors that pass for CUDA ones: where they lie, what they say, and nothing afterwards."""

import copy
import gc
import pickle
import threading

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed: make test-doors installs it")
pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture
def session(emulated):
    return emulated()


def on(tensor):
    """Where a tensor says it is, by all its ways to say it."""
    said = {tensor.is_cuda, not tensor.is_cpu, tensor.device.type == "cuda", tensor.get_device() == 0}
    assert len(said) == 1
    return "device" if said == {True} else "host"


FACTORIES = {
    "empty": lambda **k: torch.empty(4, **k),
    "zeros": lambda **k: torch.zeros(4, **k),
    "tensor": lambda **k: torch.tensor([1, 2], **k),
    "as_tensor": lambda **k: torch.as_tensor(np.ones(4), **k),
    "as_tensor of a tensor": lambda **k: torch.as_tensor(torch.ones(4), **k),
    "randn": lambda **k: torch.randn(4, **k),
    "arange": lambda **k: torch.arange(4, **k),
    "full": lambda **k: torch.full((4,), 1.0, **k),
    "eye": lambda **k: torch.eye(4, **k),
    "linspace": lambda **k: torch.linspace(0, 1, 4, **k),
    "randint": lambda **k: torch.randint(0, 4, (4,), **k),
    "empty_strided": lambda **k: torch.empty_strided((4,), (1,), **k),
    "ones_like": lambda **k: torch.ones_like(torch.zeros(4), **k),
    "nothing": lambda **k: torch.zeros(0, **k),
}


@pytest.mark.parametrize("make", FACTORIES.values(), ids=FACTORIES)
def test_factories_make_tensors_where_they_are_told(session, make):
    for device in ("cuda", "cuda:0", 0, torch.device("cuda"), torch.device("cuda", 0)):
        assert on(make(device=device)) == "device"
    assert on(make()) == "host"
    assert on(make(device="cpu")) == "host"


MOVES = {
    "cuda()": lambda x: x.cuda(),
    "to(name)": lambda x: x.to("cuda"),
    "to(device=)": lambda x: x.to(device="cuda:0", non_blocking=True),
    "to(device, dtype)": lambda x: x.to("cuda", torch.float16),
    "to(other)": lambda x: x.to(torch.ones(2, device="cuda")),
    "to(number)": lambda x: x.to(0),
    "module": lambda x: torch.nn.Parameter(x).data.cuda(),
}


@pytest.mark.parametrize("move", MOVES.values(), ids=MOVES)
def test_moves_to_the_device_copy(session, move):
    host = torch.arange(4, dtype=torch.float32)
    moved = move(host)
    assert on(moved) == "device"
    assert moved.cpu().float().tolist() == [0, 1, 2, 3]
    moved.zero_()
    assert host.tolist() == [0, 1, 2, 3]


def test_moves_to_the_host_copy(session):
    x = torch.arange(4, device="cuda")
    for back in (x.cpu(), x.to("cpu"), x.to(device=torch.device("cpu"))):
        assert on(back) == "host"
    x.zero_()
    assert back.tolist() == [0, 1, 2, 3]
    assert x.cuda() is x


def test_results_lie_where_their_inputs_do(session):
    x = torch.randn(4, 6, device="cuda")
    results = [x + 1, x @ x.T, x[1:, ::2], x.sum(), x.half(), torch.cat([x, x]), x.new_empty(3), torch.empty_like(x)]
    results += [*x.chunk(2), *torch.sort(x), torch.nn.functional.softmax(x, -1), x.clone(), x.detach()]
    assert {on(result) for result in results} == {"device"}
    assert on(torch.randn(3) * 2) == "host"


def test_views_share_memory(session):
    x = torch.zeros(8, device="cuda")
    x[2:4] += 1
    assert x[2:].data_ptr() == x.data_ptr() + 8
    assert x.tolist() == [0, 0, 1, 1, 0, 0, 0, 0]


def test_gradients_come_where_their_tensors_are(session):
    x = torch.randn(4, 3, device="cuda", requires_grad=True)
    layer = torch.nn.Linear(3, 2).cuda()
    layer(x).square().sum().backward()
    assert on(x.grad) == on(layer.weight.grad) == "device"
    y = torch.randn(3, requires_grad=True)
    (y.cuda() * 2).sum().backward()
    assert on(y.grad) == "host"
    z = torch.randn(3, device="cuda", requires_grad=True)
    (z.cpu() * 2).sum().backward()
    assert on(z.grad) == "device"
    assert z.grad.tolist() == [2, 2, 2]


def test_calls_inside_a_backward_pass_are_read_too(session):
    found = []

    class Double(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, gradient):
            made = torch.empty(4, dtype=torch.float32, device=gradient.device)
            given = torch.tensor(1.0, device=gradient.device)
            others = (given, torch.ones(2).to("cuda"), torch.zeros(2, device="cuda"))
            found.extend(on(one) for one in (gradient, made, *others))
            return gradient * 2

    x = torch.randn(4, device="cuda", requires_grad=True)
    Double.apply(x).sum().backward()
    Double.apply(x).backward(torch.ones_like(x))
    torch.autograd.grad(Double.apply(x).sum(), x)
    torch.autograd.backward(Double.apply(x).sum())
    assert found == ["device"] * 20


def test_what_empty_gives_is_unwritten_until_somebody_writes(session):
    x = torch.empty(64, device="cuda", dtype=torch.float16)
    x[:10] = 1
    session.memory.settle()
    assert session.memory.undefined(x.data_ptr(), 128).tolist() == [False] * 20 + [True] * 108
    # copies carry it along, results of it do not pretend
    y = x.clone()
    session.memory.settle()
    assert session.memory.undefined(y.data_ptr(), 128).tolist() == [False] * 20 + [True] * 108
    x.zero_()
    session.memory.settle()
    assert not session.memory.undefined(x.data_ptr(), 128).any()


MADE = ("zeros", "tensor", "as_tensor", "randn", "arange")


@pytest.mark.parametrize("device", ["cuda", "cuda:0", torch.device("cuda")])
def test_a_default_device(session, device):
    with torch.device(device):
        assert {on(FACTORIES[name]()) for name in MADE} == {"device"}
        assert {on(FACTORIES[name](device="cpu")) for name in MADE} == {"host"}
        with torch.device("cpu"):
            assert {on(FACTORIES[name]()) for name in MADE} == {"host"}
    torch.set_default_device(device)
    try:
        assert {on(FACTORIES[name]()) for name in MADE} == {"device"}
        assert torch.get_default_device() == torch.device("cuda", 0)
        assert on(torch.from_numpy(np.ones(3))) == "host"
    finally:
        torch.set_default_device(None)
    assert {on(FACTORIES[name]()) for name in MADE} == {"host"}


def test_generators_and_threads(session):
    generator = torch.Generator(device="cuda").manual_seed(3)
    assert isinstance(generator, torch.Generator)
    assert on(torch.rand(3, device="cuda", generator=generator)) == "device"
    found = []
    thread = threading.Thread(target=lambda: found.append(on(torch.zeros(3, device="cuda"))))
    thread.start()
    thread.join()
    assert found == ["device"]


class _Reader(threading.Thread):
    """A thread with a `run` of its own, as that which reads what the processes of an executor give back."""

    found = ""

    def run(self):
        self.found = on(pickle.loads(pickle.dumps(torch.zeros(3, device="cuda")))) + on(torch.zeros(3, device="cuda"))


def test_threads_with_a_run_of_their_own(session):
    reader = _Reader()
    reader.start()
    reader.join()
    assert reader.found == "devicedevice"
    assert "run" not in vars(reader)
    with pytest.raises(RuntimeError, match="threads can only be started once"):
        reader.start()
    assert "run" not in vars(reader)


# an operator on integers and its results for 7 and -7 divided by 0 and 2
DIVISIONS = {
    "//": (lambda n, d: n // d, [-1, -2, 3, -4]),
    "%": (lambda n, d: n % d, [-1, -1, 1, 1]),
    "fmod": (lambda n, d: torch.fmod(n, d), [-1, -1, 1, -1]),
    "trunc": (lambda n, d: torch.div(n, d, rounding_mode="trunc"), [-1, -1, 3, -3]),
    "floor": (lambda n, d: torch.div(n, d, rounding_mode="floor"), [-1, -2, 3, -4]),
    "//=": (lambda n, d: n.clone().floor_divide_(d), [-1, -2, 3, -4]),
    "%=": (lambda n, d: n.clone().remainder_(d), [-1, -1, 1, 1]),
    "out=": (lambda n, d: torch.remainder(n, d, out=torch.empty_like(n)), [-1, -1, 1, 1]),
}


@pytest.mark.parametrize("dtype", [torch.int8, torch.int16, torch.int32, torch.int64])
@pytest.mark.parametrize("name", DIVISIONS)
def test_a_gpu_divides_integers_by_zero(session, name, dtype):
    divide, expected = DIVISIONS[name]
    numbers, divisors = torch.tensor([7, -7, 7, -7], dtype=dtype), torch.tensor([0, 0, 2, 2], dtype=dtype)
    result = divide(numbers.cuda(), divisors.cuda())
    assert (result.tolist(), result.dtype, on(result)) == (expected, dtype, "device")
    with pytest.raises(RuntimeError, match="ZeroDivisionError"):
        divide(numbers, divisors)


def test_a_gpu_divides_numbers_by_zero(session):
    x = torch.tensor([7, -7], dtype=torch.int32, device="cuda")
    assert (x // 0).tolist() == [-1, -2]
    assert (x // 0).dtype == torch.int32
    assert (5 % (x + 7)).tolist() == [5, -1]
    assert (torch.tensor([7], dtype=torch.uint8, device="cuda") // 0).tolist() == [255]
    assert (x / 0).tolist() == [float("inf"), float("-inf")]
    assert (x.float() // 0).tolist() == [float("inf"), float("-inf")]
    assert (x.view(2, 1) // torch.tensor([0, 2], device="cuda")).tolist() == [[-1, 3], [-2, -4]]


def test_the_accelerator_is_the_gpu(session):
    x = torch.zeros(1000, device="cuda")
    assert torch.get_device_module() is torch.get_device_module("cuda") is torch.cuda
    assert torch.get_device_module(x.device) is torch.cuda
    assert torch.get_device_module("cpu") is torch.cpu
    with torch.get_device_module().device(x.device):
        assert on(torch.zeros(3, device=torch.accelerator.current_accelerator())) == "device"
    if hasattr(torch.accelerator, "get_memory_info"):
        assert torch.accelerator.memory_allocated() == torch.cuda.memory_allocated() >= x.nbytes
        assert torch.accelerator.get_memory_info() == torch.cuda.mem_get_info()
        torch.accelerator.reset_peak_memory_stats()
        assert torch.accelerator.max_memory_allocated(x.device) > 0


def test_autocast(session):
    x, w = torch.randn(4, 8, device="cuda"), torch.randn(8, 2, device="cuda")
    with torch.autocast("cuda", dtype=torch.bfloat16):
        assert (x @ w).dtype == torch.get_autocast_dtype("cuda") == torch.bfloat16
        with torch.autocast("cuda", enabled=False):
            assert (x @ w).dtype == torch.float32
    with torch.autocast("cpu"):
        with torch.autocast("cuda"):
            assert (x @ w).dtype == torch.float16
        assert (x @ w).dtype == torch.bfloat16
    assert (x @ w).dtype == torch.float32
    assert not torch.is_autocast_enabled("cuda")


def test_sums_of_short_numbers_are_as_exact_as_on_a_gpu(session):
    torch.manual_seed(0)
    x = torch.randn(64, 256, device="cuda", dtype=torch.bfloat16, requires_grad=True)
    norm = torch.nn.LayerNorm(256).cuda().bfloat16()
    gradient = torch.randn(64, 256, device="cuda", dtype=torch.bfloat16)
    y = norm(x)
    y.backward(gradient)
    assert {one.dtype for one in (y, x.grad, norm.weight.grad, norm.bias.grad)} == {torch.bfloat16}
    assert {on(one) for one in (y, x.grad, norm.bias.grad)} == {"device"}
    assert torch.equal(norm.bias.grad, gradient.float().sum(0).bfloat16())
    weight = torch.ones(4, 3, device="cuda", dtype=torch.float16, requires_grad=True)
    picked = torch.nn.functional.embedding(torch.zeros(4096, dtype=torch.long, device="cuda"), weight)
    picked.backward(torch.ones_like(picked))
    # one by one in float16 it would end at 2048
    assert weight.grad[0].tolist() == [4096.0] * 3
    product = torch.nn.functional.linear(x.detach(), norm.weight.detach()[None].expand(3, 256), None)
    assert (product.dtype, on(product)) == (torch.bfloat16, "device")


def test_copies_of_modules_and_tensors(session):
    layer = torch.nn.Linear(3, 2).cuda()
    copied = copy.deepcopy(layer)
    assert on(copied.weight) == "device"
    assert isinstance(copied.weight, torch.nn.Parameter)
    assert copied.weight.data_ptr() != layer.weight.data_ptr()
    assert torch.equal(copied.weight, layer.weight)
    x = torch.arange(8, device="cuda")
    first, second = copy.deepcopy([x[2:], x[4:]])
    second[0] = 9
    assert (first[2].item(), x[4].item()) == (9, 4)
    assert on(copy.deepcopy(torch.ones(2))) == "host"


def test_numpy_takes_no_tensor_of_the_device(session):
    x = torch.ones(3, device="cuda")
    for take in (x.numpy, lambda: np.asarray(x)):
        with pytest.raises(TypeError, match=r"can't convert cuda:0 device type tensor to numpy. Use Tensor.cpu\(\)"):
            take()
    assert np.asarray(x.cpu()).tolist() == [1, 1, 1]


def test_what_a_profiler_or_a_seed_would_be(session):
    torch.cuda.nvtx.range_push("step")
    torch.cuda.nvtx.range_pop()
    kept = torch.zeros(100, device="cuda")
    assert torch.cuda.memory_stats()["allocated_bytes.all.current"] >= 4 * len(kept)
    torch.cuda.manual_seed(3)
    first = torch.randn(2, device="cuda")
    torch.cuda.manual_seed_all(3)
    assert torch.equal(torch.randn(2, device="cuda"), first)
    assert isinstance(torch.Stream(device="cuda"), torch.Stream)
    torch.Event(device="cuda").record(torch.cuda.current_stream())


def test_names_that_programs_ask_for(session):
    cuda = torch.cuda
    assert cuda.is_available()
    assert cuda.device_count() == 1
    assert cuda.get_device_capability() == (9, 0)
    assert "H100" in cuda.get_device_name(0)
    assert cuda.get_device_properties("cuda").multi_processor_count == 132
    with cuda.device(0), cuda.stream(cuda.Stream()):
        begin, end = cuda.Event(enable_timing=True), cuda.Event(enable_timing=True)
        begin.record()
        end.record()
        cuda.synchronize()
        assert begin.elapsed_time(end) > 0
    assert cuda.current_stream().cuda_stream == 0
    assert cuda.memory_allocated() > 0
    assert str(torch.zeros(1, device="cuda")) == "tensor([0.], device='cuda:0')"
    torch.testing.assert_close(torch.ones(3, device="cuda"), torch.ones(3).cuda())
    with pytest.raises(AssertionError, match="device"):
        torch.testing.assert_close(torch.ones(3, device="cuda"), torch.ones(3))


def test_memory_is_given_back(session):
    gc.collect()
    session.memory.collect()
    before = session.memory.arena.live_bytes
    for _ in range(20):
        torch.zeros(1 << 16, device="cuda")
    session.memory.collect()
    assert session.memory.arena.live_bytes == before


def test_sessions_nest(emulated):
    emulated()
    emulated("sm_80")
    assert torch.cuda.get_device_capability() == (8, 0)
    assert on(torch.zeros(3, device="cuda")) == "device"


def test_nothing_is_left_behind():
    from kernbench import ptx

    names = {name: getattr(torch.cuda, name) for name in ("is_available", "Stream", "current_device", "device")}
    attributes = {name: torch.Tensor.__dict__.get(name) for name in ("device", "is_cuda", "cuda", "get_device")}
    with ptx.emulated():
        kept = torch.ones(3, device="cuda")
    assert {name: getattr(torch.cuda, name) for name in names} == names
    assert {name: torch.Tensor.__dict__.get(name) for name in attributes} == attributes
    # tensors of the session are ordinary ones now
    assert (kept + 1).tolist() == [2, 2, 2]
    assert kept.device.type == "cpu"
    assert not torch.cuda.is_available() or torch.version.cuda


@pytest.mark.parametrize("side", ["device", "host"])
def test_tensors_made_beside_another_lie_where_it_does(session, side):
    x = torch.ones(3, device="cuda" if side == "device" else "cpu")
    made = {
        "new_tensor": x.new_tensor([1.0, 2.0]),
        "new_tensor of numbers": x.new_tensor(range(3), dtype=torch.int64),
        "new": x.new(2, 3),
        "new_zeros": x.new_zeros(2),
        "new_full": x.new_full((2,), 1.0),
        "tensor": torch.tensor(x),
        "as_tensor": torch.as_tensor(x),
        "asarray": torch.asarray(x),
        "type": x.type(torch.float16),
        "scalar": torch.scalar_tensor(1.0, device=x.device),
        "complex": torch.complex(x, x),
    }
    assert {name: on(one) for name, one in made.items()} == dict.fromkeys(made, side)
    assert on(x.new_tensor([1.0], device="cpu")) == "host"
    assert on(x.new_tensor([1.0], device="cuda")) == "device"
    assert x.new_tensor([1.0], requires_grad=True).is_leaf


def test_flex_attention(session):
    flex = pytest.importorskip("torch.nn.attention.flex_attention", reason="this torch has no flex_attention")
    q, k, v = (torch.randn(1, 1, 16, 8, device="cuda", requires_grad=True) for _ in range(3))
    got = flex.flex_attention(q, k, v, score_mod=lambda score, b, h, m, n: torch.where(m >= n, score, -float("inf")))
    wanted = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
    torch.testing.assert_close(got, wanted)
    assert on(got) == "device"
    got.sum().backward()
    assert on(q.grad) == "device"


def test_a_tensor_made_with_gradients_is_a_leaf(session):
    for make in (lambda **k: torch.tensor([1.0, 2.0], **k), lambda **k: torch.zeros(2, **k)):
        x = make(device="cuda", requires_grad=True)
        assert (on(x), x.is_leaf) == ("device", True)
        (2 * x).sum().backward()
        assert (x.grad.tolist(), on(x.grad)) == ([2.0, 2.0], "device")


def test_gradients_of_outputs_that_nobody_used_lie_where_the_outputs_did(session):
    seen = []

    class Two(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x + 1, x + 2, (x + 3).cpu()

        @staticmethod
        def backward(ctx, *gradients):
            seen.extend(map(on, gradients))
            return gradients[0] + gradients[1]

    x = torch.ones(4, device="cuda", requires_grad=True)
    Two.apply(x)[0].sum().backward()
    assert seen == ["device", "device", "host"]
    # the loss on the host, as a test that compares there has it
    Two.apply(x)[1].cpu().sum().backward()
    assert seen[3:] == ["device", "device", "host"]
    assert x.grad.tolist() == [2.0] * 4


def test_operators_that_a_program_implements_for_cuda(session):
    """A library's own operator, one of torch's, one that torch takes apart, and one that makes a tensor."""
    called = []

    def noted(name, function):
        def run(*args, **kwargs):
            called.append(name)
            return function(*args, **kwargs)

        return run

    library = torch.library.Library("kernbench_test", "DEF")
    library.define("twice(Tensor x) -> Tensor")
    library.impl("twice", noted("twice", lambda x: torch.add(x, x)), "CUDA")
    aten = torch.library.Library("aten", "IMPL")
    aten.impl("relu", noted("relu", lambda x: x.clone().clamp_(min=0)), "CUDA")
    aten.impl("outer", noted("outer", lambda x, y: x[:, None] * y), "CUDA")
    aten.impl("zeros", noted("zeros", lambda size, *, device=None, **k: torch.full(size, 0.0, device=device)), "CUDA")
    x = torch.tensor([-1.0, 2.0], device="cuda", requires_grad=True)
    results = [
        torch.ops.kernbench_test.twice(x.detach()),
        torch.relu(x),
        torch.outer(x, x),
        torch.zeros(2, device="cuda"),
    ]
    assert [one.tolist() for one in results] == [[-2.0, 4.0], [0.0, 2.0], [[1.0, -2.0], [-2.0, 4.0]], [0.0, 0.0]]
    assert set(map(on, results)) == {"device"}
    assert called == ["twice", "relu", "outer", "zeros"]
    results[1].sum().backward()
    assert x.grad.tolist() == [0.0, 1.0]
    # tensors of the host are torch's own
    host = torch.tensor([-1.0, 2.0], requires_grad=True)
    (torch.relu(host) + torch.outer(host, host)[0] + torch.zeros(2)).sum().backward()
    assert on(host.grad) == "host"
    assert len(called) == 4
    aten._destroy()
    assert torch.relu(x).tolist() == [0.0, 2.0]
    assert len(called) == 4
    library._destroy()


@pytest.mark.parametrize("built", [None, "13.0"])
def test_a_build_with_cuda_keeps_its_version(emulated, monkeypatch, built):
    """Packages built for the same CUDA compare theirs with it; a CPU build has none."""
    monkeypatch.setattr(torch.version, "cuda", built)
    emulated()
    assert torch.version.cuda == (built or "12.8")


def test_generators_of_the_device_have_a_seed_and_an_offset(session):
    """As kernels that draw their own numbers use them, and as checkpoints do: the same numbers after a state is set."""
    default = torch.cuda.default_generators[0]
    for generator in (default, torch.Generator(device="cuda")):
        generator.manual_seed(7)
        assert generator.device.type == "cuda"
        assert generator.get_state().view(torch.int64).tolist() == [7, 0]
        state = generator.get_state()
        first = torch.rand(3, device="cuda", generator=generator)
        assert generator.get_offset() > 0
        generator.set_state(state)
        assert torch.equal(torch.rand(3, device="cuda", generator=generator), first)
        # an offset that a program adds to
        seed, offset = generator.get_state().view(torch.int64)
        generator.set_state(torch.stack([seed, offset + 100]).view(torch.uint8))
        assert generator.get_state().view(torch.int64).tolist() == [7, offset + 100]
        assert not torch.equal(torch.rand(3, device="cuda", generator=generator), first)
        with pytest.raises(RuntimeError, match="16"):
            generator.set_state(torch.get_rng_state())
    torch.manual_seed(7)
    state = torch.cuda.get_rng_state()
    assert (len(state), torch.cuda.initial_seed()) == (16, 7)
    drawn = torch.randn(4, device="cuda")
    torch.cuda.set_rng_state(state)
    assert torch.equal(torch.randn(4, device="cuda"), drawn)
    twin = default.clone_state()
    assert torch.equal(torch.rand(3, generator=twin), torch.rand(3, generator=default))


def test_tensors_come_back_from_files_to_where_they_were(session, tmp_path):
    x, host = torch.arange(6.0, device="cuda").reshape(2, 3), torch.ones(3)
    torch.save({"x": x, "row": x[1], "host": host}, tmp_path / "saved.pt")
    back = torch.load(tmp_path / "saved.pt")
    assert [on(back[name]) for name in ("x", "row", "host")] == ["device", "device", "host"]
    assert back["row"].tolist() == [3.0, 4.0, 5.0]
    # views of one storage still share it
    back["x"][1, 0] = 9
    assert back["row"][0].item() == 9
    assert on(torch.load(tmp_path / "saved.pt", map_location="cpu")["x"]) == "host"
    assert on(torch.load(tmp_path / "saved.pt", map_location="cuda")["host"]) == "device"


def test_other_processes_get_copies_on_their_devices(session):
    from multiprocessing.reduction import ForkingPickler

    x = torch.nn.Parameter(torch.arange(3.0, device="cuda"))
    for tensor in (x, x.detach()):
        back = pickle.loads(bytes(ForkingPickler.dumps(tensor)))
        assert (on(back), back.tolist(), back.requires_grad) == ("device", [0.0, 1.0, 2.0], tensor.requires_grad)
        assert type(back) is type(tensor)
        assert back.data_ptr() != tensor.data_ptr()
    assert on(pickle.loads(bytes(ForkingPickler.dumps(torch.ones(2))))) == "host"


def blocked(scales):
    """Scales in the order that tensor cores want, from [rows, columns] of whole tiles of 128 x 4."""
    rows, columns = scales.shape
    tiles = scales.view(rows // 128, 4, 32, columns // 4, 4).permute(0, 3, 2, 1, 4)
    return tiles.contiguous().flatten()


@pytest.mark.parametrize("kind", ["nvfp4", "mxfp8"])
def test_products_of_blocks_with_scales(session, kind):
    """Only GPUs have them; the device stands for one."""
    if not hasattr(torch, "float4_e2m1fn_x2") or not hasattr(torch, "float8_e8m0fnu"):
        pytest.skip("this torch has no 4-bit floats")
    m, n, k = 128, 256, 128
    table = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6, 0, -0.5, -1, -1.5, -2, -3, -4, -6])
    generator = torch.Generator("cpu").manual_seed(3)
    if kind == "nvfp4":
        block, codes = 16, [torch.randint(0, 16, (rows, k), generator=generator) for rows in (m, n)]
        values = [table[one] for one in codes]
        given = [(one[:, ::2] | one[:, 1::2] << 4).to(torch.uint8).view(torch.float4_e2m1fn_x2) for one in codes]
        scales = [torch.rand((rows, k // block), generator=generator).to(torch.float8_e4m3fn) for rows in (m, n)]
    else:
        block = 32
        given = [torch.randn((rows, k), generator=generator).to(torch.float8_e4m3fn) for rows in (m, n)]
        values = [one.float() for one in given]
        exponents = [torch.randint(120, 134, (rows, k // block), generator=generator) for rows in (m, n)]
        scales = [one.to(torch.uint8).view(torch.float8_e8m0fnu) for one in exponents]
    left, right = (
        value * scale.float().repeat_interleave(block, dim=1) for value, scale in zip(values, scales, strict=True)
    )
    a, b, scale_a, scale_b = (
        one.cuda() for one in (*given, *(blocked(scale.view(torch.uint8)).view(scale.dtype) for scale in scales))
    )
    product = torch._scaled_mm(a, b.t(), scale_a, scale_b, bias=None, out_dtype=torch.float32)
    assert on(product) == "device"
    torch.testing.assert_close(product.cpu(), left @ right.t(), rtol=1e-5, atol=1e-3)
