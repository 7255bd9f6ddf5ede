"""What a first run on a fresh machine costs more than the next one: compiling, in CPU seconds, of panels of benches.

`python benchmarks/cold.py` runs `kernbench run` twice for each, with an empty folder for compiled loops and with what
the first run has left there. By CPU time, as a first run is the longer the more others are at work; the aim is 5
seconds on two cores, so 10 of CPU. `--panel BENCH:PANEL` runs only that one, and may be given again.
"""

import argparse
import os
import resource
import subprocess
import sys
import tempfile

PANELS = (
    "batched_incremental_attention:one_warp",
    "batched_incremental_attention:split_kv",
    "gated_delta_rule_chunk_output:sm_90a_keys_64",
    "gated_delta_rule_chunk_output:sm_100a_keys_64",
    "milestone_gqa_llama70b:single_user_decode",
    "paged_attention:context_33",
)
# CPU seconds: five on each of two cores
MOST = 10.0


def run(panel: str, folder: str) -> tuple[float, str]:
    """CPU seconds of a run in a process of its own, and what it printed."""
    bench, _, name = panel.partition(":")
    command = [sys.executable, "-m", "kernbench", "run", bench, "--panel", name]
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    environment = {**os.environ, "NUMBA_CACHE_DIR": folder, "KERNBENCH_COMPILE": ""}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert not done.returncode, done.stderr
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, done.stdout


def main() -> int:
    """A row for each panel."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--panel", action="append", metavar="BENCH:PANEL")
    given = parser.parse_args()
    print(f"{'CPU seconds of':48} {'first':>7} {'next':>7} {'compiling':>10} {'of aim':>7}")
    missed = 0
    for panel in given.panel or PANELS:
        with tempfile.TemporaryDirectory() as folder:
            (first, printed), (following, again) = run(panel, folder), run(panel, folder)
        assert printed == again, f"{panel}: the second run prints something else"
        more = first - following
        missed += more > MOST
        verdict = "" if more <= MOST else "  missed"
        print(f"{panel:48} {first:7.1f} {following:7.1f} {more:10.1f} {more / MOST:7.2f}{verdict}", flush=True)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
