"""Kernels whose runs are machine code at once against the same kernels step by step: arrays, findings, counts."""

import pickle
import random

import numpy as np
import pytest
from benchmarks.ptx_random import emulate
from tests import sampled

from kernbench import ptx
from kernbench.ptx.emulator.fused import code, runs
from kernbench.ptx.emulator.program.steps import compute, copy
from kernbench.ptx.reference.programs import changed_program, safe_program

pytestmark = pytest.mark.fast_paths

WORDS = 24
TEMPLATES = (
    "add.u32 {r}, {r}, {r};",
    "sub.s32 {r}, {r}, 17;",
    "mad.lo.u32 {r}, {r}, {r}, {r};",
    "shl.b32 {r}, {r}, {s};",
    "shr.s32 {r}, {r}, {r};",
    "lop3.b32 {r}, {r}, {r}, {r}, 0xca;",
    "xor.b32 {r}, {r}, {r};",
    "min.s32 {r}, {r}, {r};",
    "bfe.u32 {r}, {r}, 3, 9;",
    "fma.rn.f32 {f}, {f}, {f}, {f};",
    "add.ftz.f32 {f}, {f}, {f};",
    "mul.sat.f32 {f}, {f}, {f};",
    "max.f32 {f}, {f}, {f};",
    "neg.f32 {f}, {f};",
    "ex2.approx.ftz.f32 {f}, {f};",
    "mov.b32 {f}, {r};",
    "mov.b32 {r}, {f};",
    "cvt.rn.f16x2.f32 {r}, {f}, {f};",
    "cvt.u16.u32 {h}, {r};",
    "cvt.s32.s16 {r}, {h};",
    "mul.wide.u32 {d}, {r}, {r};",
    "add.u64 {d}, {d}, {d};",
    "cvt.u32.u64 {r}, {d};",
    "setp.lt.u32 {p}, {r}, {r};",
    "setp.gtu.f32 {p}|{q}, {f}, {f};",
    "setp.ne.and.s32 {p}, {r}, 5, {q};",
    "selp.b32 {r}, {r}, {r}, {p};",
    "not.pred {p}, {q};",
    "div.u32 {r}, {r}, {s};",
)


class Writer:
    """A random kernel: runs of instructions, some under guards, in branches that lanes take apart."""

    def __init__(self, seed):
        self.draw = random.Random(seed)
        self.lines = []
        self.labels = 0

    def register(self, letter, count):
        return f"%{letter}{self.draw.randrange(count) + 4}"

    def instruction(self):
        text = self.draw.choice(TEMPLATES)
        while "{" in text:
            at = text.index("{")
            names = {"r": ("r", 12), "f": ("f", 8), "d": ("rd", 4), "h": ("h", 4), "p": ("p", 3), "q": ("p", 3)}
            letter = text[at + 1]
            value = str(self.draw.randrange(1, 40)) if letter == "s" else self.register(*names[letter])
            text = text[:at] + value + text[at + 3 :]
        first, _, second = text.partition("|")
        if second and second.split(",")[0] in first:
            return self.instruction()
        guard = f"@{self.draw.choice(['', '!'])}{self.register('p', 3)} " if self.draw.random() < 0.15 else ""
        return f"  {guard}{text}"

    def block(self, depth):
        self.lines += [self.instruction() for _ in range(self.draw.randrange(2, 14))]
        if depth and self.draw.random() < 0.7:
            self.labels += 1
            label, kind = f"L{self.labels}", self.draw.random()
            test = f"  setp.lt.u32 %p9, %r0, {self.draw.randrange(64)};" if kind < 0.5 else "  mov.pred %p9, %p4;"
            self.lines += [test, f"  @%p9 bra {label};"]
            self.block(depth - 1)
            self.lines.append(f"{label}:")
            self.block(depth - 1)

    def text(self, about):
        setup = [
            f"  // {about}",
            "  mov.u32 %r30, 0;",
            "  mul.wide.u32 %rd10, %r3, 4;",
            "  add.u64 %rd10, %rd10, %rd20;",
        ]
        setup += ["  ld.global.u32 %r31, [%rd10];"]
        setup += [f"  mad.lo.u32 %r{n}, %r31, {2 * n + 1}, %r3;" for n in range(4, 16)]
        setup += [f"  mov.b32 %f{n}, %r{n};" for n in range(4, 12)] + [
            f"  cvt.u64.u32 %rd{n}, %r{n};" for n in range(4, 8)
        ]
        setup += [f"  cvt.u16.u32 %h{n}, %r{n};" for n in range(4, 8)]
        setup += [f"  setp.gt.s32 %p{n}, %r{n}, %r{n + 1};" for n in range(4, 7)]
        loop = ["  mov.u32 %r32, 0;", "AGAIN:"]
        end = ["  add.u32 %r32, %r32, 1;", "  setp.lt.u32 %p10, %r32, 3;", "  @%p10 bra AGAIN;"]
        kept = [f"%r{n}" for n in range(4, 16)] + [f"%f{n}" for n in range(4, 12)] + ["%r40", "%r41", "%r42", "%r43"]
        end += [f"  cvt.u32.u64 %r{40 + n}, %rd{4 + n};" for n in range(4)]
        end += [f"  mad.wide.u32 %rd11, %r3, {4 * WORDS}, %rd21;"]
        end += [f"  st.global.b32 [%rd11+{4 * n}], {name};" for n, name in enumerate(kept)]
        return "\n".join((*setup, *loop, *self.lines, *end))


@pytest.fixture
def at_once(monkeypatch):
    """Runs become machine code when they first run."""
    for module, names in ((runs, ("_LOAD", "_LOAD_STEP")), (code, ("_COMPILE", "_COMPILE_LINE"))):
        for name in names:
            monkeypatch.setattr(module, name, 0.0)


def by_steps(monkeypatch):
    monkeypatch.setattr(code, "is_possible", lambda: False)


def outcome(lab, text, given, **options):
    run = lab.launch(text, given, lab.device.empty(given.size * WORDS, "u4", "out"), grid=3, block=80, **options)
    findings = [str(one).replace("by steps", "at once") for one in run.findings]
    return run.outputs["out"], findings, run.metrics["steps"], run.metrics["thread_instructions"]


def agrees_with_steps(lab, monkeypatch, seed):
    """A random kernel gives the same as with every instruction a step of its own."""
    writer = Writer(seed)
    writer.block(2)
    given = np.random.default_rng(seed).integers(0, 1 << 32, 240, np.uint64).astype(np.uint32)
    given[::7] &= 0xFF
    native = outcome(lab, writer.text("at once"), given, checks=seed % 2 == 0)
    by_steps(monkeypatch)
    plain = outcome(lab, writer.text("by steps"), given, checks=seed % 2 == 0)
    assert np.array_equal(native[0], plain[0])
    assert native[1:] == plain[1:]


def agrees_in_order(monkeypatch, program):
    """The same for a program whose accesses are ordered, or not."""
    native = emulate(program, ptx.parse(program.text + "\n// at once\n").kernels["kernel"], "canonical")
    by_steps(monkeypatch)
    plain = emulate(program, ptx.parse(program.text + "\n// by steps\n").kernels["kernel"], "canonical")
    assert [str(one) for one in native[0].findings] == [str(one) for one in plain[0].findings]
    assert native[0].metrics == plain[0].metrics
    assert all(np.array_equal(a, b) for a, b in zip(native[1], plain[1], strict=True))


@pytest.mark.parametrize("seed", range(sampled.examples(6, 12)))
def test_random_kernels(lab, monkeypatch, at_once, seed):
    agrees_with_steps(lab, monkeypatch, seed)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("make", [safe_program, changed_program])
def test_random_programs_with_order(monkeypatch, at_once, make, seed):
    agrees_in_order(monkeypatch, make(seed))


@pytest.mark.skipif(not code.is_possible(), reason="no machine code can be called here")
def test_a_run_waits_until_machine_code_pays(lab, monkeypatch):
    asked = []
    monkeypatch.setattr(code, "machine_code", lambda written, make: asked.append(make))
    # what is played costs so little that it would take a longer loop
    monkeypatch.setattr(runs, "_PLAYED_STEP", runs._STEP)
    body = "\n".join(f"  add.u32 %r{n}, %r{n}, %r3;\n  xor.b32 %r{n}, %r{n}, 5;" for n in range(4, 12))
    loop = f"  mov.u32 %r20, 0;\nA:\n{body}\n  add.u32 %r20, %r20, 1;\n  setp.lt.u32 %p1, %r20, 1500;\n  @%p1 bra A;\n"
    start = "".join(f"  mov.u32 %r{n}, {n};\n" for n in range(4, 12))
    lab.launch(start + loop, np.zeros(4, np.uint32), block=64)
    # it is looked for on disk once, and made once
    assert asked == [False, True]


def test_a_run_is_kept_as_its_steps():
    run = runs.Run((compute(copy, (0,), (1,)), compute(copy, (1,), (2,))), frozenset((1,)))
    again = pickle.loads(pickle.dumps(runs.Run((), frozenset((1,)))))
    assert again._dead == run._dead == frozenset((1,))


@pytest.mark.parametrize("schedule", ["canonical", "reversed"])
def test_results_that_are_registers_are_stored(lab, at_once, schedule):
    """Who called a function reads them, behind its last block."""
    function = ".func (.reg .b32 %out) add_three(.reg .b32 %in)\n{\n  add.u32 %out, %in, 3;\n  ret;\n}\n"
    body = "  call (%r63), add_three, (%r0);"
    assert (lab.compute(body, outside=function, schedule=schedule) == np.arange(32) + 3).all()


def test_checkpoints_see_what_nobody_else_reads(at_once):
    """They may name a value at the very end of a block."""

    def program(ctx):
        thread = ctx.tid_x
        value = ctx.load(ctx.pointer("x", "f32"), thread)
        with ctx.if_(thread < 3):
            named = value * 10.0 + 1.0
            ctx.checkpoint("named", named, at=thread)
        ctx.store(ctx.pointer("x", "f32"), value, thread)

    device, taken = ptx.EmulatedDevice("sm_90a"), []
    kernel, x = ptx.PtxKernel("k").param("u64", "x").build(program), device.array(np.arange(32, dtype=np.float32), "x")
    assert device.launch(kernel, 1, 32, [x], taken=taken.append).safe
    assert [point.array.tolist() for point in taken] == [[1, 11, 21]]
