"""What a predicted time costs, in seconds of CPU, and how that compares with what is aimed at.

`python benchmarks/ptx_time_speed.py` runs each bench once without a clock, so that loops are compiled, and then each
part by itself: a checked launch, the same recorded, its streams, and the model. Ratios are of one process. Then each
aim with what was reached as a share of it: 1 or less is met. `--turns 1` takes a third of the time.
"""

import argparse
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from time import process_time

from kernbench.bench import find, run_bench
from kernbench.ptx.machine.model import load
from kernbench.ptx.sass.join.making import streams_of
from kernbench.ptx.time.launch import time_launch

# bench and settings, by the name of the row
CASES: dict[str, tuple[str, Mapping[str, object]]] = {
    "decode, 2 users": (
        "batched_incremental_attention", {"users": 2, "context": 512, "lengths": (), "kernel": "multi_warp"},
    ),
    "chunk output, T 512": (
        "gated_delta_rule_chunk_output", {"kernel": "sm_90a", "gpu": "h200", "lengths": (512,), "sms": 4},
    ),
    "chunk output, T 4096": (
        "gated_delta_rule_chunk_output", {"kernel": "sm_90a", "gpu": "h200", "lengths": (4096,), "sms": 132},
    ),
}  # fmt: skip
LARGE = "chunk output, T 4096"
# warp instructions a second, seconds of CPU for recording and timing the large launch and for timing it again, and a
# recorded launch beside a checked one
RATE, WHOLE, AGAIN, RECORDED = 1e6, 40.0, 5.0, 2.0


@dataclass(frozen=True)
class Cost:
    """Seconds of CPU of one case, and the warp instructions that were simulated."""

    checked: float
    recorded: float
    streams: float
    timed: float
    simulated: int

    @property
    def rate(self) -> float:
        """Warp instructions timed in a second."""
        return self.simulated / self.timed


def seconds(work: Callable[[], object], turns: int) -> float:
    """The least CPU time of some turns."""

    def once() -> float:
        began = process_time()
        work()
        return process_time() - began

    return min(once() for _ in range(turns))


def measured(name: str, settings: Mapping[str, object], turns: int) -> Cost:
    """One case, after a run that compiles."""
    gpu, bench = load("h200"), find(name)
    recording = run_bench(bench, None, settings, timed=True, drawn=False).recording
    streams = streams_of(recording, gpu.arch)
    simulated = time_launch(recording, streams, gpu).simulated
    checked = seconds(partial(run_bench, bench, None, settings), turns)
    # with its streams and its time; both are taken off
    whole = seconds(partial(run_bench, bench, None, settings, timed=True, drawn=False), turns)
    joined = seconds(partial(streams_of, recording, gpu.arch), turns)
    timed = seconds(partial(time_launch, recording, streams, gpu), turns)
    return Cost(checked, whole - joined - timed, joined, timed, simulated)


def aims(costs: Mapping[str, Cost]) -> list[tuple[str, float, float, str]]:
    """Each aim: what it is, what was reached, what is aimed at, its unit. All are costs: less is better."""
    slowest, ratio = min(one.rate for one in costs.values()), max(one.recorded / one.checked for one in costs.values())
    found = [
        ("a warp instruction timed", 1e6 / slowest, 1e6 / RATE, "us"),
        ("recorded beside checked", ratio, RECORDED, "times"),
    ]
    if LARGE in costs:
        large = costs[LARGE]
        whole = large.recorded + large.streams + large.timed
        found += [
            (f"{LARGE}: recorded and timed", whole, WHOLE, "s"),
            (f"{LARGE}: timed again", large.timed, AGAIN, "s"),
        ]
    return found


def main(given: list[str] | None = None) -> None:
    """A row for each case, and one for each aim."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--case", action="append", choices=sorted(CASES), help="only this one; may be given again")
    options = parser.parse_args(given)
    print(f"{'case':32} {'checked':>8} {'recorded':>9} {'ratio':>6} {'streams':>8} {'timed':>7} {'M/s':>6}")
    costs: dict[str, Cost] = {}
    for name in options.case or CASES:
        one = costs[name] = measured(*CASES[name], options.turns)
        row = f"{name:32} {one.checked:8.2f} {one.recorded:9.2f} {one.recorded / one.checked:6.2f} {one.streams:8.2f}"
        print(f"{row} {one.timed:7.3f} {one.rate / 1e6:6.2f}", flush=True)
    print(f"\n{'aim':44} {'reached':>9} {'at most':>8} {'':6} {'of aim':>7}")
    for name, reached, most, unit in aims(costs):
        print(
            f"{name:44} {reached:9.3g} {most:8g} {unit:6} {reached / most:7.2f}{'' if reached <= most else '  missed'}"
        )


if __name__ == "__main__":
    main()
