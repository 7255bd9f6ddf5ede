"""Operators of torch on the GPU: right against torch's own attention, on any stream, in graphs, compiled."""

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")
if not torch.cuda.is_available():
    pytest.skip("torch has no GPU here", allow_module_level=True)
import kernbench.torch as kt  # noqa: E402

pytestmark = pytest.mark.gpu

HEADS, KV_HEADS, SIZE = 64, 8, 128


def attention(q, k, v, **options):
    """torch's own, in f32: [heads, queries, size]."""
    wide = [one.float().transpose(0, 1) for one in (q, k, v)]
    out = torch.nn.functional.scaled_dot_product_attention(*wide, enable_gqa=True, **options)
    return out.transpose(0, 1)


class Layer:
    """A paged cache of bf16, one query token a sequence."""

    def __init__(self, lengths, page=16, room=64):
        torch.manual_seed(0)
        self.lengths, self.page = list(lengths), page
        width = -(-(max(lengths) + room) // page)
        pages = width * len(lengths)
        self.k, self.v = (
            torch.randn(pages, page, KV_HEADS, SIZE, device="cuda", dtype=torch.bfloat16) for _ in range(2)
        )
        self.table = torch.randperm(pages, device="cuda").reshape(len(lengths), width).to(torch.int32)
        self.shape = kt.DecodeShape(HEADS, KV_HEADS, SIZE, "bf16", kt.PagedCache(page))
        self.plan = kt.DecodePlan(self.shape, lengths)
        self.q = torch.randn(len(lengths), HEADS, SIZE, device="cuda", dtype=torch.bfloat16)

    def golden(self, lengths=None):
        rows = []
        for i, length in enumerate(lengths or self.lengths):
            pages = self.table[i].long()
            k, v = (one[pages].flatten(0, 1)[:length] for one in (self.k, self.v))
            rows.append(attention(self.q[i : i + 1], k, v)[0] if length else torch.zeros_like(self.q[0]).float())
        return torch.stack(rows)

    def close(self, out, lengths=None):
        torch.testing.assert_close(out.float(), self.golden(lengths), atol=2e-2, rtol=0)


def test_decode():
    layer = Layer([1000, 0, 1, 4096, 77])
    layer.close(kt.decode(layer.q, layer.k, layer.v, layer.plan, table=layer.table))


def test_on_another_stream():
    layer, stream = Layer([300, 200]), torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        out = kt.decode(layer.q, layer.k, layer.v, layer.plan, table=layer.table)
    stream.synchronize()
    layer.close(out)


def test_a_graph_goes_on_with_other_lengths():
    layer = Layer([300, 200, 100])
    out, new = torch.empty_like(layer.q), torch.randn(2, 3, KV_HEADS, SIZE, device="cuda").bfloat16()
    slots = torch.full((3,), -1, device="cuda")

    def step():
        kt.append(new[0], new[1], layer.k, layer.v, slots)
        kt.decode(layer.q, layer.k, layer.v, layer.plan, table=layer.table, out=out)

    step()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    lengths = layer.lengths
    for _ in range(20):
        positions = torch.tensor(lengths, device="cuda")
        slots.copy_(kt.slots_of(layer.table, positions, layer.page))
        lengths = [length + 1 for length in lengths]
        layer.plan.update(lengths)
        graph.replay()
        layer.close(out, lengths)


def test_compiled():
    layer = Layer([500, 60])

    @torch.compile(fullgraph=True)
    def step(q):
        return kt.decode(q * 2, layer.k, layer.v, layer.plan, table=layer.table).float() + 1

    out = step(layer.q)
    layer.q = layer.q * 2
    layer.close(out - 1)


@pytest.mark.parametrize("causal", [True, False])
def test_prefill(causal):
    torch.manual_seed(1)
    q, k, v = (torch.randn(1300, heads, SIZE, device="cuda").bfloat16() for heads in (HEADS, KV_HEADS, KV_HEADS))
    shape = kt.PrefillShape(HEADS, KV_HEADS, SIZE, "bf16", causal=causal)
    out = kt.prefill(q, k, v, kt.PrefillPlan(shape, [1000, 300]))
    for rows in (slice(0, 1000), slice(1000, 1300)):
        wanted = attention(q[rows], k[rows], v[rows], is_causal=causal)
        torch.testing.assert_close(out[rows].float(), wanted, atol=2e-2, rtol=0)


def test_parts_merged_are_the_whole():
    torch.manual_seed(2)
    shape = kt.DecodeShape(HEADS, KV_HEADS, SIZE, "bf16", lse=True)
    q = torch.randn(1, HEADS, SIZE, device="cuda").bfloat16()
    k, v = (torch.randn(5000, KV_HEADS, SIZE, device="cuda").bfloat16() for _ in range(2))
    parts, lses = torch.empty(3, 1, HEADS, SIZE, device="cuda").bfloat16(), torch.empty(3, 1, HEADS, device="cuda")
    for i, (row, count) in enumerate([(0, 2000), (2000, 64), (2064, 2936)]):
        kt.decode(q, k, v, kt.DecodePlan(shape, [count], rows=[row]), out=parts[i], lse=lses[i])
    torch.testing.assert_close(kt.merge(parts, lses).float(), attention(q, k, v), atol=2e-2, rtol=0)


def test_torch_accepts_the_operator():
    layer = Layer([30])
    tensors = (layer.q, layer.k, layer.v, layer.table, layer.plan.integers, layer.plan.floats)
    given = (*tensors, torch.zeros_like(layer.q), None, layer.plan.layout, layer.plan.score_factor, 1.0)
    torch.library.opcheck(torch.ops.kernbench.decode.default, given)
