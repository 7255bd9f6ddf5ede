"""Fake tensors, with which torch traces: they are on the device that the program names, as with a GPU."""

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed: make test-doors installs it")
fake_tensor = pytest.importorskip("torch._subclasses.fake_tensor")
pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(autouse=True)
def session(emulated):
    return emulated()


MADE = {
    "empty": lambda: torch.empty(3, device="cuda"),
    "tensor": lambda: torch.tensor([1.0, 2.0], device="cuda"),
    "arange": lambda: torch.arange(3, device="cuda:0"),
    "empty_like": lambda: torch.empty_like(torch.empty(3, device="cuda")),
    "new_empty": lambda: torch.empty(3, device="cuda").new_empty(2),
    "a sum": lambda: torch.empty(3, device="cuda") + 1,
    "cuda()": lambda: torch.empty(3).cuda(),
    "to": lambda: torch.empty(3).to("cuda", torch.float16),
    "a parameter": lambda: torch.nn.Linear(2, 2, device="cuda").weight * 2,
    "by default": lambda: _by_default(),
}


def _by_default():
    with torch.device("cuda"):
        return torch.zeros(3)


@pytest.mark.parametrize("make", MADE.values(), ids=MADE)
def test_a_fake_tensor_is_where_the_program_says(make):
    with fake_tensor.FakeTensorMode():
        made = make()
        assert isinstance(made, fake_tensor.FakeTensor)
        assert (made.device, made.is_cuda, made.is_cpu, made.get_device()) == (torch.device("cuda", 0), True, False, 0)
        back = made.cpu()
        assert (back.device.type, back.is_cuda) == ("cpu", False)
        assert torch.empty(2).device.type == "cpu"


def test_operators_of_torch_make_their_own_fakes():
    """As composite operators do, on the device that torch knows: nothing is mixed."""
    with fake_tensor.FakeTensorMode():
        x = torch.empty(4, 3, device="cuda", requires_grad=True)
        loss = torch.nn.functional.cross_entropy(x, torch.tensor([0, 1, 2, 0], device="cuda"), label_smoothing=0.1)
        loss.backward()
        made = (x.grad, torch.where(x > 0, x, 0.0), torch.nn.functional.one_hot(torch.arange(4, device="cuda"), 4))
        assert all(one.is_cuda for one in made)


def test_fakes_of_tensors_are_where_those_are():
    real = torch.ones(3, device="cuda", requires_grad=True)
    mode = fake_tensor.FakeTensorMode(allow_non_fake_inputs=True)
    with mode:
        assert torch.empty_like(real).device.type == "cuda"
    fake = mode.from_tensor(real)
    assert fake.device == torch.device("cuda", 0)
    # of a fake on CUDA, which a CPU build cannot have, torch would abort the process
    (fake * 2).sum().backward()
    assert fake.grad.is_cuda
    assert (real * 2).tolist() == [2.0, 2.0, 2.0]


def test_functions_are_traced_and_exported():
    from torch.fx.experimental.proxy_tensor import make_fx

    x = torch.ones(3, device="cuda")
    for mode in ("fake", "real"):
        traced = make_fx(lambda a: a.sin() + torch.zeros(3, device=a.device), tracing_mode=mode)(x)
        assert traced(x).is_cuda
    layer = torch.nn.Linear(3, 2, device="cuda")
    assert torch.export.export(layer, (x[None],)).module()(x[None]).is_cuda
