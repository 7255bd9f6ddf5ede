"""Flash attention in Triton (forward, causal, two heads, 1,024 keys, 64 wide, 64x64 tiles, f16): a checked launch on
the emulator beside TRITON_INTERPRET=1, which checks nothing, and what a second launch of a small kernel costs.

Needs torch and Triton (`make test-doors` installs them). Seconds are of the processor, medians, each in a process of
its own.
"""

import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable

import torch
import triton
import triton.language as tl

HEADS, KEYS, WIDE, TILE = 2, 1024, 64, 64
ROUNDS = 3
LEAST_RATIO, MOST_OVERHEAD_MS = 5.0, 5.0


@triton.jit  # type: ignore[untyped-decorator]
def attention(q, k, v, o, scale, keys, D: tl.constexpr, M: tl.constexpr, N: tl.constexpr):  # type: ignore[no-untyped-def]
    rows = tl.program_id(0) * M + tl.arange(0, M)
    columns, inner = tl.arange(0, N), tl.arange(0, D)
    base = tl.program_id(1) * keys * D
    queries = tl.load(q + base + rows[:, None] * D + inner[None, :])
    highest = tl.full([M], float("-inf"), tl.float32)
    total = tl.zeros([M], tl.float32)
    out = tl.zeros([M, D], tl.float32)
    for first in range(0, (tl.program_id(0) + 1) * M, N):
        there = first + columns
        score = tl.dot(queries, tl.load(k + base + there[None, :] * D + inner[:, None])) * scale
        score = tl.where(rows[:, None] >= there[None, :], score, float("-inf"))
        higher = tl.maximum(highest, tl.max(score, 1))
        weight = tl.exp2(score - higher[:, None])
        shrunk = tl.exp2(highest - higher)
        total = total * shrunk + tl.sum(weight, 1)
        values = tl.load(v + base + there[:, None] * D + inner[None, :])
        out = out * shrunk[:, None] + tl.dot(weight.to(tl.float16), values)
        highest = higher
    tl.store(o + base + rows[:, None] * D + inner[None, :], (out / total[:, None]).to(tl.float16))


@triton.jit  # type: ignore[untyped-decorator]
def add_one(x, y, B: tl.constexpr):  # type: ignore[no-untyped-def]
    i = tl.arange(0, B)
    tl.store(y + i, tl.load(x + i) + 1)


def timed(call: Callable[[], object]) -> float:
    """Seconds of the processor, the median of some calls after a first one."""
    call()
    found = []
    for _ in range(ROUNDS):
        began = time.process_time()
        call()
        found.append(time.process_time() - began)
    return statistics.median(found)


def flash(device: str) -> Callable[[], object]:
    """A launch, which is right: it is compared with torch before it is timed."""
    torch.manual_seed(0)
    q, k, v = (torch.randn(HEADS, KEYS, WIDE, dtype=torch.float16, device=device) for _ in range(3))
    o = torch.empty_like(q)
    scale = WIDE**-0.5 * 1.4426950408889634

    def launch() -> None:
        attention[(KEYS // TILE, HEADS)](q, k, v, o, scale, KEYS, D=WIDE, M=TILE, N=TILE, num_stages=2)

    launch()
    score = q.float() @ k.float().transpose(1, 2) * WIDE**-0.5
    score = score.masked_fill(~torch.ones(KEYS, KEYS, dtype=torch.bool, device=device).tril(), float("-inf"))
    torch.testing.assert_close(o.float(), score.softmax(-1) @ v.float(), atol=1e-2, rtol=1e-2)
    return launch


def inside(what: str) -> dict[str, float]:
    """The figures of one process."""
    if what == "interpreter":
        return {"seconds": timed(flash("cpu"))}
    from kernbench import ptx

    with ptx.emulated("sm_90a", checks=what == "checked") as session:
        seconds = timed(flash("cuda"))
        x, y = torch.zeros(128, device="cuda"), torch.empty(128, device="cuda")
        small = timed(lambda: add_one[(1,)](x, y, B=128))
        session.assert_safe()
    return {"seconds": seconds, "small_ms": 1e3 * small}


def measured(what: str) -> dict[str, float]:
    """The same in a process of its own."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    environment["TRITON_INTERPRET"] = "1" if what == "interpreter" else "0"
    words = [sys.executable, "-W", "ignore", __file__, what]
    done = subprocess.run(words, env=environment, check=True, capture_output=True, text=True)
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def main() -> None:
    """Print the table; exit code 1 where a bound does not hold."""
    found = {what: measured(what) for what in ("interpreter", "unchecked", "checked")}
    slow = found["interpreter"]["seconds"]
    for what, figures in found.items():
        small = f", second launch of a small kernel {figures['small_ms']:.1f} ms" if "small_ms" in figures else ""
        print(f"{what:12} {figures['seconds']:7.2f} s  {slow / figures['seconds']:5.1f}x{small}")
    ratio, overhead = slow / found["checked"]["seconds"], found["checked"]["small_ms"]
    if ratio < LEAST_RATIO or overhead > MOST_OVERHEAD_MS:
        print(f"wanted: {LEAST_RATIO:g}x and {MOST_OVERHEAD_MS:g} ms", file=sys.stderr)
        sys.exit(1)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        print(json.dumps(inside(sys.argv[1])))
    else:
        main()
