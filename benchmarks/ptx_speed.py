"""How fast the PTX emulator is: batched attention for one new token, one warp a head, in thread-instructions per second
of one core, checked and unchecked, with the cost per thread over growing grids, and beside it Numba's CUDA simulator on
the same algorithm at a size it can bear. Run with one BLAS thread (make bench).
"""

import os
import statistics
import subprocess
import sys
import time
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernbench import ptx
from kernbench.benches.batched_attention.incremental_attention import BatchedIncrementalAttentionKernel

Array = NDArray[np.float32]
SEQUENCES, HEADS, KEYS, D = 32, 8, 512, 128
SIMULATED_KEYS = 16
LEAST_UNCHECKED, LEAST_CHECKED = 300e6, 100e6


class Problem:
    """Inputs on a device, and what must come out."""

    def __init__(self, sequences: int, heads: int, keys: int):
        rng = np.random.default_rng(0)
        attention = BatchedIncrementalAttentionKernel(keys, D, heads, heads, sequences)
        self.kernel, self.grid, self.block = attention.build_ptx(), attention.grid, attention.block
        q = rng.standard_normal((sequences, heads, D)).astype(np.float32)
        k, v = (rng.standard_normal((sequences, heads, keys, D)).astype(np.float32) for _ in range(2))
        self.device = ptx.EmulatedDevice("sm_80")
        addresses = [np.array([self.device.array(cache).address for cache in caches], np.uint64) for caches in (k, v)]
        self.out = self.device.empty((sequences, heads, D), np.float32, "out")
        self.args: list[Any] = [
            self.device.array(q),
            *map(self.device.array, addresses),
            self.out,
            self.device.array(np.full(sequences, keys, np.uint32)),
        ]
        scores = np.einsum("shd,shkd->shk", q.astype(np.float64), k) / D**0.5
        weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
        self.expected = np.einsum("shk,shkd->shd", weights / weights.sum(axis=-1, keepdims=True), v)

    def launch(self, checks: bool) -> tuple[float, int]:
        """CPU seconds and thread-instructions of one launch, whose result is right."""
        began = time.process_time()
        run = self.device.launch(self.kernel, self.grid, self.block, self.args, checks=checks)
        seconds = time.process_time() - began
        assert not run.findings
        assert np.allclose(run.outputs["out"], self.expected, rtol=1e-4, atol=1e-5)
        return seconds, int(run.metrics["thread_instructions"])


def rate(problem: Problem, checks: bool, repeats: int = 3) -> float:
    """Thread-instructions per CPU second, the median of repeated launches after one to warm up."""
    problem.launch(checks)
    runs = [problem.launch(checks) for _ in range(repeats)]
    return statistics.median(count / seconds for seconds, count in runs)


SIMULATED = """
import sys, time
import numpy as np
from numba import cuda, float32
D, KEYS = int(sys.argv[1]), int(sys.argv[2])

@cuda.jit
def attention(q, k, v, out):
    lane = cuda.threadIdx.x
    part = cuda.shared.array(32, float32)
    top, total = -np.inf, 0.0
    acc = [0.0] * (D // 32)
    for key in range(KEYS):
        dot = 0.0
        for i in range(D // 32):
            dot += q[lane * (D // 32) + i] * k[key, lane * (D // 32) + i]
        part[lane] = dot
        cuda.syncthreads()
        score = 0.0
        for i in range(32):
            score += part[i]
        cuda.syncthreads()
        score = score * 1.4426950408889634 / D ** 0.5
        new = max(top, score)
        shrink, weight = 2.0 ** (top - new), 2.0 ** (score - new)
        total = total * shrink + weight
        for i in range(D // 32):
            acc[i] = acc[i] * shrink + weight * v[key, lane * (D // 32) + i]
        top = new
    for i in range(D // 32):
        out[lane * (D // 32) + i] = acc[i] / total

rng = np.random.default_rng(0)
q, k, v, out = rng.standard_normal(D), rng.standard_normal((KEYS, D)), rng.standard_normal((KEYS, D)), np.zeros(D)
attention[1, 32](q, k, v, out)
began = time.process_time()
attention[1, 32](q, k, v, out)
seconds = time.process_time() - began
p = np.exp(k @ q / D ** 0.5)
assert np.allclose(out, p @ v / p.sum())
print(seconds)
"""


def simulator_seconds_per_key() -> float:
    """CPU seconds that Numba's simulator needs for one key of one head."""
    environment = {**os.environ, "NUMBA_ENABLE_CUDASIM": "1"}
    command = [sys.executable, "-c", SIMULATED, str(D), str(SIMULATED_KEYS)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True, timeout=300)
    return float(done.stdout) / SIMULATED_KEYS


def main() -> int:
    problem = Problem(SEQUENCES, HEADS, KEYS)
    unchecked, checked = rate(problem, False), rate(problem, True)
    print(f"batched attention, {SEQUENCES} sequences x {HEADS} heads x {KEYS} keys, d {D}, one warp a head, one core:")
    print(f"  unchecked {unchecked / 1e6:,.0f} million thread-instructions/s (at least {LEAST_UNCHECKED / 1e6:.0f})")
    print(f"  checked   {checked / 1e6:,.0f} million thread-instructions/s (at least {LEAST_CHECKED / 1e6:.0f})")
    print("cost of a thread-instruction over the grid, unchecked, 64 keys:")
    for sequences in (8, 32, 128, 256):
        speed = rate(Problem(sequences, HEADS, 64), False, repeats=1)
        print(f"  {sequences * HEADS:5d} blocks: {1e9 / speed:.2f} ns")
    seconds, _ = problem.launch(True)
    ours = seconds / (SEQUENCES * HEADS * KEYS)
    theirs = simulator_seconds_per_key()
    print("one key of one head:")
    print(f"  kernbench with all checks {ours * 1e6:,.1f} us, Numba's CUDA simulator {theirs * 1e6:,.0f} us")
    print(f"  {theirs / ours:,.0f} times")
    met = unchecked >= LEAST_UNCHECKED and checked >= LEAST_CHECKED
    print("both aims met" if met else "an aim was MISSED; timings are noisy: try again on an idle machine")
    return 0


if __name__ == "__main__":
    sys.exit(main())
