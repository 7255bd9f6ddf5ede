"""A real decode, checked: 128 sequences of 16,384 keys (8 query heads, 2 KV heads of 128, f16), on one core or more.

The panel of the bench as it is, without its time: seconds of the launch alone, by the clock and of all processes, and
thread-instructions a second of the clock. The result must be right, and the same on any number of processes.

    python benchmarks/ptx_decode.py --jobs 1 16
    python benchmarks/ptx_decode.py --users 16 --jobs 1
"""

import argparse
import os
import sys
import time
from typing import Any
from unittest import mock

from kernbench.bench import find, run_bench
from kernbench.ptx.devices.device import EmulatedDevice
from kernbench.ptx.target import PtxTarget
from kernbench.result.run import Run
from kernbench.safety.jobs import VARIABLE

# minutes that a checked launch may take
MOST = 10.0


def launched(users: int, context: int, kernel: str, jobs: int) -> tuple[float, float, Run]:
    """Seconds by the clock and of all processes of the longest launch, and what the bench gives."""
    found: list[tuple[float, float]] = []
    perform = EmulatedDevice._perform

    def timed(device: EmulatedDevice, *given: Any, **more: Any) -> Any:
        before, began = os.times(), time.monotonic()
        run = perform(device, *given, **more)
        found.append((time.monotonic() - began, sum(os.times()[:4]) - sum(before[:4])))
        return run

    with (
        mock.patch.dict(os.environ, {VARIABLE: str(jobs)}),
        # a recorded launch runs on one core
        mock.patch.object(PtxTarget, "record_for_time", return_value=None),
        mock.patch.object(EmulatedDevice, "_perform", timed),
    ):
        settings = {"kernel": kernel, "users": users, "context": context}
        run = run_bench(find("batched_incremental_attention"), None, settings)
    return *max(found), run


def main() -> int:
    """A line for each number of processes."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--users", type=int, default=128)
    parser.add_argument("--context", type=int, default=16_384)
    parser.add_argument("--kernel", default="shared_kv")
    parser.add_argument("--jobs", type=int, nargs="+", default=[1])
    given = parser.parse_args()
    outcomes, missed = [], False
    for jobs in given.jobs:
        wall, computed, run = launched(given.users, given.context, given.kernel, jobs)
        assert run.ok, run.findings
        assert run.right
        count = int(run.metrics["thread_instructions"])
        missed |= wall > 60 * MOST
        print(
            f"{given.kernel}, {given.users} sequences of {given.context:,} keys, {jobs} jobs: {wall:.1f} s (at most "
            f"{MOST:g} minutes), {computed:.1f} s of CPU time; {count / 1e9:.1f} billion thread-instructions, "
            f"{count / wall / 1e6:,.0f} million a second",
            flush=True,
        )
        outcomes.append((run.metrics, [(name, array.tobytes()) for name, array in run.outputs.items()]))
    same = all(outcome == outcomes[0] for outcome in outcomes)
    print("right, safe, and the same" if same else "the outcomes DIFFER")
    return 1 if missed or not same else 0


if __name__ == "__main__":
    sys.exit(main())
