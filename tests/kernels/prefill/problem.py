"""A prefill problem with its golden, and its launch on a device."""

from dataclasses import dataclass

import ml_dtypes
import numpy as np
from tests.kernels.built import built

from kernbench import ptx
from kernbench.kernels.prefill import PrefillKernel, PrefillPlan, PrefillShape, arguments

NUMPY = {"f16": np.float16, "bf16": ml_dtypes.bfloat16}


@dataclass
class Problem:
    """Sequences one after the other, `keys` of them longer than their queries where they are given."""

    shape: PrefillShape
    queries: tuple[int, ...]
    keys: tuple[int, ...] | None = None
    sms: int = 3
    seed: int = 0

    def __post_init__(self):
        shape, rng = self.shape, np.random.default_rng(self.seed)
        self.keys = self.keys or self.queries
        self.plan = PrefillPlan.of(shape, self.queries, self.keys, self.sms)
        sizes = {"q": (sum(self.queries), shape.heads), "k": (sum(self.keys), shape.kv_heads)}
        sizes["v"] = sizes["k"]
        made = {name: rng.standard_normal((*size, shape.head_size)) for name, size in sizes.items()}
        self.q, self.k, self.v = (one.astype(NUMPY[shape.dtype]) for one in made.values())

    def golden(self):
        """In float64: the output, and the logarithm of each softmax's sum."""
        shape, out, lse = self.shape, np.zeros(self.q.shape), np.full(self.q.shape[:2], -np.inf)
        query = key = 0
        for count, seen in zip(self.queries, self.keys, strict=True):
            for head in range(shape.heads if seen else 0):
                q = self.q[query : query + count, head].astype(np.float64)
                k, v = (one[key : key + seen, head // shape.group].astype(np.float64) for one in (self.k, self.v))
                rows = slice(query, query + count), head
                out[rows], lse[rows] = self._attention(q, k, v)
            query, key = query + count, key + seen
        return out, lse

    def _attention(self, q, k, v):
        scores = q @ k.T / np.sqrt(self.shape.head_size)
        if self.shape.softcap:
            scores = self.shape.softcap * np.tanh(scores / self.shape.softcap)
        at, other = np.arange(len(q))[:, None] + len(k) - len(q), np.arange(len(k))[None]
        if self.shape.causal:
            scores = np.where(other <= at, scores, -np.inf)
        if self.shape.window:
            scores = np.where(other > at - self.shape.window, scores, -np.inf)
        largest = scores.max(1, keepdims=True, initial=-1e300)
        weights = np.exp(scores - largest)
        total = weights.sum(1, keepdims=True)
        return weights @ v / total, (largest + np.log(total))[:, 0]

    def launch(self, kernel=None, device=None, turns=None, query_stages=None, **options):
        """A run, and the output."""
        device = device or ptx.EmulatedDevice("sm_90a")
        way = PrefillKernel(self.shape, turns=turns, query_stages=query_stages)
        out = device.empty(self.q.shape, self.q.dtype, name="out")
        k, v, more = self.k, self.v, {}
        if self.shape.paged:
            (k, v), table = self._pages()
            more["table"] = device.array(table, "table")
        if self.shape.lse:
            more["lse"] = device.empty(self.q.shape[:2], np.float32, name="lse")
        given = arguments(device, self.plan, *map(device.array, (self.q, k, v)), out, **more)
        run = device.launch(kernel or built(way), self.plan.ctas, way.threads, given, way.shared_bytes, **options)
        return run, out.numpy()

    def _pages(self):
        """Keys and values in pages in any order, NaN where no key is; entries of the table behind an end are bad."""
        page, counts = self.shape.cache.page_size, [-(-seen // self.shape.cache.page_size) for seen in self.keys]
        order = np.random.default_rng(self.seed).permutation(sum(counts) + 2)
        pages = np.full((2, len(order), page, *self.k.shape[1:]), np.nan, self.k.dtype)
        table = np.full((len(counts), max(1, *counts)), 0xDEADBEEF, np.uint32)
        row = used = 0
        for i, (count, seen) in enumerate(zip(counts, self.keys, strict=True)):
            mine = table[i, :count] = order[used : used + count]
            for number, where in enumerate(mine):
                rows = slice(row + number * page, row + min(seen, (number + 1) * page))
                pages[:, where, : rows.stop - rows.start] = self.k[rows], self.v[rows]
            used, row = used + count, row + seen
        tokens_first = self.shape.cache.tokens_first
        return pages if tokens_first else np.ascontiguousarray(pages.transpose(0, 1, 3, 2, 4)), table

    def check(self, **options):
        """Right and safe."""
        run, out = self.launch(**options)
        assert not run.findings, run.findings[0]
        tolerance = {"f16": 2e-3, "bf16": 1.6e-2}[self.shape.dtype]
        wanted, lse = self.golden()
        np.testing.assert_allclose(out.astype(np.float64), wanted, atol=tolerance, rtol=0)
        if self.shape.lse:
            np.testing.assert_allclose(run.outputs["lse"], lse, atol=1e-3, rtol=1e-4)
