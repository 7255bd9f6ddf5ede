"""How much faster launches are on several cores: chunk output of the gated delta rule (4,096 rows, sm_90a) and batched
attention (128 sequences, 8 heads, 512 keys), all checks on.

Wall-clock seconds of the median of three launches and their ratio to one core; beside it the CPU seconds of all
processes, which say what an idle machine would give on one that is not. The outcome must be that of one core to the
last bit. Before it comes how much work so many launches at once do that have nothing to do with each other, one on each
core: more than that is not to be had of a machine. Run with one BLAS thread.

    python benchmarks/ptx_cores.py --jobs 1 2 4
"""

import argparse
import os
import statistics
import sys
import time
from collections.abc import Callable

from chunk_output_speed import HEADS, SIZE, VALUE_HEADS
from chunk_output_speed import Problem as ChunkOutput
from kernbench import ptx
from kernbench.ptx.emulator.engine.splitting import Division
from kernbench.result.run import Run
from kernbench.safety.jobs import allow
from ptx_jobs import differences
from ptx_speed import Problem as Attention

Launch = Callable[[int], tuple[Run, Division]]


def attention(sequences: int, keys: int) -> Launch:
    """Batched attention on so many processes."""
    problem = Attention(sequences, 8, keys)

    def launch(jobs: int) -> tuple[Run, Division]:
        run = problem.device.launch(problem.kernel, problem.grid, problem.block, problem.args, jobs=jobs)
        return run, problem.device.division

    return launch


def chunk_output(rows: int) -> Launch:
    """Chunk output on so many processes."""
    problem = ChunkOutput("sm_90a", (rows,))
    kernel, way = problem.p.way.build(), problem.p.way

    def launch(jobs: int) -> tuple[Run, Division]:
        host = ptx.Host("emulator", "sm_90a")
        out = host.empty((len(problem.given["q"]), VALUE_HEADS, SIZE), "bf16", "o")
        args = problem.p.layout.arguments(host, problem.given, out, problem.p.scale)
        run = host.launch(kernel, problem.p.grid, way.threads, args, way.shared_bytes, outputs=[out], jobs=jobs)
        return run, host.device.division

    return launch


def measured(launch: Launch, jobs: int, turns: int) -> tuple[float, float, Run, Division]:
    """Wall-clock and CPU seconds of the median launch, its run, and how it was divided."""
    walls, computed = [], []
    # arrays of a device that are made for a launch are made by as many threads
    allow(jobs)
    for _ in range(turns):
        before, began = os.times(), time.monotonic()
        run, division = launch(jobs)
        walls.append(time.monotonic() - began)
        computed.append(sum(os.times()[:4]) - sum(before[:4]))
    return statistics.median(walls), statistics.median(computed), run, division


def apart(launch: Launch, jobs: int) -> float:
    """Wall-clock seconds in which so many processes, made beforehand, each do a launch on one core."""
    ready, (waiting, begin) = [], os.pipe()
    allow(1)
    for _ in range(jobs):
        ended, end = os.pipe()
        if os.fork() == 0:
            # goes on when nobody can write to the pipe any more
            os.close(begin)
            os.read(waiting, 1)
            launch(1)
            os._exit(0)
        os.close(end)
        ready.append(ended)
    began = time.monotonic()
    os.close(begin)
    for ended in ready:
        os.read(ended, 1)
        os.close(ended)
    seconds = time.monotonic() - began
    os.close(waiting)
    for _ in range(jobs):
        os.wait()
    return seconds


def main() -> int:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--rows", type=int, default=4096)
    parser.add_argument("--sequences", type=int, default=128)
    parser.add_argument("--turns", type=int, default=3)
    given = parser.parse_args()
    named = {
        f"batched attention, {given.sequences} sequences": attention(given.sequences, 512),
        f"chunk output, {given.rows} rows, {HEADS} heads": chunk_output(given.rows),
    }
    wrong = 0
    for name, launch in named.items():
        launch(1)
        wall, computed, alone, _ = measured(launch, 1, given.turns)
        print(f"{name}: one core {wall:.2f} s ({computed:.2f} s of CPU time)", flush=True)
        for jobs in (n for n in given.jobs if n > 1):
            together = statistics.median(apart(launch, jobs) for _ in range(given.turns))
            print(f"  {jobs} launches at once do {jobs * wall / together:.2f} times the work of one", flush=True)
            launch(jobs)
            seconds, spent, run, division = measured(launch, jobs, given.turns)
            differs = differences(alone, run)
            wrong += bool(differs)
            what = f"DIFFERS in {', '.join(differs)}" if differs else "the same outcome"
            print(
                f"  {jobs} jobs: {seconds:.2f} s, {wall / seconds:.2f} times ({spent:.2f} s of CPU time in all, so at "
                f"most {jobs * computed / spent:.2f} times); {division.parts} parts {division.reason}; {what}",
                flush=True,
            )
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
