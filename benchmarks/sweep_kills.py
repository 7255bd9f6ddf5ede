"""A sweep that is killed again and again ends with the rows of one that was not.

`kernbench sweep` is started with workers, killed with SIGKILL at a random moment (from a seed: of four kills one while
it starts, the others a while after its database is there), and started again on the same database, as often as asked;
then it runs to its end. Its rows are compared with those of an
undisturbed sweep, every column of every row; no row may be lost or doubled, and no process of it may be left. With
--together, two sweeps share the database and one of them is killed each time. Exit status 1 if anything differs.

    python benchmarks/sweep_kills.py --kills 50
"""

import argparse
import random
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from pathlib import Path

BENCH = [
    *("milestone_gqa_llama70b", "-p", "single_user_decode", "--set", "context=24"),
    *("--set", "d_head=16", "--set", "h_q=4", "--set", "h_kv=2"),
]
# of eight functional passes one is refused; points enough for a kill in the middle of most parts
OVER = [
    *("--over", "n_ranks=1,2,4,64", "--over", "machine.ipcq.depth=2,4"),
    *("--over", "machine.hbm.bandwidth=100..400/5 GB/s", "--over", "machine.link.latency=1..20 ns"),
]


def command(out: Path) -> list[str]:
    """The command line of the sweep."""
    return [sys.executable, "-m", "kernbench.cli", "sweep", *BENCH, *OVER, "--jobs", "2", "--out", str(out)]


def start(out: Path) -> subprocess.Popen[bytes]:
    """A sweep in a session of its own, so that its processes can be found; what it says is in a file beside `out`."""
    with said(out).open("wb") as file:
        return subprocess.Popen(command(out), stdout=subprocess.DEVNULL, stderr=file, start_new_session=True)


def said(out: Path) -> Path:
    """The file of what the last sweep said on its error channel."""
    return out.with_suffix(".said")


def finish(out: Path) -> None:
    """A sweep to its end. Points that are refused are part of it; a sweep that fails otherwise is shown."""
    status = start(out).wait()
    if status not in (0, 1):
        sys.exit(f"the sweep ended with status {status}:\n{said(out).read_text()}")


def wait_for_moment(process: subprocess.Popen[bytes], out: Path, moments: random.Random, longest: float) -> None:
    """Sleep until the process should be killed: on a slow machine it may take long to come to its first point."""
    while_it_starts = moments.random() < 0.25
    before = count(out)
    while not while_it_starts and count(out) == before and process.poll() is None:
        time.sleep(0.01)
    time.sleep(moments.uniform(0, longest))


def left_of(session: int) -> list[int]:
    """The processes of a session that still run."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            state, _, _, own, *_ = (entry / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(own) == session and state not in "ZX":
            found.append(int(entry.name))
    return found


def rows(file: Path) -> list[tuple[object, ...]]:
    """All points, without which sweep wrote each."""
    with sqlite3.connect(file) as database:
        names = [row[1] for row in database.execute("PRAGMA table_info(points)") if row[1] != "owner"]
        columns = ", ".join(f'"{name}"' for name in names)
        found = database.execute(f"SELECT {columns} FROM points ORDER BY at_0, at_1, at_2, at_3").fetchall()
    database.close()
    return found


def count(file: Path) -> int:
    """How many points are there."""
    try:
        with sqlite3.connect(f"{file.as_uri()}?mode=ro", uri=True) as database:
            return int(database.execute("SELECT count(*) FROM points").fetchone()[0])
    except sqlite3.Error:
        return 0


def killed(out: Path, kills: int, together: bool, moments: random.Random, longest: float) -> int:
    """Kill sweeps of one database; returns how many processes were left behind."""
    left = 0
    other: subprocess.Popen[bytes] | None = None
    for number in range(kills):
        if together and (other is None or other.poll() is not None):
            other = start(out)
        process = start(out)
        wait_for_moment(process, out, moments, longest)
        ended = process.poll()
        process.send_signal(signal.SIGKILL)
        process.wait()
        end = time.monotonic() + 5
        while left_of(process.pid) and time.monotonic() < end:
            time.sleep(0.02)
        left += len(left_of(process.pid))
        print(f"kill {number + 1}: {count(out):,} points{'' if ended is None else ', it had ended'}", flush=True)
    if other is not None:
        other.wait()
    return left


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--seed", type=int, default=13)
    parser.add_argument("--together", action="store_true", help="two sweeps at a time on the database")
    parser.add_argument("--longest", type=float, default=0.5, help="seconds between start or first point, and kill")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        whole, often = Path(folder) / "whole.sqlite", Path(folder) / "often.sqlite"
        finish(whole)
        left = killed(often, chosen.kills, chosen.together, random.Random(chosen.seed), chosen.longest)
        finish(often)
        wanted, found = rows(whole), rows(often)
    same = wanted == found
    verdict = "the same" if same else "NOT the same"
    print(f"{len(wanted):,} rows undisturbed, {len(found):,} after {chosen.kills} kills: {verdict}")
    print(f"{left} processes left behind")
    return 0 if same and not left else 1


if __name__ == "__main__":
    sys.exit(main())
