"""Long recordings are timed by several threads: graph, times and what a person is told are those of one."""

import sys

import numpy as np
import pytest

from kernbench import machine
from kernbench.bench import find, run_bench
from kernbench.mesh.time import lower
from kernbench.mesh.time.clock import time_recording
from kernbench.mesh.time.measure import retime

REFERENCE = machine.load("reference")
# the package has a function of this name
MEASURE = sys.modules[retime.__module__]


@pytest.mark.parametrize("panel", ["single_user_prefill", "multi_user_decode"])
def test_threads_give_the_same(panel, monkeypatch):
    settings = {"context": 64, "h_q": 8, "h_kv": 1, **({"lengths": ()} if "decode" in panel else {})}
    run = run_bench(find("milestone_gqa_llama70b"), panel, settings, recorded=True, shapes_only=True)
    found = []
    for jobs, long in (("1", 0), ("3", 0), ("16", 0), ("3", 1 << 40)):
        monkeypatch.setenv("KERNBENCH_JOBS", jobs)
        monkeypatch.setattr(lower, "LONG", long)
        monkeypatch.setattr(MEASURE, "LONG", long)
        timing = time_recording(run.recording, REFERENCE)
        graph = timing.lowered.graph
        shown = retime(run, REFERENCE)
        columns = (graph.offsets, graph.targets, graph.lags, graph.kinds, timing.times.start, timing.times.cause)
        found.append((*(np.asarray(one).tobytes() for one in columns), repr(shown.metrics), repr(shown.views)))
    assert shown.metrics["sensitivity"]
    assert all(one == found[0] for one in found[1:])


class Shared(dict):
    """What several threads know: another always puts its own there right afterwards."""

    def __setitem__(self, name, known):
        super().__setitem__(name, ("others", "theirs"))


def test_what_is_known_of_a_recording_is_what_was_made_for_it():
    known = lower.Lowered(None, None, None, None, None, 1, 1, 1, Shared())
    assert known.once("steps", "mine", lambda: "mine") == "mine"
    assert known.once("steps", "others", lambda: "mine") == "theirs"
