"""Kernels of few CTAs, where a step of the emulator is Python whatever its width: CPU time of a launch, with all checks
and with none; with `--against SRC` in turns with another state of this package (its `src` folder), as a ratio.

Four are what Triton made of attention and of a matrix product for sm_90a and sm_100a (wgmma, tcgen05, cp.async), one
is its softmax, two are the chunk output of the gated delta rule, whose warps have roles. A time counts only if the
result is right and nothing is found. Medians of launches in processes that take turns; run with one BLAS thread.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import numpy as np

from kernbench import ptx
from kernbench.bench import find, parameters_of
from kernbench.golden import compare
from kernbench.result.run import Run

HERE = Path(__file__).parent
TRITON, TRUTH = HERE.parent / "tests" / "ptx" / "triton", HERE / "truth" / "ptx"
# bytes of shared memory that Triton's metadata says
SHARED = {"matmul_sm_90": 24576, "matmul_sm_100": 24592, "attn_sm_90": 57344, "attn_sm_100": 57376}
WARM, ROUNDS, TURNS = 3, 5, 3
# rows, and CTAs that share those of a head, of the chunk output
ROWS, CTAS = 128, 4
WANTED = 3.0

Launch = Callable[[bool], Run]


def _kernel(path: Path, name: str) -> ptx.Kernel:
    return ptx.parse(path.read_text()).kernels[name]


def attention(arch: str) -> Launch:
    """Two heads of 128 causal queries and keys, 64 wide: four CTAs."""
    text = f"attn_{arch.rstrip('a')}"
    device, rng = ptx.EmulatedDevice(arch), np.random.default_rng(0)
    heads, tokens, d = 2, 128, 64
    q, k, v = (rng.standard_normal((heads, tokens, d)).astype(np.float16) for _ in range(3))
    o = device.empty((heads, tokens, d), np.float16, "o")
    kernel, given = _kernel(TRITON / f"{text}.ptx", "attn"), [device.array(x) for x in (q, k, v)]
    scale = np.float32(d**-0.5 * np.log2(np.e))
    scores = np.einsum("hid,hjd->hij", *(x.astype(np.float64) for x in (q, k))) * d**-0.5
    scores[:, np.triu(np.ones((tokens, tokens), bool), 1)] = -np.inf
    weights = np.exp(scores - scores.max(axis=2, keepdims=True))
    wanted = (weights / weights.sum(axis=2, keepdims=True)) @ v.astype(np.float64)

    def launch(checks: bool) -> Run:
        run = device.launch(kernel, (2, heads), 128, [*given, o, tokens, scale, 0, 0], SHARED[text], checks=checks)
        np.testing.assert_allclose(o.numpy(), wanted, rtol=5e-3, atol=5e-3)
        return run

    return launch


def product(arch: str) -> Launch:
    """128x144 times 144x128: four CTAs."""
    text = f"matmul_{arch.rstrip('a')}"
    device, rng = ptx.EmulatedDevice(arch), np.random.default_rng(0)
    m, n, k = 128, 128, 144
    a, b = (rng.standard_normal(shape).astype(np.float16) for shape in ((m, k), (k, n)))
    c = device.empty((m, n), np.float16, "c")
    kernel = _kernel(TRITON / f"{text}.ptx", "matmul")
    given = [device.array(a), device.array(b), c, m, n, k, k, n, n, 0, 0]

    def launch(checks: bool) -> Run:
        run = device.launch(kernel, (2, 2), 128, given, SHARED[text], checks=checks)
        np.testing.assert_allclose(c.numpy(), a.astype(np.float64) @ b.astype(np.float64), rtol=2e-3, atol=2e-2)
        return run

    return launch


def softmax() -> Launch:
    """Eight rows of 1,024: eight CTAs of two warps."""
    device, x = ptx.EmulatedDevice("sm_90a"), np.random.default_rng(0).standard_normal((8, 1024)).astype(np.float32)
    kernel, y = _kernel(TRUTH / "softmax_1024.ptx", "softmax"), device.empty(x.shape, np.float32, "y")
    given = [device.array(x), y, x.shape[1], 0, 0]
    wanted = np.exp(x - x.max(axis=1, keepdims=True))
    wanted /= wanted.sum(axis=1, keepdims=True)

    def launch(checks: bool) -> Run:
        run = device.launch(kernel, len(x), 64, given, 64, checks=checks)
        np.testing.assert_allclose(y.numpy(), wanted, rtol=1e-4, atol=1e-6)
        return run

    return launch


def chunk_output(arch: str) -> Launch:
    """Two heads of 128 rows."""
    bench = find("gated_delta_rule_chunk_output")
    settings = {"kernel": arch, "lengths": (ROWS,), "heads": 2, "value_heads": 2}
    p = parameters_of(bench, None, settings)
    given = bench.inputs(p, np.random.default_rng(0))
    wanted = bench.golden(p, given)["o"]
    host, kernel = ptx.Host("emulator", arch), p.way.build()
    out = host.empty((len(given["q"]), 2, 128), "bf16", "o")
    arguments = p.layout.arguments(host, given, out, p.scale)

    def launch(checks: bool) -> Run:
        how = (kernel, (CTAS, p.grid[1]), p.way.threads, arguments, p.way.shared_bytes)
        run = host.launch(*how, outputs=[out], checks=checks)
        verdict = compare(run.outputs["o"], wanted.reference, compute_dtype="bf16")
        assert verdict.passed, verdict.reason
        return run

    return launch


def kernels() -> Iterator[tuple[str, Callable[[], Launch]]]:
    """All of them, by name."""
    for arch in ("sm_90a", "sm_100a"):
        yield f"attention, Triton, {arch}", partial(attention, arch)
        yield f"product, Triton, {arch}", partial(product, arch)
        yield f"chunk output, {arch}", partial(chunk_output, arch)
    yield "softmax, Triton, sm_90a", softmax


def inside() -> dict[str, list[float]]:
    """Milliseconds of one process, unchecked and checked."""
    found: dict[str, list[float]] = {}
    for name, make in kernels():
        launch, row = make(), []
        for checks in (False, True):
            times = []
            for _ in range(WARM + ROUNDS):
                began = time.process_time()
                run = launch(checks)
                times.append(1e3 * (time.process_time() - began))
                assert not run.findings, run.findings
            row.append(statistics.median(times[WARM:]))
        found[name] = row
    return found


def measured(source: Path) -> dict[str, list[float]]:
    """The same in a process of its own, with the package that lies in a folder."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "KERNBENCH_JOBS": "1"}
    # what many launches come to: three before are fewer than a loop is on trial
    environment |= {"PYTHONPATH": str(source), "KERNBENCH_COMPILE": "always"}
    words = [sys.executable, "-W", "ignore", __file__, "--inside"]
    done = subprocess.run(words, env=environment, check=True, capture_output=True, text=True)
    found: dict[str, list[float]] = json.loads(done.stdout.splitlines()[-1])
    return found


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--against", type=Path, help="the src folder of another state")
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.inside:
        print(json.dumps(inside()))
        return
    sources = [HERE.parent / "src", *([given.against] if given.against else [])]
    turns = [[measured(source) for source in sources] for _ in range(TURNS)]
    for name in turns[0][0]:
        for number, what in enumerate(("unchecked", "checked")):
            ours, *theirs = ([turn[state][name][number] for turn in turns] for state in range(len(sources)))
            text = f"{name:28} {what:9} {statistics.median(ours):7.1f} ms"
            for other in theirs:
                ratio = statistics.median(b / a for a, b in zip(ours, other, strict=True))
                text += f", before {statistics.median(other):7.1f} ms: {ratio:.2f} times (wanted: {WANTED:g})"
            print(text)


if __name__ == "__main__":
    main()
