"""The comparison of devices, compared with itself: cases, inputs, kernels and distances."""

import numpy as np
import pytest
from tests import sampled
from tests.ptx.toolchain import need_ptxas

from kernbench import ptx
from kernbench.common.errors import MisuseError
from kernbench.ptx.conformance import CASES, Case, compare, expand, inputs_for, source
from kernbench.ptx.conformance.cases import Value
from kernbench.ptx.conformance.inputs import edge_bits
from kernbench.ptx.devices.assembler import assemble
from kernbench.ptx.text.types import TYPES


def test_a_line_of_the_table_is_several_cases():
    cases = list(expand(["<add|sub>.rn<|.ftz>.f32 : f32 f32 -> f32"]))
    assert [c.name for c in cases] == ["add.rn.f32", "add.rn.ftz.f32", "sub.rn.f32", "sub.rn.ftz.f32"]
    assert cases[0] == Case("add.rn.f32 $d, $a, $b;", (Value("f32"), Value("f32")), Value("f32"))
    (spelled,) = expand(["setp.lt.s32 p, $a, $b; selp.u32 $d, 1, 0, p : s32 s32 -> u32"])
    assert spelled.text.endswith("selp.u32 $d, 1, 0, p;")
    with pytest.raises(MisuseError, match="write 'instruction : input types -> output type'"):
        list(expand(["add.f32"]))


def test_every_case_is_there_once_and_parses():
    assert len({case.text for case in CASES}) == len(CASES) > 800
    for case in CASES[::9]:
        assert list(ptx.parse(source(case)).kernels) == ["apply"]


@pytest.mark.programs
def test_every_case_is_ptx_for_the_real_assembler():
    """Of every eighth, with --full of all."""
    need_ptxas("sm_90", (8, 7))
    cases = sampled.some(CASES, len(CASES) // 8)
    header = ".version 8.7\n.target sm_90\n.address_size 64\n"
    kernels = [
        source(case).removeprefix(header).replace(".entry apply", f".entry k{number}")
        for number, case in enumerate(cases)
    ]
    assert len(assemble(header + "".join(kernels), "sm_90", options=["-O0"]).kernels) == len(cases)


@sampled.each(CASES[::37])
def test_inputs_have_the_shape_of_their_registers_and_repeat(case):
    first, second = inputs_for(case, 512), inputs_for(case, 512)
    for value, given, again in zip(case.inputs, first, second, strict=True):
        assert given.shape == (value.registers, first[0].shape[1])
        assert given.dtype == TYPES[value.type].storage
        assert np.array_equal(given, again)


def test_inputs_meet_the_edges():
    bits = set(edge_bits(TYPES["f32"]).tolist())
    assert {0, 1 << 31, 0x3F800000, 0x7F800000, 0xFF800000, 0x7FC00000, 0x7F800001, 1, 0x7FFFFF} <= bits
    (every,) = inputs_for(next(expand(["abs.f16 : f16 -> f16"])))
    assert sorted(every[0].tolist()) == list(range(1 << 16))
    a, b = inputs_for(next(expand(["div.s32 : s32 s32 -> s32"])))
    assert ((a == 1 << 31) & (b == 2**32 - 1)).any()
    assert (b == 0).any()


def floats(*values):
    return np.array([values], np.float32).view(np.uint32)


def test_distances():
    one = floats(1.0, -2.0, 0.0)
    assert compare(one, one.copy(), "f32").equal
    near = compare(one, one + np.uint32([[0, 3, 0]]), "f32")
    assert (near.different, near.ulps, near.worst) == (1, 3, 1)
    assert compare(floats(0.0), floats(-0.0), "f32").ulps == 0
    tiny = np.array([[1]], np.uint32)
    assert compare(tiny, tiny | np.uint32(1 << 31), "f32").ulps == 2
    assert compare(floats(np.inf), floats(3.4e38), "f32").ulps is None
    nans = compare(floats(1.0, np.nan), np.array([[0x3F800000, 0x7FFFFFFF]], np.uint32), "f32")
    assert (nans.different, nans.nan_bits, nans.ulps) == (1, 1, 0)
    assert compare(floats(1.0), floats(np.nan), "f32").ulps is None
    packed = compare(np.array([[0x3C003C00]], np.uint32), np.array([[0x3C023C00]], np.uint32), "f16x2")
    assert (packed.total, packed.different, packed.ulps) == (2, 1, 2)
    assert str(compare(np.array([[1, 2]]), np.array([[1, 3]]), "u32")).startswith("1 of 2 differ")
    assert str(compare(one, one, "f32")) == "equal (3)"
