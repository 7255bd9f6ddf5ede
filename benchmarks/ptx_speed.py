"""How fast the PTX emulator is: batched attention for one new token, one warp a head, in thread-instructions per second
of one core, checked and unchecked, with the cost per thread over growing grids, and beside it Numba's CUDA simulator on
the same algorithm at a size it can bear. Run with one BLAS thread (make bench).
"""

import os
import statistics
import struct
import subprocess
import sys
import time
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernbench import ptx
from kernbench.ptx.module import Kernel

Array = NDArray[np.float32]
SEQUENCES, HEADS, KEYS, D = 32, 8, 512, 128
SIMULATED_KEYS = 16
LEAST_UNCHECKED, LEAST_CHECKED = 300e6, 100e6
ELEMENTS = D // 32
_LOG2E = 1.4426950408889634


def attention_ptx() -> str:
    """One warp a (head, sequence); a lane holds four elements; the dot product is reduced by shuffles."""
    q, k, v, o = ([f"%{name}{i}" for i in range(ELEMENTS)] for name in "qkvo")
    vector = {name: "{" + ", ".join(rows) + "}" for name, rows in zip("qkvo", (q, k, v, o), strict=True)}
    scale = struct.pack(">f", _LOG2E / D**0.5).hex()
    dot = [f"fma.rn.f32 %f3, {a}, {b}, %f3;" for a, b in zip(q[1:], k[1:], strict=True)]
    reduce = [f"shfl.sync.bfly.b32 %f4, %f3, {s}, 31, -1;\nadd.f32 %f3, %f3, %f4;" for s in (16, 8, 4, 2, 1)]
    update = [f"mul.f32 {a}, {a}, %f6;\nfma.rn.f32 {a}, %f7, {b}, {a};" for a, b in zip(o, v, strict=True)]
    lines = [
        ".version 8.0\n.target sm_80\n.address_size 64",
        ".visible .entry attention(.param .u64 q, .param .u64 keys, .param .u64 values, .param .u64 out,",
        "  .param .u64 lengths, .param .u32 heads, .param .u32 most)\n{",
        ".reg .pred %p<4>;\n.reg .b32 %r<12>;\n.reg .b64 %rd<20>;\n.reg .f32 %f<9>;",
        f".reg .f32 %q<{ELEMENTS}>, %k<{ELEMENTS}>, %v<{ELEMENTS}>, %o<{ELEMENTS}>;",
        "ld.param.u64 %rd1, [q];\nld.param.u64 %rd2, [keys];\nld.param.u64 %rd3, [values];",
        "ld.param.u64 %rd4, [out];\nld.param.u64 %rd5, [lengths];",
        "ld.param.u32 %r1, [heads];\nld.param.u32 %r2, [most];",
        "mov.u32 %r3, %ctaid.x;\nmov.u32 %r4, %ctaid.y;\nmov.u32 %r5, %tid.x;",
        "mad.lo.u32 %r6, %r4, %r1, %r3;",
        f"mul.lo.u32 %r7, %r6, {D};\nmad.lo.u32 %r7, %r5, {ELEMENTS}, %r7;\nmul.wide.u32 %rd6, %r7, 4;",
        "add.u64 %rd7, %rd1, %rd6;\nadd.u64 %rd8, %rd4, %rd6;",
        "mul.wide.u32 %rd9, %r4, 8;\nadd.u64 %rd10, %rd2, %rd9;\nld.global.u64 %rd11, [%rd10];",
        "add.u64 %rd12, %rd3, %rd9;\nld.global.u64 %rd13, [%rd12];",
        "mul.wide.u32 %rd14, %r4, 4;\nadd.u64 %rd15, %rd5, %rd14;\nld.global.u32 %r8, [%rd15];",
        f"mul.lo.u32 %r9, %r3, %r2;\nmul.lo.u32 %r9, %r9, {D};\nmad.lo.u32 %r9, %r5, {ELEMENTS}, %r9;",
        "mul.wide.u32 %rd16, %r9, 4;\nadd.u64 %rd17, %rd11, %rd16;\nadd.u64 %rd18, %rd13, %rd16;",
        f"ld.global.v{ELEMENTS}.f32 {vector['q']}, [%rd7];",
        *(f"mov.f32 {row}, 0f00000000;" for row in o),
        "mov.f32 %f1, 0fFF800000;\nmov.f32 %f2, 0f00000000;\nmov.u32 %r10, 0;",
        "setp.eq.u32 %p1, %r8, 0;\n@%p1 bra DONE;\nLOOP:",
        f"ld.global.v{ELEMENTS}.f32 {vector['k']}, [%rd17];\nmul.f32 %f3, {q[0]}, {k[0]};",
        *dot,
        *reduce,
        f"mul.f32 %f3, %f3, 0f{scale};\nmax.f32 %f5, %f1, %f3;",
        "sub.f32 %f6, %f1, %f5;\nex2.approx.ftz.f32 %f6, %f6;\nsub.f32 %f7, %f3, %f5;\nex2.approx.ftz.f32 %f7, %f7;",
        "fma.rn.f32 %f2, %f2, %f6, %f7;\nmov.f32 %f1, %f5;",
        f"ld.global.v{ELEMENTS}.f32 {vector['v']}, [%rd18];",
        *update,
        f"add.u64 %rd17, %rd17, {4 * D};\nadd.u64 %rd18, %rd18, {4 * D};\nadd.u32 %r10, %r10, 1;",
        "setp.lt.u32 %p2, %r10, %r8;\n@%p2 bra LOOP;\nDONE:",
        "setp.gt.f32 %p3, %f2, 0f00000000;\nrcp.approx.ftz.f32 %f8, %f2;\nselp.f32 %f8, %f8, 0f00000000, %p3;",
        *(f"mul.f32 {row}, {row}, %f8;" for row in o),
        f"st.global.v{ELEMENTS}.f32 [%rd8], {vector['o']};\nret;\n}}",
    ]
    return "\n".join(lines)


class Problem:
    """Inputs on a device, and what must come out."""

    def __init__(self, sequences: int, heads: int, keys: int):
        rng = np.random.default_rng(0)
        self.shape = (sequences, heads)
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
            heads,
            keys,
        ]
        scores = np.einsum("shd,shkd->shk", q.astype(np.float64), k) / D**0.5
        weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
        self.expected = np.einsum("shk,shkd->shd", weights / weights.sum(axis=-1, keepdims=True), v)

    def launch(self, kernel: Kernel, checks: bool) -> tuple[float, int]:
        """CPU seconds and thread-instructions of one launch, whose result is right."""
        sequences, heads = self.shape
        began = time.process_time()
        run = self.device.launch(kernel, (heads, sequences), 32, self.args, checks=checks)
        seconds = time.process_time() - began
        assert not run.findings
        assert np.allclose(run.outputs["out"], self.expected, rtol=1e-4, atol=1e-5)
        return seconds, int(run.metrics["thread_instructions"])


def rate(kernel: Kernel, problem: Problem, checks: bool, repeats: int = 3) -> float:
    """Thread-instructions per CPU second, the median of repeated launches after one to warm up."""
    problem.launch(kernel, checks)
    runs = [problem.launch(kernel, checks) for _ in range(repeats)]
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
    kernel = ptx.parse(attention_ptx()).kernels["attention"]
    problem = Problem(SEQUENCES, HEADS, KEYS)
    unchecked, checked = rate(kernel, problem, False), rate(kernel, problem, True)
    print(f"batched attention, {SEQUENCES} sequences x {HEADS} heads x {KEYS} keys, d {D}, one warp a head, one core:")
    print(f"  unchecked {unchecked / 1e6:,.0f} million thread-instructions/s (at least {LEAST_UNCHECKED / 1e6:.0f})")
    print(f"  checked   {checked / 1e6:,.0f} million thread-instructions/s (at least {LEAST_CHECKED / 1e6:.0f})")
    print("cost of a thread-instruction over the grid, unchecked, 64 keys:")
    for sequences in (8, 32, 128, 256):
        speed = rate(kernel, Problem(sequences, HEADS, 64), False, repeats=1)
        print(f"  {sequences * HEADS:5d} blocks: {1e9 / speed:.2f} ns")
    seconds, _ = problem.launch(kernel, True)
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
