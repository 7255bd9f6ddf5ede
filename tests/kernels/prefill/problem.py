"""A prefill problem with its golden, and its launch on a device."""

from dataclasses import dataclass

import ml_dtypes
import numpy as np

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
        """In float64."""
        shape, out = self.shape, np.zeros(self.q.shape)
        query = key = 0
        for count, seen in zip(self.queries, self.keys, strict=True):
            for head in range(shape.heads if seen else 0):
                q = self.q[query : query + count, head].astype(np.float64)
                k, v = (one[key : key + seen, head // shape.group].astype(np.float64) for one in (self.k, self.v))
                out[query : query + count, head] = self._attention(q, k, v)
            query, key = query + count, key + seen
        return out

    def _attention(self, q, k, v):
        scores = q @ k.T / np.sqrt(self.shape.head_size)
        if self.shape.softcap:
            scores = self.shape.softcap * np.tanh(scores / self.shape.softcap)
        at, other = np.arange(len(q))[:, None] + len(k) - len(q), np.arange(len(k))[None]
        if self.shape.causal:
            scores = np.where(other <= at, scores, -np.inf)
        if self.shape.window:
            scores = np.where(other > at - self.shape.window, scores, -np.inf)
        weights = np.exp(scores - scores.max(1, keepdims=True, initial=-1e300))
        return weights @ v / weights.sum(1, keepdims=True)

    def launch(self, kernel=None, device=None, turns=False, **options):
        """A run, and the output."""
        device = device or ptx.EmulatedDevice("sm_90a")
        way = PrefillKernel(self.shape, turns=turns)
        out = device.empty(self.q.shape, self.q.dtype, name="out")
        given = arguments(device, self.plan, *map(device.array, (self.q, self.k, self.v)), out)
        run = device.launch(kernel or way.build(), self.plan.ctas, way.threads, given, way.shared_bytes, **options)
        return run, out.numpy()

    def check(self, **options):
        """Right and safe."""
        run, out = self.launch(**options)
        assert not run.findings, run.findings[0]
        tolerance = {"f16": 2e-3, "bf16": 1.6e-2}[self.shape.dtype]
        np.testing.assert_allclose(out.astype(np.float64), self.golden(), atol=tolerance, rtol=0)
