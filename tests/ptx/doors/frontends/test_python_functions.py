"""Functions of torch in Python, which make tensors on the device of their arguments where no function mode sees it.

Also functions in C++ that make results of their own, from a shape and the type of an argument.
"""

import ast
import importlib
import inspect

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed: make test-doors installs it")
F = torch.nn.functional
pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(autouse=True)
def session(emulated):
    return emulated()


def drawn(*shape, device="cpu"):
    return torch.randn(shape, generator=torch.Generator().manual_seed(3)).to(device)


def spd(n):
    a = drawn(n, n)
    return a @ a.T + n * torch.eye(n)


def attended(x, w):
    zeros = torch.zeros(24, device=x.device)
    # with a row of zeros behind keys and values
    given = (8, 2, w, zeros, None, None, True, 0.0, w[:8], zeros[:8])
    return F.multi_head_attention_forward(x, x, x, *given)


def pooled(dimensions):
    pool = getattr(F, f"fractional_max_pool{dimensions}d")

    def both(x):
        torch.manual_seed(1)
        return pool(x, 2, output_size=3, return_indices=True)

    return both


def lowrank(name):
    def product(x):
        torch.manual_seed(1)
        u, s, v = getattr(torch, name)(x, q=3)
        return u @ torch.diag(s) @ v.T

    return product


def truncated(x):
    torch.manual_seed(1)
    return torch.nn.init.trunc_normal_(x)


# by the function of torch whose source makes a tensor: what is called, with which arguments
CALLS = {
    "_unravel_index": (lambda x: torch.unravel_index(x, (2, 3, 4)), [torch.tensor([5, 17])]),
    "fractional_max_pool2d_with_indices": (pooled(2), [drawn(2, 3, 8, 8)]),
    "fractional_max_pool3d_with_indices": (pooled(3), [drawn(2, 3, 8, 8, 8)]),
    "embedding_bag": (F.embedding_bag, [torch.tensor([[0, 1], [2, 3]]), drawn(4, 8)]),
    "linear_cross_entropy": (
        lambda *given: F.linear_cross_entropy(*given),
        [drawn(4, 8), drawn(5, 8), torch.tensor([0, 4, 1, 2])],
    ),
    "interpolate": (
        lambda x: F.interpolate(x, scale_factor=1.5, mode="bilinear", recompute_scale_factor=True),
        [drawn(1, 2, 6, 6)],
    ),
    "multi_head_attention_forward": (attended, [drawn(3, 2, 8), drawn(24, 8)]),
    "_lobpcg": (lambda a, x: torch.lobpcg(a, 1, X=x)[0], [spd(12), drawn(12, 1)]),
    "pca_lowrank": (lowrank("pca_lowrank"), [drawn(6, 3)]),
    "get_approximate_basis": (lowrank("svd_lowrank"), [drawn(6, 3)]),
    "broadcast_shapes": (lambda x: x.expand(torch.broadcast_shapes(x.shape, (2, 3))), [drawn(3)]),
    "_no_grad_trunc_normal_": (truncated, [drawn(3, 4)]),
}
# parts of those functions, and what only backward passes of lobpcg need
PARTS = {"__init__", "_get_ortho", "_matrix_polynomial_value", "_symeig_backward_partial_eigenspace"}
MODULES = ("functional", "nn.functional", "_tensor", "_linalg_utils", "_lobpcg", "_lowrank", "nn.init")
MAKERS = ("tensor", "as_tensor", "asarray", "new_tensor")


def makes_tensors(call):
    named = isinstance(call.func, ast.Attribute) and call.func.attr in MAKERS
    return named or any(keyword.arg == "device" for keyword in call.keywords)


def makers():
    """The functions in torch's Python whose source makes tensors on a device."""
    for name in MODULES:
        tree = ast.parse(inspect.getsource(importlib.import_module(f"torch.{name}")))
        for function in (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)):
            if any(makes_tensors(node) for node in ast.walk(function) if isinstance(node, ast.Call)):
                yield function.name


def test_all_are_called_here():
    assert set(makers()) <= CALLS.keys() | PARTS


def compared(run, given):
    """Run something on the host and on the device."""
    wanted = run(*(one.clone() for one in given))
    found = run(*(one.to("cuda") for one in given))
    one_by_one = zip(found, wanted, strict=True) if isinstance(wanted, tuple) else [(found, wanted)]
    for ours, theirs in one_by_one:
        if theirs is not None:
            assert ours.is_cuda
            torch.testing.assert_close(ours.cpu(), theirs, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("name", CALLS)
def test_they_work_on_the_device(name):
    run, given = CALLS[name]
    if name == "linear_cross_entropy" and not hasattr(F, name):
        pytest.skip("this torch has no linear_cross_entropy")
    compared(run, given)


@pytest.mark.parametrize(
    ("run", "given"),
    [
        (F.one_hot, [torch.tensor([0, 2, 1])]),
        (lambda x: F.one_hot(x, num_classes=5), [torch.tensor([[0, 2], [1, 4]])]),
        (torch.linalg.matrix_rank, [drawn(4, 3)]),
        (torch.linalg.matrix_rank, [torch.zeros(2, 0, 3)]),
        (lambda x: torch.linalg.matrix_rank(input=x, hermitian=True), [torch.zeros(0, 3, 3)]),
    ],
    ids=["one_hot", "one_hot of classes", "rank", "rank of nothing", "ranks of no matrices"],
)
def test_results_made_of_a_shape(run, given):
    compared(run, given)


def test_a_session_leaves_torch_as_it_was(emulated):
    """Tensors that torch makes of values are moved by an operator while a session is open, sessions inside included."""
    if not hasattr(torch._C, "_only_lift_cpu_tensors"):
        pytest.skip("this torch has no such switch")
    from kernbench import ptx

    assert torch._C._only_lift_cpu_tensors()
    with ptx.emulated("sm_90a"):
        assert torch.unravel_index(torch.tensor(5, device="cuda"), (2, 3))[0].is_cuda
    assert torch._C._only_lift_cpu_tensors()
