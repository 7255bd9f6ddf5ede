"""What the npu's checkers say of every kernel with one thing left out: flags, barriers, dependences, directions.

    python benchmarks/npu_mutations.py

Every single row of flags and barriers of a run (not only every line of the source), both ends of every flag, every
dependence of every task, and every other direction of every argument. "same order": nothing is found, and the checker's
digest of the order over all accesses is the same. "silent" must be 0 everywhere.
"""

import argparse
import importlib
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

from kernbench import npu

# the tests do the same on one small case
sys.path.insert(0, str(Path(__file__).parent.parent))
mutations: Any = importlib.import_module("tests.npu.mutations")
paged: Any = importlib.import_module("tests.npu.paged")

CASES: tuple[dict[str, Any], ...] = (
    {"lens": [33]},
    {"lens": [33, 17], "H": 32, "kv": 2},
    {"lens": [40, 0, 20]},
    {"lens": [100, 37], "H": 32, "kv": 4, "D": 64, "page": 32},
    {"lens": [40, 20], "scores": "f16"},
    {"lens": [1300], "H": 64, "D": 64, "page": 128, "tile": 64},
)


def judged(form: str, case: dict[str, Any]) -> tuple[str, int]:
    """What becomes of the mutants of one form in one case, as text, and how many are silent."""
    chip = npu.Chip("a2a3")
    verdicts = (mutations.FOUND, mutations.SAME, mutations.SILENT)
    start, again = time.perf_counter(), partial(paged.launch, form, paged.problem(**case))
    counts, silent = mutations.judge_rows(again(), chip)
    more, quiet = mutations.judge_runtime(again, chip)
    counts += more
    lines = [
        f"{name} {'/'.join(str(counts[name, verdict]) for verdict in verdicts)}"
        for name in dict.fromkeys(name for name, _ in counts)
    ]
    text = f"{form} {case}: {', '.join(lines)} ({time.perf_counter() - start:.0f} s)"
    return "\n  silent: ".join([text, *silent, *quiet]), len(silent) + len(quiet)


def main() -> int:
    """Judge all forms on all cases; the number of silent mutants."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--processes", type=int, default=1, help="cases that run at once")
    failed, many = 0, parser.parse_args().processes
    with ProcessPoolExecutor(many) as pool:
        # the longest first
        tasks = [pool.submit(judged, form, case) for case in reversed(CASES) for form in paged.FORMS]
        for task in tasks:
            text, silent = task.result()
            print(text, flush=True)
            failed += silent
    print(f"mutants: found / same order / silent; {failed} silent")
    return failed


if __name__ == "__main__":
    sys.exit(min(1, main()))
