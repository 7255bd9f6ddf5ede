"""How fast the mesh emulator is, as ratios in one process: flash attention against a plain NumPy loop, and commands per
second of a 64-rank K/V ring, by this process's own CPU time. All checks, data and source lines are on. Run with one
BLAS thread (make bench).

The loops of flash attention are over `tl.range`: alike iterations are computed without the kernel. It is measured at
two lengths, as the first iterations run either way, and once with every iteration run.
"""

import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernbench import mesh
from kernbench.benches._attention_mesh_kv import attention_mesh_kv_kernel
from kernbench.golden import attention, compare

Array = NDArray[np.float32]
S, LONG_S, D, BLOCK = 1024, 4096, 64, 64
RANKS, S_PER_RANK = 64, 64
MOST_TIMES_NUMPY = 1.6
LEAST_COMMANDS_PER_SECOND = 50_000


def numpy_flash(q: Array, k: Array, v: Array) -> Array:
    """Flash attention forward, one head, as a tiled NumPy loop: the measure everything is compared with."""
    out = np.empty_like(q)
    scale = np.float32(q.shape[1] ** -0.5)
    for i in range(0, len(q), BLOCK):
        tile = q[i : i + BLOCK]
        m = np.full((BLOCK, 1), -np.inf, np.float32)
        l, o = np.zeros((BLOCK, 1), np.float32), np.zeros_like(tile)
        for j in range(0, len(k), BLOCK):
            s = (tile @ k[j : j + BLOCK].T) * scale
            new = np.maximum(m, s.max(axis=1, keepdims=True))
            p, shrink = np.exp(s - new), np.exp(m - new)
            l = l * shrink + p.sum(axis=1, keepdims=True)
            o = o * shrink + p @ v[j : j + BLOCK]
            m = new
        out[i : i + BLOCK] = o / l
    return out


def tl_flash(q_ptr: int, k_ptr: int, v_ptr: int, o_ptr: int, s: int, d: int, *, tl: Any) -> None:
    """The same algorithm as a `tl` kernel on one PE."""
    row_bytes = d * 4
    scale = d**-0.5
    for i in tl.range(0, s, BLOCK):
        q = tl.load(q_ptr + i * row_bytes, shape=(BLOCK, d), dtype="f32")
        m = tl.full((BLOCK, 1), float("-inf"))
        l, o = tl.zeros((BLOCK, 1)), tl.zeros((BLOCK, d))
        for j in tl.range(0, s, BLOCK):
            k = tl.load(k_ptr + j * row_bytes, shape=(BLOCK, d), dtype="f32")
            v = tl.load(v_ptr + j * row_bytes, shape=(BLOCK, d), dtype="f32")
            x = tl.dot(q, tl.trans(k)) * scale
            new = tl.maximum(m, tl.max(x, axis=1))
            p, shrink = tl.exp(x - new), tl.exp(m - new)
            l = l * shrink + tl.sum(p, axis=1)
            o = o * shrink + tl.dot(p, v)
            m = new
        tl.store(o_ptr + i * row_bytes, o / l)


def median_seconds(work: Callable[[], Any], repeats: int) -> float:
    times = []
    for _ in range(repeats):
        began = time.process_time()
        work()
        times.append(time.process_time() - began)
    return statistics.median(times)


def flash_ratio(s: int, folds: bool, repeats: int = 9) -> float:
    rng = np.random.default_rng(0)
    q, k, v = (rng.standard_normal((s, D)).astype(np.float32) for _ in range(3))
    host = mesh.Host("small", ranks=1)
    host.folds = folds
    tensors = [host.shard(x) for x in (q, k, v)]
    o = host.empty((s, D), "f32", axis=0)

    def emulate() -> None:
        assert host.launch(tl_flash, *tensors, o, s, D).safe

    emulate()
    golden = attention(q[:, None], k[:, None], v[:, None])
    for result in (host.gather(o), numpy_flash(q, k, v)):
        assert compare(result[:, None], golden).passed
    ratios = [median_seconds(emulate, 1) / median_seconds(lambda: numpy_flash(q, k, v), 3) for _ in range(repeats)]
    return statistics.median(ratios)


def ring_rate() -> tuple[float, int]:
    rng = np.random.default_rng(0)
    total = RANKS * S_PER_RANK
    q, k, v = (rng.standard_normal((total, 1, D)).astype(np.float32) for _ in range(3))
    host = mesh.Host("large", ranks=RANKS)
    tensors = [host.shard(q[:, 0]), host.shard(k), host.shard(v)]
    o = host.empty((total, D), "f32", axis=0)
    shapes = (S_PER_RANK, S_PER_RANK, 1, 1, D, RANKS)
    run = host.launch(attention_mesh_kv_kernel, *tensors, o, *shapes)
    assert run.safe
    assert compare(host.gather(o)[:, None], attention(q, k, v), rank_axis=0, ranks=RANKS).passed
    seconds = median_seconds(lambda: host.launch(attention_mesh_kv_kernel, *tensors, o, *shapes), 5)
    return run.metrics["commands"] / seconds, run.metrics["commands"]


def main() -> int:
    print(f"flash attention, one head, D {D}, {BLOCK}x{BLOCK} tiles, f32, all checks on, times the NumPy loop:")
    met = True
    for s, folds, repeats in ((S, True, 9), (LONG_S, True, 3), (S, False, 9)):
        ratio = flash_ratio(s, folds, repeats)
        how = "" if folds else ", every iteration run"
        met &= ratio <= MOST_TIMES_NUMPY or not folds
        print(f"  S {s:,}{how}: {ratio:.2f} (at most {MOST_TIMES_NUMPY})", flush=True)
    rate, commands = ring_rate()
    print(f"K/V ring, {RANKS} ranks on large, S {S_PER_RANK} per rank, data, checks and source lines on:")
    print(f"  {rate:,.0f} commands per second over {commands:,} commands (at least {LEAST_COMMANDS_PER_SECOND:,})")
    met &= rate >= LEAST_COMMANDS_PER_SECOND
    print("all aims met" if met else "an aim was MISSED; timings are noisy: try again on an idle machine")
    return 0


if __name__ == "__main__":
    sys.exit(main())
