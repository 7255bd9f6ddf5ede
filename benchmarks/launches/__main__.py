"""`python -m benchmarks.launches`: how fast the emulator runs launches of Triton kernels, on one core.

For each launch: million thread-instructions a second of CPU time, with all checks and without, best of three; beside
them geometric means by group and over all, and the slowest. A figure counts only if the result is that of torch and
nothing is found; exit code 1 if one does not count. Each launch has a process of its own. Needs torch and Triton
(`make test-doors` installs them), and `src` on the path where kernbench is not installed.

    PYTHONPATH=src .venv-doors/bin/python -m benchmarks.launches --only flash --json out/now.json --against before.json
"""

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path

from .measuring import MODES, Row, row
from .registry import chosen
from .table import HEAD, line, summary

# one core: no processes of the emulator's own, and no threads of libraries
ONE_CORE = {
    "KERNBENCH_JOBS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "NUMBA_NUM_THREADS": "1",
    # how products and sums are fused is Triton's default until 3.10
    "TRITON_DEFAULT_FP_FUSION": "1",
}


def apart(name: str, modes: list[str]) -> list[Row]:
    """The rows of the launches of this name, measured in a process of their own."""
    words = [sys.executable, "-W", "ignore", "-m", __package__, "--inside", name]
    words += [f"--{mode}" for mode in modes]
    done = subprocess.run(words, env={**os.environ, **ONE_CORE}, capture_output=True, text=True, check=False)
    if done.returncode or not done.stdout:
        return [Row(name=name, error=f"the process ended with {done.returncode}: {done.stderr[-400:]!r}")]
    found: list[Row] = json.loads(done.stdout.splitlines()[-1])
    return found


def inside(name: str, modes: list[str]) -> None:
    """Print the rows as JSON."""
    print(json.dumps([row(case, modes) for case in chosen(name) if case.name == name]))


def read(path: Path | None) -> dict[str, Row]:
    """An earlier run by the names of its launches."""
    return {} if path is None else {one["name"]: one for one in json.loads(path.read_text())["launches"]}


def run(pattern: str, modes: list[str], earlier: dict[str, Row], out: Path | None) -> list[Row]:
    """Measure, print each line as it comes, and keep what there is in a file."""
    rows: list[Row] = []
    print(HEAD, flush=True)
    for case in chosen(pattern):
        about = Row(name=case.name, kernel=case.kernel, group=case.group, arch=case.arch, size=case.size)
        for found in apart(case.name, modes):
            rows.append(about | found)
            print(line(rows[-1], earlier.get(case.name)), flush=True)
        if out is not None:
            out.write_text(json.dumps({"launches": rows}, indent=1) + "\n")
    return rows


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", metavar="NAMES", help="launches whose name contains one of these (a,b)")
    parser.add_argument("--checked", action="store_true", help="only with all checks")
    parser.add_argument("--unchecked", action="store_true", help="only without checks")
    parser.add_argument("--json", type=Path, metavar="FILE", help="keep the figures there")
    parser.add_argument("--against", type=Path, metavar="FILE", help="print ratios to these figures")
    parser.add_argument("--list", action="store_true", help="print the names of the launches, and measure nothing")
    parser.add_argument("--inside", help=argparse.SUPPRESS)
    given = parser.parse_args()
    modes = [mode for mode in MODES if getattr(given, mode)] or list(MODES)
    if given.inside:
        inside(given.inside, modes)
        return 0
    if given.list:
        print("\n".join(case.name for case in chosen(given.only)))
        return 0
    earlier = read(given.against)
    rows = run(given.only, modes, earlier, given.json)
    print("\n".join(summary(rows, earlier)))
    return 0 if rows and not any("error" in one for one in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
