"""Every mutant of the chunk-output kernels: one synchronisation instruction dropped, weakened or wrong by a little.

One block computes thirteen chunks of one head, five tails among them, so that each of the two stages and each buffer of
output is used again three times and more. Prints what becomes of each mutant, and the count: none may survive.
"""

import argparse
import sys
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from typing import Any

import numpy as np

from kernbench import ptx
from kernbench.bench import find, parameters_of
from kernbench.ptx.mutation import mutations
from kernbench.ptx.proof import Proof, Verdict, prove
from kernbench.ptx.text.module import Kernel
from kernbench.result.run import Run
from kernbench.safety.budget import Budget

BENCH = find("gated_delta_rule_chunk_output")
LENGTHS = (128, 64, 1, 0, 65, 64, 130, 30, 64, 5)
ONE_HEAD = {"heads": 1, "value_heads": 1, "key_size": 64, "value_size": 64, "sms": 1, "lengths": LENGTHS}
BUDGET = Budget(steps=400_000, seconds=120.0)


def launch(p: Any, given: dict[str, Any], kernel: Kernel, **options: Any) -> Run:
    """A kernel in the place of the bench's own, on arrays made for it."""
    host, way = ptx.Host("emulator", p.kernel), p.way
    out = host.empty((len(given["q"]), p.value_heads, p.value_size), "bf16", "o")
    args = p.layout.arguments(host, given, out, p.scale)
    return host.launch(kernel, p.grid, way.threads, args, way.shared_bytes, outputs=[out], budget=BUDGET, **options)


def proof_of(name: str, every: int = 1, share: int = 0, shares: int = 1) -> Proof:
    """The verdicts on each (or every n-th) mutant of a kernel, or on one of several shares of them."""
    p = parameters_of(BENCH, None, {**ONE_HEAD, "kernel": name})
    given = dict(BENCH.inputs(p, np.random.default_rng(0)))
    kernel = p.way.build()
    some = mutations(kernel)[::every][share::shares]
    return prove(kernel, partial(launch, p, given), among=some, on_verdict=_show)


def _show(verdict: Verdict) -> None:
    print(verdict, flush=True)


def _counted(name: str, every: int, share: int, shares: int) -> tuple[str, Counter[str]]:
    return name, Counter(proof_of(name, every, share, shares).counts)


def main() -> None:
    """Run the proofs; the exit status says whether a mutant survived."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kernel", action="append", help="sm_90a, sm_100a; both by default")
    parser.add_argument("--every", type=int, default=1, help="every n-th mutant only")
    parser.add_argument("--processes", type=int, default=1, help="mutants that run at once")
    given = parser.parse_args()
    names, shares = given.kernel or ("sm_90a", "sm_100a"), range(given.processes)
    found = {name: Counter[str]() for name in names}
    with ProcessPoolExecutor(given.processes) as pool:
        tasks = [pool.submit(_counted, name, given.every, share, len(shares)) for name in names for share in shares]
        for task in tasks:
            name, counts = task.result()
            found[name] += counts
    for name, counts in found.items():
        outcomes = ", ".join(f"{count} {outcome}" for outcome, count in sorted(counts.items()))
        print(f"{counts.total()} mutants of {name}: {outcomes or 'none'}")
    sys.exit(any(counts["survivor"] for counts in found.values()))


if __name__ == "__main__":
    main()
