"""How many timing-only points a sweep does in a second, and that memory does not grow with them.

A tiny bench is recorded once and timed on machines that differ in rates. For each number of points a sweep runs in a
process of its own, in two workers, into a database; this prints its rate by wall clock and by CPU time (which others
on the machine disturb less), and the largest memory of the process that keeps the points and of its workers. Exit
status 1 if memory grows by more than a tenth from the smallest to the largest.

    python benchmarks/sweep_points.py                     # 10,000 and 100,000 points
    python benchmarks/sweep_points.py 10000 1000000       # takes minutes
"""

import argparse
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from kernbench.bench import find
from kernbench.sweep import Processes, Store, make_plan, run_sweep

BENCH, PANEL = "milestone_gqa_llama70b", "single_user_decode"
SMALL = {"context": 24, "d_head": 16, "h_q": 4, "h_kv": 2, "n_ranks": 2}
MOST_GROWTH = 1.1


def one(points: int) -> None:
    """Sweep so many points, and print what it took: seconds, CPU seconds, kilobytes of this process and of a worker."""
    rows = max(1, points // 1000)
    over = {"machine.hbm.bandwidth": [f"100..{99 + points // rows}"], "machine.link.latency": [f"1..{rows} ns"]}
    plan = make_plan(find(BENCH), PANEL, SMALL, over)
    begin = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder, Store(Path(folder) / "points.sqlite", plan) as store:
        run_sweep(plan, Processes(2), store)
        assert store.counts().done == plan.points
    seconds = time.perf_counter() - begin
    usage = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    cpu = sum(one.ru_utime + one.ru_stime for one in usage)
    print(plan.points, seconds, cpu, *(one.ru_maxrss for one in usage))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("points", type=int, nargs="*", default=[10_000, 100_000])
    parser.add_argument("--one", type=int, help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.one:
        one(chosen.one)
        return 0
    memory = []
    for number in chosen.points:
        command = [sys.executable, __file__, "--one", str(number)]
        said = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()
        points, seconds, cpu, own, worker = (float(word) for word in said)
        memory.append(own + worker)
        print(
            f"{points:,.0f} points in {seconds:,.0f} s: {points / seconds:,.0f} a second, {cpu / points * 1e6:,.0f} us "
            f"of CPU each; at most {own / 1000:,.0f} MB, and {worker / 1000:,.0f} MB in a worker",
            flush=True,
        )
    grown = memory[-1] / memory[0] > MOST_GROWTH
    print("memory grows with the points: MISSED" if grown else "memory does not grow with the points")
    return 1 if grown else 0


if __name__ == "__main__":
    sys.exit(main())
