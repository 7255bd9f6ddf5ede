"""What a call of an operator does on the host: counted, with a device that takes launches and runs none."""

import ctypes
import sys
from collections import Counter
from contextlib import nullcontext

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed: make test-doors installs it")
kt = pytest.importorskip("kernbench.torch")

from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402

from kernbench.common.errors import MisuseError  # noqa: E402
from kernbench.ptx.devices.prepared import PreparedLaunch  # noqa: E402
from kernbench.torch import launches, seen  # noqa: E402


class Driver:
    """Takes launches; `taken` has the first parameter of each, an address."""

    class CUresult:
        CUDA_SUCCESS = 0

    def __init__(self):
        self.api, self.taken = self, []

    def cuLaunchKernel(self, function, *rest):  # noqa: N802
        where = ctypes.cast(rest[8], ctypes.POINTER(ctypes.c_void_p))
        self.taken.append((rest[7], ctypes.c_uint64.from_address(where[0]).value))
        return (0,)


class Device:
    def __init__(self):
        self.driver, self.prepared = Driver(), 0

    def prepare(self, kernel, threads, shared_bytes):
        self.prepared += 1
        return PreparedLaunch(self.driver, object(), kernel.params, (threads, 1, 1), shared_bytes)


@pytest.fixture
def device(monkeypatch):
    """Launches for tensors on the CPU go to a device that runs none, on stream 77."""
    found = Device()
    monkeypatch.setattr(launches, "_device", lambda index: found)
    monkeypatch.setattr(launches, "_stream", lambda index: 77)
    monkeypatch.setattr(launches, "_current_device", lambda: 0)
    monkeypatch.setattr(launches, "OnEmulator", lambda places, built: launches.OnGpu(places, built, 0))
    monkeypatch.setattr(torch.cuda, "device", nullcontext)
    for operation in (kt.merging._RUN, kt.appending._RUN):
        monkeypatch.setattr(operation, "_ready", {})
    return found


@pytest.fixture
def reads(monkeypatch):
    """How often a tensor was read."""
    count, signature = Counter(), seen.signature

    def counted(tensor):
        count["reads"] += 1
        return signature(tensor)

    monkeypatch.setattr(seen, "signature", counted)
    return count


def parts_and_lses(tokens=2):
    return torch.randn(3, tokens, 4, 64), torch.randn(3, tokens, 4)


def test_a_call_like_the_last_reads_nothing_and_packs_nothing(device, reads, monkeypatch):
    (parts, lses), out = parts_and_lses(), torch.empty(2, 4, 64)
    kt.merge(parts, lses, out=out)
    before = reads["reads"]
    monkeypatch.setattr(PreparedLaunch, "pack", None)
    for _ in range(3):
        kt.merge(parts, lses, out=out)
    assert reads["reads"] == before
    assert device.prepared == 1
    assert device.driver.taken == [(77, parts.data_ptr())] * 4


def test_a_new_tensor_is_read_once(device, reads):
    (parts, lses), out = parts_and_lses(), torch.empty(2, 4, 64)
    kt.merge(parts, lses, out=out)
    other = parts.clone()
    kt.merge(other, lses, out=out)
    before = reads["reads"]
    third = parts.clone()
    kt.merge(third, lses, out=out)
    # for its number, and all three again since they lie where none lay together
    assert reads["reads"] == before + 4
    kt.merge(third, lses, out=out)
    kt.merge(other, lses, out=out)
    assert reads["reads"] == before + 4
    assert device.prepared == 1
    assert [address for _, address in device.driver.taken[-2:]] == [third.data_ptr(), other.data_ptr()]


def test_functions_called_for_one_launch(device):
    """A limit to what a call costs the host."""
    (parts, lses), out = parts_and_lses(), torch.empty(2, 4, 64)
    kt.merge(parts, lses, out=out)
    kt.merge(parts, lses, out=out)
    names = []
    sys.setprofile(lambda frame, event, arg: names.append(frame.f_code.co_name) if event == "call" else None)
    kt.merge(parts, lses, out=out)
    sys.setprofile(None)
    ours = names[: names.index("cuLaunchKernel")]
    assert ours[:3] == ["merge", "check_inference", "known"]
    assert len(ours) <= 12, ours


def test_a_tensor_given_other_memory_in_place_is_found(device):
    (parts, lses), out = parts_and_lses(), torch.empty(2, 4, 64)
    kt.merge(parts, lses, out=out)
    lses.data = torch.randn(3, 3, 4)
    with pytest.raises(MisuseError, match=r"lses has shape|lses have shape"):
        kt.merge(parts, lses, out=out)
    assert len(device.driver.taken) == 1
    parts.data, wide = torch.randn(3, 3, 4, 64), torch.empty(3, 4, 64)
    kt.merge(parts, lses, out=wide)
    assert (device.prepared, len(device.driver.taken)) == (2, 2)
    # and what was known of tensors as they were stays right
    kt.merge(*parts_and_lses(), out=out)
    assert device.prepared == 2


@pytest.mark.parametrize("turn", [lambda lses: lses.transpose_(0, 1), lambda lses: lses.unsqueeze_(0)])
def test_a_tensor_turned_in_place_is_refused(device, turn):
    (parts, lses), out = parts_and_lses(), torch.empty(2, 4, 64)
    kt.merge(parts, lses, out=out)
    turn(lses)
    with pytest.raises(MisuseError, match="lses"):
        kt.merge(parts, lses, out=out)
    assert len(device.driver.taken) == 1


def test_numbers_die_with_their_tensors(device):
    (parts, lses), out = parts_and_lses(), torch.empty(2, 4, 64)
    kt.merge(parts, lses, out=out)
    keys = {id(parts), id(lses)}
    assert keys <= seen._of_object.keys()
    del parts, lses
    assert not keys & seen._of_object.keys()
    assert not keys & seen._alive.keys()


def test_a_mode_sees_the_operator(device):
    names = []

    class Mode(TorchDispatchMode):
        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            names.append(str(function))
            return function(*args, **(kwargs or {}))

    (parts, lses), out = parts_and_lses(), torch.empty(2, 4, 64)
    for _ in range(2):
        kt.merge(parts, lses, out=out)
    with Mode():
        kt.merge(parts, lses, out=out)
    assert names == ["kernbench.merge.default"]
    assert len(device.driver.taken) == 3


def test_a_gradient_is_refused_after_calls_without_one(device):
    (parts, lses), out = parts_and_lses(), torch.empty(2, 4, 64)
    kt.merge(parts, lses, out=out)
    parts.requires_grad_()
    with pytest.raises(MisuseError, match="no gradient"):
        kt.merge(parts, lses, out=out)
    with torch.no_grad():
        kt.merge(parts, lses, out=out)


def test_a_plan_checks_its_lengths_once_for_tensors_alike(device, monkeypatch):
    shape = kt.DecodeShape(8, 2, 64, "f16", kt.PagedCache(16))
    plan = kt.DecodePlan(shape, [70], device="cpu")
    monkeypatch.setattr(kt.decoding._RUN, "_ready", {})
    monkeypatch.setattr(type(shape), "tensor_map", lambda shape, maker, array: Map)
    monkeypatch.setattr(device, "array", lambda tensor: tensor, raising=False)
    checks, check = [], kt.DecodePlan.check
    monkeypatch.setattr(kt.DecodePlan, "check", lambda *given, **named: (checks.append(1), check(*given, **named)))
    q, table = torch.zeros(1, 8, 64).half(), torch.arange(6, dtype=torch.int32)[None]
    k, v = torch.zeros(2, 6, 16, 2, 64).half()
    call = lambda: kt.decode(q, k, v, plan, table=table, out=torch.empty_like(q))  # noqa: E731
    for _ in range(5):
        call()
    assert len(checks) == 2
    plan.update([97])
    with pytest.raises(MisuseError, match="a sequence of 97 keys, and the table has 6 pages of 16"):
        call()
    assert len(device.driver.taken) == 5


class Map:
    encoded = bytes(128)
