"""Runs made by hand, for pages and comparisons: every view there is, and as many spans as wanted."""

from pathlib import Path

import numpy as np

from kernbench.result import Comparison, Finding, Other, RankError, Run, SourceLocation, Status
from kernbench.result.comparison import ErrorMap
from kernbench.result.timeline import Lane, Step, Timeline, Waits

HERE = str(Path(__file__))
SITES = [SourceLocation(HERE, line, "kernel") for line in range(1, 21)]
HOSTILE = "</script><script>window.hacked=1</script><img src=x onerror=window.hacked=1>"


def timeline(spans=400, lanes=8, unit="ps", path=True):
    """Spans back to back with gaps, on engines of PEs and one link between each two."""
    rng = np.random.default_rng(0)
    each = spans // lanes
    length = rng.integers(100, 5000, (lanes, each))
    gap = rng.integers(0, 2000, (lanes, each)) * (rng.random((lanes, each)) < 0.3)
    start = (np.cumsum(length + gap, axis=1) - length).ravel()
    finish = start + length.ravel()
    names = [f"operation {n}" for n in range(12)]
    kinds = ("gemm", "math", "dma 0", "dma 1")
    engines = [Lane(f"cube 0 PE {n // 4}", kinds[n % 4]) for n in range(lanes - 1)]
    steps = [
        Step(engines[0], "operation 1", SITES[n % 5], "operand", 10, int(start[n]), int(finish[n]))
        for n in range(0, each, 3)
    ]
    first, last = each * (lanes - 1), each - 1
    return Timeline(
        unit,
        [*engines, Lane("links", "cube 0 PE 0 E to cube 0 PE 1")],
        names,
        SITES,
        np.repeat(np.arange(lanes), each),
        rng.integers(0, len(names), each * lanes),
        rng.integers(0, len(SITES), each * lanes),
        start,
        finish,
        np.array([[first, 4 * each + 1], [first + 3, 4 * each + last]]),
        steps if path else [],
        {"slots in use": (np.array([10, 500, 900]), np.array([1, 2, 0]))},
        # each for the one before it on its lane
        Waits(("dispatch", "engine order"), np.ones(each * lanes, int), np.arange(each * lanes) - 1) if path else None,
    )


def metrics(total):
    return {
        "commands": 400,
        "time_ps": total,
        "floors_ps": {"compute": total // 4, "hbm": total // 2},
        "bound": "hbm",
        "floor_ratio": 2.0,
        "gap_ps": {"dispatch": total // 4, "imbalance": total - total // 2 - total // 4},
        "limits_ps": {"hbm": total // 3},
        "limit": "hbm",
        "limit_ratio": 3.0,
        "utilisation": {"gemm": 0.5, "math": 0.25, "dma": 0.1},
        "busy_ps": {"gemm": total // 2},
        "critical_path_ps": {"gemm": total // 2, "dispatch": total - total // 2},
        "rates": {"gemm": {"amount": 1.0, "achieved": 5e12, "peak": 1e13}},
        "sensitivity": {"clock": 0.08},
    }


MESSAGES = {"link": [0, 0], "start": [100, 900], "sent": [200, 950], "received": [300, 990]}
VIEWS = {
    "placement": {0: (0, 0), 1: (0, 1)},
    "mesh": {
        "package": [1, 1],
        "cube": [1, 2],
        "pes": [[0, 0, 0, 0, 0, 0], [0, 1, 0, 0, 0, 1]],
        "links": [[0, 0, "E", 0, 1, 1]],
    },
    "messages": {name: np.array(v) for name, v in MESSAGES.items()},
    "tasks": [
        {"task": 0, "name": "qk", "blocks": 2, "ready_ps": 0, "start_ps": 100, "finish_ps": 900, "reason": "submit"},
        {
            "task": 1,
            "name": "pv",
            "blocks": 2,
            "ready_ps": 900,
            "start_ps": 1000,
            "finish_ps": 1900,
            "reason": "dependence",
            "waited_for": 0,
            "after": [0],
            "where": "kernel.py:3",
        },
    ],
    "pipeline": {
        "block": "block (0, 0, 0)",
        "unit": "order",
        "complete": True,
        "roles": [{"name": "warp 0 (copies in)", "warps": [[0, 0]]}],
        "rings": [
            {
                "cta": 0,
                "arrivals": 1,
                "completed_by": [{"role": "warp 0", "how": "bytes", "line": 7, "text": "cp.async.bulk", "times": 4}],
                "waited_on_by": [{"role": "warp 1", "how": "wait", "line": 9, "text": "try_wait", "times": 4}],
                "stages": [
                    {
                        "barrier": "'full'+0",
                        "completed": 4,
                        "bytes": [4096],
                        "waits": {"warp 1": {"phases": [0, 3], "passed": 4, "parked": 2, "stuck_in": [4]}},
                    }
                ],
            }
        ],
    },
    "printf": ["hello from block 3\n"],
}


def comparison(passed=True):
    excess = np.linspace(0.0, 0.9 if passed else 40.0, 300 * 200).reshape(3, 100, 200)
    ranks = (RankError(0, 0.1, 0.01, (0, 1), 0, 8), RankError(1, 0.2, 0.02, (2, 1), 0 if passed else 5, 8))
    return Comparison(
        name="o",
        dtype="f16",
        passed=passed,
        max_abs=0.2,
        max_rel=float("inf"),
        max_ulps=3.0,
        relative_l2=0.02,
        worst_index=(2, 1),
        worst_rank=1,
        worst_row=1,
        actual=1.0,
        expected=1.2,
        tolerance=0.3,
        wrong=0 if passed else 5,
        elements=16,
        ranks=ranks,
        reason="" if passed else "5 of 16 out of tolerance",
        error_map=ErrorMap.of(excess),
    )


def sample(spans=400, name="attention", **changes):
    """A timed run that is right and safe, with every view."""
    line = timeline(spans)
    origin = {"target": "mesh", "kernel": name, "machine": "reference", "machine_hash": "abc", "seed": 0}
    origin |= {"parameters": {"n_ranks": 2, "lengths": (1, 2)}, "versions": {"kernbench": "0.1.0"}}
    held = {
        "outputs": {"o": np.zeros((2, 3), np.float16)},
        "findings": [],
        "checked": ("race", "deadlock"),
        "status": Status.FINISHED,
        "comparison": [comparison()],
        "timeline": line,
        "metrics": metrics(line.total),
        "views": dict(VIEWS),
        "origin": origin,
    }
    return Run(**{**held, **changes})


def unsafe():
    """A run with findings at two locations, wrong besides."""
    race = Finding(
        "race", f"two writes {HOSTILE}", SITES[4], (Other("the other write", SITES[9]),), "wait first", 3, (0, 1, 2)
    )
    deadlock = Finding("deadlock", "rank 0 waits\n  for rank 1", None)
    return sample(findings=[race, deadlock], comparison=[comparison(False)], timeline=None, metrics={"commands": 3})
