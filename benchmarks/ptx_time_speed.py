"""What a predicted time costs, in seconds of CPU: a checked launch, the same recorded, its streams, and the model.

`python benchmarks/ptx_time_speed.py` runs each bench once without a clock, so that loops are compiled, and then each
part by itself; ratios are of one process. The last column is millions of warp instructions that are timed in a second.
"""

from collections.abc import Callable, Mapping
from functools import partial
from time import process_time

from kernbench.bench import find, run_bench
from kernbench.ptx.machine.model import load
from kernbench.ptx.sass.join.making import streams_of
from kernbench.ptx.time.launch import time_launch

CASES: dict[str, Mapping[str, object]] = {
    "batched_incremental_attention": {"users": 2, "context": 512, "lengths": (), "kernel": "multi_warp"},
    "gated_delta_rule_chunk_output": {"kernel": "sm_90a", "gpu": "h200", "lengths": (512,), "sms": 4},
}
TURNS = 3


def seconds(work: Callable[[], object]) -> float:
    """The least CPU time of some turns."""

    def once() -> float:
        began = process_time()
        work()
        return process_time() - began

    return min(once() for _ in range(TURNS))


def main() -> None:
    """A row for each bench."""
    gpu = load("h200")
    print(f"{'bench':32} {'checked':>8} {'recorded':>9} {'ratio':>6} {'streams':>8} {'timed':>7} {'M/s':>6}")
    for name, settings in CASES.items():
        bench = find(name)
        recording = run_bench(bench, None, settings, timed=True, drawn=False).recording
        streams = streams_of(recording, gpu.arch)
        time = time_launch(recording, streams, gpu)
        checked = seconds(partial(run_bench, bench, None, settings))
        # with its streams and its time; both are taken off
        whole = seconds(partial(run_bench, bench, None, settings, timed=True, drawn=False))
        joined = seconds(partial(streams_of, recording, gpu.arch))
        timed = seconds(partial(time_launch, recording, streams, gpu))
        recorded = whole - joined - timed
        row = f"{name:32} {checked:8.2f} {recorded:9.2f} {recorded / checked:6.2f} {joined:8.2f} {timed:7.3f}"
        print(f"{row} {time.simulated / timed / 1e6:6.2f}")


if __name__ == "__main__":
    main()
