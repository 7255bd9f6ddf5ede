"""Tensor copies that count pixels: columns of convolution windows, computed by plain loops over the outputs."""

from dataclasses import dataclass
from itertools import product

import numpy as np
import pytest
from tests.ptx.emulator.asynchronous.kernels import dump_box, put_box
from tests.ptx.emulator.asynchronous.matrices import swizzle

from kernbench import ptx
from kernbench.common.errors import MisuseError


@dataclass(frozen=True)
class Convolution:
    """Sizes without channels and images go W, H, D; a column begins at output `first`, at tap `tap` of the filter."""

    size: tuple[int, ...]
    taps: tuple[int, ...]
    padding: tuple[int, ...]
    stride: tuple[int, ...]
    dilation: int
    first: int
    tap: tuple[int, ...]
    channels: int = 16
    images: int = 2
    pixels: int = 24
    mode: str = "none"

    @property
    def outputs(self):
        lines = zip(self.size, self.taps, self.padding, self.stride, strict=True)
        return tuple((n + 2 * p - self.dilation * (t - 1) - 1) // s + 1 for n, t, p, s in lines)

    @property
    def corners(self):
        """The pixel box: where the filter's first tap goes."""
        lower = tuple(-p for p in self.padding)
        last = [low + (o - 1) * s for low, o, s in zip(lower, self.outputs, self.stride, strict=True)]
        return lower, tuple(at - (n - 1) for at, n in zip(last, self.size, strict=True))

    @property
    def offsets(self):
        return tuple(self.dilation * t for t in self.tap)

    def places(self):
        """(image, ..., W) of each output's first tap, in order."""
        for numbers in product(range(self.images), *(range(o) for o in reversed(self.outputs))):
            spatial = zip(numbers[1:], reversed(self.stride), reversed(self.padding), strict=True)
            yield numbers[0], *(o * s - p for o, s, p in spatial)

    def column(self, x, channel):
        """The pixels of the column, those outside the tensor as zeros."""
        out = np.zeros((self.pixels, self.channels), x.dtype)
        for row, place in enumerate(list(self.places())[self.first : self.first + self.pixels]):
            at = [p + o for p, o in zip(place[1:], reversed(self.offsets), strict=True)]
            if all(0 <= p < n for p, n in zip(at, x.shape[1:-1], strict=True)):
                found = x[(place[0], *at)][channel : channel + self.channels]
                out[row, : len(found)] = found
        return out


CASES = [
    Convolution((9,), (3,), (1,), (1,), 1, 4, (2,)),
    Convolution((20,), (3,), (2,), (3,), 2, 1, (1,), mode="32B"),
    Convolution((5, 4), (3, 3), (1, 1), (1, 1), 1, 7, (0, 2), mode="32B"),
    Convolution((6, 7), (3, 2), (0, 1), (2, 2), 1, 3, (2, 1), pixels=40),
    Convolution((4, 3, 3), (3, 3, 3), (1, 1, 1), (1, 1, 1), 1, 30, (0, 1, 2), pixels=64, mode="64B"),
    Convolution((6, 5, 4), (2, 3, 2), (1, 0, 1), (2, 1, 3), 1, 2, (1, 2, 0), images=1),
]


def tensor(case, channels=32):
    shape = (case.images, *reversed(case.size), channels)
    return np.arange(1, np.prod(shape) + 1, dtype=np.float32).astype(np.float16).reshape(shape)


def described(device, case, array, **more):
    shape, item = array.shape[::-1], array.dtype.itemsize
    strides = tuple(int(np.prod(shape[:d])) * item for d in range(1, len(shape)))
    lower, upper = case.corners
    steps = (1, *case.stride, 1)
    given = {"box": (case.channels, case.pixels), "lower": lower, "upper": upper, "element_strides": steps} | more
    return device.tensor_map(array, shape, strides, swizzle=case.mode, **given)


def kernel(case, pitch, change=("", "")):
    rank, nbytes = len(case.size) + 2, 2 * case.channels * case.pixels
    text = dump_box(rank, nbytes, -(-pitch * case.pixels // 1024) * 1024)
    offsets = ", ".join(str(o) for o in case.offsets)
    text = text.replace("global.tile.", "global.im2col.").replace("[%r2];\nWAIT", f"[%r2], {{{offsets}}};\nWAIT")
    return ptx.parse(text.replace(*change)).kernels["kernel"]


def start(case, channel):
    image, *spatial = list(case.places())[case.first]
    return [channel, *reversed(spatial), image]


def load(case, channel=8, at=None, change=("", ""), device=None, **more):
    device = device or ptx.EmulatedDevice("sm_90a")
    x = tensor(case)
    array = device.array(x, "x")
    pitch = {"none": 2 * case.channels, "32B": 32, "64B": 64}[case.mode]
    code = kernel(case, pitch, change)
    out = device.array(np.zeros(-(-pitch * case.pixels // 1024) * 1024, np.uint8), "out")
    run = device.launch(
        code,
        1,
        128,
        [described(device, case, array, **more), out, *(c & 0xFFFFFFFF for c in at or start(case, channel))],
    )
    data = out.numpy()
    rows = [[data[swizzle(row * pitch + b, case.mode)] for b in range(2 * case.channels)] for row in range(case.pixels)]
    return run, np.array(rows, np.uint8).view(np.float16), case.column(x, channel)


@pytest.mark.parametrize("case", CASES)
def test_columns_of_a_convolution(case):
    run, got, wanted = load(case)
    assert run.findings == []
    np.testing.assert_array_equal(got, wanted)


def test_channels_past_the_last_are_zero():
    run, got, wanted = load(CASES[2], channel=24)
    assert run.findings == []
    assert wanted[:, 8:].any() == 0
    np.testing.assert_array_equal(got, wanted)


def test_a_column_that_begins_outside_the_pixel_box():
    run, _, _ = load(CASES[2], at=[0, 9, 0, 0])
    (finding,) = run.findings
    assert finding.kind == "out-of-bounds"
    assert "begins at (0, 9, 0, 0), outside the pixel box of -1 to 3, -1 to 2" in finding.message


def test_bytes_that_a_barrier_does_not_expect():
    run, _, _ = load(CASES[0], change=("[%r2], 768", "[%r2], 784"))
    assert "deadlock" in {finding.kind for finding in run.findings}


def test_the_map_and_the_instruction_are_of_one_mode():
    run, _, _ = load(CASES[0], box=(16, 4, 1), lower=None, upper=None)
    assert "the tensor map is for tile mode, the instruction says im2col" in run.findings[0].message
    device, case = ptx.EmulatedDevice("sm_90a"), CASES[0]
    array, out = device.array(tensor(case), "x"), device.array(np.zeros(1024, np.uint8))
    run = device.launch(
        ptx.parse(dump_box(3, 768, 1024)).kernels["kernel"], 1, 128, [described(device, case, array), out, 0, 0, 0]
    )
    assert "the tensor map is for im2col mode, the instruction says tile" in run.findings[0].message


def test_a_column_is_stored():
    device, case = ptx.EmulatedDevice("sm_90a"), CASES[2]
    x = tensor(case, 16)
    array = device.array(x, "x")
    data = np.random.default_rng(1).integers(0, 1000, (case.pixels, 16)).astype(np.float16)
    raw = np.zeros(1024, np.uint8)
    flat = data.view(np.uint8).reshape(-1)
    for at in range(len(flat)):
        raw[swizzle(at, "32B")] = flat[at]
    code = ptx.parse(put_box(4, 1024).replace(".tile.", ".im2col_no_offs.")).kernels["kernel"]
    arguments = [described(device, case, array), device.array(raw, "data"), *(c & 0xFFFFFFFF for c in start(case, 0))]
    run = device.launch(code, 1, 128, arguments)
    assert run.findings == []
    for place, pixel in zip(list(case.places())[case.first :], data, strict=False):
        if all(0 <= p < n for p, n in zip(place, x.shape, strict=False)):
            x[place] = pixel
    np.testing.assert_array_equal(array.numpy(), x)


def test_modes_of_w_alone_are_refused():
    text = dump_box(3, 768, 1024, "sm_100a").replace("global.tile.", "global.im2col::w.")
    code = ptx.parse(text.replace("[%r2];\nWAIT", "[%r2], {0, 0};\nWAIT")).kernels["kernel"]
    device = ptx.EmulatedDevice("sm_100a")
    array, out = device.array(tensor(CASES[0]), "x"), device.array(np.zeros(1024, np.uint8))
    with pytest.raises(ptx.PtxError, match=r"those of W alone .* are not emulated"):
        device.launch(code, 1, 128, [described(device, CASES[0], array), out, 0, 0, 0])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"upper": None}, "give both lower and upper"),
        ({"box": (16, 2, 2)}, r"3 box sizes \(channels and pixels\) for 4 dimensions"),
        ({"box": (16, 2000)}, "2000 pixels of a column; allowed are 1 to 1024"),
        ({"lower": (0,)}, "1 offsets of the lower corner"),
        ({"lower": (-200, 0)}, "offset of the lower corner -200 of dimension 1; allowed are -128 to 127"),
        ({"upper": (-9, 0)}, "it holds no pixel"),
        ({"element_strides": (1, 1, 1, 2)}, "steps of 2 from image to image cannot be emulated"),
    ],
)
def test_maps_that_the_encoder_refuses(change, message):
    device, case = ptx.EmulatedDevice("sm_90a"), CASES[2]
    array = device.array(tensor(case), "x")
    with pytest.raises(MisuseError, match=message):
        described(device, case, array, **change)
