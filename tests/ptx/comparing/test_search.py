"""Two devices that differ in one instruction: it is found, with its thread, operands and both results."""

import numpy as np
import pytest
from tests.ptx.comparing.planted import Planted
from tests.ptx.emulator.asynchronous.test_wgmma import kernel as wgmma_kernel
from tests.ptx.emulator.asynchronous.test_wgmma import tiles

from kernbench import ptx
from kernbench.ptx.comparing.devices import DeviceSide, Given
from kernbench.ptx.comparing.launches import compare_launch
from kernbench.ptx.comparing.search import Launched

HEAD = ".version 8.0\n.target sm_90\n.address_size 64\n"
# a loop of fma, a branch by the lane, and a sum over the warp that carries a difference from lane to lane
LOOP = (
    HEAD
    + """.visible .entry k(.param .u64 x, .param .u64 y, .param .u32 n)
{
  .reg .pred %p<4>; .reg .b32 %r<8>; .reg .f32 %f<8>; .reg .b64 %rd<8>;
  .shared .align 4 .b8 buffer[128];
  ld.param.u64 %rd1, [x]; ld.param.u64 %rd2, [y]; ld.param.u32 %r1, [n];
  mov.u32 %r2, %tid.x; mul.wide.u32 %rd3, %r2, 4; add.u64 %rd1, %rd1, %rd3; add.u64 %rd2, %rd2, %rd3;
  ld.global.f32 %f1, [%rd1];
  mov.f32 %f2, 0f00000000; mov.u32 %r3, 0;
AGAIN:
  fma.rn.f32 %f2, %f2, %f1, %f1;
  setp.gt.f32 %p1, %f2, 0f42C80000;
  @%p1 sub.f32 %f2, %f2, 0f42C80000;
  add.u32 %r3, %r3, 1;
  setp.lt.u32 %p2, %r3, %r1;
  @%p2 bra AGAIN;
  mov.u32 %r5, buffer; shl.b32 %r6, %r2, 2; add.u32 %r5, %r5, %r6;
  st.shared.f32 [%r5], %f2;
  bar.sync 0;
  ld.shared.f32 %f3, [%r5];
  shfl.sync.bfly.b32 %r4, %f3, 1, 31, -1;
  mov.b32 %f4, %r4;
  add.f32 %f3, %f3, %f4;
  st.global.f32 [%rd2], %f3;
  ret;
}
"""
)


def sides(given, block, other, grid=(1, 1, 1), **more):
    ours = DeviceSide("here", lambda: ptx.EmulatedDevice(), given, grid, block, options={"exact": True}, **more)
    return ours, DeviceSide("there", other, given, grid, block, options={"checks": False}, **more)


def loop(x, n, other, text=LOOP):
    kernel = ptx.parse(text).kernels["k"]

    def given(device):
        arrays = {"x": device.array(x), "y": device.empty(32)}
        return Given([*arrays.values(), n], arrays)

    launched = Launched(kernel, (1, 1, 1), (32, 1, 1), ("x", "y"))
    return compare_launch(launched, *sides(given, (32, 1, 1), other))


X = np.linspace(0.3, 1.1, 32).astype(np.float32)


def test_devices_that_agree():
    verdict = loop(X, 20, Planted)
    assert (verdict.outcome, verdict.differences, verdict.first) == ("identical", (), None)


@pytest.mark.parametrize("n", [2, 300])
def test_the_first_wrong_round_of_a_loop_is_found(n):
    verdict = loop(X, n, lambda: Planted("fma.rn.f32", "fma.rp.f32"))
    assert verdict.outcome == ("rounding" if n == 2 else verdict.outcome)
    first = verdict.first
    assert first["text"] == "fma.rn.f32 %f2, %f2, %f1, %f1;"
    assert LOOP.splitlines()[first["line"] - 1].strip() == first["text"]
    # what both had, and what comes of it
    lane = first["thread"][0]
    assert all(one["ours"] == one["theirs"] for one in first["operands"])
    start, value = first_round(lane, n)
    result = first["result"]
    assert result["ours"].startswith(f"{start.view(np.uint32):#010x}")
    assert result["theirs"].startswith(f"{value.view(np.uint32):#010x}")


def first_round(lane, n):
    """The lane's first fma whose exact value is no f32, rounded to nearest and up; float64 holds it."""
    total, x = np.float32(0), X[lane]
    for _ in range(n):
        exact = np.float64(total) * np.float64(x) + np.float64(x)
        near = np.float32(exact)
        up = near if np.float64(near) >= exact else np.nextafter(near, np.float32(np.inf))
        if near != up:
            return near, up
        total = near - np.float32(100) if near > 100 else near
    raise AssertionError("no round differs")


def test_a_difference_in_one_lane_is_found_in_it_and_not_where_it_goes():
    only = LOOP.replace("  st.shared", "  setp.eq.u32 %p3, %r2, 7;\n  @%p3 add.f32 %f2, %f2, 0f3DCCCCCD;\n  st.shared")
    verdict = loop(X, 5, lambda: Planted("add.f32 %f2, %f2, 0f3DCCCCCD", "add.f32 %f2, %f2, 0f3E4CCCCD"), only)
    assert verdict.first["text"] == "@%p3 add.f32 %f2, %f2, 0f3DCCCCCD;"
    assert verdict.first["thread"] == [7, 0, 0]
    # it, and the lane that gets it
    assert verdict.first["threads"] == 2


def test_a_branch_that_goes_elsewhere():
    other = "setp.gt.f32 %p1, %f2, 0f42C80000", "setp.gt.f32 %p1, %f2, 0f3F800000"
    verdict = loop(X, 5, lambda: Planted(*other))
    assert verdict.first["text"].startswith("setp.gt.f32 %p1, %f2")
    assert (verdict.first["result"]["ours"], verdict.first["result"]["theirs"]) == ("false", "true")


def test_addresses_of_shared_memory_may_differ():
    """A device may begin with bytes of its own."""
    moved = ".shared .align 4 .b8 buffer[128];", ".shared .align 4 .b8 own[64]; .shared .align 4 .b8 buffer[128];"
    assert loop(X, 5, lambda: Planted(*moved)).outcome == "identical"
    both = lambda: Planted("fma.rn.f32", "fma.rz.f32")  # noqa: E731
    shifted = LOOP.replace(*moved)
    kernel = ptx.parse(shifted).kernels["k"]
    assert loop(X, 5, both).first["text"].startswith("fma.rn.f32")
    assert kernel is not None


def test_products_of_the_tensor_core_are_named_though_they_come_later():
    kinds, n = ("f32", "e4m3", "e4m3"), 8
    _, _, data, descriptors = tiles(1, n, 32, kinds, "32B", "none")
    code = wgmma_kernel(n, kinds, 32)

    def given(device):
        arrays = {"image": device.array(data), "out": device.array(np.zeros((128, 4), np.float32))}
        return Given([*arrays.values(), len(data), *descriptors], arrays)

    def other():
        return Planted("f32.e4m3.e4m3", "f32.e4m3.e5m2")

    launched = Launched(code, (1, 1, 1), (128, 1, 1), ("image", "out"))
    verdict = compare_launch(launched, *sides(given, (128, 1, 1), other, shared_bytes=len(data)))
    assert verdict.first["text"].startswith("wgmma.mma_async.sync.aligned.m64n8k32.f32.e4m3.e4m3")
    assert verdict.first["seen_at"] > verdict.first["line"]
