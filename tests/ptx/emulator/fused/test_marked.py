"""Steps that follow undefined values, left out where nothing is undefined: the same findings and results."""

import numpy as np
import pytest
from tests import sampled

from kernbench import ptx
from kernbench.ptx.devices import device
from kernbench.ptx.emulator.analysis import building
from kernbench.ptx.emulator.fused import blocks, marked

pytestmark = pytest.mark.fast_paths

HEAD = """.version 8.0
.target sm_90a
.address_size 64
.visible .entry k(.param .u64 o, .param .u32 n)
{
  .reg .pred %p<8>;
  .reg .b32 %r<20>;
  .reg .b64 %rd<12>;
  ld.param.u64 %rd1, [o];
  ld.param.u32 %r19, [n];
  mov.u32 %r0, %tid.x;
  shr.u32 %r1, %r0, 5;
  mul.wide.u32 %rd2, %r0, 4;
  add.s64 %rd3, %rd1, %rd2;
  mov.u32 %r2, 0;
  and.b32 %r3, %r0, 31;
  setp.lt.u32 %p5, %r3, 16;
"""
LOOP = """
LOOP:
  setp.eq.u32 %p1, %r1, %r2;
  @!%p1 bra BEHIND;
{inside}
BEHIND:
{behind}
  add.u32 %r2, %r2, 1;
  setp.lt.u32 %p2, %r2, %r19;
  @%p2 bra LOOP;
{last}
  ret;
}}
"""
SOME = tuple(range(4, 14))


def step(random):
    """An instruction of registers of which some may not be set."""
    a, b, d = (f"%r{random.choice(SOME)}" for _ in range(3))
    wide = f"%rd{random.integers(5, 9)}"
    kinds = (
        f"add.u32 {d}, {a}, {b};",
        f"mov.u32 {d}, {random.integers(0, 99)};",
        f"mov.u32 {d}, {a};",
        f"xor.b32 {d}, {a}, {a};",
        f"setp.lt.u32 %p3, {a}, {b};",
        f"selp.b32 {d}, {a}, {b}, %p3;",
        f"@%p5 add.u32 {d}, {a}, 3;",
        f"@%p5 mov.u32 {d}, 5;",
        f"mov.b64 {wide}, {{{a}, {b}}};",
        f"mov.b64 {{{d}, {a}}}, {wide};",
        f"and.b32 {d}, {a}, 0;",
    )
    return "  " + kinds[random.integers(len(kinds))]


def text(seed):
    random = np.random.default_rng(seed)
    inside, behind = ("\n".join(step(random) for _ in range(random.integers(2, 9))) for _ in range(2))
    stored = f"%r{random.choice(SOME)}"
    return HEAD + LOOP.format(inside=inside, behind=behind, last=f"  st.global.u32 [%rd3], {stored};")


def outcome(seed, checks):
    gpu = ptx.EmulatedDevice("sm_90a")
    kernel = ptx.parse(text(seed)).kernels["k"]
    out = gpu.array(np.zeros(128, np.uint32), "out")
    run = gpu.launch(kernel, 1, 128, [out, 4], checks=checks)
    return out.numpy().tolist(), [str(one) for one in run.findings], str(run.status), run.metrics


def with_marks(monkeypatch, seed, checks):
    """As it is where each mark is a step by itself."""
    plain = blocks._group

    def group(steps, begin, end, dead, wanted):
        direct, general = [], []
        while begin < end:
            at = begin
            while at < end and steps[at].marks is None:
                at += 1
            at = max(at, begin + 1)
            some, more = plain(steps, begin, at, blocks._nothing, blocks._nothing)
            direct, general, begin = [*direct, *some], [*general, *more], at
        return direct, general

    with monkeypatch.context() as patch:
        patch.setattr(blocks, "_group", group)
        return outcome(seed, checks)


@pytest.fixture
def anew(monkeypatch):
    """Programs are built for each launch, as what is built differs."""
    monkeypatch.setattr(device, "program_of", lambda kernel, clustered, *_: building.build(kernel, clustered)[0])


@pytest.mark.usefixtures("anew")
@pytest.mark.sampled(3)
@pytest.mark.parametrize("checks", [False, True])
@pytest.mark.parametrize("part", range(sampled.examples(3, 6)))
def test_findings_and_results_are_the_same(monkeypatch, part, checks):
    found = []
    for seed in range(12 * part, 12 * part + 12):
        ours = outcome(seed, checks)
        assert ours == with_marks(monkeypatch, seed, checks), text(seed)
        found += ours[1]
    assert bool(found) == checks


def test_other_roles_do_not_matter(monkeypatch):
    """A register that one warp never sets is defined for the warp that does: its steps are one run."""
    asked = []
    known = marked.Marked.direct

    def direct(self, window):
        flags = window.batch.checks.definedness.flags
        asked.append((window.warps.tolist(), flags.known(window, self._wanted)))
        known(self, window)

    monkeypatch.setattr(marked.Marked, "direct", direct)
    body = "  add.u32 %r5, %r4, 1;\n  add.u32 %r6, %r5, %r4;\n  mov.u32 %r4, %r6;"
    before = "  setp.ne.u32 %p4, %r1, 0;\n  @%p4 bra LOOP;\n  mov.u32 %r4, 7;\n"
    last = "  @%p4 bra END;\n  st.global.u32 [%rd3], %r4;\nEND:"
    source = HEAD + before + LOOP.format(inside=body, behind="", last=last)
    gpu = ptx.EmulatedDevice("sm_90a")
    out = gpu.array(np.zeros(128, np.uint32), "out")
    run = gpu.launch(ptx.parse(source).kernels["k"], 1, 128, [out, 1], checks=True)
    assert not run.findings
    assert out.numpy()[:32].tolist() == [15] * 32
    assert ([0], False) in asked
    assert ([0], True) not in asked
