"""Prefill attention on a GPU: ours beside torch's peers, in TFLOP/s of the scores that count.

    python -m benchmarks.truth.prefill_peers [--out FILE.jsonl]

A figure counts only if the output is right: rows of some heads are compared with float64.
"""

import math
from dataclasses import dataclass
from typing import Any

from kernbench.kernels.prefill import PrefillKernel, PrefillPlan, PrefillShape, arguments

from .peers import FlushedDevice, Row, add_peers, our_time, show

ROWS_COMPARED = 64


@dataclass(frozen=True)
class Problem:
    """Sequences of one length."""

    batch: int
    length: int
    heads: int = 64
    kv_heads: int = 8
    size: int = 128
    causal: bool = True
    dtype: str = "bf16"

    @property
    def name(self) -> str:
        """What it is."""
        kind = "causal" if self.causal else "full"
        return f"{self.batch} x {self.length} {kind}, {self.heads}/{self.kv_heads} heads of {self.size} {self.dtype}"

    @property
    def shape(self) -> PrefillShape:
        """What the kernel is built for."""
        return PrefillShape(self.heads, self.kv_heads, self.size, self.dtype, self.causal)


PROBLEMS = (
    Problem(1, 8192),
    Problem(1, 8192, causal=False),
    Problem(4, 2048),
    Problem(16, 512),
    Problem(1, 32768),
    Problem(1, 8192, size=64),
    Problem(1, 8192, size=256, heads=32),
    Problem(1, 8192, dtype="f16"),
)


class Case:
    """A problem's arrays on the GPU, and what is done with them."""

    def __init__(self, torch: Any, device: FlushedDevice, problem: Problem):
        self.torch, self.device, self.problem = torch, device, problem
        p = problem
        made = {"device": "cuda", "dtype": {"bf16": torch.bfloat16, "f16": torch.float16}[p.dtype]}
        torch.manual_seed(0)
        tokens = p.batch * p.length
        self.q = torch.randn(tokens, p.heads, p.size, **made)
        self.k, self.v = (torch.randn(tokens, p.kv_heads, p.size, **made) for _ in range(2))
        self.out = torch.zeros_like(self.q)
        sms = torch.cuda.get_device_properties(0).multi_processor_count
        self.plan = PrefillPlan.of(p.shape, [p.length] * p.batch, sms=sms)

    def ours(self, **options: Any) -> float:
        """Microseconds of our kernel."""
        kernel = PrefillKernel(self.problem.shape, **options)
        given = arguments(self.device, self.plan, *map(self.device.array, (self.q, self.k, self.v, self.out)))
        return our_time(self.device, kernel, self.plan.ctas, given)

    def difference(self) -> float:
        """The largest difference from float64, over rows of the last sequence of two heads."""
        p, torch, worst = self.problem, self.torch, 0.0
        first = (p.batch - 1) * p.length
        rows = torch.linspace(0, p.length - 1, ROWS_COMPARED).long().cuda()
        for head in {0, p.heads - 1}:
            keys, values = (
                one[first : first + p.length, head * p.kv_heads // p.heads].double() for one in (self.k, self.v)
            )
            scores = self.q[first + rows, head].double() @ keys.T / math.sqrt(p.size)
            if p.causal:
                hidden = torch.arange(p.length, device="cuda")[None] > rows[:, None]
                scores = scores.masked_fill(hidden, float("-inf"))
            wanted = scores.softmax(1) @ values
            worst = max(worst, float((self.out[first + rows, head].double() - wanted).abs().max()))
        return worst

    def peer(self) -> Any:
        """torch's attention."""
        p = self.problem
        q, k, v = (one.view(p.batch, p.length, -1, p.size).transpose(1, 2) for one in (self.q, self.k, self.v))
        attention = self.torch.nn.functional.scaled_dot_product_attention
        return attention(q, k, v, is_causal=p.causal, enable_gqa=True)


def measured(torch: Any, device: FlushedDevice, problem: Problem) -> Row:
    """A row of the table: microseconds by name."""
    case = Case(torch, device, problem)
    row: Row = {"tflop": case.plan.flops / 1e12, "ours_in_turns_us": case.ours(turns=True), "ours_us": case.ours()}
    row["difference"] = case.difference()
    add_peers(row, torch, device, case.peer)
    return row


def rate(name: str, row: Row) -> str:
    """The rate of a time."""
    return f" = {row['tflop'] / row[name] * 1e6:.0f} TFLOP/s"


if __name__ == "__main__":
    show(__doc__, PROBLEMS, measured, rate)
