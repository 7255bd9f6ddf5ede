"""Tensor copies in every dimension against plain loops."""

import numpy as np
import pytest
from tests import sampled
from tests.ptx.emulator.asynchronous.boxes import contents, loaded, random_case, run_load, run_store, stored
from tests.ptx.emulator.asynchronous.kernels import dump_box, put_box

from kernbench import ptx
from kernbench.common.errors import MisuseError


@pytest.fixture(scope="module")
def device():
    return ptx.EmulatedDevice("sm_90a")


def kernel(text):
    return ptx.parse(text).kernels["kernel"]


@pytest.mark.parametrize("seed", sampled.some(range(24), 8))
def test_a_loaded_box(device, seed):
    case = random_case(seed)
    memory = contents(case, seed)
    run, box = run_load(device, case, memory, kernel(dump_box(len(case.dims), case.nbytes, case.span)))
    assert run.findings == []
    np.testing.assert_array_equal(box, loaded(case, memory))


@pytest.mark.parametrize("seed", range(100, 116))
def test_a_stored_box(device, seed):
    case = random_case(seed, inside=True)
    memory, box = contents(case, seed), contents(case, seed + 1)
    box = np.resize(box, case.span)
    run, result = run_store(device, case, memory, box, kernel(put_box(len(case.dims), case.span)))
    assert run.findings == []
    np.testing.assert_array_equal(result, stored(case, memory, box))


# bits of an element, bytes of each 16 in shared memory that hold elements
PACKED = {"b4x16": (4, 16), "b4x16_p64": (4, 8), "b6x16_p32": (6, 12)}


def packed_box(memory, element, row_bytes, at, lines, swizzled):
    """Shared memory after 128 elements of `lines` rows were loaded, rows beyond the tensor as zeros."""
    bits, filled = PACKED[element]
    moved, pitch = 16 * bits, 16 * bits * 16 // filled
    box = np.full(-(-lines * pitch // 1024) * 1024, 0xEE, np.uint8)
    for row in range(lines):
        y, start = at[1] + row, at[0] * bits // 8
        inside = y < len(memory) // row_bytes
        data = memory.reshape(-1, row_bytes)[y, start : start + moved] if inside else np.zeros(moved, np.uint8)
        for number, piece in enumerate(data.reshape(-1, filled)):
            place = row * pitch + number * 16
            place ^= ((place >> 7) & 7) << 4 if swizzled else 0
            box[place : place + filled] = piece
    return box


@pytest.mark.parametrize(
    ("element", "swizzle"), [("b4x16", "none"), *((e, s) for e in list(PACKED)[1:] for s in ("none", "128B"))]
)
def test_narrow_elements_are_unpacked_and_padded(device, element, swizzle):
    bits, _ = PACKED[element]
    row_bytes, lines, at = 256 * bits // 8, 6, (128, 3)
    memory = np.random.default_rng(bits).integers(0, 256, 7 * row_bytes).astype(np.uint8)
    array = device.array(memory, "tensor")
    described = device.tensor_map(array, (256, 7), (row_bytes,), (128, lines), swizzle, element=element)
    want = packed_box(memory, element, row_bytes, at, lines, swizzle != "none")
    out = device.array(np.zeros(len(want), np.uint8), "out")
    # barriers count what is moved, not the gaps
    program = kernel(dump_box(2, lines * 16 * bits, len(want)))
    run = device.launch(program, 1, 128, [described, out, *at])
    assert run.findings == []
    np.testing.assert_array_equal(out.numpy(), want)


def test_narrow_elements_are_stored_packed(device):
    memory, rows = np.zeros(7 * 192, np.uint8), 6
    array, data = device.array(memory, "tensor"), np.random.default_rng(1).integers(0, 256, 1024).astype(np.uint8)
    described = device.tensor_map(array, (256, 7), (192,), (128, rows), element="b6x16_p32")
    run = device.launch(kernel(put_box(2, 1024)), 1, 128, [described, device.array(data, "data"), 128, 2])
    assert run.findings == []
    want = memory.reshape(7, 192).copy()
    want[2:7, 96:] = data[: rows * 128].reshape(rows, 8, 16)[:5, :, :12].reshape(5, 96)
    np.testing.assert_array_equal(array.numpy().reshape(7, 192), want)


def test_what_narrow_elements_cannot_do(device):
    array = device.array(np.zeros(4096, np.uint8), "tensor")
    described = device.tensor_map(array, (256, 4), (128,), (128, 2), element="b4x16_p64")
    data = device.array(np.zeros(1024, np.uint8), "data")
    run = device.launch(kernel(put_box(2, 1024)), 1, 128, [described, data, 0, 0])
    assert "can be loaded, not stored" in str(run.findings[0].message)
    out = device.array(np.zeros(1024, np.uint8), "out")
    run = device.launch(kernel(dump_box(2, 128, 1024)), 1, 128, [described, out, 64, 0])
    assert "innermost coordinate 0x40 of the copy" in run.findings[0].message
    for change, message in (
        ({"dims": (192, 4)}, "multiple of 128 elements; got 192"),
        ({"box": (64, 2)}, "needs a box of 128 elements"),
        ({"swizzle": "64B"}, "cannot be swizzled by 64B|swizzle 64B allows 64"),
        ({"strides": (144,)}, "no multiple of 32 bytes"),
    ):
        given = {"dims": (256, 4), "strides": (128,), "box": (128, 2), "swizzle": "none"} | change
        with pytest.raises(MisuseError, match=message):
            device.tensor_map(array, **given, element="b4x16_p64")
    with pytest.raises(MisuseError, match="pack them into bytes"):
        device.tensor_map(device.array(np.zeros(64, np.uint16)), (32,), (), (32,), element="b4x16")


@pytest.mark.parametrize("swizzle", ["none", "32B"])
def test_a_load_of_tf32_rounds(device, swizzle):
    """To the nearest of 10 bits, ties to even; infinities stay, and every NaN becomes the same."""
    bits = np.random.default_rng(5).integers(0, 2**32, (16, 8), np.uint64).astype(np.uint32)
    bits[0] = (0x3F80_1000, 0x3F80_3000, 0x7F80_0000, 0xFF80_0000, 0x7FC0_0001, 0x7F80_0001, 0xFFC1_2345, 0x8000_0001)
    described = device.tensor_map(device.array(bits.view(np.float32)), (8, 16), (32,), (8, 16), swizzle, element="tf32")
    out = device.array(np.zeros(512, np.uint8), "out")
    run = device.launch(kernel(dump_box(2, 512)), 1, 128, [described, out, 0, 0])
    assert run.findings == []
    wide = bits.astype(np.uint64)
    want = np.where(wide & 0x7F80_0000 == 0x7F80_0000, wide, (wide + 0xFFF + (wide >> 13 & 1)) & 0xFFFF_E000)
    want[np.isnan(bits.view(np.float32))] = 0x7FFF_E000
    place = np.arange(0, 512, 4)
    place ^= ((place >> 7) & 1) << 4 if swizzle != "none" else 0
    np.testing.assert_array_equal(out.numpy().view(np.uint32)[place // 4], want.reshape(-1))
