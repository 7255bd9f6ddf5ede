"""The real GPU behind the same methods as the emulator: arrays, arguments, launches, faults."""

import re
import subprocess
import sys
from math import prod

import ml_dtypes
import numpy as np
import pytest

from kernbench import ptx
from kernbench.common.errors import MisuseError
from kernbench.ptx.devices.assembler import AssemblyError
from kernbench.ptx.devices.cuda_device import CudaDevice
from kernbench.ptx.devices.cuda_driver import CudaError
from kernbench.ptx.launching.tensor_map import ELEMENTS, INTERLEAVES, TensorMapDescription
from kernbench.result import Status

HEADER = ".version 8.0\n.target sm_90\n.address_size 64\n"
SAXPY = """
.visible .entry saxpy(.param .u64 x, .param .u64 y, .param .f32 a, .param .u32 n)
{
  .reg .pred p;
  .reg .b32 %r<5>;
  .reg .b64 %rd<6>;
  .reg .f32 %f<4>;
  mov.u32 %r1, %ctaid.x;
  mov.u32 %r2, %ntid.x;
  mov.u32 %r3, %tid.x;
  mad.lo.u32 %r1, %r1, %r2, %r3;
  ld.param.u32 %r4, [n];
  setp.ge.u32 p, %r1, %r4;
  @p ret;
  ld.param.u64 %rd1, [x];
  ld.param.u64 %rd2, [y];
  ld.param.f32 %f1, [a];
  mul.wide.u32 %rd3, %r1, 4;
  add.u64 %rd1, %rd1, %rd3;
  add.u64 %rd2, %rd2, %rd3;
  ld.global.f32 %f2, [%rd1];
  mul.f32 %f3, %f2, %f1;
  st.global.f32 [%rd2], %f3;
  ret;
}
"""
FILL = """
.extern .shared .align 16 .b8 dynamic[];
.visible .entry fill(.param .u64 out, .param .u32 offset)
{
  .reg .b32 %r<4>;
  .reg .b64 %rd<3>;
  mov.u32 %r1, dynamic;
  ld.param.u32 %r2, [offset];
  add.u32 %r1, %r1, %r2;
  st.shared.u32 [%r1], 1234;
  ld.shared.u32 %r3, [%r1];
  ld.param.u64 %rd1, [out];
  st.global.u32 [%rd1], %r3;
  ret;
}
"""
CLUSTER = """
.visible .entry rank(.param .u64 out) DIRECTIVE
{
  .reg .b32 %r<4>;
  .reg .b64 %rd<3>;
  mov.u32 %r1, %ctaid.x;
  mov.u32 %r2, %cluster_ctarank;
  mul.wide.u32 %rd2, %r1, 4;
  ld.param.u64 %rd1, [out];
  add.u64 %rd1, %rd1, %rd2;
  st.global.u32 [%rd1], %r2;
  ret;
}
"""
COPY = """
.visible .entry copy(.param .align 64 .b8 map[128], .param .u64 out)
{
  .shared .align 1024 .b8 tile[4096];
  .shared .align 8 .b64 bar;
  .reg .pred p;
  .reg .b32 %r<6>;
  .reg .b64 %rd<4>;
  mov.u32 %r1, %tid.x;
  setp.ne.u32 p, %r1, 0;
  @p bra wait;
  mbarrier.init.shared::cta.b64 [bar], 1;
  fence.proxy.async.shared::cta;
  mbarrier.arrive.expect_tx.shared::cta.b64 _, [bar], 4096;
  mov.b64 %rd1, map;
  cvta.param.u64 %rd1, %rd1;
  mov.u32 %r2, 0;
  cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [tile], [%rd1, {%r2, %r2}], [bar];
wait:
  bar.sync 0;
again:
  mbarrier.try_wait.parity.shared::cta.b64 p, [bar], 0;
  @!p bra again;
  mov.u32 %r3, tile;
  shl.b32 %r4, %r1, 2;
  add.u32 %r3, %r3, %r4;
  ld.param.u64 %rd2, [out];
  mul.wide.u32 %rd3, %r1, 4;
  add.u64 %rd2, %rd2, %rd3;
  ld.shared.u32 %r5, [%r3];
  st.global.u32 [%rd2], %r5;
  ret;
}
"""


@pytest.fixture
def device():
    with CudaDevice() as opened:
        yield opened


def kernel(body, name):
    return ptx.parse(HEADER + body).kernels[name]


def scaled(device, x, y, n, **options):
    return device.launch(kernel(SAXPY, "saxpy"), -(-n // 128), 128, [x, y, 2.5, n], **options)


def test_a_launch_gives_outputs_and_time(device):
    x = np.random.default_rng(0).standard_normal(1000, np.float32)
    run = scaled(device, device.array(x), device.empty(1000), 1000, repetitions=5)
    assert run.status is Status.FINISHED
    assert np.array_equal(run.outputs["y"], x * np.float32(2.5))
    assert run.safe is None
    assert run.metrics["repetitions"] == 5
    assert 0 < run.metrics["gpu_time_min_ns"] <= run.metrics["gpu_time_ns"] < 10**8
    assert run.origin["arch"] == device.arch


def test_fresh_memory_is_poisoned_and_freed_memory_is_refused(device):
    fresh = device.empty((2, 3), ml_dtypes.bfloat16)
    assert np.isnan(fresh.numpy().astype(np.float32)).all()
    fresh.free()
    fresh.free()
    with pytest.raises(MisuseError, match="was freed: make a new array"):
        fresh.numpy()
    with pytest.raises(MisuseError, match="was freed"):
        scaled(device, fresh, fresh, 6)


@pytest.mark.parametrize("dtype", [np.int8, np.uint64, np.float16, np.float64, ml_dtypes.bfloat16, np.bool_])
def test_arrays_come_back_as_they_went(device, dtype):
    given = (np.arange(24) % 2).reshape(2, 3, 4).astype(dtype)
    there = device.array(given)
    assert (there.shape, there.dtype, there.nbytes) == (given.shape, given.dtype, given.nbytes)
    assert np.array_equal(there.numpy(), given)
    assert device.array(np.zeros((0, 3))).numpy().shape == (0, 3)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int64", "float8_e4m3fn"])
def test_torch_tensors_are_used_where_they_lie(device, dtype):
    torch = pytest.importorskip("torch")
    tensor = torch.arange(6, device="cuda").to(getattr(torch, dtype)).reshape(2, 3)
    there = device.array(tensor)
    assert there.address == tensor.data_ptr()
    assert there.borrowed
    assert np.array_equal(there.numpy().astype(np.float64), np.arange(6.0).reshape(2, 3))
    with pytest.raises(MisuseError, match="make it contiguous"):
        device.array(tensor.T)
    assert np.array_equal(device.array(tensor.cpu()).numpy().astype(np.float64), np.arange(6.0).reshape(2, 3))


def test_torch_tensors_go_straight_into_a_launch(device):
    torch = pytest.importorskip("torch")
    x = torch.randn(1 << 20, device="cuda", requires_grad=True)
    y = torch.empty_like(x).detach()
    scaled(device, x, y, x.numel())
    assert torch.equal(y, x.detach() * 2.5)


def test_cupy_and_our_own_interface(device):
    cupy = pytest.importorskip("cupy")
    x = cupy.arange(100, dtype=cupy.float32)
    y = device.empty(100)
    there = device.array(x)
    assert there.address == x.data.ptr
    scaled(device, there, y, 100)
    assert cupy.array_equal(cupy.asarray(y), x * 2.5)
    with pytest.raises(MisuseError, match="make it contiguous"):
        device.array(x[::2])


def test_any_dlpack_array_without_a_copy(device):
    torch = pytest.importorskip("torch")

    class Opaque:
        def __init__(self, tensor):
            self.tensor = tensor

        def __dlpack__(self, stream=None):
            return self.tensor.__dlpack__(stream=stream)

        def __dlpack_device__(self):
            return self.tensor.__dlpack_device__()

    tensor = torch.arange(10, device="cuda").to(torch.bfloat16)[2:]
    there = device.array(Opaque(tensor))
    assert there.address == tensor.data_ptr()
    assert there.dtype == ml_dtypes.bfloat16
    assert np.array_equal(there.numpy().astype(int), np.arange(2, 10))


def test_large_shared_memory_is_allowed_and_too_much_is_refused(device):
    out = device.empty(1, np.uint32)
    run = device.launch(kernel(FILL, "fill"), 1, 1, [out, 200_000 - 4], shared_bytes=200_000)
    assert run.outputs["out"][0] == 1234
    with pytest.raises(MisuseError, match=r"shared_bytes 300000 beside 0 static bytes of 'fill'"):
        device.launch(kernel(FILL, "fill"), 1, 1, [out, 0], shared_bytes=300_000)


@pytest.mark.parametrize(
    ("directive", "cluster"), [(".reqnctapercluster 4", None), (".explicitcluster", (4, 1, 1)), ("", 4), ("", 16)]
)
def test_clusters(device, directive, cluster):
    out = device.empty(16, np.uint32)
    run = device.launch(kernel(CLUSTER.replace("DIRECTIVE", directive), "rank"), 16, 32, [out], cluster=cluster)
    size = cluster if cluster == 16 else 4
    assert run.outputs["out"].tolist() == [i % size for i in range(16)]


def test_a_tensor_map_is_what_the_hardware_reads(device):
    data = np.arange(64 * 32, dtype=np.float32).reshape(64, 32)
    there = device.array(data)
    tensor_map = device.tensor_map(there, dims=(32, 64), strides=(128,), box=(32, 32), swizzle="128B")
    run = device.launch(kernel(COPY, "copy"), 1, 1024, [tensor_map, device.empty(1024, name="tile")])
    offset = np.arange(0, 4096, 4)
    swizzled = offset ^ (((offset >> 7) & 7) << 4)
    assert np.array_equal(run.outputs["tile"][swizzled // 4], data[:32].ravel())


def test_tensor_maps_are_refused_as_the_driver_refuses_them(device):
    """Random descriptions: the driver accepts exactly those that the validation accepts.

    Two rules are the validation's own: interleave 32B with another swizzle than 32B, which the documentation forbids
    and the driver lets pass, and the size of a box with traversal strides, which the driver underestimates.
    """
    random = np.random.default_rng(1)
    seen = {True: 0, False: 0}
    for _ in range(4000):
        fields = _random_description(random)
        if fields["interleave"] == "32B" and fields["swizzle"] != "32B":
            continue
        if max(fields["element_strides"]) > 1 and prod(fields["box"]) > 1 << 14:
            continue
        ours = _accepted(lambda fields=fields: TensorMapDescription(**fields))
        theirs = _accepted(lambda fields=fields: device.encode(_unchecked(fields)))
        assert ours == theirs, f"{fields}: validation {ours}, driver {theirs}"
        seen[ours] += 1
    assert min(seen.values()) > 300, seen


def _accepted(make):
    try:
        make()
    except (MisuseError, CudaError):
        return False
    return True


def _unchecked(fields):
    made = object.__new__(TensorMapDescription)
    for name, value in fields.items():
        object.__setattr__(made, name, value)
    return made


def _random_description(random):
    """A description that breaks a rule about half of the time."""

    def pick(usual, rare, chance=0.06):
        options = rare if random.random() < chance else usual
        return options[random.integers(len(options))]

    element = pick(list(ELEMENTS), list(ELEMENTS))
    rank = int(pick([1, 2, 3, 4, 5], [1, 2, 3]))
    return {
        "address": int(pick([0x7000000000, 0x7000000040, 0x7000000020], [0x7000000010, 0x7000000008])),
        "element": element,
        "dims": tuple(int(pick([1, 7, 64, 1000, 2**32 - 1], [2**32, 2**32 + 1])) for _ in range(rank)),
        "strides": tuple(int(pick([16, 32, 64, 4096, 2**39], [0, 8, 48, 2**40 - 16, 2**40])) for _ in range(rank - 1)),
        "box": (
            int(pick([16, 8, 32], [1, 2, 4, 64, 128, 256])),
            *(int(pick([1, 2, 5, 64, 256], [257, 0])) for _ in range(rank - 1)),
        ),
        "element_strides": tuple(int(pick([1, 1, 2, 8], [9, 0])) for _ in range(rank)),
        "swizzle": pick(["none", "32B", "64B", "128B"], ["none"]),
        "interleave": pick(["none"], list(INTERLEAVES), 0.4),
        "l2_promotion": pick(["none", "64B"], ["128B", "256B"]),
        "oob_fill": pick(["zero"], ["nan"], 0.2),
    }


def test_the_driver_log_names_the_line(device):
    text = (HEADER + SAXPY).replace("mul.f32 %f3, %f2, %f1", "mul.f32 %f3, %f2, %f9")
    broken = ptx.parse(text).kernels["saxpy"]
    with pytest.raises(AssemblyError) as caught:
        device.launch(broken, 1, 1, [0, 0, 1.0, 1])
    assert "%f9" in caught.value.text
    assert re.search(r"line \d+: .*%f9", str(caught.value))
    assert device.lost == ""


def test_arguments_are_checked_before_anything_runs(device):
    with pytest.raises(MisuseError, match=r"argument 3 for parameter 'n' \(\.u32\): -1 does not fit"):
        device.launch(kernel(SAXPY, "saxpy"), 1, 1, [0, 0, 1.0, -1])


STORE = "ld.param.u64 %rd1, [p];\n st.global.u32 [%rd1], 1;"
FAULT = """
import numpy as np
from kernbench import ptx
from kernbench.ptx.devices.cuda_device import CudaDevice
from kernbench.ptx.devices.cuda_driver import DeviceLostError
from kernbench.safety.budget import Budget
text = '''{text}'''
device = CudaDevice()
good = device.array(np.zeros(4, np.float32))
run = device.launch(ptx.parse(text).kernels["k"], 1, 1, [{pointer}], budget=Budget(seconds=1.0))
(finding,) = run.findings
print(run.status, "|", finding.kind, "|", run.safe, "|", finding.message, "|", finding.hint)
for use in (lambda: device.array(np.zeros(4)), good.numpy, device.synchronize):
    try:
        use()
    except DeviceLostError as error:
        print("lost:", error)
good.free()
device.close()
import os
os._exit(0)
"""


@pytest.mark.parametrize(
    ("body", "pointer", "expected"),
    [
        (STORE, "8", "failed | out-of-bounds | False | 'k' died on"),
        # of an access that is neither aligned nor to memory, CUDA does not say which of its two errors it is
        (STORE.replace("st", "add.u64 %rd1, %rd1, 2;\n st"), "good", "failed | misaligned | False"),
        ("trap;", "8", "failed | kernel-error | False"),
        ("again: bra again;", "8", "over budget | over-budget | False | 'k' did not end within 1 seconds on"),
    ],
    ids=["address", "alignment", "trap", "endless"],
)
def test_a_fault_is_a_finding_and_loses_the_device(body, pointer, expected):
    text = f"{HEADER}.visible .entry k(.param .u64 p)\n{{\n .reg .b64 %rd<2>;\n {body}\n ret;\n}}\n"
    done = subprocess.run(
        [sys.executable, "-c", FAULT.format(text=text, pointer=pointer)],
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    lines = done.stdout.splitlines()
    assert lines, done.stderr
    assert lines[0].startswith(expected)
    assert "run it on ptx.EmulatedDevice" in lines[0]
    assert [line.startswith("lost: GPU 0 is lost since 'k'") for line in lines[1:]] == [True] * 3
    assert "start a new process" in lines[1]
