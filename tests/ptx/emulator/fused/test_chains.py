"""Kernels whose chains of loads, exchanges and arithmetic are machine code at once, against the same step by step."""

import pickle
import random

import numpy as np
import pytest
from tests import sampled

from kernbench.ptx.emulator.analysis.building import program_of
from kernbench.ptx.emulator.fused import chain_code, chains, code, runs
from kernbench.safety.budget import Budget

pytestmark = pytest.mark.fast_paths

GIVEN, WORDS = 2048, 16
COMPUTE = (
    "add.u32 {r}, {r}, {r};",
    "mad.lo.u32 {r}, {r}, 7, {r};",
    "xor.b32 {r}, {r}, {r};",
    "shr.u32 {r}, {r}, 3;",
    "div.u32 {r}, {r}, 3;",
    "fma.rn.f32 {f}, {f}, {f}, {f};",
    "max.f32 {f}, {f}, {f};",
    "ex2.approx.f32 {f}, {f};",
    "mov.b32 {f}, {r};",
    "mov.b32 {r}, {f};",
    "setp.lt.u32 {p}, {r}, {r};",
    "selp.b32 {r}, {r}, {r}, {p};",
)
LOADS = (
    "ld.global.u32 {r}, [{a}];",
    "ld.global.f32 {f}, [{a}+64];",
    "ld.u32 {r}, [{a}+4];",
    "ld.global.v2.u32 {{{r}, {r}}}, [{b}];",
    "ld.global.v4.f32 {{{f}, {f}, {f}, {f}}}, [{b}+16];",
    "ld.global.u16 {h}, [{a}+2];",
    "ld.global.u8 {r}, [{a}+3];",
    "ld.global.u64 {d}, [{b}+8];",
    "ld.global.v2.b64 {{{d}, {d}}}, [{b}];",
    "ld.global.nc.u32 {r}, [{a}+8];",
)
EXCHANGES = (
    "shfl.sync.bfly.b32 {r}, {r}, {n}, 31, 0xffffffff;",
    "shfl.sync.bfly.b32 {f}, {f}, {n}, 31, 0xffffffff;",
    "shfl.sync.up.b32 {r}|{p}, {r}, {n}, 0, 0xffffffff;",
    "shfl.sync.down.b32 {r}|{p}, {r}, {n}, 31, 0xffffffff;",
    "shfl.sync.idx.b32 {r}, {r}, {n}, 31, 0xffffffff;",
    "shfl.sync.idx.b32 {f}|{p}, {f}, {n}, 0x181f, 0xffffffff;",
    "shfl.sync.bfly.b32 {r}, {r}, {n}, 0x1803, 0xffffffff;",
)


class Writer:
    """A random loop with loads, exchanges and arithmetic."""

    def __init__(self, seed):
        self.draw = random.Random(seed)

    def line(self):
        kind = self.draw.random()
        if kind < 0.25:
            text = self.draw.choice(EXCHANGES)
        elif kind < 0.5:
            text = self.draw.choice(LOADS)
        else:
            text = self.draw.choice(COMPUTE)
        guard = f"@{self.draw.choice(['', '!'])}%p{self.draw.randrange(3) + 4} "
        return "  " + (guard if self.draw.random() < 0.15 and "shfl" not in text else "") + _fill(self, text)

    def addresses(self):
        """Those of loads, anew: by the round and the lane, the same for a warp, or from what was loaded."""
        mask = GIVEN // 4 - 1
        return [
            "  mad.lo.u32 %r20, %r32, 32, %r3;",
            "  mul.wide.u32 %rd10, %r20, 4;",
            "  add.u64 %rd10, %rd10, %rd20;",
            "  mul.wide.u32 %rd11, %r20, 16;",
            "  add.u64 %rd11, %rd11, %rd20;",
            *(
                ["  and.b32 %r21, %r4, " + str(mask) + ";", "  mul.wide.u32 %rd12, %r21, 4;"]
                if self.draw.random() < 0.5
                else ["  mul.wide.u32 %rd12, %r1, 4;"]
            ),
            "  add.u64 %rd12, %rd12, %rd20;",
        ]

    def text(self, about):
        setup = [f"  // {about}"] + [f"  mad.lo.u32 %r{n}, %r3, {2 * n + 1}, {n};" for n in range(4, 12)]
        setup += [f"  mov.b32 %f{n}, %r{n};" for n in range(4, 12)]
        setup += [f"  cvt.u64.u32 %rd{n}, %r{n};" for n in range(4, 8)]
        setup += [f"  cvt.u16.u32 %h{n}, %r{n};" for n in range(4, 8)]
        setup += [f"  setp.gt.u32 %p{n}, %r{n}, %r{n + 1};" for n in range(4, 7)]
        lines = []
        for _ in range(self.draw.randrange(2, 4)):
            lines += self.addresses() + [self.line() for _ in range(self.draw.randrange(4, 14))]
        loop = ["  mov.u32 %r32, 0;", "AGAIN:", *lines, "  add.u32 %r32, %r32, 1;"]
        loop += ["  setp.lt.u32 %p10, %r32, 4;", "  @%p10 bra AGAIN;"]
        kept = [f"%r{n}" for n in range(4, 12)] + [f"%f{n}" for n in range(4, 8)]
        kept += ["%r40", "%r41", "%r42", "%r43"]
        end = [f"  cvt.u32.u64 %r{40 + n}, %rd{4 + n};" for n in range(4)]
        end += [f"  mad.wide.u32 %rd13, %r3, {4 * WORDS}, %rd21;"]
        end += [f"  st.global.b32 [%rd13+{4 * n}], {name};" for n, name in enumerate(kept)]
        return "\n".join((*setup, *loop, *end))


def _fill(writer, text):
    """An instruction with registers for letters; what is in double braces is a list."""
    names = {"r": ("r", 8), "f": ("f", 8), "d": ("rd", 4), "h": ("h", 4), "p": ("p", 3)}
    out = ""
    while text:
        if text.startswith(("{{", "}}")) and not text.startswith("}}}"):
            out, text = out + text[0], text[2:]
        elif text[0] == "{":
            letter, text = text[1], text[3:]
            if letter == "n":
                out += str(writer.draw.choice((1, 2, 3, 4, 8, 16, 31)))
            elif letter in "ab":
                out += writer.draw.choice(("%rd10", "%rd12") if letter == "a" else ("%rd11",))
            else:
                bank, count = names[letter]
                out += f"%{bank}{writer.draw.randrange(count) + 4}"
        else:
            out, text = out + text[0], text[1:]
    return out


@pytest.fixture
def at_once(monkeypatch):
    """Chains become machine code when they first run."""
    for module, names in ((runs, ("_LOAD", "_LOAD_STEP")), (code, ("_COMPILE", "_COMPILE_LINE"))):
        for name in names:
            monkeypatch.setattr(module, name, 0.0)
    if not code.is_possible():
        pytest.skip("no machine code can be called here")


@pytest.fixture
def counted(monkeypatch):
    """How often chains were run, by whether they did something."""
    found = []
    run = chains.Chain.run
    monkeypatch.setattr(chains.Chain, "run", lambda self, window: found.append(run(self, window)) or found[-1])
    return found


def outcome(lab, text, words, block, checks):
    given = np.random.default_rng(5).integers(0, 1 << 32, words, np.uint64).astype(np.uint32)
    out = lab.device.empty(2 * block * WORDS, "u4", "out")
    run = lab.launch(text, given, out, grid=2, block=block, checks=checks)
    findings = [str(one).replace("by steps", "at once") for one in run.findings]
    return run.outputs["out"], findings, run.metrics


def both(lab, monkeypatch, writer, words, block, checks):
    """The outcome of machine code, which is that of the steps."""
    state = writer.draw.getstate()
    native = outcome(lab, writer.text("at once"), words, block, checks)
    writer.draw.setstate(state)
    with monkeypatch.context() as patch:
        patch.setattr(code, "is_possible", lambda: False)
        plain = outcome(type(lab)(), writer.text("by steps"), words, block, checks)
    assert np.array_equal(native[0], plain[0])
    assert native[1:] == plain[1:]
    return native


@pytest.mark.parametrize("seed", range(sampled.examples(8, 16)))
def test_random_kernels(lab, monkeypatch, at_once, counted, seed):
    both(type(lab)(), monkeypatch, Writer(seed), GIVEN, 96 if seed % 4 else 80, seed % 2 == 0)
    assert seed % 4 == 0 or any(counted)


@pytest.mark.parametrize("seed", range(sampled.examples(4, 8)))
def test_random_kernels_that_leave_their_array(lab, monkeypatch, at_once, seed):
    """In later rounds addresses pass the end of what was written: findings are the same, word for word."""
    native = both(type(lab)(), monkeypatch, Writer(100 + seed), 300 + 13 * seed, 96, True)
    assert native[1]


REDUCTION = """
  mul.wide.u32 %rd4, %r3, 4;
  add.u64 %rd4, %rd4, %rd20;
  mov.f32 %f1, 0f00000000;
  mov.u32 %r32, 0;
AGAIN:
  ld.global.f32 %f4, [%rd4];
  fma.rn.f32 %f1, %f4, %f4, %f1;
  shfl.sync.bfly.b32 %f5, %f1, 16, 31, 0xffffffff;
  add.rn.f32 %f6, %f1, %f5;
  shfl.sync.bfly.b32 %f5, %f6, 1, 31, 0xffffffff;
  add.rn.f32 %f1, %f6, %f5;
  add.u64 %rd4, %rd4, 256;
  add.u32 %r32, %r32, 1;
  setp.lt.u32 %p1, %r32, 4;
  @%p1 bra AGAIN;
  mov.b32 %r63, %f1;
"""


def reduction_golden(given, rounds=4):
    total = np.zeros(64, np.float32)
    for number in range(rounds):
        total = (given[64 * number :][:64].astype(np.float64) ** 2 + total).astype(np.float32)
        for step in (16, 1):
            total = (total + total[np.arange(64) ^ step]).astype(np.float32)
    return total


@pytest.mark.parametrize("checks", [False, True])
def test_a_loop_with_loads_and_exchanges_is_one_call_a_round(lab, at_once, counted, checks):
    given = np.random.default_rng(0).integers(-9, 9, 256).astype(np.float32)
    found = lab.compute(REDUCTION, given, out="u4", block=64, checks=checks)
    assert np.array_equal(found.view(np.float32), reduction_golden(given))
    # a round of the loop is a chain of three blocks, from the load to the branch
    assert [left for left in counted if left is not None and left.block] == [chains.Left(2, ())] * 4


@pytest.mark.parametrize("schedule", ["canonical", "reversed", "eager", 3])
def test_any_schedule(lab, at_once, schedule):
    given = np.random.default_rng(1).integers(-9, 9, 256).astype(np.float32)
    found = lab.compute(REDUCTION, given, out="u4", block=64, schedule=schedule)
    assert np.array_equal(found.view(np.float32), reduction_golden(given))


def test_what_is_the_matter_with_a_load_is_said_by_the_steps(lab, at_once, counted):
    """The last round reads past the array, and nothing of that round was done before."""
    given = np.random.default_rng(2).integers(-9, 9, 200).astype(np.float32)
    found = lab.launch(REDUCTION, given, block=64).findings
    assert [(one.kind, one.count) for one in found] == [("out-of-bounds", 56)]
    # refused as a chain, and then as steps of a block
    assert [left is not None for left in counted] == [True] * 3 + [False] * 2


def test_a_load_that_falls_into_another_array_is_found(lab, at_once, counted):
    """The bytes of the other array are written, and only the pointer says that it is not meant."""
    given, beside = (np.ones(words, np.float32) for words in (128, 4096))
    body = REDUCTION.replace("%rd4, %rd4, 256", "%rd4, %rd4, 2048")
    found = lab.launch(body, given, beside, block=64).findings
    assert [(one.kind, one.count) for one in found] == [("out-of-bounds", 192)]
    assert [left is not None for left in counted] == [True] + [False] * 6


def test_a_misaligned_load_is_found(lab, at_once, counted):
    body = REDUCTION.replace("%rd4, %rd4, 256", "%rd4, %rd4, 254")
    found = lab.launch(body, np.ones(256, np.float32), block=64).findings
    assert [(one.kind, one.count) for one in found] == [("misaligned", 128)]
    assert [left is not None for left in counted] == [True, False, False, True, False, False]


def test_a_load_of_what_nobody_wrote_is_found(lab, at_once):
    given = lab.device.empty(256, "f4", "given")
    assert "uninitialised-read" in [one.kind for one in lab.launch(REDUCTION, given, block=64).findings]


def test_a_budget_ends_where_it_did(lab, monkeypatch, at_once):
    given = np.ones(256, np.float32)

    body = REDUCTION.replace("%p1, %r32, 4", "%p1, %r32, 4000").replace("%rd4, %rd4, 256", "%rd4, %rd4, 0")

    def outcomes(about):
        runs = [lab.launch(f"  // {about}\n{body}", given, block=64, budget=Budget(steps=500 + n)) for n in range(9)]
        return [([str(one) for one in run.findings], run.metrics) for run in runs]

    native = outcomes("one")
    monkeypatch.setattr(code, "is_possible", lambda: False)
    assert native == outcomes("two")


def test_loads_that_follow_loads_are_parts_of_their_own(lab, at_once, counted):
    """Addresses that are loaded cannot be looked at before: a chain has a part for each generation."""
    body = """
  mul.wide.u32 %rd4, %r3, 4;
  add.u64 %rd4, %rd4, %rd20;
  ld.global.u32 %r4, [%rd4];
  mul.wide.u32 %rd5, %r4, 4;
  add.u64 %rd5, %rd5, %rd20;
  ld.global.u32 %r5, [%rd5];
  mul.wide.u32 %rd6, %r5, 4;
  add.u64 %rd6, %rd6, %rd20;
  ld.global.u32 %r63, [%rd6];
"""
    given = np.random.default_rng(3).permutation(64).astype(np.uint32)
    assert (lab.compute(body, given, block=64) == given[given[given]]).all()
    bad = given.copy()
    bad[7] = 1000
    assert {one.kind for one in lab.launch(body, bad, block=64).findings} == {"out-of-bounds"}
    assert any(left is not None and left.steps for left in counted)


def test_a_chain_is_kept_as_its_steps(lab):
    program = program_of(lab.kernel(REDUCTION, 2))
    chain = next(block.chain for block in program.blocks if block.chain is not None)
    assert chain.further == 2
    again = pickle.loads(pickle.dumps(chains.Chain((), (), chain.dead, 1, 0, 7)))
    assert (again.dead, again.first, again.last, again.sites) == (chain.dead, 1, 0, 7)


def test_what_nobody_reads_behind_a_chain_is_not_stored(lab):
    program = program_of(lab.kernel(REDUCTION, 2))
    chain = next(block.chain for block in program.blocks if block.chain is not None)
    written = {slot for item in chain._items for slot in chain_code.targets_of(item)}
    # the sum, the address, the counter and the predicate are wanted; the loaded value and what lanes exchange are not
    assert len(written - chain.dead) == 4
    assert len(chain.dead) == 3
