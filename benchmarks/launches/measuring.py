"""One launch measured: its result is judged, then its time counts."""

import gc
import hashlib
import resource
import time
from typing import TypedDict

from .case import Case, Work

TURNS = 3
MODES = {"checked": True, "unchecked": False}


class Figures(TypedDict):
    """What launches of one kind, checked or not, took: CPU seconds of all three and of the best."""

    thread_instructions: int
    seconds: float
    wall_seconds: float
    turns: list[float]
    outputs: str


class Row(TypedDict, total=False):
    """A line of the table, as JSON; `error` in place of figures where there are none.

    `peak_mib` is the most memory of the process, with what torch needed for the expected result.
    """

    name: str
    kernel: str
    group: str
    arch: str
    size: str
    checked: Figures
    unchecked: Figures
    peak_mib: int
    error: str


def digest(work: Work) -> str:
    """A few signs for the bits of all outputs, to see whether another emulator has the same."""
    import torch

    found = hashlib.sha256()
    for output in work.outputs:
        found.update(output.cpu().contiguous().view(torch.uint8).numpy().tobytes())
    return found.hexdigest()[:16]


def measured(case: Case, checks: bool) -> Figures:
    """The best of three launches, all in one session; raises `AssertionError` for a wrong result or a finding."""
    from kernbench import ptx

    turns, walls, instructions = [], [], 0
    with ptx.emulated(case.arch, checks=checks, keep_runs=False) as session:
        work = case.make()
        for turn in range(TURNS):
            work.begin()
            before = len(session.launches)
            gc.collect()
            began, computed = time.perf_counter(), time.process_time()
            work.launch()
            turns.append(time.process_time() - computed)
            walls.append(time.perf_counter() - began)
            session.assert_safe()
            if turn == 0:
                work.judge()
            runs = [launch.run for launch in session.launches[before:]]
            instructions = sum(int(run.metrics["thread_instructions"]) for run in runs if run is not None)
        work.judge()
        return Figures(
            thread_instructions=instructions,
            seconds=min(turns),
            wall_seconds=min(walls),
            turns=turns,
            outputs=digest(work),
        )


def row(case: Case, modes: list[str]) -> Row:
    """The figures of a launch in the kinds asked for."""
    found = Row(name=case.name, kernel=case.kernel, group=case.group, arch=case.arch, size=case.size)
    try:
        for mode in modes:
            figures = measured(case, MODES[mode])
            if mode == "checked":
                found["checked"] = figures
            else:
                found["unchecked"] = figures
    except Exception as problem:
        found["error"] = f"{type(problem).__name__}: {problem}"
    found["peak_mib"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    return found
