"""What a cluster costs the machine that drives it: bytes sent, tasks and rows a second; docs/scaling.md uses them.

Printed: bytes of a task and of its result (a part of a sweep, a file of a check), rows a second into a database, bytes
of the package and of its compiled loops, and, where Ray is installed, tasks a second of CPU time through one driver
with several numbers of tasks under way. Rates are by CPU time, which others on the machine disturb least.

    python benchmarks/cluster_scale.py
    python benchmarks/cluster_scale.py --tasks 20000 --under-way 2 1000 10000
"""

import argparse
import importlib.util
import pickle
import sys
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import cast

import kernbench
from kernbench.bench import find
from kernbench.bench.checking.check import Conditions, check_files
from kernbench.bench.checking.nodes import Sent, _plain
from kernbench.bench.cluster import Cluster, on_node, sources
from kernbench.bench.discovery.new import filled_in, targets
from kernbench.common import sharing
from kernbench.sweep import Here, Limits, Plan, Row, Store, make_plan
from kernbench.sweep.executors.ray_cluster import OnePart, run_part
from kernbench.sweep.planning.supply import LARGEST, Part, Supply

BENCH, PANEL = "milestone_gqa_llama70b", "single_user_decode"
SMALL = {"context": 24, "d_head": 16, "h_q": 4, "h_kv": 2, "n_ranks": 2}
OVER = {"machine.hbm.bandwidth": ["100..299"], "machine.link.latency": ["1..100 ns"]}
MIB = 1 << 20


def nothing(number: int) -> int:
    """A task that takes no time."""
    return number


def next_of(left: list[int], _: int) -> int | None:
    """The next task, until none is left."""
    return left.pop() if left else None


def size(thing: object) -> int:
    """Bytes of what is sent."""
    return len(pickle.dumps(thing))


def sweep_sizes() -> None:
    plan = make_plan(find(BENCH), PANEL, SMALL, OVER)
    supply = Supply(plan, lambda positions: positions)
    supply.size = LARGEST
    part = supply.take(0)
    assert part is not None
    rows = rows_of(plan, part)
    task = size((sources(), run_part, plan.light(), part, Limits(3600.0)))
    points = len(part.positions)
    print(f"sweep: a task of {points} points {task:,} bytes, {task / points:.0f} a point", end="; ")
    print(f"a result {size(rows) / len(rows):.0f} bytes a row")


def rows_of(plan: Plan, part: Part) -> list[Row]:
    """The rows of a part, timed in this process."""
    coming = Here().results(plan, cast(Supply, OnePart(part)))
    return [row for some in coming for _, row in some]


def check_sizes() -> None:
    with tempfile.TemporaryDirectory() as folder:
        files = [Path(folder) / f"{target}.py" for target in targets()]
        for file in files:
            file.write_text(filled_in(file.stem, file.stem))
        files += [Path(kernbench.__file__).parent / "benches" / f"{BENCH}.py"]
        for timelines in (False, True):
            cases = list(check_files(files, Conditions(timelines=timelines)))
            kind = "with timelines (--json)" if timelines else "verdicts"
            for file in files:
                mine = [_plain(case) for case in cases if case.file == file]
                print(f"check, {kind}: {file.stem}: a result of {len(mine)} panels {size(mine):,} bytes")
        sent = Sent(folder, str(files[0]), "0" * 64, True, Conditions(), len(files))
        print(f"check: a task {size((sources(), on_node, sent)):,} bytes")


def rows_a_second(points: int) -> None:
    plan = make_plan(find(BENCH), PANEL, SMALL, OVER)
    with tempfile.TemporaryDirectory() as folder, Store(Path(folder) / "points.sqlite", plan) as store:
        supply = Supply(plan, store.claim)
        supply.size = LARGEST
        part = supply.take(0)
        assert part is not None
        row = rows_of(plan, part)[0]
        begin, kept = time.process_time(), 0
        while part is not None and kept < points:
            store.keep([(position, row) for position in part.positions])
            kept += len(part.positions)
            part = supply.take(0)
        store.keep([])
        seconds = time.process_time() - begin
        nbytes = sum(path.stat().st_size for path in Path(folder).iterdir())
    rate, each = kept / seconds, nbytes / kept
    print(f"database: {kept:,} rows claimed and kept at {rate:,.0f} a CPU second, {each:.0f} bytes each")


def shipped() -> None:
    package = Path(kernbench.__file__).parent
    text = sum(file.stat().st_size for file in package.rglob("*") if file.is_file() and file.suffix != ".pyc")
    kept = sharing.kept()
    print(f"package: {text / MIB:.1f} MiB; compiled loops kept here: {sum(kept.loops.values()) / MIB:.1f} MiB", end="")
    with tempfile.TemporaryDirectory() as folder:
        sharing.export(Path(folder) / "loops.zip")
        print(f", exported {(Path(folder) / 'loops.zip').stat().st_size / MIB:.1f} MiB")


def tasks_a_second(tasks: int, under_way: list[int]) -> None:
    with Cluster("local") as cluster:
        for most in under_way:
            # a cluster of so many CPUs would have so many under way
            cluster.__dict__["workers"] = most
            left = list(range(max(tasks, 2 * most)))
            cpu, wall, done = time.process_time(), time.perf_counter(), 0
            for outcome in cluster.outcomes(nothing, partial(next_of, left), lambda number: (number,)):
                done += outcome is not None
            cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
            print(f"driver: {done:,} tasks, {most:,} under way: {done / cpu:,.0f} a CPU second of the driver", end="")
            print(f" ({done / wall:,.0f} a second here, where the node has the same cores)", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", type=int, default=5000)
    parser.add_argument("--under-way", type=int, nargs="*", default=[2, 100, 1000])
    parser.add_argument("--rows", type=int, default=20_000)
    chosen = parser.parse_args()
    sweep_sizes()
    check_sizes()
    rows_a_second(chosen.rows)
    shipped()
    if importlib.util.find_spec("ray") is None:
        print("driver: not measured: Ray is not installed (pip install 'kernbench[ray]')")
    else:
        tasks_a_second(chosen.tasks, chosen.under_way)
    return 0


if __name__ == "__main__":
    sys.exit(main())
