"""A decode problem with its golden, and its launch on a device."""

from dataclasses import dataclass, field

import ml_dtypes
import numpy as np
from tests.kernels.built import built

from kernbench import ptx
from kernbench.kernels.decode import DecodeKernel, DecodePlan, DecodeShape, PagedCache, Scales, arguments

NUMPY = {"f16": np.float16, "bf16": ml_dtypes.bfloat16, "e4m3": ml_dtypes.float8_e4m3fn}
# scales of keys and values of 8 bits
SCALES = (0.5, 2.0)


@dataclass
class Problem:
    """Sequences in a cache whose rows past a sequence's end, and whose pages of nobody, are NaN."""

    shape: DecodeShape
    lengths: tuple[int, ...]
    sms: int = 4
    seed: int = 0
    fixed: bool = False
    table: np.ndarray | None = field(default=None, init=False)

    def __post_init__(self):
        shape, rng = self.shape, np.random.default_rng(self.seed)
        kind = NUMPY[shape.dtype]
        self.plan = DecodePlan.of(shape, self.lengths, self.sms, fixed=self.fixed)
        self.q = rng.standard_normal((len(self.lengths), shape.heads, shape.head_size)).astype(kind)
        # room behind every sequence, and behind the last
        self.page = shape.cache.page_size if isinstance(shape.cache, PagedCache) else 8
        pages = [-(-length // self.page) for length in self.lengths]
        order = rng.permutation(sum(pages) + 3) if isinstance(shape.cache, PagedCache) else np.arange(sum(pages) + 3)
        self.pages = np.split(order, np.cumsum(pages))[: len(pages)]
        size = (2, len(order), self.page, shape.kv_heads, shape.head_size)
        kind = NUMPY[shape.cache_dtype or shape.dtype]
        self.scales = SCALES if shape.narrow else (1.0, 1.0)
        self.cache = np.full(size, np.nan, kind)
        for length, mine in zip(self.lengths, self.pages, strict=True):
            rows = rng.standard_normal((2, length, *size[3:])).astype(kind)
            for number, page in enumerate(mine):
                part = rows[:, number * self.page : (number + 1) * self.page]
                self.cache[:, page, : part.shape[1]] = part

    def golden(self):
        """In float64: the output, and the logarithm of each softmax's sum."""
        out, lse = np.zeros(self.q.shape), np.full(self.q.shape[:2], -np.inf)
        for i, (length, mine) in enumerate(zip(self.lengths, self.pages, strict=True)):
            rows = self.cache[:, mine].reshape(2, -1, *self.cache.shape[3:])[:, :length].astype(np.float64)
            for head in range(self.shape.heads if length else 0):
                k, v = rows[:, :, head // self.shape.group]
                scores = self.scales[0] * k @ self.q[i, head].astype(np.float64) / np.sqrt(self.shape.head_size)
                weights = np.exp(scores - scores.max())
                out[i, head] = self.scales[1] * weights @ v / weights.sum()
                lse[i, head] = scores.max() + np.log(weights.sum())
        return out, lse

    def launch(self, kernel=None, device=None, stages=None, **options):
        """A run, and the output."""
        device = device or ptx.EmulatedDevice("sm_90a")
        way = DecodeKernel(self.shape, stages)
        k, v = (device.array(self._as_it_lies(one), name) for one, name in zip(self.cache, "kv", strict=True))
        out = device.empty(self.q.shape, self.q.dtype, name="out")
        q, more = device.array(self.q, "q"), {}
        if isinstance(self.shape.cache, PagedCache):
            # entries behind a sequence's end are nobody's
            table = np.full((len(self.lengths), max(1, *map(len, self.pages), 1)), 0xDEADBEEF, np.uint32)
            for row, mine in zip(table, self.pages, strict=True):
                row[: len(mine)] = mine
            more["table"] = device.array(table, "table")
        else:
            more["rows"] = [int(mine[0]) * self.page if len(mine) else 0 for mine in self.pages]
        if self.shape.lse:
            more["lse"] = device.empty(self.q.shape[:2], np.float32, name="lse")
        given = arguments(device, self.plan, q, k, v, out, scale=Scales(None, *self.scales), **more)
        run = device.launch(kernel or built(way), self.plan.ctas, way.threads, given, way.shared_bytes, **options)
        return run, out.numpy()

    def _as_it_lies(self, cache):
        if not isinstance(self.shape.cache, PagedCache):
            return cache.reshape(-1, *cache.shape[2:])
        return cache if self.shape.cache.layout == "NHD" else np.ascontiguousarray(cache.transpose(0, 2, 1, 3))

    def check(self, **options):
        """Right and safe."""
        run, out = self.launch(**options)
        assert not run.findings, run.findings[0]
        tolerance = {"f16": 2e-3, "bf16": 1.6e-2}[self.shape.dtype] * self.scales[1]
        wanted, lse = self.golden()
        np.testing.assert_allclose(out.astype(np.float64), wanted, atol=tolerance, rtol=0)
        if self.shape.lse:
            np.testing.assert_allclose(run.outputs["lse"], lse, atol=1e-3, rtol=1e-4)
