"""Decode attention on a GPU: ours beside torch's peers, cold L2, with the share of the memory limit that is reached.

    python -m benchmarks.truth.decode_peers [--out FILE.jsonl]

Each line is one problem (64/8 heads of 128 in bf16 unless it says otherwise): the median of repeated launches, each
with an L2 that holds none of its data. A time counts only if the output is right: heads are compared with float64.
Needs torch, for the peers and for memory; a peer that is not there, or refuses the problem, is left out.

L2 is flushed by writing (`--flush write`, as for the other measurements of this folder) or by reading (`--flush read`).
What was written must leave L2 before anything else can come: 67 MB of keys and values then take 12 us longer at least.
"""

import math
from dataclasses import dataclass
from typing import Any

from kernbench.kernels.decode import DecodeKernel, DecodePlan, DecodeShape, DenseCache, PagedCache, arguments

from .peers import FlushedDevice, Row, add_peers, our_time, show

# bytes a second that an H200 reads when nothing else is done
READ_RATE = 4.41e12
HEADS_COMPARED = 8


@dataclass(frozen=True)
class Problem:
    """Sequences of one length; `page` tokens a page, 0: a dense cache."""

    batch: int
    keys: int
    heads: int = 64
    kv_heads: int = 8
    size: int = 128
    dtype: str = "bf16"
    page: int = 0

    @property
    def name(self) -> str:
        """Batch x keys, and what is not as usual."""
        paged = f" page {self.page}" if self.page else ""
        return f"{self.batch} x {self.keys}, {self.heads}/{self.kv_heads} heads of {self.size} {self.dtype}{paged}"

    @property
    def nbytes(self) -> int:
        """Keys and values."""
        return 4 * self.batch * self.keys * self.kv_heads * self.size


PROBLEMS = (
    Problem(32, 4096),
    Problem(128, 16384),
    Problem(8, 16384),
    Problem(1, 16384),
    Problem(1, 1024),
    Problem(32, 4096, heads=8),
    Problem(32, 4096, heads=128),
    Problem(32, 4096, size=64),
    Problem(32, 4096, size=256),
    Problem(32, 4096, dtype="f16"),
    Problem(32, 4096, page=16),
    Problem(128, 16384, page=16),
    Problem(32, 4096, page=64),
    Problem(32, 4096, page=128),
)


class Case:
    """A problem's arrays on the GPU, and what is done with them."""

    def __init__(self, torch: Any, device: FlushedDevice, problem: Problem):
        self.torch, self.device, self.problem = torch, device, problem
        p = problem
        kind = {"bf16": torch.bfloat16, "f16": torch.float16}[p.dtype]
        made = {"device": "cuda", "dtype": kind}
        torch.manual_seed(0)
        self.q = torch.randn(p.batch, p.heads, p.size, **made)
        rows = p.batch * p.keys
        self.k = torch.randn(rows, p.kv_heads, p.size, **made)
        self.v = torch.randn(rows, p.kv_heads, p.size, **made)
        self.out = torch.zeros_like(self.q)
        self.table = torch.randperm(rows // p.page, device="cuda").to(torch.int32).view(p.batch, -1) if p.page else None

    def ours(self) -> float:
        """Microseconds of our kernel."""
        p, torch, device = self.problem, self.torch, self.device
        cache = PagedCache(p.page) if p.page else DenseCache()
        shape = DecodeShape(p.heads, p.kv_heads, p.size, p.dtype, cache)
        sms = torch.cuda.get_device_properties(0).multi_processor_count
        plan = DecodePlan.of(shape, [p.keys] * p.batch, sms)
        kernel = DecodeKernel(shape)
        paged = (-1, p.page, p.kv_heads, p.size) if p.page else tuple(self.k.shape)
        k, v = (device.array(one.view(paged)) for one in (self.k, self.v))
        given = arguments(device, plan, self.q, k, v, self.out, table=self.table)
        return our_time(device, kernel, plan.ctas, given)

    def difference(self) -> float:
        """The largest difference from float64, over some heads of the first and the last sequence."""
        p, worst = self.problem, 0.0
        group = p.heads // p.kv_heads
        for sequence in {0, p.batch - 1}:
            for head in range(0, p.heads, max(1, p.heads // HEADS_COMPARED)):
                keys, values = (self._rows(one, sequence)[:, head // group].double() for one in (self.k, self.v))
                scores = keys @ self.q[sequence, head].double() / math.sqrt(p.size)
                wanted = scores.softmax(0) @ values
                worst = max(worst, float((self.out[sequence, head].double() - wanted).abs().max()))
        return worst

    def _rows(self, cache: Any, sequence: int) -> Any:
        p = self.problem
        if self.table is None:
            return cache[sequence * p.keys : (sequence + 1) * p.keys]
        mine = self.table[sequence].long()
        return cache.view(-1, p.page, p.kv_heads, p.size)[mine].reshape(p.keys, p.kv_heads, p.size)

    def peer(self) -> Any:
        """torch's attention, with a group's heads as rows of one query: what makes flash and cuDNN fast here."""
        p = self.problem
        q = self.q.view(p.batch, p.kv_heads, p.heads // p.kv_heads, p.size)
        k, v = (one.view(p.batch, p.keys, p.kv_heads, p.size).transpose(1, 2) for one in (self.k, self.v))
        return self.torch.nn.functional.scaled_dot_product_attention(q, k, v)


def measured(torch: Any, device: FlushedDevice, problem: Problem) -> Row:
    """A row of the table; peers take dense caches only."""
    case = Case(torch, device, problem)
    row: Row = {"limit_us": problem.nbytes / READ_RATE * 1e6, "ours_us": case.ours()}
    row["difference"] = case.difference()
    if not problem.page:
        add_peers(row, torch, device, case.peer)
    return row


def share(name: str, row: Row) -> str:
    """Of our time, how much of the limit that is."""
    return f" ({row['limit_us'] / row[name]:.0%} of the limit)" if name == "ours_us" else ""


if __name__ == "__main__":
    show(__doc__, PROBLEMS, measured, share)
