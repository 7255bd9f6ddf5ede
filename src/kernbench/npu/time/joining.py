"""Merges the task views of several timed launches on a chip."""

from collections.abc import Sequence

from kernbench.result.reading import Data
from kernbench.result.run import Run


def joined_tasks(launches: Sequence[Run], begins: Sequence[int]) -> dict[str, object]:
    """The view `tasks` of all launches, which begin at `begins`, numbered consecutively; empty if a launch lacks it."""
    if not all("tasks" in launch.views for launch in launches):
        return {}
    rows: list[Data] = []
    first = 0
    for launch, begin in zip(launches, begins, strict=True):
        tasks = launch.views["tasks"]
        for task in tasks:
            moved = {key: task[key] + begin for key in ("ready_ps", "start_ps", "finish_ps")}
            waited = None if task["waited_for"] is None else task["waited_for"] + first
            moved |= {"task": task["task"] + first, "waited_for": waited, "after": [n + first for n in task["after"]]}
            rows.append({**task, **moved})
        first += 1 + max((task["task"] for task in tasks), default=-1)
    return {"tasks": rows}
