"""Where operands of instructions come from."""

import numpy as np

from kernbench.ptx.advice.flow import Flow
from kernbench.ptx.recording.recording import Instructions


def flow(*texts: str) -> Flow:
    opcodes = tuple(text.lstrip("{ ").split()[0] for text in texts)
    count = len(texts)
    zeros = np.zeros(count, np.int32)
    return Flow(Instructions(zeros, texts, opcodes, zeros, ("k",) * count, zeros.astype(np.uint8), zeros.astype(bool)))


def test_addresses_that_were_loaded():
    found = flow("ld.global.u32 %r1, [%rd1]", "add.s32 %r2, %r3, 4", "mad.wide.s32 %rd2, %r1, 4, %rd9",
                 "ld.global.f32 %f1, [%rd2+8]", "ld.global.f32 %f2, [%rd3]", "st.global.f32 [%rd2], %f2")  # fmt: skip
    assert found.loaded.tolist() == [False, False, False, True, False, True]


def test_instructions_that_make_addresses_only():
    found = flow("mul.wide.s32 %rd1, %r1, 4", "add.s64 %rd2, %rd1, %rd9", "ld.global.f32 %f1, [%rd2]",
                 "add.s32 %r2, %r1, 1", "st.global.u32 [%rd2], %r2", "add.f32 %f2, %f1, %f1")  # fmt: skip
    assert found.addresses.tolist() == [True, True, False, False, False, True]


def test_products_of_halves_and_what_brings_them():
    found = flow("ld.shared.u16 %rs1, [%r1]", "{ cvt.f32.bf16 %f1, %rs1;}", "cvt.f32.f16 %f2, %rs2",
                 "fma.rn.f32 %f3, %f1, %f2, %f3", "fma.rn.f32 %f4, %f1, %f9, %f4",
                 "ld.shared.v2.b32 {%r2, %r3}, [%r1]", "fma.rn.bf16x2 %r4, %r2, %r3, %r4")  # fmt: skip
    sums, bring = found.of_halves()
    assert np.flatnonzero(sums).tolist() == [3, 6]
    assert np.flatnonzero(bring).tolist() == [0, 1, 2, 5]
