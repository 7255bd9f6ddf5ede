"""Recordings and streams that are written down by hand: a few instructions a warp, and what they do to memory."""

from dataclasses import dataclass, field, fields, replace

import numpy as np

from kernbench.ptx.machine import model
from kernbench.ptx.recording.kinds import Kind
from kernbench.ptx.recording.recording import Events, Instructions, LaunchRecording, Traces
from kernbench.ptx.sass.streams import NO_BARRIER, NO_EVENT, Act, Ops, Pipe, Streams
from kernbench.ptx.time.changes import Again
from kernbench.ptx.time.launch import time_launch

GPU = model.load("h200")


@dataclass(frozen=True)
class Op:
    """An instruction; `event` has columns of `Events` that are not 0."""

    pipe: Pipe
    stall: int = 1
    write: int = NO_BARRIER
    read: int = NO_BARRIER
    wait: int = 0
    width: int = 4
    mnk: tuple[int, int, int] = (0, 0, 0)
    act: Act = Act.NONE
    kind: Kind = Kind.NONE
    event: dict = field(default_factory=dict)
    # jumps back by so many instructions, this often
    back: int = 0
    turns: int = 0
    mnemonic: str = ""


def load(sectors=4, lines=1, first=0.0, other=0.0, own=0.0, **given) -> Op:
    event = {"sectors": sectors, "lines": lines, "first": first, "other": other, "own": own, "lanes": 32}
    event |= {"bytes": 32 * 4, "other_distance": 10, "own_distance": 10}
    return Op(Pipe.GLOBAL, write=0, kind=Kind.GLOBAL_LOAD, event=event, act=Act.LOAD, **given)


def walked(program: list[Op]) -> list[int]:
    """The ops a warp issues: loops are run as often as they say, innermost first."""
    at, left, order = 0, {}, []
    while at < len(program):
        order.append(at)
        op = program[at]
        if op.back and left.setdefault(at, op.turns - 1) > 0:
            left[at] -= 1
            at -= op.back
        else:
            left.pop(at, None)
            at += 1
    return order


def launch(programs: list[list[Op]], ctas=1, registers=32, shared=0, classes=None, cluster=1):
    """A launch of CTAs whose warp w runs program w (or, with `classes`, of several kinds of CTAs in turn)."""
    kinds = classes or [programs]
    table: list[Op] = []
    offsets: dict[int, int] = {}
    starts, first_of, op_column, event_column, events, path_start = [], [], [], [], [], [0]
    for one in kinds:
        for program in one:
            # warps with the same program have the same instructions
            if id(program) not in offsets:
                offsets[id(program)] = len(table)
                table += program
            offset = offsets[id(program)]
            first_of.append(len(events))
            for number in walked(program):
                op_column.append(offset + number)
                if program[number].kind == Kind.NONE:
                    event_column.append(NO_EVENT)
                else:
                    event_column.append(len(events) - first_of[-1])
                    events.append((program[number].kind, program[number].event))
            path_start.append(len(op_column))
            starts.append(offset)
    warps = len(kinds[0])
    count = len(kinds) * warps
    order = [n % len(kinds) for n in range(ctas)]
    return recorded(events, first_of, warps, len(kinds), order, shared, cluster), Streams(
        ops=ops(table), path_start=np.array(path_start, np.int64), op=np.array(op_column, np.int32),
        event=np.array(event_column, np.int32), trace_path=np.arange(count, dtype=np.int32),
        first_event=np.array(first_of, np.int64), registers=registers, spill_bytes=0, shared_bytes=shared,
        local_bytes=0, source="made by hand", joined=1.0,
    )  # fmt: skip


def ops(table: list[Op]) -> Ops:
    def column(values, kind):
        return np.array(list(values), kind)

    count = len(table)
    zeros = np.zeros(count, np.int8)
    given = {
        "mnemonic": tuple(op.mnemonic or op.pipe.name for op in table), "operands": ("",) * count,
        "pipe": column((op.pipe for op in table), np.int8), "act": column((op.act for op in table), np.int8),
        "width": column((op.width for op in table), np.int32),
        "m": column((op.mnk[0] for op in table), np.int32), "n": column((op.mnk[1] for op in table), np.int32),
        "k": column((op.mnk[2] for op in table), np.int32), "bits": np.full(count, 16, np.int8),
        "stall": column((op.stall for op in table), np.int8), "yields": zeros.astype(bool),
        "write_barrier": column((op.write for op in table), np.int8),
        "read_barrier": column((op.read for op in table), np.int8),
        "wait_mask": column((op.wait for op in table), np.int8),
        "predicated": zeros.astype(bool), "implicit": zeros.astype(bool),
        "backward": column((bool(op.back) for op in table), bool), "line": np.arange(1, count + 1, dtype=np.int32),
        "instruction": np.arange(count, dtype=np.int32), "address": np.arange(count, dtype=np.int32) * 16,
    }  # fmt: skip
    return Ops(**{one.name: given.get(one.name, zeros) for one in fields(Ops)})


def recorded(events, first_of, warps, classes, order, shared, cluster) -> LaunchRecording:
    def column(name, kind):
        return np.array([event.get(name, -1 if name in ("object", "phase") else 0) for _, event in events], kind)

    made = Events(
        instruction=column("instruction", np.int32), kind=np.array([kind for kind, _ in events], np.uint8),
        lanes=column("lanes", np.uint8), sectors=column("sectors", np.int32), lines=column("lines", np.int32),
        wavefronts=column("wavefronts", np.uint16), bytes=column("bytes", np.int32), object=column("object", np.int32),
        phase=column("phase", np.int32), spun=column("spun", np.int32), first=column("first", np.float32),
        other=column("other", np.float32), own=column("own", np.float32),
        other_distance=column("other_distance", np.float32), own_distance=column("own_distance", np.float32),
        stored=column("stored", np.float32),
    )  # fmt: skip
    count = classes * warps
    bounds = [*first_of, len(events)]
    traces = Traces(
        np.arange(count + 1, dtype=np.int64), np.zeros(count, np.int32), np.full(count, 32, np.uint8),
        np.array(bounds, np.int64),
    )  # fmt: skip
    one = Instructions(
        np.ones(1, np.int32), ("",), ("ld.global.u32",), np.zeros(1, np.int32), ("main",), np.zeros(1, np.uint8),
        np.zeros(1, bool),
    )  # fmt: skip
    return LaunchRecording(
        "", "made", "sm_90a", (len(order), 1, 1), (32 * warps, 1, 1), (cluster, 1, 1), shared, 0, 0, one,
        np.array(order, np.int32), np.arange(count, dtype=np.int32).reshape(classes, warps), traces, made,
    )  # fmt: skip


def again(programs, **given) -> Again:
    """A launch as made by `launch`, in which each op is an instruction at a line of its own, timed for an H200."""
    recording, streams = launch(programs, **given)
    recording = with_instructions(recording, streams)
    return Again(recording, streams, GPU, time_launch(recording, streams, GPU))


def with_instructions(recording: LaunchRecording, streams: Streams) -> LaunchRecording:
    """The recording with an instruction for each op of the streams."""
    count = len(streams.ops)
    rows = Instructions(
        streams.ops.line, ("",) * count, ("ld.global.u32",) * count, np.zeros(count, np.int32),
        ("main",) * count, np.zeros(count, np.uint8), np.zeros(count, bool),
    )  # fmt: skip
    instruction = np.zeros(len(recording.events), np.int32)
    for trace in range(len(recording.traces)):
        ops, events = streams.of_trace(trace)
        instruction[events[events != NO_EVENT]] = ops[events != NO_EVENT]
    return replace(recording, instructions=rows, events=replace(recording.events, instruction=instruction))


def reading(sectors: int, lines: int) -> list[list[Op]]:
    """Warps that read 128 bytes again and again, a line or many of them at once."""
    return [[load(sectors, lines, first=sectors), Op(Pipe.FMA, wait=1), Op(Pipe.BRANCH, back=2, turns=16)]] * 8


def shared(passes: int) -> list[list[Op]]:
    """Warps that read shared memory in so many passes over its banks."""
    event = {"wavefronts": passes, "bytes": 128, "lanes": 32}
    access = Op(Pipe.SHARED, write=0, kind=Kind.SHARED_LOAD, event=event, act=Act.LOAD)
    return [[access, access, access, Op(Pipe.FMA, wait=1), Op(Pipe.BRANCH, back=4, turns=12)]] * 8


__all__ = ["Act", "Kind", "Op", "Pipe", "again", "launch", "load", "reading", "replace", "shared"]
