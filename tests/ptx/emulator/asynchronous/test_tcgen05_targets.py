"""tcgen05 on every target that has it: all forms of the table, K = 96 of sm_103a, and descriptors without a meaning."""

import ml_dtypes
import numpy as np
import pytest
from tests import sampled
from tests.ptx.emulator.asynchronous.matrices import TCGEN05_CODES, descriptor, image
from tests.ptx.emulator.asynchronous.tcgen05 import BASE, COMMIT, HEAD, WAIT, kernel, load, result
from tests.ptx.isa_samples import samples

from kernbench import ptx
from kernbench.common.errors import KernbenchError
from kernbench.ptx import isa
from kernbench.ptx.emulator.engine.machine import target_runs_on

PRODUCTS = [form for form in isa.FORMS["tcgen05"] if form.slots[0].choices == ("mma",)]
SAID = 1 << 4 | (64 >> 3) << 17 | (128 >> 4) << 24


def outcome(text, target, bits=SAID):
    """What comes of one product: the kinds of findings, or the error that refuses it."""
    changes = {".version 8.7": ".version 9.0", ".target sm_100a": f".target {target}"}
    head = HEAD.format(registers=8, columns=128, copy="")
    for old, new in changes.items():
        head = head.replace(old, new)
    head = head.replace(".reg .pred %p<8>;", ".reg .pred %p<9>; .reg .b16 %h<140>;")
    head = head.replace(".reg .b32 %r<64>;", ".reg .b32 %r<300>;").replace(".reg .b64 %rd<16>;", ".reg .b64 %rd<140>;")
    device = ptx.EmulatedDevice(target)
    given = [device.array(np.zeros(16, np.uint8)), device.array(np.zeros(16)), 16, 1 << 46, 1 << 46, bits]
    try:
        code = ptx.parse(f"{head}  @%p3 {text}\n  ret;\n}}\n").kernels["kernel"]
        return {f.kind for f in device.launch(code, 1, 128, given, shared_bytes=65536).findings}
    except KernbenchError as refused:
        return str(refused)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("letter", ["a", "f"])
@pytest.mark.parametrize("number", sampled.some([100, 101, 103, 110, 120, 121], 2, kind=lambda sm: sm >= 120))
def test_no_form_crashes_on_any_target(number, letter):
    """Every row runs or is refused; what only some targets have stands in rows of its own."""
    target = f"sm_{number}{letter}"
    for form in PRODUCTS:
        sample = next(samples(form))
        found = outcome(sample.text, target)
        if ".sp" in sample.text and not isinstance(found, str):
            pytest.fail(f"{sample.text}: sparse products are not emulated")
        if target.startswith("sm_12"):
            assert "needs sm_100" in found, sample.text


@pytest.mark.parametrize(
    ("target", "form", "refused"),
    [
        ("sm_103a", "kind::i8", True),
        ("sm_100a", "kind::i8", False),
        ("sm_110a", "kind::i8", False),
        ("sm_100f", "kind::i8", True),
        ("sm_103f", "kind::mxf4.block_scale.scale_vec::2X", True),
        ("sm_103f", "kind::mxf4.block_scale.block32", False),
        ("sm_121a", "kind::f16", True),
    ],
)
def test_what_targets_have(target, form, refused):
    scales = "[%r3], [%r3], " if "block" in form else ""
    found = outcome(f"tcgen05.mma.cta_group::1.{form} [%r3], %rd4, %rd5, %r22, {scales}%p5;", target)
    assert (isinstance(found, str) and "needs sm_100" in found) == refused, found


def test_a_scale_of_d_is_not_on_sm_110():
    text = "tcgen05.mma.cta_group::1.kind::f16 [%r3], %rd4, %rd5, %r22, %p5, 1;"
    assert "needs sm_100f" in outcome(text, "sm_110a")
    assert not isinstance(outcome(text, "sm_103a"), str)


def test_families():
    assert target_runs_on("sm_100f", "sm_103a")
    assert not target_runs_on("sm_100f", "sm_101a")
    assert not target_runs_on("sm_103f", "sm_100a")
    assert not target_runs_on("sm_100f", "sm_110a")
    assert target_runs_on("sm_120f", "sm_121a")


def messages(text, target, said, matrix=1 << 46):
    """What is found wrong with the descriptors of a product."""
    device = ptx.EmulatedDevice(target)
    head = HEAD.format(registers=8, columns=128, copy="").replace("8.7", "9.0").replace("sm_100a", target)
    code = ptx.parse(f"{head}  @%p3 {text}\n  ret;\n}}\n").kernels["kernel"]
    given = [device.array(np.zeros(16, np.uint8)), device.array(np.zeros(16)), 16, matrix, matrix, said]
    run = device.launch(code, 1, 128, given, shared_bytes=65536)
    return [f.message for f in run.findings if f.kind == "descriptor"]


@pytest.mark.parametrize(
    ("form", "bits", "target", "message"),
    [
        ("mxf4nvf4.block_scale.block16", 2 << 29, "sm_100a", "4 of them begin at byte 0"),
        ("mxf4.block_scale.block32", 3 << 29, "sm_100a", "2 of them begin at byte 0 or 2"),
        ("mxf4nvf4.block_scale.block16", 1 << 31 | 3 << 4, "sm_103a", "6 of them begin at byte 0 or 2"),
        ("mxf4.block_scale.block32", 1 << 31, "sm_100a", "bit 31 asks for K = 96, which sm_103a and sm_103f have"),
        ("mxf4.block_scale.block32", 1 << 15, "sm_103a", "transpose"),
        ("mxf8f6f4.block_scale.block32", 1 << 26 | 1 << 27, "sm_100a", "M is 192"),
    ],
)
def test_descriptors_of_scaled_blocks_that_mean_nothing(form, bits, target, message):
    formats = 0 if "mxf8" in form else 1 << 7 | 1 << 10
    said = (SAID & ~(3 << 4)) | formats | 1 << 23 | bits
    text = f"tcgen05.mma.cta_group::1.kind::{form} [%r3], %rd4, %rd5, %r22, [%r3], [%r3], %p5;"
    seen = messages(text, target, said)
    assert len(seen) == 1
    assert message in seen[0]


def test_rows_that_leave_the_pattern_need_the_address_of_the_next_buffer():
    """48 bytes from byte 96 of 128 on: bit 52 says where they go on; without it that is a finding, and no crash."""
    said = (SAID & ~(3 << 4)) | 1 << 7 | 1 << 10 | 1 << 23 | 1 << 31
    text = "tcgen05.mma.cta_group::1.kind::mxf4.block_scale.block32 [%r3], %rd4, %rd5, %r22, [%r3], [%r3], %p5;"
    for target, bits, message in (
        ("sm_103a", 0, "rows of 48 bytes leave the swizzle's pattern"),
        ("sm_100a", 1 << 52, "bit 52 asks for an absolute leading address"),
    ):
        bits |= descriptor(BASE + 96, 0, 1024, TCGEN05_CODES["128B"], True)
        given = said if target == "sm_103a" else said & ~(1 << 31)
        assert any(message in one for one in messages(text, target, given, bits))


# words of scales a lane: those of 32 rows a column, the next four (or six) bytes behind all columns of the rows
SCALES = """
  and.b32 %r30, %r0, 31;
  mul.lo.u32 %r30, %r30, {bytes};
  add.u32 %r31, %r2, %r30;
"""
SCALE = "  ld.shared.b32 %r32, [%r31+{offset}];\n  add.u32 %r36, %r5, {column};\n" + (
    "  tcgen05.st.sync.aligned.32x32b.x1.b32 [%r36], {{%r32}};\n"
)
READY = """
  tcgen05.wait::st.sync.aligned;
  tcgen05.fence::before_thread_sync;
  bar.sync 0;
  tcgen05.fence::after_thread_sync;
  add.u32 %r40, %r3, {a};
  add.u32 %r41, %r3, {b};
  setp.ne.b32 %p5, 0, 0;
"""


def word_columns(scales, first):
    """Columns of 32 lanes from scales [rows, count]: word w of rows 32 i to 32 i + 31 in column step w + i."""
    rows, count = scales.shape
    step, words = 4 * -(-rows // 128), -(-(first + count) // 4)
    held = np.zeros((step * 32, 4 * words), np.uint8)
    held[:rows, first : first + count] = scales
    return held.reshape(step, 32, words, 4).transpose(1, 2, 0, 3).reshape(32, words * step, 4)


@pytest.mark.parametrize(
    ("n", "vector", "first", "begin"),
    sampled.some(
        [
            (64, "block16", 0, 0),
            (64, "block16", 2, 48),
            (256, "block16", 2, 0),
            (64, "block32", 0, 96),
            (256, "block32", 3, 0),
        ],
        3,
    ),
)
def test_depth_of_96(n, vector, first, begin):
    """96 elements of 48 bytes, which leave a pattern of 128 bytes for the next buffer where they begin at byte 96."""
    rng = np.random.default_rng(23)
    block = int(vector[5:])
    codes = [rng.integers(0, 16, (rows, 96)).astype(np.uint8) for rows in (128, n)]
    a, b = (x.view(ml_dtypes.float4_e2m1fn).astype(np.float64) for x in codes)
    scales = [rng.integers(125, 130, (rows, 96 // block)).astype(np.uint8) for rows in (128, n)]
    held = [word_columns(x, first) for x in scales]
    table = np.concatenate([x.reshape(32, -1) for x in held], axis=1)
    start = -(-table.size // 1024) * 1024
    # two buffers for each operand, rows of 128 bytes in each
    data, starts = [np.zeros(start, np.uint8)], []
    data[0][: table.size] = table.reshape(-1)
    for code in codes:
        rows = np.zeros((len(code), 256), np.uint8)
        rows[:, begin : begin + 48] = code[:, 0::2] | code[:, 1::2] << 4
        starts.append(BASE + sum(map(len, data)))
        for part in (rows[:, :128], rows[:, 128:]):
            data.append(image(part, "128B", False, 0, 0, 1024, part.size))
    descriptors = [
        descriptor(s + begin, s + len(code) * 128, 1024, TCGEN05_CODES["128B"], True) | 1 << 52
        for s, code in zip(starts, codes, strict=True)
    ]
    body = SCALES.format(bytes=table.shape[1])
    for number in range(table.shape[1] // 4):
        body += SCALE.format(offset=4 * number, column=256 + number)
    name = f"tcgen05.mma.cta_group::1.kind::mxf4nvf4.block_scale.{vector}"
    product = f"  @%p3 {name} [%r3], %rd4, %rd5, %r22, [%r40], [%r41], %p5;\n"
    body += READY.format(a=256, b=256 + held[0].shape[1]) + product + COMMIT + WAIT + load(64)
    changes = {".version 8.7": ".version 8.8", "sm_100a": "sm_103a"}
    said = 1 << 7 | 1 << 10 | (n >> 3) << 17 | 1 << 23 | (128 >> 4) << 24 | 1 << 31 | first << 29 | first << 4
    device = ptx.EmulatedDevice("sm_103a")
    out, memory = device.array(np.zeros((128, 64), np.uint32)), np.concatenate(data)
    given = [device.array(memory), out, len(memory), *descriptors, said]
    code = kernel(body, 64, columns=512, changes=changes)
    run = device.launch(code, 1, 128, given, shared_bytes=len(memory))
    assert not run.findings, run.findings
    left, right = (
        x * np.repeat(2.0 ** (s.astype(np.float64) - 127), block, axis=1) for x, s in zip((a, b), scales, strict=True)
    )
    np.testing.assert_allclose(result(out.numpy(), "f32"), (left @ right.T)[:, :64], rtol=1e-5, atol=1e-3)
