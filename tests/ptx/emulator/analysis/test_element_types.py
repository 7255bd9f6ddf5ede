"""What lies in memory as the instructions tell it: shared variables by name and type, arrays of another type."""

import numpy as np
import pytest

from kernbench import ptx
from kernbench.ptx.names.names import source_name
from kernbench.report import run_text
from kernbench.safety.stopping import Stopper, stop_at

TEXT = """.version 8.0
.target sm_80
.address_size 64
.visible .entry kern(.param .u64 x, .param .u64 h, .param .u64 i)
{
    .reg .b16 %h<4>;
    .reg .b32 %r<16>;
    .reg .b64 %rd<12>;
    .shared .align 4 .b8 _ZZ4kernPfE4tile[128];
    .shared .align 4 .b8 _ZZ4kernPfE6counts[128];
    .shared .align 4 .b8 _ZZ4kernPfE6copied[128];
    ld.param.u64 %rd1, [x];
    ld.param.u64 %rd2, [h];
    ld.param.u64 %rd3, [i];
    mov.u32 %r1, %tid.x;
    mul.wide.u32 %rd4, %r1, 4;
    mul.wide.u32 %rd5, %r1, 2;
    add.u64 %rd6, %rd1, %rd4;
    add.u64 %rd7, %rd2, %rd5;
    add.u64 %rd8, %rd3, %rd4;
    ld.global.b32 %r2, [%rd6];
    mov.b32 %r3, %r2;
    add.f32 %r4, %r3, %r3;
    shl.b32 %r5, %r1, 2;
    mov.u32 %r6, _ZZ4kernPfE4tile;
    add.u32 %r7, %r6, %r5;
    st.shared.b32 [%r7], %r4;
    ld.global.u16 %h1, [%rd7];
    add.f16 %h2, %h1, %h1;
    st.global.u16 [%rd7], %h2;
    ld.global.u32 %r8, [%rd8];
    add.s32 %r9, %r8, 1;
    mov.u32 %r10, _ZZ4kernPfE6counts;
    add.u32 %r11, %r10, %r5;
    st.shared.u32 [%r11], %r9;
    st.shared.u32 [_ZZ4kernPfE6copied], %r8;
    bar.sync 0;
    ld.shared.b32 %r12, [%r7+512];
    st.global.b32 [%rd6], %r4;
    ret;
}
"""


def launched(x, h, i, **options):
    device = ptx.EmulatedDevice(arch="sm_80")
    arrays = [device.array(array, name=name) for array, name in ((x, "x"), (h, "h"), (i, "i"))]
    return device.launch(ptx.parse(TEXT), 1, 32, arrays, **options)


GOOD = (np.arange(32, dtype=np.float32), np.ones(32, np.float16), np.arange(32, dtype=np.int32))


def test_types_are_told_by_who_computes():
    kinds = ptx.EmulatedDevice(arch="sm_80").element_types(ptx.parse(TEXT))
    assert {name: kind.name for name, kind in kinds.items()} == {"x": "float32", "h": "float16", "i": "int32"}


def test_shared_variables_have_the_names_and_types_of_the_source():
    run = launched(*GOOD, stop=Stopper(stop_at("k.ptx:37")))
    view = run.views["stopped"]
    assert [name for name in view["arrays"] if name.startswith("shared")] == [
        "shared tile",
        "shared counts",
        "shared copied",
    ]
    assert np.array_equal(view["arrays"]["shared tile"], 2 * GOOD[0])
    assert np.array_equal(view["arrays"]["shared counts"], GOOD[2] + 1)
    assert (view["about"]["shared tile"], view["about"]["shared copied"]) == (".f32", ".u32")
    assert "'copied'" in " ".join(finding.message for finding in launched(*GOOD).findings)


@pytest.mark.parametrize(
    ("place", "array", "says"),
    [
        (0, np.arange(32.0), "'x' holds float64, and the kernel takes its elements for float32 (line 21: "),
        (0, np.arange(32, dtype=np.int32), "'x' holds int32, and the kernel takes its elements for float32"),
        (1, np.ones(32, np.float32), "'h' holds float32, and the kernel takes its elements for float16"),
        (2, np.arange(32), "'i' holds int64, and the kernel takes its elements for int32"),
    ],
)
def test_an_array_of_another_type_is_told(place, array, says):
    given = [*GOOD]
    given[place] = array
    (hint,) = launched(*given).views["hints"]
    assert hint.startswith(says)


def test_bits_on_purpose_are_no_hint():
    x, h, i = GOOD
    assert "hints" not in launched(x, h, i).views
    assert "hints" not in launched(x.view(np.uint32), h.view(np.uint8), i.view(np.uint32)).views


def test_a_right_result_needs_no_hint():
    run = launched(np.arange(32.0), *GOOD[1:])
    assert any("note: 'x' holds float64" in str(part) for part in run_text("kern", run).renderables)
    run.comparison = []
    assert not any("note:" in str(part) for part in run_text("kern", run).renderables)


def test_two_variables_of_one_name_keep_their_functions():
    text = TEXT.replace("_ZZ4kernPfE6counts", "_ZZ3oneE4tile").replace("_ZZ4kernPfE6copied", "_ZZ3onevE4tile")
    device = ptx.EmulatedDevice(arch="sm_80")
    kernel = next(iter(ptx.parse(text).kernels.values()))
    device.element_types(kernel)
    names = [variable.name for variable in device._program(kernel, False).shared]
    assert names == ["kern::tile", "_ZZ3oneE4tile", "_ZZ3onevE4tile"]
    assert {source_name(name) for name in names} == {"kern::tile", "tile"}
