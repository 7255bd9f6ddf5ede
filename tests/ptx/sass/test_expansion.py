"""The expansion of PTX beside machine code: as many instructions of each unit, within a factor."""

import re
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from tests.ptx.isa_samples import module, samples
from tests.ptx.sass.tools import needs_tools
from tests.ptx.sass.tracing import record

from kernbench.bench import find, run_bench
from kernbench.ptx import isa
from kernbench.ptx.devices.assembler import KernelResources
from kernbench.ptx.recording.kinds import Kind
from kernbench.ptx.recording.naming import static_kind
from kernbench.ptx.recording.recording import LaunchRecording
from kernbench.ptx.sass.expansion.pieces import effects_of, machine_names
from kernbench.ptx.sass.expansion.table import ROWS
from kernbench.ptx.sass.flow import flow
from kernbench.ptx.sass.join import making
from kernbench.ptx.sass.lines import one_a_line
from kernbench.ptx.sass.pipes import family
from kernbench.ptx.sass.reading import read
from kernbench.ptx.sass.streams import Pipe, Streams
from kernbench.ptx.sass.tools import Code
from kernbench.ptx.text.module import Instruction
from kernbench.ptx.text.parser import parse, parse_statements
from kernbench.ptx.text.walking import instructions_of

DATA = Path(__file__).parent / "data"
# units whose instructions follow from PTX one by one, or nearly so
CLOSE = {
    "fma": (Pipe.FMA,),
    "mufu": (Pipe.MUFU,),
    "memory": (Pipe.GLOBAL, Pipe.SHARED, Pipe.LDMATRIX, Pipe.STMATRIX, Pipe.CP_ASYNC, Pipe.BULK),
    "products": (Pipe.MMA, Pipe.WGMMA),
    "shuffles": (Pipe.SHUFFLE,),
    "barriers": (Pipe.BARRIER, Pipe.MBARRIER),
}
# how far they may be apart, and all instructions together
FACTOR, FACTOR_OF_ALL = 1.5, 2.0


def issued(streams: Streams, recording: LaunchRecording) -> np.ndarray:
    """Instructions of each unit that all warps of the traces issue."""
    paths = [streams.of_trace(trace)[0] for trace in range(len(recording.traces))]
    return np.bincount(streams.ops.pipe[np.concatenate(paths)], minlength=len(Pipe))


def compare(recording: LaunchRecording, joined: Streams) -> None:
    expanded = making.streams_of(recording, use_tools=False)
    mine, machine = issued(expanded, recording), issued(joined, recording)
    assert machine.sum() / FACTOR_OF_ALL <= mine.sum() <= machine.sum() * FACTOR_OF_ALL
    for name, pipes in CLOSE.items():
        own, there = (int(counts[list(pipes)].sum()) for counts in (mine, machine))
        # a few more or less are address arithmetic, or what a compiler folds
        assert there / FACTOR - 8 <= own <= there * FACTOR + 8, name


@pytest.mark.parametrize("name", ["control", "random27", "random99"])
def test_instructions_by_unit_are_those_of_machine_code_that_was_kept(monkeypatch, name):
    text, listing = (DATA / f"{name}.ptx").read_text(), read((DATA / f"{name}.sass").read_text())
    entry = next(iter(listing.sections))
    code = Code(listing, flow(listing, entry), one_a_line(text), KernelResources(registers=22), "13.0.88")
    monkeypatch.setattr(making, "machine_code", lambda text, entry, arch: code)
    given = {"p_count": 20, "p_step": 4, "p_data": 64, "p_a": 7, "p_b": 3}
    recording = record(text, arguments=given)
    compare(recording, making.streams_of(recording))


@needs_tools
@pytest.mark.parametrize(("kernel", "dtype"), [("one_warp", "f32"), ("multi_warp", "f16"), ("shared_kv", "f16")])
def test_instructions_by_unit_are_those_of_machine_code_of_bundled_kernels(kernel, dtype):
    settings = {"users": 1, "context": 32, "lengths": (), "h_q": 2, "h_kv": 2, "kernel": kernel, "d_head": 64}
    settings["dtype"] = dtype
    run = run_bench(find("batched_incremental_attention"), None, settings, timed=True, drawn=False)
    joined = making.streams_of(run.recording, "sm_90a")
    if joined.source == making.EXPANSION:
        pytest.skip(f"no machine code: {joined.unjoined[0].reason[:80]}")
    compare(run.recording, joined)


@pytest.mark.parametrize(
    ("opcode", "names"),
    [
        ("ldmatrix.sync.aligned.m8n8.x4.shared.b16", ["LDSM.16.M88.4"]),
        ("ldmatrix.sync.aligned.m8n8.x1.trans.shared::cta.b16", ["LDSM.16.M88"]),
        ("stmatrix.sync.aligned.m8n8.x2.shared.b16", ["STSM.16.M88.2"]),
        ("redux.sync.add.s32", ["REDUX"]),
        ("red.global.add.f32", ["REDG.E"]),
        ("membar.proxy.alias", ["FENCE.VIEW.ASYNC.S"]),
        ("mul.hi.u64", ["IMAD.WIDE.U32", "IMAD.WIDE.U32", "IMAD.WIDE.U32.X", "IMAD.HI.U32", "IADD3.X"]),
        ("mul.lo.s64", ["IMAD", "IMAD", "IMAD.WIDE.U32", "IMAD.IADD"]),
        ("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32", ["HMMA.16816.F32.F16"]),
        # as ptxas 13.0 makes them for sm_90a
        ("wmma.mma.sync.aligned.row.col.m16n16k16.f32.f32", ["HMMA.16816.F32.F16"] * 2),
        ("wmma.mma.sync.aligned.row.col.m8n32k16.s32.s8.s8.s32", ["IMMA.16816.S8.S8"] * 2),
        ("wmma.mma.sync.aligned.row.col.m16n16k8.f32.tf32.tf32.f32", ["HMMA.1684.F32.TF32"] * 4),
        ("wmma.mma.sync.aligned.row.col.m8n8k4.rn.f64.f64.f64.f64", ["DMMA.884"]),
        ("wmma.load.a.sync.aligned.row.m16n16k16.shared.f16", ["LDSM.16.M88.4"]),
        ("wmma.load.b.sync.aligned.row.m16n16k16.shared::cta.bf16", ["LDSM.16.MT88.4"]),
        ("wmma.load.c.sync.aligned.row.m16n16k16.shared.f32", ["LDS.64"] * 4),
        ("wmma.load.c.sync.aligned.col.m16n16k16.shared.f32", ["LDS"] * 8),
        ("wmma.load.a.sync.aligned.row.m16n16k16.global.f16", ["LDG.E"] * 4),
        ("wmma.store.d.sync.aligned.row.m16n16k16.global.f32", ["STG.E.64"] * 4),
        ("wmma.store.d.sync.aligned.row.m16n16k16.f32", ["ST.E.64"] * 4),
    ],
)
def test_machine_instructions_of_an_opcode(opcode, names):
    (parsed,) = parse_statements(f"{opcode};")
    assert machine_names(opcode, parsed) == names


# not modelled, and tcgen05.fence is no instruction in machine code
WITHOUT_EVENT = ("clusterlaunchcontrol", "tensormap", "st.bulk", "tcgen05.fence")


# opcodes of rows that no sample of the ISA table has: two that the expansion itself spells, and mixtures of modifiers
SPELLED = ("mov.u32.special", "mov.b32.pack16", "mul.hi.u64", "cvt.s64.s32", "call.uni")


@cache
def every_instruction() -> list[Instruction]:
    """An instruction for every choice of modifiers in the ISA table."""
    forms = [form for several in isa.FORMS.values() for form in several if form.opcode != "call"]
    text = module([sample.text for form in forms for sample in samples(form)], "sm_100a")
    return list(instructions_of(parse(text).kernels["k"].function.body))


def test_each_instruction_with_an_event_becomes_a_machine_instruction_that_takes_it():
    lost = {}
    for parsed in every_instruction():
        kind = Kind(static_kind(effects_of(parsed).event, parsed.name))
        names = [name.removeprefix("@").partition(".")[0] for name in machine_names(parsed.name, parsed)]
        modelled = kind != Kind.NONE and not parsed.name.startswith(WITHOUT_EVENT)
        if modelled and not any(kind in family(name).kinds for name in names):
            lost[parsed.name] = (kind, names)
    assert not lost


def test_every_row_is_the_first_that_fits_some_opcode():
    opcodes = {one.name for one in every_instruction()} | set(SPELLED)
    reached = {next((row for row in ROWS if re.fullmatch(row[0], opcode)), None) for opcode in opcodes}
    assert [row for row in ROWS if row not in reached] == []
