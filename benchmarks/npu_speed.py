"""How long the npu target needs: the reference's four small cases with all checks and time, and a server's batch.

    python benchmarks/npu_speed.py

The reference's own functional simulator needs 3.7 s for the four cases, without checks and without time.
"""

import time
from statistics import median

from kernbench.bench import find, run_bench
from kernbench.benches.paged_attention import FORMS

REFERENCE = ("context_33", "context_128", "contexts_33_17", "contexts_33_64_48_15")
AIM_SMALL, AIM_LARGE = 0.3, 30.0


def small(form: str) -> float:
    """Seconds for the four cases together, golden included."""
    bench = find("paged_attention")
    start = time.perf_counter()
    for panel in REFERENCE:
        assert run_bench(bench, panel, {"form": form}, timed=True).right
    return time.perf_counter() - start


def large(form: str) -> tuple[float, int]:
    """Seconds for B 64, H 64, 8 KV heads, D 128, context 8192 without data, and the time on the chip."""
    start = time.perf_counter()
    run = run_bench(find("paged_attention"), "served", {"form": form}, timed=True, size="8k")
    assert run.safe
    return time.perf_counter() - start, run.metrics["time_ps"]


if __name__ == "__main__":
    for form in FORMS:
        small(form)
        print(f"{form}: four cases {median(small(form) for _ in range(5)):.3f} s (aim {AIM_SMALL})")
    for form in FORMS:
        seconds, simulated = large(form)
        print(f"{form}: large case {seconds:.1f} s (aim {AIM_LARGE}), {simulated / 1e9:.3f} ms on a2a3")
