"""`python -m benchmarks.faults [PAGE]`: the table of textbook faults, printed, or written into a page of docs.

Each pair of kernels (`pairs`, of `faults.ptx`, which nvcc made of `faults.cu`) is recorded and timed for an H200. Exit
code 1 if an advice does not name its fault, or its saving does not lead to the predicted time of the mended kernel.
Machine code (`pip install 'kernbench[time]'`) is needed for spills.

    PYTHONPATH=src python -m benchmarks.faults docs/ptx-time.md
"""

import re
import sys
from pathlib import Path

from .measuring import Row, row
from .pairs import PAIRS

BEGINS, ENDS = "<!-- table: faults -->", "<!-- end: faults -->"
_HEAD = (
    "| fault | predicted, us | mended, us | first advice | saves, us | sure | ok |",
    "|---|---:|---:|---|---:|---|---|",
)


def line(found: Row) -> str:
    """A row of the table."""
    times = f"{found.predicted:.1f} | {found.mended:.1f}"
    ok = "yes" if found.ok else f"no: {found.wanted}"
    return f"| {found.fault} | {times} | {found.advice} | {found.saving:.1f} | {found.sure} | {ok} |"


def main() -> int:
    """Make the table."""
    rows = []
    for pair in PAIRS:
        rows.append(row(pair))
        print(line(rows[-1]), flush=True)
    table = "\n".join((BEGINS, *_HEAD, *map(line, rows), ENDS))
    for name in sys.argv[1:]:
        text = Path(name).read_text(encoding="utf-8")
        Path(name).write_text(re.sub(f"{BEGINS}.*?{ENDS}", lambda _: table, text, flags=re.S), encoding="utf-8")
    return 0 if all(one.ok for one in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
