"""Operators of a program with one function for all devices, as `torch.library.custom_op` and `triton_op` make them."""

import uuid

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed: make test-doors installs it")
pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture
def session(emulated):
    return emulated()


@pytest.fixture
def name():
    """A name that no other test has registered."""
    return f"kernbench_{uuid.uuid4().hex}::one"


def copied(x: torch.Tensor) -> torch.Tensor:
    """A copy in memory that the function asks for by itself."""
    made = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    made.copy_(x)
    return made


def by_library(name, function):
    """The operator, made by hand."""
    namespace, short = name.split("::")
    library = torch.library.Library(namespace, "FRAGMENT")
    library.define(f"{short}(Tensor x) -> Tensor")
    library.impl(short, function, "CompositeExplicitAutograd")
    return lambda x, kept=library: getattr(getattr(torch.ops, namespace), short)(x)


WAYS = {
    "custom_op": lambda name, function: torch.library.custom_op(name, function, mutates_args=()),
    "library": by_library,
}
if hasattr(torch.library, "triton_op"):
    WAYS["triton_op"] = lambda name, function: torch.library.triton_op(name, function, mutates_args=())


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("device", ["cuda", "cpu"])
def test_an_operator_makes_tensors_where_its_argument_is(session, name, way, device):
    operator = WAYS[way](name, copied)
    made = operator(torch.ones(3, device=device))
    assert (made.is_cuda, made.tolist()) == (device == "cuda", [1.0] * 3)


def test_an_operator_that_is_given_no_tensor_makes_one_on_the_device(session, name):
    def filled(count: int) -> torch.Tensor:
        return torch.full((count,), 2.0, device="cuda")

    assert torch.library.custom_op(name, filled, mutates_args=())(3).is_cuda


def test_a_function_for_the_host_is_for_tensors_of_the_host(session, name):
    operator = torch.library.custom_op(name, copied, mutates_args=())
    operator.register_kernel("cpu")(lambda x: 7 * x)
    operator.register_autograd(lambda context, gradient: 5 * gradient)
    x = torch.ones(2, device="cuda", requires_grad=True)
    operator(x).sum().backward()
    assert operator(torch.ones(2)).tolist() == [7.0, 7.0]
    assert (operator(x).tolist(), x.grad.tolist(), x.grad.is_cuda) == ([1.0, 1.0], [5.0, 5.0], True)
