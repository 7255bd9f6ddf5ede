"""The Perfetto trace, read back with Perfetto's own definitions: tracks, slices, arrows, and the right times."""

from collections import defaultdict

import pytest
from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import Trace, TrackEvent

from kernbench.bench import find, run_bench
from kernbench.report import trace_bytes


@pytest.fixture(scope="module")
def run():
    small = {"context": 48, "d_head": 32, "h_q": 8, "h_kv": 2}
    return run_bench(find("milestone_gqa_llama70b"), "single_user_decode", small, timed=True)


@pytest.fixture(scope="module")
def trace(run):
    parsed = Trace()
    parsed.ParseFromString(trace_bytes(run.timeline))
    return parsed


def test_a_track_for_every_engine_in_use(trace):
    tracks = {p.track_descriptor.uuid: p.track_descriptor for p in trace.packet if p.HasField("track_descriptor")}
    groups = {t.name for t in tracks.values() if not t.HasField("parent_uuid")}
    assert "cube 0 PE 7" in groups
    assert "links" in groups
    names = {t.name for t in tracks.values() if t.HasField("parent_uuid")}
    assert {"cpu", "gemm", "math", "dma 0", "dma 1", "send E", "send W"} <= names
    assert all(t.parent_uuid in tracks for t in tracks.values() if t.HasField("parent_uuid"))


def test_slices_begin_and_end_in_turn_and_carry_their_line(run, trace):
    open_slices = defaultdict(list)
    last = defaultdict(int)
    count = 0
    for packet in sorted((p for p in trace.packet if p.HasField("track_event")), key=lambda p: p.timestamp):
        event = packet.track_event
        assert packet.timestamp >= last[event.track_uuid]
        last[event.track_uuid] = packet.timestamp
        if event.type == TrackEvent.TYPE_SLICE_BEGIN:
            count += 1
            arguments = {a.name: a for a in event.debug_annotations}
            assert arguments["line"].string_value.split(":")[0].endswith(".py")
            assert arguments["duration_ps"].int_value > 0
            open_slices[event.track_uuid].append(event.name)
    assert count == len(run.timeline.start)
    assert max(last.values()) == run.metrics["time_ps"] // 1000


def test_arrows_go_from_sends_to_receives(run, trace):
    ends = defaultdict(list)
    for packet in trace.packet:
        if packet.HasField("track_event"):
            for flow in packet.track_event.flow_ids:
                ends[flow].append(packet.track_event.name)
    assert len(ends) == len(run.timeline.flows) > 0
    assert all(sorted(names) == ["recv", "send"] for names in ends.values())


def test_counters_are_there(run, trace):
    tracks = {p.track_descriptor.uuid: p.track_descriptor for p in trace.packet if p.HasField("track_descriptor")}
    named = {t.name for t in tracks.values() if t.HasField("counter")}
    assert named == set(run.timeline.counters)
    values = [p.track_event for p in trace.packet if p.track_event.type == TrackEvent.TYPE_COUNTER]
    assert len(values) == sum(len(times) for times, _ in run.timeline.counters.values())
