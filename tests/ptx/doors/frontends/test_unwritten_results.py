"""What nobody wrote of a tensor on the device, where the host uses its value; and programs that do not."""

import pytest

from kernbench.ptx.doors.causes import describe, summary_of
from kernbench.ptx.doors.session import UnsafeLaunchError

torch = pytest.importorskip("torch", reason="torch is not installed: make test-doors installs it")
triton = pytest.importorskip("triton", reason="Triton is not installed: make test-doors installs it")
tl = pytest.importorskip("triton.language")
pytestmark = pytest.mark.filterwarnings("ignore")

N = 100


@triton.jit
def rows(x, y, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(y + i, tl.load(x + i, i < n) + 1, i < n)


@triton.jit
def nothing(x, y, n, B: tl.constexpr):
    pass


@pytest.fixture
def session(emulated):
    return emulated(sms=1)


def part(dtype=torch.float32, size=N):
    """A tensor of which a launch wrote the first 64 elements."""
    x, y = torch.ones(size, device="cuda", dtype=dtype), torch.empty(size, device="cuda", dtype=dtype)
    rows[(size // 64,)](x, y, size, B=64)
    return x, y


def raised(function, *args):
    with pytest.raises(AssertionError):
        function(*args)


USED = {
    "cpu": lambda x, y: y.cpu(),
    "to": lambda x, y: y.to("cpu"),
    "to with a type": lambda x, y: y.to("cpu", torch.float64),
    "numpy": lambda x, y: y.cpu().numpy(),
    "host tensor": lambda x, y: torch.empty(N).copy_(y),
    "item": lambda x, y: y[99].item(),
    "float": lambda x, y: float(y[64]),
    "bool": lambda x, y: bool((y == x + 1).all()),
    "tolist": lambda x, y: y.tolist(),
    "print": lambda x, y: str(y),
    "equal": lambda x, y: torch.equal(y, x + 1),
    "allclose": lambda x, y: torch.allclose(y, x + 1),
    "assert_close": lambda x, y: raised(torch.testing.assert_close, y, x + 1),
    "view": lambda x, y: y.view(10, 10)[9].cpu(),
    "slice": lambda x, y: y[90:].cpu(),
    "transposed": lambda x, y: y.view(10, 10).t().contiguous().cpu(),
    "sum": lambda x, y: y.sum().item(),
    "max": lambda x, y: y.max().item(),
    "sums of rows": lambda x, y: y.view(10, 10).sum(1).cpu(),
    "computed": lambda x, y: (y * 2 + x).cpu(),
    "in place": lambda x, y: y.mul_(2).cpu(),
    "compared and reduced": lambda x, y: ((y - x).abs() > 3).any().item(),
    "clone": lambda x, y: y.clone().cpu(),
    "cat": lambda x, y: torch.cat([x, y]).cpu(),
    "stack": lambda x, y: torch.stack([y, x]).cpu(),
    "copied onto zeros": lambda x, y: torch.zeros_like(x).copy_(y).cpu(),
    "assigned to a slice": lambda x, y: (x.__setitem__(slice(0, 10), y[60:70]), x.cpu()),
    "index": lambda x, y: y[torch.tensor([3, 70], device="cuda")].cpu(),
    "flipped": lambda x, y: y.flip(0).cpu(),
    "half": lambda x, y: y.half().cpu(),
    "integer": lambda x, y: y.to(torch.int8).cpu(),
    "not a number": lambda x, y: y.isnan().any().item(),
    "where": lambda x, y: torch.where(x > 0, y, x).cpu(),
    "product": lambda x, y: (y.view(10, 10) @ x.view(10, 10)).cpu(),
    "nonzero": lambda x, y: (y > 1).nonzero(),
    "softmax": lambda x, y: y.softmax(0).cpu(),
    "added by index": lambda x, y: x.index_add_(0, torch.arange(N, device="cuda"), y).cpu(),
    "scattered and added": lambda x, y: x.scatter_add_(0, torch.arange(N, device="cuda"), y).cpu(),
    "saved": lambda x, y: __import__("copy").deepcopy(y.cpu()),
}


@pytest.mark.parametrize("use", USED.values(), ids=USED)
def test_what_nobody_wrote_is_found_where_the_host_uses_it(session, use):
    x, y = part()
    use(x, y)
    (found,) = session.findings
    assert (found.kind, found.where.file) == ("uninitialised-read", __file__)
    assert "lambda x, y" in found.where.text or "function(*args)" in found.where.text
    assert "float32[100]" in found.message
    assert [(other.role, other.where.file) for other in found.others] == [
        ("made", __file__),
        ("'rows' had it as an argument", __file__),
    ]
    assert "wrote 256 of its 400 bytes" in found.hint
    with pytest.raises(AssertionError, match="uninitialised-read"):
        session.assert_safe()
    session.calls.clear()


UNUSED = {
    "written part": lambda x, y: y[:64].cpu(),
    "rest filled": lambda x, y: (y[64:].fill_(2), y.cpu()),
    "rest assigned": lambda x, y: (y.__setitem__(slice(64, None), x[64:]), y.sum().item()),
    "all filled": lambda x, y: y.zero_().cpu(),
    "random": lambda x, y: y.uniform_().cpu(),
    "copied over": lambda x, y: y.copy_(x).cpu(),
    "from the host": lambda x, y: y.copy_(torch.ones(N)).cpu(),
    "by shape": lambda x, y: (y.shape, y.stride(), y.numel(), y.dtype, y.data_ptr(), y.view(10, 10).size(), len(y)),
    "zeros_like": lambda x, y: torch.zeros_like(y).cpu(),
    "empty_like and copy": lambda x, y: torch.empty_like(y).copy_(x).cpu(),
    "out": lambda x, y: torch.add(x, x, out=y).cpu(),
    "clone of a part": lambda x, y: y.clone()[:64].cpu(),
    "cat of a part": lambda x, y: torch.cat([y, x])[100:].cpu(),
    "padded": lambda x, y: torch.nn.functional.pad(y[:64], (0, 36)).cpu(),
    "selected": lambda x, y: torch.where(torch.arange(N, device="cuda") < 64, y, 0.0).cpu(),
    "masked": lambda x, y: y.masked_fill(torch.arange(N, device="cuda") >= 64, 0.0).sum().item(),
    "masked in place": lambda x, y: y.masked_fill_(torch.arange(N, device="cuda") >= 64, 0.0).cpu(),
    "mask of a comparison": lambda x, y: ((y > 3) & (torch.arange(N, device="cuda") < 64)).any().item(),
    "or": lambda x, y: ((y > 3) | (torch.arange(N, device="cuda") >= 64)).all().item(),
    "or True": lambda x, y: ((y > 3) | True).all().item(),
    "and 0": lambda x, y: (y.int() & 0).sum().item(),
    "softmax of written rows": lambda x, y: y.view(10, 10).softmax(1)[:6].cpu(),
    "softmax of a mask": lambda x, y: y.masked_fill(torch.arange(N, device="cuda") >= 64, -1e9).softmax(0).cpu(),
    "added by index in part": lambda x, y: x.index_add_(0, torch.arange(64, device="cuda"), y[:64]).cpu(),
    "triangle": lambda x, y: y.view(10, 10)[:6].tril().cpu(),
    "chosen": lambda x, y: y[torch.arange(N, device="cuda") < 64].cpu(),
    "sums of written rows": lambda x, y: y.view(10, 10).sum(1)[:6].cpu(),
    "computed part": lambda x, y: (y * 2 + x)[:64].cpu(),
    "compared part": lambda x, y: torch.testing.assert_close(y[:64], x[:64] + 1),
    "overwritten copy": lambda x, y: (lambda z: (z[64:].zero_(), z.cpu()))(y.clone()),
    "overwritten booleans": lambda x, y: (lambda z: (z[64:].fill_(False), z.any().item()))(y > 0),
    "assigned booleans": lambda x, y: (
        lambda z: (z.__setitem__(torch.arange(N, device="cuda") >= 64, False), z.any().item())
    )(y > 0),
    "dropped": lambda x, y: y.sum(),
    "kept on the device": lambda x, y: torch.zeros_like(y).copy_(y) + y.clone(),
    "to the device": lambda x, y: y.to("cuda").cuda(),
    "gathered": lambda x, y: y.gather(0, torch.arange(10, device="cuda")).cpu(),
    "scattered over": lambda x, y: y.scatter(0, torch.arange(64, N, device="cuda"), 0.0).cpu(),
    "index_copy": lambda x, y: y.index_copy(0, torch.arange(64, N, device="cuda"), x[64:]).cpu(),
    "parameter": lambda x, y: torch.nn.Linear(8, 8, device="cuda").weight.sum().item(),
    "embedding": lambda x, y: torch.nn.Embedding(8, 8, device="cuda").weight.sum().item(),
    "layers": lambda x, y: (
        torch.nn.Sequential(torch.nn.Conv1d(1, 2, 3, device="cuda"), torch.nn.BatchNorm1d(2, device="cuda"))(
            x.view(1, 1, -1)
        )
        .sum()
        .item()
    ),
}


@pytest.mark.parametrize("use", UNUSED.values(), ids=UNUSED)
def test_what_is_written_or_not_used_is_no_finding(session, use):
    use(*part())
    session.assert_safe()


TYPES = (torch.float16, torch.bfloat16, torch.float64, torch.int32, torch.int64, torch.int16, torch.int8, torch.uint8)


@pytest.mark.parametrize("dtype", TYPES, ids=str)
def test_every_element_type_is_followed(session, dtype):
    _, y = part(dtype)
    y[:64].cpu()
    (y + 1)[:64].cpu()
    session.assert_safe()
    (y + 1).cpu()
    y.cpu()
    assert [one.kind for one in session.findings] == ["uninitialised-read"] * 2
    assert all("36 of the 100 elements" in one.message and "[64]" in one.message for one in session.findings)


def test_a_tensor_and_a_line_have_one_finding(session):
    _, y = part()
    for _ in range(3):
        y.cpu()
    (found,) = session.findings
    assert summary_of(session.calls) == f"uninitialised-read at test_unwritten_results.py:{found.where.line}"
    assert describe(session.calls).startswith("call 1 of the host: finished\n")


def test_a_kernel_that_does_nothing_and_no_launch_at_all(session):
    x, y, z = torch.ones(N, device="cuda"), torch.empty(10, 10, device="cuda"), torch.empty(N, device="cuda")
    nothing[(2,)](x, y, N, B=64)
    y.cpu()
    z.cpu()
    first, second = session.findings
    assert "nobody wrote 100 of the 100 elements (400 bytes, the first is [0, 0])" in first.message
    assert "'nothing' (" in first.hint
    assert "wrote nothing of it" in first.hint
    assert [other.role for other in second.others] == ["made"]
    assert "no launch had it as an argument" in second.hint


def test_a_program_may_stop_where_it_uses_it(emulated):
    session = emulated(sms=1, stop_at_finding=True)
    _, y = part()
    with pytest.raises(UnsafeLaunchError, match="uninitialised-read"):
        y.cpu()
    session.calls.clear()


def test_launches_that_were_not_run_may_have_written_everything(emulated):
    session = emulated(sms=1, skip=("rows",))
    part()[1].cpu()
    session.assert_safe()


def test_launches_without_checks_write_what_they_write(emulated):
    session = emulated(sms=1, first=0)
    _, y = part()
    y[:64].cpu()
    session.assert_safe()
    y.cpu()
    assert len(session.findings) == 1


def test_nothing_is_found_where_nothing_is_checked(emulated):
    session = emulated(sms=1, checks=False)
    part()[1].cpu()
    session.assert_safe()


def test_the_launch_that_should_have_written_is_named_where_a_kernel_reads(session):
    _, y = part()
    rows[(2,)](y, torch.empty(N, device="cuda"), N, B=64)
    (found,) = session.findings
    assert found.where.text.startswith("tl.store(y + i")
    assert "'rows' (" in found.hint
    assert "grid 1) wrote 256 of its 400 bytes" in found.hint
    assert any(other.role == "wrote part of it" and other.where.file == __file__ for other in found.others)


def test_a_graph_writes_when_it_is_replayed(session):
    x, y = torch.ones(64, device="cuda"), torch.empty(64, device="cuda")
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        rows[(1,)](x, y, 64, B=64)
        z = y * 2
    graph.replay()
    assert z.sum().item() == 256
    session.assert_safe()
