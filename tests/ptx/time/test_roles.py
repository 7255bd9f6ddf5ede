"""One CTA warp by warp over real time: roles, waits where they were, units that work beside the warps."""

import numpy as np
import pytest
from tests.ptx.time import made
from tests.ptx.time.made import Act, Kind, Op, Pipe

from kernbench.ptx.machine.model import load
from kernbench.ptx.time.changes import Again
from kernbench.ptx.time.launch import time_launch
from kernbench.ptx.time.presentation import timed
from kernbench.ptx.time.roles import warp_spans
from kernbench.report import trace_bytes
from kernbench.result.run import Run, Status
from kernbench.result.timeline import Lane

GPU = load("h200")
COPY = Op(
    Pipe.BULK, kind=Kind.BULK_LOAD, act=Act.LOAD,
    event={"bytes": 16384, "sectors": 512, "lines": 128, "first": 512.0, "lanes": 1, "object": 64, "phase": 0},
)  # fmt: skip
WAIT = Op(Pipe.MBARRIER, kind=Kind.MBARRIER_WAIT, act=Act.WAIT, write=0, event={"object": 64, "phase": 0, "lanes": 32})
PRODUCT = Op(
    Pipe.WGMMA, mnk=(64, 128, 16), act=Act.MULTIPLY, kind=Kind.WGMMA, event={"phase": 0, "lanes": 32}
)  # fmt: skip
CONSUMER = [WAIT, Op(Pipe.INTEGER, wait=1), PRODUCT, PRODUCT, Op(Pipe.FMA)]


@pytest.fixture(scope="module")
def launched():
    recording, streams = made.launch([CONSUMER, CONSUMER, CONSUMER, CONSUMER, [COPY, Op(Pipe.FMA)]], ctas=264)
    return recording, streams, time_launch(recording, streams, GPU)


def test_a_cta_of_the_middle_is_followed_to_its_end(launched):
    recording, _, time = launched
    followed = time.followed
    assert followed.cta >= recording.ctas // 2 - 132
    issued = {warp: int((followed.warp == warp).sum()) for warp in range(5)}
    assert issued == {0: 5, 1: 5, 2: 5, 3: 5, 4: 2}
    which = time.spans.cta.tolist().index(followed.cta)
    assert followed.issued.min() >= time.spans.start[which]
    assert followed.issued.max() <= time.spans.end[which]


def test_consumers_wait_while_the_producers_copy_is_under_way(launched):
    recording, streams, time = launched
    spans = warp_spans(time, recording, streams)
    lanes = list(dict.fromkeys(spans.lane))
    name = f"CTA {time.followed.cta}"
    assert lanes[:4] == [Lane(f"{name}: consumer", f"warp {n}") for n in range(4)]
    assert lanes[4] == Lane(f"{name}: producer", "warp 4")
    copy = spans.name.index("copy in")
    wait = spans.name.index("waits: mbarriers")
    assert spans.lane[copy] == Lane(f"{name}: units", "bulk copies")
    assert spans.lane[wait] == lanes[0]
    # at the instruction that waits
    assert spans.line[wait] == 1
    # what was waited for is there before the wait is over, and not long before
    assert spans.start[wait] <= spans.finish[copy] <= spans.finish[wait] <= spans.finish[copy] + 100
    products = [n for n, one in enumerate(spans.name) if one == "product" and spans.lane[n].name == "tensor core 0"]
    assert spans.finish[products[0]] <= spans.start[products[1]]


def test_spans_of_a_warp_do_not_overlap_and_end_with_the_launch(launched):
    recording, streams, time = launched
    recording = made.with_instructions(recording, streams)
    run = timed(Run({}, [], (), Status.FINISHED), Again(recording, streams, GPU, time))
    line = run.timeline
    for lane, one in enumerate(line.lanes):
        rows = np.flatnonzero(line.lane == lane)
        rows = rows[np.argsort(line.start[rows], kind="stable")]
        if "CTA" in one.group:
            assert (line.start[rows[1:]] >= line.finish[rows[:-1]]).all(), one
    assert line.total == run.metrics["time_ps"]
    assert b"producer" in trace_bytes(line)


def test_where_all_warps_do_the_same_there_are_no_roles():
    recording, streams = made.launch([[made.load(), Op(Pipe.FMA, wait=1)]] * 2)
    spans = warp_spans(time_launch(recording, streams, GPU), recording, streams)
    assert {lane.group for lane in spans.lane} == {"CTA 0: warps"}
    assert "waits: global memory" in spans.name
