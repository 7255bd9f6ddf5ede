"""Streams of recordings: joined to machine code that was kept beside the tests, and expanded where there is none."""

import stat
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from tests.ptx.sass.programs import program
from tests.ptx.sass.tools import needs_tools
from tests.ptx.sass.tracing import record

from kernbench.ptx.devices.assembler import KernelResources
from kernbench.ptx.sass.flow import flow
from kernbench.ptx.sass.join import making
from kernbench.ptx.sass.lines import one_a_line
from kernbench.ptx.sass.reading import read
from kernbench.ptx.sass.streams import NO_EVENT
from kernbench.ptx.sass.tools import SETTING, Code, find_nvdisasm

DATA = Path(__file__).parent / "data"
TEXT = (DATA / "control.ptx").read_text()


def kept(name: str, entry: str) -> Code:
    listing = read((DATA / f"{name}.sass").read_text())
    statements = one_a_line((DATA / f"{name}.ptx").read_text())
    return Code(listing, flow(listing, entry), statements, KernelResources(registers=22), "13.0.88")


@pytest.fixture
def kept_code(monkeypatch):
    code = kept("control", "control")
    monkeypatch.setattr(making, "machine_code", lambda text, entry, arch: code)


def executions(recording, trace: int) -> Counter[int]:
    """How often each row was executed."""
    first, last = recording.traces.start[trace : trace + 2]
    count: Counter[int] = Counter()
    for block in recording.traces.block[first:last].tolist():
        count.update(recording.instructions.of_block(block))
    return count


def agree(recording, streams) -> None:
    """Each event stands at one op, and of multiplications as many were issued as were executed."""
    for trace in range(len(recording.traces)):
        ops, events = streams.of_trace(trace)
        taken = events[events != NO_EVENT]
        assert len(set(taken.tolist())) == len(taken)
        assert (streams.ops.instruction[ops[events != NO_EVENT]] == recording.events.instruction[taken]).all()
        count = executions(recording, trace)
        for row, opcode in enumerate(recording.instructions.opcode):
            if opcode.startswith("fma"):
                mine = [
                    o for o in ops.tolist() if streams.ops.instruction[o] == row and "FFMA" in streams.ops.mnemonic[o]
                ]
                sure = sum(not streams.ops.predicated[o] for o in mine)
                assert sure <= count[row] <= len(mine), f"line {recording.instructions.line[row]}"


@pytest.mark.parametrize("count", [1, 2, 3, 4, 5, 8, 11, 22])
def test_an_unrolled_loop_is_gone_through_as_often_as_its_trace_says(kept_code, count):
    recording = record(TEXT, arguments={"p_count": count, "p_step": 4, "p_data": 64})
    streams = making.streams_of(recording)
    assert streams.source == "SASS of ptxas 13.0.88"
    assert (streams.joined, streams.registers) == (1.0, 22)
    agree(recording, streams)
    loads = [op for op in streams.of_trace(0)[0].tolist() if streams.ops.mnemonic[op] == "LDG.E"]
    issued = sum(not streams.ops.predicated[op] for op in loads)
    assert issued <= count <= len(loads)


def test_sides_of_a_switch_are_found(kept_code):
    for step, data in ((5, 64), (7, 3), (3, 64)):
        recording = record(TEXT, arguments={"p_count": 40, "p_step": step, "p_data": data})
        streams = making.streams_of(recording)
        agree(recording, streams)
        assert streams.events_without_op == 0


def test_traces_that_are_alike_share_a_path(kept_code):
    streams = making.streams_of(record(TEXT, arguments={"p_count": 99, "p_step": 4, "p_data": 64}, warps=3))
    assert streams.trace_path.tolist() == [0, 0, 0]
    assert len(streams.path_start) == 2
    assert (streams.of_trace(2)[1].max() - streams.of_trace(0)[1].max()) == streams.first_event[2]


def test_an_expansion_consumes_every_event_in_order():
    recording = record(TEXT, arguments={"p_count": 5, "p_step": 4, "p_data": 64})
    streams = making.streams_of(recording, use_tools=False)
    assert (streams.source, streams.joined) == ("expansion of PTX", 0.0)
    assert streams.unjoined[0].reason == "machine code was not asked for"
    _, events = streams.of_trace(0)
    assert sorted(set(events[events != NO_EVENT].tolist())) == list(range(len(recording.events)))
    assert streams.registers >= 16
    agree(recording, streams)


def test_what_does_not_fit_the_machine_code_at_all_is_an_expansion(kept_code, monkeypatch):
    monkeypatch.setattr(making.Joiner, "join", lambda joiner, tokens: None)
    streams = making.streams_of(record(TEXT, arguments={"p_count": 5, "p_step": 4, "p_data": 64}))
    assert (streams.source, streams.joined, streams.registers) == (making.UNJOINED, 0.0, 22)
    assert streams.source.startswith("expansion of PTX")
    assert streams.unjoined[0].reason == "no way through the machine code fits the trace"


def test_a_result_of_a_load_is_awaited_in_an_expansion():
    streams = making.streams_of(record(TEXT, arguments={"p_count": 1, "p_step": 4}), use_tools=False)
    load = streams.ops.mnemonic.index("LDG.E")
    user = streams.ops.mnemonic.index("FFMA")
    assert streams.ops.wait_mask[user] >> int(streams.ops.write_barrier[load]) & 1


def fake(folder: Path, text: str) -> str:
    path = folder / "nvdisasm"
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return str(path)


@pytest.mark.parametrize(
    ("script", "reason"),
    [("echo another format", "cannot be read"), ("echo broken >&2; exit 3", "ended with code 3: broken")],
)
def test_a_disassembler_that_fails_gives_an_expansion_with_the_reason(tmp_path, monkeypatch, script, reason):
    from tests.ptx.toolchain import need_ptxas

    need_ptxas("sm_90a")
    monkeypatch.setenv(SETTING, fake(tmp_path, script))
    streams = making.streams_of(record(TEXT, arguments={"p_count": 1, "p_step": 4}))
    assert streams.source == "expansion of PTX"
    assert reason in streams.unjoined[0].reason
    assert streams.no_code == streams.unjoined[0].reason


def test_a_missing_disassembler_gives_an_expansion_with_the_reason(monkeypatch):
    monkeypatch.setenv(SETTING, "/nowhere/nvdisasm")
    monkeypatch.setenv("KERNBENCH_PTXAS", "/nowhere/ptxas")
    streams = making.streams_of(record(TEXT, arguments={"p_count": 1, "p_step": 4}))
    assert streams.source == "expansion of PTX"
    assert "no such program" in streams.unjoined[0].reason


@pytest.mark.parametrize(
    ("seed", "why"),
    [
        (9, "comparisons and divisions are moved: a step that one of them stands for proves little"),
        (27, "a loop that only computes is unrolled to its end"),
        (99, "steps of all lanes of a warp: its lanes did not part"),
        (111, "one side of a branch has an exit with a guard, and the sides meet none the less"),
    ],
)
def test_programs_that_were_joined_wrongly_once_agree_with_their_traces(monkeypatch, seed, why):
    code = kept(f"random{seed}", "random_program")
    monkeypatch.setattr(making, "machine_code", lambda text, entry, arch: code)
    text = (DATA / f"random{seed}.ptx").read_text()
    for a, b in ((1, 0), (7, 3)):
        recording = record(text, arguments={"p_a": a, "p_b": b})
        streams = making.streams_of(recording)
        agree(recording, streams)
        assert (streams.joined, streams.events_without_op) == (1.0, 0), why


@pytest.mark.parametrize("count", [1, 3])
def test_turns_of_a_loop_of_whole_numbers_alone_are_counted(monkeypatch, count):
    """It has no access and no product, and its lanes leave it one by one."""
    code = kept("silent", "silent")
    monkeypatch.setattr(making, "machine_code", lambda text, entry, arch: code)
    recording = record((DATA / "silent.ptx").read_text(), arguments={"p_data": 64, "p_count": count})
    streams = making.streams_of(recording)
    compared = recording.instructions.opcode.index("setp.ne.u32")
    turns = int((recording.traces.block == recording.instructions.block[compared]).sum())
    ops = streams.of_trace(0)[0].tolist()
    issued = [o for o in ops if streams.ops.instruction[o] == compared and streams.ops.mnemonic[o] == "LOP3.LUT"]
    assert len(issued) == turns == 111 * count
    # turns of the loop around it, which computes as little, are told apart
    around = recording.instructions.opcode.index("setp.lt.u32")
    code = [o for o in ops if streams.ops.instruction[o] == around and streams.ops.address[o] >= 0]
    assert sum(streams.ops.mnemonic[o].startswith("ISETP") for o in code) == count
    assert streams.joined > 0.99


@pytest.mark.programs
@needs_tools
@pytest.mark.parametrize("seed", [4, 8, 11, 12, 13, 14, 31, 36, 37, 52, 80, 217])
def test_random_programs_agree_with_their_traces(seed):
    assert find_nvdisasm()
    for a, b in ((1, 0), (7, 3)):
        recording = record(program(seed), arguments={"p_a": a, "p_b": b})
        streams = making.streams_of(recording)
        if streams.source == "expansion of PTX":
            pytest.skip(f"this ptxas does not assemble the program: {streams.unjoined[0].reason[:80]}")
        agree(recording, streams)
        assert streams.joined > 0.9
        assert np.diff(streams.path_start).min() > 0
