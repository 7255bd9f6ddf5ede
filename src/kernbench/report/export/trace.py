"""A timeline as a Perfetto trace: a group of tracks for each PE, a track for each engine and link, arrows from sends
to receives. Perfetto counts nanoseconds; the exact picoseconds are in each slice's arguments. If a timeline has only
an order, a position is drawn as a microsecond, and the names of groups say so.
"""

from typing import Any

from kernbench.common.dtypes import Array
from kernbench.result.timeline import Ints, Timeline

SEQUENCE = 1
_PS_PER_NS = 1000
# picoseconds that a position is drawn as if only the order is known
_PS_PER_POSITION = 10**6
_ORDER_NOTE = " (logical order, not time)"
# types of perfetto, which publishes none
Builder = Any


def trace_bytes(timeline: Timeline) -> bytes:
    """The trace file's content."""
    # only traces need it: everything else works without it
    from perfetto.trace_builder.proto_builder import TraceProtoBuilder

    builder = TraceProtoBuilder()
    tracks = _describe_tracks(builder, timeline)
    flows = _flow_ids(timeline)
    order = sorted(range(len(timeline.start)), key=lambda i: (int(timeline.start[i]), -int(timeline.finish[i]), i))
    for i in order:
        _slice(builder, timeline, i, tracks[int(timeline.lane[i])], flows.get(i, ()))
    for number, (name, (times, values)) in enumerate(timeline.counters.items()):
        _counter(builder, 10**6 + number, name, times, values)
    content: bytes = builder.serialize()
    return content


def _describe_tracks(builder: Builder, timeline: Timeline) -> list[int]:
    """One parent track for each group, one track for each lane; their ids by lane."""
    groups: dict[str, int] = {}
    tracks = []
    used = set(timeline.lane.tolist())
    for number, lane in enumerate(timeline.lanes):
        if lane.group not in groups:
            groups[lane.group] = 1 + len(groups)
            note = _ORDER_NOTE if timeline.unit == "order" else ""
            _track(builder, groups[lane.group], lane.group + note, None)
        tracks.append(1000 + number)
        if number in used:
            _track(builder, tracks[-1], lane.name, groups[lane.group])
    return tracks


def _track(builder: Builder, uuid: int, name: str, parent: int | None) -> None:
    descriptor = builder.add_packet().track_descriptor
    descriptor.uuid = uuid
    descriptor.name = name
    if parent is not None:
        descriptor.parent_uuid = parent


def _flow_ids(timeline: Timeline) -> dict[int, tuple[int, ...]]:
    """For each span its flows."""
    ids: dict[int, tuple[int, ...]] = {}
    for number, (source, target) in enumerate(timeline.flows.tolist(), 1):
        for span in (source, target):
            ids[span] = (*ids.get(span, ()), number)
    return ids


def _slice(builder: Builder, timeline: Timeline, i: int, track: int, flows: tuple[int, ...]) -> None:
    start, finish = int(timeline.start[i]), int(timeline.finish[i])
    ordered = timeline.unit == "order"
    scale, keys = (_PS_PER_POSITION, ("position", "positions")) if ordered else (1, ("start_ps", "duration_ps"))
    begin = _event(builder, start * scale, track, "TYPE_SLICE_BEGIN")
    begin.name = timeline.names[int(timeline.name[i])]
    begin.flow_ids.extend(flows)
    location = timeline.sites[int(timeline.site[i])]
    for key, value in (("line", f"{location.short_file}:{location.line}"), ("source", location.text)):
        argument = begin.debug_annotations.add()
        argument.name, argument.string_value = key, value
    for key, number in zip(keys, (start, finish - start), strict=True):
        argument = begin.debug_annotations.add()
        argument.name, argument.int_value = key, number
    _event(builder, finish * scale, track, "TYPE_SLICE_END")


def _event(builder: Builder, time: int, track: int, kind: str) -> Builder:
    packet = builder.add_packet()
    packet.timestamp = time // _PS_PER_NS
    packet.trusted_packet_sequence_id = SEQUENCE
    packet.track_event.type = type(packet.track_event).Type.Value(kind)
    packet.track_event.track_uuid = track
    return packet.track_event


def _counter(builder: Builder, uuid: int, name: str, times: Ints, values: Array) -> None:
    descriptor = builder.add_packet().track_descriptor
    descriptor.uuid = uuid
    descriptor.name = name
    descriptor.counter.SetInParent()
    for time, value in zip(times.tolist(), values.tolist(), strict=True):
        _event(builder, time, uuid, "TYPE_COUNTER").double_counter_value = float(value)
