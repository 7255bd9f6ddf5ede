"""Operators of torch, on the emulator: right against torch's own attention, and declared as torch wants them."""

import itertools
import math
from itertools import pairwise

import numpy as np
import pytest
from tests.test_documents import guide

torch = pytest.importorskip("torch", reason="torch is not installed: make test-doors installs it")
kt = pytest.importorskip("kernbench.torch")

from kernbench.common.errors import MisuseError  # noqa: E402


def attention(q, k, v, **options):
    """torch's own, in float64: [heads, queries, size]."""
    group = q.shape[0] // k.shape[0]
    wide = [one.double() for one in (q, k.repeat_interleave(group, 0), v.repeat_interleave(group, 0))]
    return torch.nn.functional.scaled_dot_product_attention(*wide, **options)


class Paged:
    """Sequences in pages of 16 tokens, with pages of nobody between them."""

    def __init__(self, lengths=(70, 0, 33), heads=8, kv_heads=2, size=64, dtype=torch.float16, layout="NHD"):
        generator = torch.Generator().manual_seed(0)
        draw = lambda *shape: torch.randn(*shape, generator=generator).to(dtype)  # noqa: E731
        self.lengths, self.layout = lengths, layout
        self.shape = kt.DecodeShape(heads, kv_heads, size, "f16", kt.PagedCache(16, layout))
        pages = sum(-(-length // 16) for length in lengths) + 2
        self.q = draw(len(lengths), heads, size)
        self.k, self.v = draw(pages, 16, kv_heads, size), draw(pages, 16, kv_heads, size)
        order = torch.randperm(pages, generator=generator).to(torch.int32)
        self.table = torch.full((len(lengths), 6), 99, dtype=torch.int32)
        for i, length in enumerate(lengths):
            count, order_left = -(-length // 16), order
            self.table[i, :count], order = order_left[:count], order_left[count:]
        self.spare = order

    def golden(self, lengths=None):
        """Outputs of all sequences."""
        rows = []
        for i, length in enumerate(lengths or self.lengths):
            pages = self.table[i, : -(-length // 16)].long()
            k, v = (one[pages].flatten(0, 1)[:length].transpose(0, 1) for one in (self.k, self.v))
            rows.append(attention(self.q[i][:, None], k, v)[:, 0] if length else torch.zeros(*self.q.shape[1:]))
        return torch.stack([row.double() for row in rows])

    def as_it_lies(self):
        return [one if self.layout == "NHD" else one.transpose(1, 2).contiguous() for one in (self.k, self.v)]


@pytest.mark.parametrize("layout", ["NHD", "HND"])
def test_decode(layout):
    problem = Paged(layout=layout)
    plan = kt.DecodePlan(problem.shape, problem.lengths, device="cpu")
    out = kt.decode(problem.q, *problem.as_it_lies(), plan, table=problem.table)
    torch.testing.assert_close(out.double(), problem.golden(), atol=2e-3, rtol=0)
    assert "3 sequences with 103 keys" in plan.explain()


def test_a_plan_goes_on_with_other_lengths():
    problem = Paged()
    plan = kt.DecodePlan(problem.shape, (1, 1, 1), device="cpu")
    before = plan.integers.data_ptr()
    plan.update(problem.lengths)
    assert plan.integers.data_ptr() == before
    out = torch.empty_like(problem.q)
    assert kt.decode(problem.q, problem.k, problem.v, plan, table=problem.table, out=out) is out
    torch.testing.assert_close(out.double(), problem.golden(), atol=2e-3, rtol=0)


def test_dense_decode_and_its_logarithms():
    problem = Paged(lengths=(50,), heads=2, kv_heads=1)
    shape = kt.DecodeShape(2, 1, 64, "f16", lse=True)
    k, v = (one.flatten(0, 1) for one in (problem.k, problem.v))
    plan, lse = kt.DecodePlan(shape, [50], rows=[3], device="cpu"), torch.empty(1, 2)
    out = kt.decode(problem.q, k, v, plan, lse=lse)
    part = [one[3:53].transpose(0, 1) for one in (k, v)]
    torch.testing.assert_close(out[0].double(), attention(problem.q[0][:, None], *part)[:, 0], atol=2e-3, rtol=0)
    scores = problem.q[0].double() @ part[0][0].double().T / math.sqrt(64)
    torch.testing.assert_close(lse[0].double(), scores.logsumexp(1), atol=1e-3, rtol=0)


def test_a_cache_of_8_bits():
    """What was appended with a scale is read with it."""
    problem = Paged()
    narrow = [(one.float() / 2).to(torch.float8_e4m3fn) for one in (problem.k, problem.v)]
    new = torch.randn(2, 1, 2, 64).half()
    kt.append(*new, *narrow, torch.tensor([int(problem.table[0, 0]) * 16 + 3]), scales=(2.0, 2.0))
    row = narrow[0][int(problem.table[0, 0]), 3].float() * 2
    torch.testing.assert_close(row, new[0, 0].float(), atol=1e-2, rtol=0.07)
    shape = kt.DecodeShape(8, 2, 64, "f16", kt.PagedCache(16), cache_dtype="e4m3")
    plan = kt.DecodePlan(shape, problem.lengths, scale=kt.Scales(keys=2.0, values=2.0), device="cpu")
    out = kt.decode(problem.q, *narrow, plan, table=problem.table)
    problem.k, problem.v = ((one.float() * 2).half() for one in narrow)
    torch.testing.assert_close(out.double(), problem.golden(), atol=4e-3, rtol=0)


@pytest.mark.parametrize(("causal", "window"), [(True, 0), (False, 0), (True, 20)])
def test_prefill(causal, window):
    generator = torch.Generator().manual_seed(1)
    q, k, v = (torch.randn(90, heads, 64, generator=generator).bfloat16() for heads in (2, 1, 1))
    shape = kt.PrefillShape(2, 1, 64, "bf16", causal=causal, window=window)
    plan = kt.PrefillPlan(shape, [60, 30], device="cpu")
    out = kt.prefill(q, k, v, plan)
    assert "90 queries of 2 sequences" in plan.explain()
    for rows in (slice(0, 60), slice(60, 90)):
        count = rows.stop - rows.start
        behind = torch.arange(count)[:, None] - torch.arange(count)
        seen = (behind >= 0) & (behind < (window or count)) if causal else torch.ones(count, count, dtype=torch.bool)
        wanted = attention(*(one[rows].transpose(0, 1) for one in (q, k, v)), attn_mask=seen)
        torch.testing.assert_close(out[rows].transpose(0, 1).double(), wanted, atol=2e-2, rtol=0)


def test_prefill_of_pages():
    """Prompts that go on: their first keys were in the cache already."""
    problem = Paged(lengths=(70, 33))
    shape = kt.PrefillShape(8, 2, 64, "f16", cache=kt.PagedCache(16), lse=True)
    plan, q = kt.PrefillPlan(shape, [20, 33], [70, 33], device="cpu"), torch.randn(53, 8, 64).half()
    lse = torch.empty(53, 8)
    out = kt.prefill(q, problem.k, problem.v, plan, table=problem.table, lse=lse)
    for rows, sequence, length in ((slice(0, 20), 0, 70), (slice(20, 53), 1, 33)):
        pages = problem.table[sequence, : -(-length // 16)].long()
        k, v = (one[pages].flatten(0, 1)[:length].transpose(0, 1) for one in (problem.k, problem.v))
        count = rows.stop - rows.start
        seen = torch.arange(length) <= torch.arange(length - count, length)[:, None]
        wanted = attention(q[rows].transpose(0, 1), k, v, attn_mask=seen)
        torch.testing.assert_close(out[rows].transpose(0, 1).double(), wanted, atol=3e-3, rtol=0)
    assert torch.isfinite(lse).all()


def test_append_and_merge():
    problem = Paged()
    positions = torch.tensor([69, 0, 32])
    problem.table[1, 0] = problem.spare[0]
    slots = kt.slots_of(problem.table, positions, 16)
    new = torch.randn(2, 3, 2, 64).half()
    kt.append(*new, problem.k, problem.v, slots)
    for cache, one in zip((problem.k, problem.v), new, strict=True):
        assert torch.equal(cache.flatten(0, 1)[slots], one)
    parts, lses = torch.randn(3, 2, 4, 64), torch.randn(3, 2, 4)
    out, lse = torch.empty(2, 4, 64, dtype=torch.bfloat16), torch.empty(2, 4)
    kt.merge(parts, lses, out=out, lse=lse)
    wanted = (lses.softmax(0)[..., None] * parts).sum(0)
    torch.testing.assert_close(out.float(), wanted, atol=2e-2, rtol=0)
    torch.testing.assert_close(lse, lses.logsumexp(0))
    torch.testing.assert_close(kt.merge(parts, lses), wanted)


def test_steps_of_the_gated_delta_rule():
    """Some tokens one after the other, beside the rule in torch."""
    generator = torch.Generator().manual_seed(3)
    states, slots = torch.randn(4, 2, 64, 64, generator=generator), torch.tensor([3, 1], dtype=torch.int32)
    wanted = states.double()
    for _ in range(3):
        q, k, v = (torch.randn(2, heads, 64, generator=generator).half() for heads in (1, 1, 2))
        k = (k / 8).contiguous()
        g, beta = -torch.rand(2, 2, generator=generator), torch.rand(2, 2, generator=generator)
        out = kt.gated_delta_step(q, k, v, g, beta, states, slots)
        for i, slot in enumerate(slots.tolist()):
            for head in range(2):
                state = wanted[slot, head]
                state *= g[i, head].double().exp()
                change = beta[i, head].double() * (v[i, head].double() - state @ k[i, 0].double())
                state += change[:, None] * k[i, 0].double()
                torch.testing.assert_close(out[i, head].double(), state @ q[i, 0].double() / 8, atol=4e-3, rtol=2e-3)
    torch.testing.assert_close(states.double(), wanted, atol=1e-4, rtol=1e-4)


def rule(q, k, v, g, beta, state):
    """The gated delta rule in float64, token by token; the state moves on."""
    rows = []
    for t in range(len(q)):
        heads = []
        for head in range(v.shape[1]):
            shared = head // (v.shape[1] // q.shape[1])
            state[head] *= g[t, head].double().exp()
            change = beta[t, head].double() * (v[t, head].double() - state[head] @ k[t, shared].double())
            state[head] += change[:, None] * k[t, shared].double()
            heads.append(state[head] @ q[t, shared].double() / math.sqrt(q.shape[2]))
        rows.append(torch.stack(heads))
    return torch.stack(rows)


@pytest.mark.parametrize(("lengths", "heads"), [([70, 30], 2), ([1050], 1)])
def test_the_gated_delta_rule_over_whole_sequences(lengths, heads):
    """Two short sequences, and a long one that is cut in two for the four SMs of an emulated GPU."""
    generator = torch.Generator().manual_seed(4)
    shape, tokens, count = kt.ForwardShape(1, heads, 64, 64, "f16"), sum(lengths), len(lengths)
    q, k = (torch.nn.functional.normalize(torch.randn(tokens, 1, 64, generator=generator), dim=-1).half() for _ in "qk")
    v, g = (
        torch.randn(tokens, heads, 64, generator=generator).half(),
        -torch.rand(tokens, heads, generator=generator) / 10,
    )
    beta, initial = (
        torch.rand(tokens, heads, generator=generator),
        torch.randn(count, heads, 64, 64, generator=generator),
    )
    plan, final = kt.GatedDeltaPlan(shape, lengths, device="cpu"), torch.empty_like(initial)
    out = kt.gated_delta_rule(q, k, v, g, beta, plan, initial=initial, final=final)
    assert ("cut into 2 segments" in plan.explain()) == (count == 1)
    states, ends = initial.double(), list(itertools.accumulate(lengths))
    for i, rows in enumerate(itertools.starmap(slice, pairwise([0, *ends]))):
        wanted = rule(*(one[rows] for one in (q, k, v, g, beta)), states[i])
        torch.testing.assert_close(out[rows].double(), wanted, atol=3e-3, rtol=3e-3)
    torch.testing.assert_close(final.double(), states, atol=1e-2, rtol=1e-2)
    with pytest.raises(MisuseError, match=r"beta has shape \[1, \d\], and \[\d+, \d\] is wanted"):
        kt.gated_delta_rule(q, k, v, g, beta[:1], plan)


def test_the_layer_of_the_guide():
    """Every token as torch's own attention gives it, with the layer's weights."""
    names = guide("kernels.md", "layer.py")
    layer, seen = names["layer"], names["seen"]
    keys, values = [], []
    with torch.no_grad():
        for x, y in pairwise(seen):
            q, k, v = layer.inward(x).view(2, -1, 64).split([8, 2, 2], 1)
            keys.append(k)
            values.append(v)
            outs = [
                attention(q[i][:, None], *(torch.stack(one)[:, i].transpose(0, 1) for one in (keys, values)))
                for i in range(2)
            ]
            wanted = layer.outward(torch.stack([out[:, 0] for out in outs]).bfloat16().flatten(1))
            torch.testing.assert_close(y, wanted, atol=3e-2, rtol=3e-2)


def samples():
    """Arguments of each operator, as torch's own checks want them."""
    problem = Paged(lengths=(20, 5))
    plan = kt.DecodePlan(problem.shape, problem.lengths, device="cpu")
    tensors = (problem.q, problem.k, problem.v, problem.table, plan.integers, plan.floats)
    yield "decode", (*tensors, torch.zeros_like(problem.q), None, plan.layout, plan.score_factor, 1.0)
    shape = kt.PrefillShape(1, 1, 64, "f16")
    prompts = kt.PrefillPlan(shape, [10], device="cpu")
    q, k, v = torch.randn(3, 10, 1, 64).half()
    written = (torch.zeros_like(q), torch.zeros(10, 1))
    yield "prefill", (q, k, v, None, prompts.records, *written, prompts.ctas, True, 0, 0.0, 0.125, "")
    yield "append", (*torch.randn(2, 1, 2, 64).half(), problem.k, problem.v, torch.tensor([3]), "NHD", 1.0, 1.0)
    vectors, gates = torch.randn(3, 2, 1, 64).half(), torch.rand(2, 2, 1)
    states = (torch.randn(3, 1, 64, 64), torch.tensor([2, 0], dtype=torch.int32), torch.zeros(2, 1, 64).half())
    yield "gated_delta_step", (*vectors, *gates, *states, 0.125, True)
    shape = kt.ForwardShape(1, 1, 64, 64, "f16")
    plan, gates = kt.GatedDeltaPlan(shape, [10], device="cpu"), torch.rand(2, 10, 1)
    vectors = (q, k / 8, v, -gates[0], gates[1])
    yield "gated_delta_rule", (*vectors, *plan.tables, *plan.between, None, None, torch.zeros_like(v), 0.125)
    yield "merge", (torch.randn(2, 1, 2, 64), torch.randn(2, 1, 2), torch.zeros(1, 2, 64), torch.zeros(1, 2))


@pytest.mark.parametrize(
    "name",
    ["decode", "prefill", "append", "merge", "gated_delta_step", "gated_delta_rule"],
)
def test_torch_accepts_the_operators(name):
    """Schemas, fake tensors and tracing, by torch's own checks."""
    arguments = dict(samples())[name]
    torch.library.opcheck(getattr(torch.ops.kernbench, name).default, arguments)


def test_under_compile():
    """A decode step with its append, in one graph; other lengths need no other."""
    problem = Paged()
    plan = kt.DecodePlan(problem.shape, problem.lengths, device="cpu")

    @torch.compile(backend="aot_eager", fullgraph=True)
    def step(q, new, slots):
        kt.append(new[0], new[1], problem.k, problem.v, slots)
        return kt.decode(q * 2, problem.k, problem.v, plan, table=problem.table) + 1

    slots = kt.slots_of(problem.table, torch.tensor([69, 0, 32]), 16)
    slots[1] = -1
    new = torch.randn(2, 3, 2, 64).half()
    for lengths in (problem.lengths, (60, 0, 33)):
        plan.update(lengths)
        out = step(problem.q, new, slots)
        doubled, problem.q = problem.q, problem.q * 2
        wanted = problem.golden(lengths) + 1
        problem.q = doubled
        torch.testing.assert_close(out.double(), wanted, atol=4e-3, rtol=0)


REFUSED = {
    "q has shape": lambda p, plan: kt.decode(p.q[0], p.k, p.v, plan, table=p.table),
    "k has type torch.float32, and torch.float16 is wanted": lambda p, plan: kt.decode(
        p.q, p.k.float(), p.v, plan, table=p.table
    ),
    "q has strides": lambda p, plan: kt.decode(
        p.q.transpose(0, 1).contiguous().transpose(0, 1), p.k, p.v, plan, table=p.table
    ),
    "the plan has pages: table= names those of each sequence": lambda p, plan: kt.decode(p.q, p.k, p.v, plan),
    "table has type torch.int64": lambda p, plan: kt.decode(p.q, p.k, p.v, plan, table=p.table.long()),
    r"table\[0, 1\] is 1000, and the cache has": lambda p, plan: kt.decode(
        p.q, p.k, p.v, plan, table=wrong_entry(p.table)
    ),
    "a sequence of 70 keys, and the table has 2 pages of 16": lambda p, plan: kt.decode(
        p.q, p.k, p.v, plan, table=p.table[:, :2].contiguous()
    ),
    "the plan was made for other heads": lambda p, plan: kt.decode(
        p.q[:, :4].contiguous(), p.k, p.v, plan, table=p.table
    ),
    "out has shape": lambda p, plan: kt.decode(p.q, p.k, p.v, plan, table=p.table, out=p.q[:2]),
    "2 lengths for a plan of 3 sequences": lambda p, plan: plan.update([1, 2]),
    "no gradient": lambda p, plan: kt.decode(p.q.requires_grad_(), p.k, p.v, plan, table=p.table),
}


def wrong_entry(table):
    changed = table.clone()
    changed[0, 1] = 1000
    return changed


@pytest.mark.parametrize("message", REFUSED)
def test_refusals(message):
    problem = Paged()
    plan = kt.DecodePlan(problem.shape, problem.lengths, device="cpu")
    with pytest.raises(MisuseError, match=message):
        REFUSED[message](problem, plan)


def test_a_launch_that_reads_what_nobody_has_is_refused():
    """A plan for more rows than a dense cache has."""
    k = torch.zeros(40, 1, 64).half()
    plan = kt.DecodePlan(kt.DecodeShape(1, 1, 64, "f16"), [41], device="cpu")
    with pytest.raises(MisuseError, match="the sequences' rows end at 41, and the cache has 40"):
        kt.decode(torch.zeros(1, 1, 64).half(), k, k, plan)
    assert np.isfinite(float(k.sum()))
