"""CUDA graphs of torch: nothing is done while one is captured, everything at each replay."""

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed: make test-doors installs it")
pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture
def session(emulated):
    return emulated()


def captured(function):
    """A graph of what a function does, and what it gave."""
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = function()
    return graph, result


def test_a_replay_reads_what_the_inputs_hold_then(session):
    x, total = torch.ones(4, device="cuda"), torch.zeros(4, device="cuda")

    def step():
        y = x * 2
        part = y[1:3]
        part += 1
        total.add_(y)
        return y

    graph, y = captured(step)
    assert total.tolist() == [0, 0, 0, 0]
    graph.replay()
    x.fill_(3)
    graph.replay()
    assert y.tolist() == [6, 7, 7, 6]
    assert total.tolist() == [8, 10, 10, 8]
    assert y.is_cuda


def test_launches_are_done_at_replays_only(session):
    pytest.importorskip("triton", reason="Triton is not installed: make test-doors installs it")
    from tests.ptx.doors.frontends.graph_kernel import double

    x = torch.arange(64.0, device="cuda")

    def step():
        y = torch.empty_like(x)
        double[(2,)](x, y, BLOCK=32)
        return y + 1

    graph, y = captured(step)
    assert session.launches == []
    x += 1
    graph.replay()
    graph.replay()
    assert y.tolist() == [2 * (i + 1) + 1 for i in range(64)]
    assert [launch.title for launch in session.launches] == ["double", "double"]
    assert session.findings == []


def test_what_is_changed_beside_a_result_is_changed_at_replays(session):
    layer = torch.nn.BatchNorm1d(3).cuda()
    x = torch.randn(8, 3, device="cuda")
    graph, _ = captured(lambda: layer(x))
    assert layer.running_mean.tolist() == [0, 0, 0]
    graph.replay()
    torch.testing.assert_close(layer.running_mean, 0.1 * x.mean(0))


def test_an_optimiser_steps_as_without_a_graph(session):
    def trained(graphed):
        torch.manual_seed(0)
        weight = torch.nn.Parameter(torch.randn(5, device="cuda"))
        optimiser = torch.optim.AdamW([weight], lr=0.1, capturable=True)
        weight.grad = torch.zeros_like(weight)
        step = optimiser.step
        for number in range(4):
            weight.grad.fill_(number + 1)
            if graphed and number == 2:
                step = captured(optimiser.step)[0].replay
            step()
        return weight.detach()

    torch.testing.assert_close(trained(True), trained(False), rtol=0, atol=0)


def test_functions_made_of_graphs_have_gradients(session):
    layer = torch.nn.Linear(4, 4).cuda()
    x = torch.randn(2, 4, device="cuda")
    expected = torch.autograd.grad(layer(x).sum(), layer.weight)[0]
    made = torch.cuda.make_graphed_callables(layer, (torch.randn(2, 4, device="cuda"),))
    made(x).sum().backward()
    torch.testing.assert_close(layer.weight.grad, expected)


ASKING = {
    "item": lambda x: x.sum().item(),
    "cpu": lambda x: x.cpu(),
    "tolist": lambda x: x.tolist(),
    "tolist of a view": lambda x: x[1:].tolist(),
    "tolist of a number": lambda x: x[0].tolist(),
    "bool": lambda x: bool(x[0]),
    "float": lambda x: float(x[0]),
    "equal": lambda x: torch.equal(x, x),
    "repr": repr,
    "repr of whole numbers": lambda x: repr(x.int()),
    "format": lambda x: f"{x[0]:.3f}",
    "nonzero": lambda x: x.nonzero(),
    "synchronize": lambda x: torch.cuda.synchronize() or x,
    "stream": lambda x: torch.cuda.current_stream().synchronize() or x,
    "event": lambda x: torch.cuda.Event().synchronize() or x,
}


@pytest.mark.parametrize("ask", ASKING.values(), ids=ASKING)
def test_the_host_may_not_ask_while_a_graph_is_captured(session, ask):
    x, graph = torch.ones(4, device="cuda"), torch.cuda.CUDAGraph()
    graph.capture_begin()
    with pytest.raises(RuntimeError, match="not permitted when stream is capturing"):
        ask(x)
    with pytest.raises(RuntimeError, match="previous error during capture"):
        graph.capture_end()
    with pytest.raises(RuntimeError, match="without a preceding successful capture"):
        graph.replay()
    assert ask(x) is not None


def test_values_of_the_host_are_read_while_a_graph_is_captured(session):
    host, x = torch.arange(3), torch.zeros(3, device="cuda")
    graph, _ = captured(lambda: x.add_(sum(host.tolist())))
    graph.replay()
    assert x.tolist() == [3, 3, 3]


def test_who_captures_says_so(session):
    stream = torch.cuda.Stream()
    said = []
    graph, _ = captured(lambda: said.append((torch.cuda.is_current_stream_capturing(), stream.is_capturing())))
    said.append((torch.cuda.is_current_stream_capturing(), torch.accelerator.current_stream().is_capturing()))
    assert said == [(True, True), (False, False)]
    graph.replay()
    graph.reset()
    with pytest.raises(RuntimeError, match="without a preceding"):
        graph.replay()


def test_one_graph_at_a_time(session):
    with torch.cuda.graph(torch.cuda.CUDAGraph()), pytest.raises(RuntimeError, match="cannot be nested"):
        torch.cuda.CUDAGraph().capture_begin()
