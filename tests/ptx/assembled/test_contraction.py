"""Products that ptxas makes part of the sums that use them, and those that it leaves; what comes of it in bytes."""

from collections import Counter

import numpy as np
import pytest
from tests.ptx.assembled.programs import HEAD, kernel

from kernbench import ptx
from kernbench.ptx.assembled import assembled
from kernbench.ptx.text.walking import instructions_of

STORE = "st.global.f32 [%rd1+64], %f20;"


def found_in(statements: str):
    """The instructions of a kernel as ptxas would have it."""
    return list(instructions_of(assembled(ptx.parse(HEAD + kernel(statements)).kernels["k"]).function.body))


def counts(statements: str) -> tuple[int, int, int]:
    """How many are fused, multiply and add."""
    opcodes = Counter(one.opcode for one in found_in(statements) if "f32" in one.modifiers)
    return opcodes["fma"], opcodes["mul"], opcodes["add"] + opcodes["sub"]


P, Q = "mul.f32 %f10, %f1, %f2;", "mul.f32 %f11, %f3, %f4;"
JUMP = "setp.gt.s32 %p1, %r1, 5; @%p1 bra L; bar.sync 0;"


# what ptxas 13.0 makes of each, for sm_90
@pytest.mark.parametrize(
    ("statements", "wanted"),
    [
        (f"{P} add.f32 %f20, %f10, %f3;", (1, 0, 0)),
        (f"{P} sub.f32 %f20, %f3, %f10;", (1, 0, 0)),
        (f"{P} neg.f32 %f12, %f10; mov.f32 %f13, %f12; add.f32 %f20, %f13, %f3;", (1, 0, 0)),
        (f"{P} mov.b32 %r5, %f10; mov.b32 %f12, %r5; add.f32 %f20, %f12, %f3;", (1, 0, 0)),
        (f"{P} abs.f32 %f12, %f10; add.f32 %f20, %f12, %f3;", (0, 1, 1)),
        (f"{P} add.f32 %f12, %f10, %f3; add.f32 %f20, %f10, %f12;", (2, 0, 0)),
        (f"{P} add.f32 %f20, %f10, %f10;", (0, 1, 1)),
        # another use
        (f"{P} add.f32 %f20, %f10, %f3; st.global.f32 [%rd1+68], %f10;", (0, 1, 1)),
        (f"{P} add.f32 %f12, %f10, %f3; mul.f32 %f20, %f10, %f12;", (0, 2, 1)),
        (f"{P} fma.rn.f32 %f20, %f3, %f4, %f10;", (1, 1, 0)),
        # a rounding that is named, another treatment of subnormal numbers, saturation
        ("mul.rn.f32 %f10, %f1, %f2; add.f32 %f20, %f10, %f3;", (0, 1, 1)),
        (f"{P} add.rn.f32 %f20, %f10, %f3;", (0, 1, 1)),
        (f"{P} add.ftz.f32 %f20, %f10, %f3;", (0, 1, 1)),
        ("mul.ftz.f32 %f10, %f1, %f2; add.ftz.f32 %f20, %f10, %f3;", (1, 0, 0)),
        ("mul.sat.f32 %f10, %f1, %f2; add.f32 %f20, %f10, %f3;", (0, 1, 1)),
        (f"{P} add.sat.f32 %f20, %f10, %f3;", (1, 0, 0)),
        # two products: the first, unless only the other one can be, or has no other use
        (f"{P} {Q} add.f32 %f20, %f10, %f11;", (1, 1, 0)),
        (f"{P} {Q} add.f32 %f20, %f10, %f11; st.global.f32 [%rd1+68], %f10;", (1, 1, 0)),
        (f"{P} {Q} add.f32 %f12, %f11, %f1; add.f32 %f13, %f10, %f11; max.f32 %f20, %f12, %f13;", (1, 1, 1)),
        (f"{P} sub.f32 %f12, %f5, %f10; mul.f32 %f13, %f12, %f6; add.f32 %f20, %f10, %f13;", (1, 1, 1)),
        # guards, and accesses under one
        (f"{P} setp.gt.s32 %p1, %r1, 5; mov.f32 %f20, %f4; @%p1 add.f32 %f20, %f10, %f3;", (1, 0, 0)),
        (
            "setp.gt.s32 %p1, %r1, 5; mov.f32 %f10, %f4; @%p1 mul.f32 %f10, %f1, %f2; add.f32 %f20, %f10, %f3;",
            (0, 1, 1),
        ),
        (f"{P} setp.gt.s32 %p1, %r1, 5; @%p1 st.global.u32 [%rd1+68], %r1; add.f32 %f20, %f10, %f3;", (0, 1, 1)),
        (f"{P} st.global.u32 [%rd1+68], %r1; bar.sync 0; add.f32 %f20, %f10, %f3;", (1, 0, 0)),
        # other blocks: none but products by a constant
        (f"{P} mov.f32 %f20, %f4; {JUMP} add.f32 %f20, %f10, %f3;\nL:", (0, 1, 1)),
        (f"mul.f32 %f10, %f1, 0f3F100000; mov.f32 %f20, %f4; {JUMP} add.f32 %f20, %f10, %f3;\nL:", (1, 0, 0)),
        (f"{P} add.f32 %f20, %f10, %f3; {JUMP} add.f32 %f20, %f10, %f4;\nL:", (0, 1, 2)),
        (f"{P}\nL: add.f32 %f20, %f10, %f3;", (1, 0, 0)),
        # the operands are overwritten, or lie in braces
        (f"{P} mov.f32 %f1, %f4; add.f32 %f20, %f10, %f1;", (1, 0, 0)),
        ("{ .reg .f32 %g; mov.f32 %g, %f2; mul.f32 %f10, %f1, %g; } add.f32 %f20, %f10, %f3;", (1, 0, 0)),
    ],
)
def test_what_is_contracted(statements, wanted):
    assert counts(f"{statements} {STORE}") == wanted


X = np.random.default_rng(4).standard_normal(64).astype(np.float32)


def left(statements: str, exact: bool) -> np.ndarray:
    device = ptx.EmulatedDevice("sm_90")
    array = device.array(X)
    run = device.launch(ptx.parse(HEAD + kernel(f"{statements} {STORE}")).kernels["k"], 1, 1, [array], exact=exact)
    assert run.safe
    return array.numpy()[16:17]


@pytest.mark.parametrize(
    ("statements", "written"),
    [
        (f"{P} add.f32 %f20, %f10, %f3;", "fma.rn.f32 %f20, %f1, %f2, %f3;"),
        (f"{P} mov.f32 %f1, %f4; add.f32 %f20, %f1, %f10;", "fma.rn.f32 %f20, %f1, %f2, %f4;"),
        (f"{P} sub.f32 %f20, %f10, %f3;", "neg.f32 %f9, %f3; fma.rn.f32 %f20, %f1, %f2, %f9;"),
        (f"{P} sub.f32 %f20, %f3, %f10;", "neg.f32 %f9, %f1; fma.rn.f32 %f20, %f9, %f2, %f3;"),
        (f"{P} neg.f32 %f12, %f10; sub.f32 %f20, %f3, %f12;", "fma.rn.f32 %f20, %f1, %f2, %f3;"),
        (
            "div.full.f32 %f10, %f1, %f2; add.f32 %f20, %f10, %f3;",
            "rcp.approx.ftz.f32 %f9, %f2; fma.rn.f32 %f20, %f9, %f1, %f3;",
        ),
        # the reciprocal of 37 that is rounded to nearest is not the one of the GPU's unit
        ("div.full.f32 %f20, %f1, 0f42140000;", "mul.rn.f32 %f20, %f1, 0f3CDD67C9;"),
        ("mov.b32 %r5, 0f42140000; div.full.f32 %f20, %f1, %r5;", "mul.rn.f32 %f20, %f1, 0f3CDD67C9;"),
        ("rcp.approx.f32 %f20, 0f42140000;", "mov.f32 %f20, 0f3CDD67C9;"),
        ("div.full.f32 %f10, %f1, 0f42140000; add.f32 %f20, %f10, %f3;", "fma.rn.f32 %f20, %f1, 0f3CDD67C9, %f3;"),
    ],
)
def test_exact_launches_round_where_the_instructions_do(statements, written):
    wanted = left(written, exact=False)
    assert left(statements, exact=True).tobytes() == wanted.tobytes()
    assert left(written, exact=True).tobytes() == wanted.tobytes()


def test_a_launch_that_is_not_exact_rounds_as_written():
    statements = "mul.f32 %f10, %f1, %f1; sub.f32 %f20, %f10, %f10;"
    product = X[1] * X[1]
    assert left(f"{P} mul.f32 %f11, %f1, %f2; sub.f32 %f20, %f10, %f11;", exact=False) == 0.0
    assert left(statements, exact=True) == product - product
    # a fused one leaves the error of the product
    assert left(f"{P} mul.rn.f32 %f11, %f1, %f2; sub.f32 %f20, %f10, %f11;", exact=True) != 0.0


def test_kernels_that_ptxas_rounds_as_written_stay_what_they_are():
    module = ptx.parse(HEAD + kernel(f"mul.rn.f32 %f10, %f1, %f2; add.f32 %f20, %f10, %f3; {STORE}"))
    assert assembled(module.kernels["k"]) is module.kernels["k"]


def test_lines_stay_those_of_the_text():
    text = HEAD + kernel(f"{P}\nadd.f32 %f20, %f10, %f3;\n{STORE}")
    lines = {one.line for one in instructions_of(assembled(ptx.parse(text).kernels["k"]).function.body)}
    assert lines <= set(range(1, text.count("\n") + 1))
    fused = next(one for one in found_in(f"{P}\nadd.f32 %f20, %f10, %f3;\n{STORE}") if one.opcode == "fma")
    assert "add.f32 %f20" in text.splitlines()[fused.line - 1]


@pytest.mark.parametrize("kind", ["f16", "f16x2", "bf16", "bf16x2", "f64"])
def test_other_types(kind):
    size = {"f16": 16, "bf16": 16, "f64": 64}.get(kind, 32)
    text = f"""{HEAD}.visible .entry k(.param .u64 p)
{{
.reg .b{size} %x<9>; .reg .b64 %rd1;
ld.param.u64 %rd1, [p];
ld.global.b{size} %x1, [%rd1]; ld.global.b{size} %x2, [%rd1+8]; ld.global.b{size} %x3, [%rd1+16];
mul.{kind} %x4, %x1, %x2; sub.{kind} %x5, %x3, %x4; st.global.b{size} [%rd1+24], %x5;
neg.{kind} %x6, %x1; fma.rn.{kind} %x7, %x6, %x2, %x3; st.global.b{size} [%rd1+32], %x7;
ret;
}}"""
    device = ptx.EmulatedDevice("sm_90")
    numbers = {"f16": np.float16, "f16x2": np.float16, "f64": np.float64}.get(kind, np.float32)
    array = device.array(np.frombuffer(np.linspace(0.1, 3.7, 80).astype(numbers).tobytes()[:64], np.uint8))
    device.launch(ptx.parse(text).kernels["k"], 1, 1, [array], exact=True)
    found = array.numpy().tobytes()
    assert found[24 : 24 + size // 8] == found[32 : 32 + size // 8]
