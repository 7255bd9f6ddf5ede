"""The results of a timed run: the swimlane, the critical path, why each task started when it did, and floors."""

from dataclasses import replace

import numpy as np

from kernbench.npu.isa.model import ChipModel
from kernbench.npu.isa.units import AIC, AIV0, PIPES, S
from kernbench.npu.time import edges as e
from kernbench.npu.time.causes import BEYOND, ENGINES, pipe_name
from kernbench.npu.time.clock import Timing, time_recording
from kernbench.npu.time.costs import Ints, cases, product_macs, submit_time, sum_of_pipes
from kernbench.npu.time.gap import split_gap
from kernbench.npu.time.lower import is_long
from kernbench.npu.time.path import causes, critical_path, time_of_tasks
from kernbench.npu.time.swimlane import first_of_task, swimlane
from kernbench.result.reading import Data
from kernbench.result.run import Run
from kernbench.safety.collector import rare_collections
from kernbench.safety.processes.threads import both

_PS = 10**12


def retime(run: Run, chip: ChipModel) -> Run:
    """A new Run with the same outputs, timed on `chip`. An unsafe run, or one known to be wrong, is not timed."""
    if run.recording is None or run.safe is not True or run.right is False or not run.recording.count:
        return run
    with rare_collections():
        return _retimed(run, time_recording(run.recording, chip))


def _retimed(run: Run, timing: Timing) -> Run:
    lanes, (found, path) = both(
        lambda: swimlane(timing),
        lambda: (measure(timing), critical_path(timing)),
        is_long(timing.lowered.recording),
    )
    metrics = {**run.metrics, **found, "critical_path_ps": path.shares, "sensitivity": {}}
    gap = split_gap(timing, metrics["bound"], metrics["floors_ps"][metrics["bound"]], path)
    metrics["gap_ps"] = {_cause(metrics["bound"], cause): time for cause, time in gap.items()}
    views = {**run.views, "tasks": task_starts(timing, time_of_tasks(timing, path))}
    return replace(run, timeline=lanes.timeline(path.steps), metrics=metrics, views=views)


def _cause(bound: str, cause: str) -> str:
    """A cause of the gap in words: which resource waits."""
    return cause if cause in BEYOND else f"{bound} {cause}"


def summary(timing: Timing) -> dict[str, object]:
    """The record of a point of a sweep: time, utilisation, work floors and the gap to the binding one by cause."""
    found = measure(timing)
    path = critical_path(timing)
    return {**found, "gap_ps": split_gap(timing, found["bound"], found["floors_ps"][found["bound"]], path)}


def task_starts(timing: Timing, on_path: dict[int, int]) -> list[dict[str, object]]:
    """For each task: when its first block started, when the last ended, how much of the critical path it is, and why
    it started only then.
    """
    recording, nodes, times = timing.lowered.recording, timing.lowered.nodes, timing.times
    blocks = len(recording.block_task)
    first = first_of_task(recording.owners(), times.start[nodes.dispatch : nodes.dispatch + blocks])
    rows = []
    for task in recording.tasks:
        if task.number in first:
            node = nodes.dispatch + first[task.number]
            # what made it ready matters more than a core that became free
            ready = nodes.ready + task.number
            reason, other = _reason(timing, ready if times.finish[ready] == times.start[node] else node)
            if reason == "no free core" and task.sync_start:
                reason = "sync_start"
            rows.append(
                {
                    "task": task.number,
                    "name": task.name,
                    "blocks": task.blocks,
                    "ready_ps": int(times.finish[nodes.ready + task.number]),
                    "start_ps": int(max(times.finish[node], times.finish[ready])),
                    "finish_ps": int(times.finish[nodes.done + task.number]),
                    "on_path_ps": on_path.get(task.number, 0),
                    "reason": reason,
                    "waited_for": other,
                    "after": sorted(task.dependences),
                    "where": str(recording.tables.sites[task.site]),
                }
            )
    return rows


def _reason(timing: Timing, node: int) -> tuple[str, int | None]:
    """Why a task was ready, or a block dispatched, only then: the kind of wait, and the task that ended it."""
    nodes, recording, kinds = timing.lowered.nodes, timing.lowered.recording, timing.graph.kinds
    trail = causes(timing, node, 4)
    for (_, edge), (source, _) in zip(trail, [*trail[1:], (-1, -1)], strict=True):
        kind = int(kinds[edge]) if edge >= 0 else e.ORDER
        if kind == e.CORE:
            return "no free core", recording.block_task[source - nodes.end]
        if kind == e.SCHEDULER:
            return "scheduler busy", recording.block_task[source - nodes.dispatch]
        if kind in (e.DEPENDENCE, e.VALUE) and source >= nodes.done:
            return "dependence" if kind == e.DEPENDENCE else "value read", source - nodes.done
        if kind == e.RING:
            return "ring full", source - nodes.reclaimed
        if kind == e.ORDER:
            return "submit", None
    return "submit", None


# Numbers


def measure(timing: Timing) -> Data:
    """Time, how busy each engine was, floors of the work, and causes of the time above the binding one."""
    total, chip = timing.total_ps, timing.chip
    sums, counts = _sums(timing)
    busy, cores = _pipe_times(timing, sums)
    floors = {name: int(time // cores[name]) for name, time in busy.items()}
    moved = int(timing.lowered.found.moved.sum())
    floors["memory"] = int(moved / chip.memory.bytes_per_ps)
    recording = timing.lowered.recording
    floors["submit"] = sum(submit_time(recording, chip, command) for command in recording.commands)
    floors["dispatch"] = len(timing.lowered.recording.block_task) * chip.tasks.dispatch_ps // chip.tasks.schedulers
    floors["issue"] = _issue_floor(timing, int(counts[: len(PIPES)].sum()))
    floors = {name: time for name, time in floors.items() if time} or {"submit": 0}
    bound = max(floors, key=lambda name: floors[name])
    used = {name: time / (cores[name] * total) if total else 0.0 for name, time in busy.items()}
    loaded = timing.lowered.found.read
    return {
        "time_ps": total,
        "busy_ps": {name: int(time) for name, time in busy.items()},
        "utilisation": used | _shares(used, floors.get("memory", 0) / total if total else 0.0),
        "engines": ENGINES,
        "floors_ps": floors,
        "bound": bound,
        "floor_ratio": total / floors[bound] if floors[bound] else None,
        "rates": _rates(timing, moved),
        "load_bytes": loaded,
        "store_bytes": moved - loaded,
    }


def _shares(used: dict[str, float], memory: float) -> dict[str, float]:
    """How busy each of the engines was; of the pipes that move, the busiest."""
    moving = [share for name, share in used.items() if name not in ENGINES and not name.endswith(S)]
    return {"cube": used.get("cube", 0.0), "vector": used.get("vector", 0.0), "mte": max(moving, default=0.0),
            "memory": memory}  # fmt: skip


def _issue_floor(timing: Timing, cube: int) -> int:
    """The time of issuing instructions, of which `cube` are on cube cores, spread over all cube cores or all vector
    cores.
    """
    vector = timing.lowered.nodes.rows - cube
    cycles = max(cube, -(-vector // 2)) * timing.chip.clusters.issue
    return timing.chip.cycles_ps(cycles) // timing.chip.clusters.count


def _pipe_times(timing: Timing, sums: Ints) -> tuple[dict[str, int], dict[str, int]]:
    """Busy time of each kind of pipe over all cores, at its path's full rate; and how many cores have it."""
    clusters = timing.chip.clusters.count
    busy, cores = {}, {}
    for number, time in enumerate(sums.tolist()):
        vector, pipe = divmod(number, len(PIPES))
        name = pipe_name(AIV0 if vector else AIC, PIPES[pipe])
        if time:
            busy[name], cores[name] = time, clusters * (2 if vector else 1)
    return busy, cores


def _sums(timing: Timing) -> tuple[Ints, Ints]:
    """Time and rows of each pipe, of cube cores and then of vector cores."""
    recording = timing.lowered.recording
    sums, counts = np.zeros((2, 2 * len(PIPES)), np.int64)
    sum_of_pipes(*recording.columns("lane", "pipe"), cases(recording)[1], timing.cost, sums, counts)
    return sums, counts


def _rates(timing: Timing, moved: int) -> dict[str, dict[str, float]]:
    examples, _, counts = cases(timing.lowered.recording)
    tiles = timing.lowered.recording.tables.tiles
    flops = 2 * sum(product_macs(tiles, row) * int(n) for row, n in zip(examples, counts, strict=True))
    chip, total = timing.chip, timing.total_ps
    peak = 2 * chip.cube.macs.bf16 * chip.clusters.count * _PS / float(chip.clusters.cycle_ps)
    rows = {"gemm": (flops, peak), "hbm": (moved, chip.memory.bytes_per_ps * _PS)}
    return {
        name: {"amount": amount, "achieved": amount * _PS / total, "peak": most}
        for name, (amount, most) in rows.items()
        if amount and total
    }
