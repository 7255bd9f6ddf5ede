"""Launch arguments become the bytes of their parameters, or an error that names the parameter."""

from dataclasses import dataclass
from types import SimpleNamespace

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernbench.common.errors import KernbenchError, MisuseError
from kernbench.ptx.launching.arguments import ArgumentError, pack_arguments
from kernbench.ptx.launching.device_base import DeviceArray, host_array, launch_shape
from kernbench.ptx.launching.tensor_map import TensorMap, TensorMapDescription, describe_tensor_map
from kernbench.ptx.text.types import TYPES


@dataclass(frozen=True)
class Param:
    type: str
    name: str = "p"
    length: int = 1

    @property
    def size(self):
        return TYPES[self.type].nbytes * self.length


class Memory(DeviceArray):
    def numpy(self):
        return np.zeros(self.shape, self.dtype)

    def free(self):
        pass


def memory(dtype=np.float32, address=0x7F00_0000_1000):
    return Memory(address, (64, 64), np.dtype(dtype), "q")


def pack(param, arg):
    (data,) = pack_arguments([param], [arg])
    return data


@given(st.sampled_from(["u8", "u16", "u32", "u64", "s8", "s16", "s32", "s64"]), st.integers(-(2**65), 2**65))
def test_integers_fit_or_are_refused(kind, value):
    info = np.iinfo({"u": "uint", "s": "int"}[kind[0]] + kind[1:])
    if info.min <= value <= info.max:
        assert pack(Param(kind), value) == np.array(value, info.dtype).tobytes()
    else:
        with pytest.raises(ArgumentError, match=rf"parameter 'p' \(\.{kind}\): {value} does not fit"):
            pack(Param(kind), value)


@pytest.mark.parametrize("value", [3, np.int8(3), np.uint64(3), np.float32(3), 3.0, np.array(3), np.array(3.0)])
@pytest.mark.parametrize("kind", ["u32", "s64", "f32", "f64"])
def test_numbers_are_converted_to_the_parameters_type(kind, value):
    numpy = {"u32": np.uint32, "s64": np.int64, "f32": np.float32, "f64": np.float64}[kind]
    assert pack(Param(kind), value) == numpy(3).tobytes()


@pytest.mark.parametrize(
    ("kind", "value", "expected"),
    [
        ("b32", -1, b"\xff" * 4),
        ("b32", 2**32 - 1, b"\xff" * 4),
        ("b32", 1.0, np.float32(1).tobytes()),
        ("b32", np.float32(1.5), np.float32(1.5).tobytes()),
        ("b32", np.float64(1.5), np.float32(1.5).tobytes()),
        ("b64", 1.5, np.float64(1.5).tobytes()),
        ("b16", np.float16(1.5), np.float16(1.5).tobytes()),
        ("b16", ml_dtypes.bfloat16(1.5), np.asarray(ml_dtypes.bfloat16(1.5)).tobytes()),
        ("f16", 1.5, np.float16(1.5).tobytes()),
        ("f32", ml_dtypes.bfloat16(1.5), np.float32(1.5).tobytes()),
        ("f32", 0.1, np.float32(0.1).tobytes()),
        ("f32", float("inf"), np.float32("inf").tobytes()),
        ("f32", True, np.float32(1).tobytes()),
        ("u8", True, b"\x01"),
        ("u8", np.True_, b"\x01"),
        ("b8", b"\x07", b"\x07"),
    ],
)
def test_untyped_parameters_take_bits(kind, value, expected):
    assert pack(Param(kind), value) == expected


def test_a_nans_own_bits_survive():
    value = np.array([0x7FA12345], np.uint32).view(np.float32)[0]
    assert pack(Param("f32"), value) == value.tobytes()
    assert pack(Param("b32"), value) == value.tobytes()


@pytest.mark.parametrize(
    ("param", "value", "message"),
    [
        (Param("u32"), 1.5, "1.5 is no whole number"),
        (Param("u32"), float("nan"), "nan is no whole number"),
        (Param("f32"), 1e300, r"1e\+300 does not fit; the largest \.f32 is 3.40"),
        (Param("f32"), 10**400, "is beyond every .f32"),
        (Param("f32"), 2**24 + 1, "16777217 is not exact in .f32"),
        (Param("f16"), 70000.0, "does not fit; the largest .f16 is 65504.0"),
        (Param("b16"), 1.5, "pass np.float16 or ml_dtypes.bfloat16"),
        (Param("b64"), np.float32(1), "has 4 bytes"),
        (Param("u32"), memory(), "passes its 64-bit address, which needs a .u64"),
        (Param("f64"), memory(), "passes its 64-bit address, which needs a .u64"),
        (Param("u64"), np.zeros(3), "outside the device: pass device.array"),
        (Param("u64"), [1, 2], "a list is no argument"),
        (Param("u64"), None, "a NoneType is no argument"),
        (Param("u64"), "1", "a str is no argument"),
        (Param("u64"), 1j, "a complex is no argument"),
        (Param("u32"), b"1234", "bytes fill struct and untyped parameters; pass a number"),
        (Param("b8", length=12), b"1234", r"\(12 bytes\): got 4 bytes"),
        (Param("b8", length=12), 3, "got 3; pass bytes of exactly that size, or a NumPy scalar that has it"),
        (Param("b8", length=2), np.float32(3), "got np.float32"),
        (Param("b8", length=12), np.zeros((), "i4,i4"), "got 8 bytes"),
        (Param("u32"), np.zeros((), "i2,i2"), "bytes fill struct and untyped parameters"),
        (Param("b8", length=8), np.zeros((), "O,"), "no argument|outside the device"),
        (Param("b8", length=128), memory(), "which needs a .u64 parameter"),
    ],
)
def test_what_does_not_fit_is_refused_by_name(param, value, message):
    with pytest.raises(ArgumentError, match=message) as caught:
        pack_arguments([Param("u32", "n"), param], [1, value])
    assert caught.value.parameter == "p"
    assert "argument 1 for parameter 'p'" in str(caught.value)
    assert isinstance(caught.value, KernbenchError)


def test_a_wrong_count_lists_the_parameters():
    params = [Param("u64", "q"), Param("b8", "table", 16)]
    with pytest.raises(ArgumentError, match=r"1 arguments for 2 parameters; the kernel takes \(q: \.u64, table: 16"):
        pack_arguments(params, [3])


def test_arrays_structs_and_maps():
    array = memory()
    description = describe_tensor_map(array, (64, 64), (256,), (32, 8), "128B")
    encoded = bytes(range(128))
    params = [Param("u64"), Param("b8", length=128), Param("b8", length=5), Param("b64")]
    packed = pack_arguments(params, [array, TensorMap(description, encoded), b"12345", array])
    address = array.address.to_bytes(8, "little")
    assert packed == [address, encoded, b"12345", address]


def test_numpy_scalars_fill_structs_of_their_size():
    record = np.zeros((), np.dtype([("a", "i4"), ("b", "f8")], align=True))
    record["a"], record["b"] = 7, 2.5
    params = [Param("b8", length=2), Param("b8", length=2), Param("b8", length=16), Param("b8", length=16)]
    args = [np.float16(1.5), ml_dtypes.bfloat16(1.5), record, record[()]]
    expected = [np.float16(1.5).tobytes(), np.array(1.5, ml_dtypes.bfloat16).tobytes(), *[record.tobytes()] * 2]
    assert pack_arguments(params, args) == expected


def test_a_map_fills_only_its_own_size():
    entry = TensorMap(describe_tensor_map(memory(), (64,), (), (32,)), bytes(128))
    with pytest.raises(ArgumentError, match="a tensor map has 128 bytes"):
        pack(Param("b8", length=64), entry)
    with pytest.raises(ValueError, match="128 bytes; got 3"):
        TensorMap(entry.description, b"abc")


BASE = {"dims": (64, 64), "strides": (256,), "box": (32, 8)}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"dims": ()}, "0 dimensions; it has 1 to 5"),
        ({"dims": (1,) * 6}, "6 dimensions; it has 1 to 5"),
        ({"strides": (256, 512)}, r"2 strides .* for 2 dimensions \(64, 64\); give 1"),
        ({"box": (32,)}, "1 box sizes for 2 dimensions"),
        ({"element_strides": (1,)}, "1 element strides for 2 dimensions"),
        ({"dims": (64, 0)}, "size 0 of dimension 1; allowed are 1 to 4294967296"),
        ({"box": (32, 257)}, "box size 257 of dimension 1; allowed are 1 to 256"),
        ({"box": (32, 0)}, "box size 0 of dimension 1"),
        ({"element_strides": (1, 9)}, "element stride 9 of dimension 1; allowed are 1 to 8"),
        ({"strides": (2**40,)}, "stride 1099511627776 of dimension 1"),
        ({"strides": (264,)}, "stride 264 of dimension 1 is no multiple of 16 bytes"),
        ({"box": (3, 8)}, "innermost row is 12 bytes; it must be a multiple of 16"),
        ({"box": (64, 8), "swizzle": "128B"}, "256 bytes, swizzle 128B allows 128: use a box of 32 elements"),
        ({"dims": (64, 64, 9), "strides": (256, 16), "box": (32, 256, 8)}, "262144 bytes; shared memory holds 233472"),
        ({"swizzle": "256B"}, "unknown swizzle '256B'; known: none, 32B"),
        ({"interleave": "16B"}, "interleave 16B needs at least 3 dimensions"),
        ({"oob_fill": "one"}, "unknown out-of-bounds fill"),
        ({"offset": 8}, "no multiple of 16 bytes: align the array's start"),
        ({"element": "f64"}, "f64 elements in an array of float32: the widths differ"),
    ],
)
def test_a_tensor_map_is_checked_as_the_driver_checks_it(change, message):
    with pytest.raises(MisuseError, match=message):
        describe_tensor_map(memory(), **(BASE | change))


def test_what_only_integers_or_interleaved_maps_break():
    with pytest.raises(MisuseError, match="'nan' needs float elements; got s32"):
        describe_tensor_map(memory(np.int32), **BASE, oob_fill="nan")
    three = {"dims": (64, 64, 4), "strides": (256, 4096), "box": (8, 8, 1)}
    with pytest.raises(MisuseError, match="interleave 32B needs swizzle 32B"):
        describe_tensor_map(memory(), **three, interleave="32B")
    assert describe_tensor_map(memory(), **three, interleave="32B", swizzle="32B").rank == 3


def test_a_tensor_map_knows_its_bytes():
    description = describe_tensor_map(
        memory(np.float16), (64, 10, 2), (512, 128), (64, 9, 2), element_strides=(2, 2, 1)
    )
    assert description.element == "f16"
    assert description.byte_strides == (2, 512, 128)
    assert description.copied == (64, 5, 2)
    assert description.box_bytes == 64 * 5 * 2 * 2
    assert description.reach == 63 * 2 + 9 * 512 + 128 + 2
    assert describe_tensor_map(memory(ml_dtypes.bfloat16), (64,), (), (8,)).element == "bf16"
    assert describe_tensor_map(memory(), (64,), (), (8,), element="tf32").element == "tf32"
    assert isinstance(description, TensorMapDescription)


def test_launch_shapes():
    assert launch_shape(5, (32, 4)) == ((5, 1, 1), (32, 4, 1), (1, 1, 1))
    assert launch_shape((4, 2), 32, (2, 2))[2] == (2, 2, 1)
    for grid, block, cluster, message in (
        (0, 32, None, r"grid \(0, 1, 1\): x is 0, allowed are 1 to 2147483647"),
        ((1, 65536), 32, None, "y is 65536"),
        (1, (1, 1, 65), None, r"block \(1, 1, 65\): z is 65"),
        (1, (32, 64), None, "2048 threads; a block has 1024 at most"),
        (1, (1, 2, 3, 4), None, "one to three sizes"),
        (1, 1.5, None, "whole numbers"),
        (3, 32, 2, r"grid \(3, 1, 1\) is no multiple of cluster"),
        (32, 32, 32, "allowed are 1 to 16"),
        ((8, 8), 32, (8, 8), "64 blocks; a cluster has 16 at most"),
    ):
        with pytest.raises(MisuseError, match=message):
            launch_shape(grid, block, cluster)


def test_what_the_kernel_demands_of_a_launch():
    kernel = SimpleNamespace(name="k", reqntid=(64, 2, 1), maxntid=None, cluster=(2, 1, 1))
    assert launch_shape(4, (64, 2), None, kernel) == ((4, 1, 1), (64, 2, 1), (2, 1, 1))
    with pytest.raises(MisuseError, match=r"block \(32, 1, 1\): 'k' demands \(64, 2, 1\) \(\.reqntid\)"):
        launch_shape(4, 32, None, kernel)
    with pytest.raises(MisuseError, match=r"cluster \(4, 1, 1\): 'k' demands \(2, 1, 1\) \(\.reqnctapercluster\)"):
        launch_shape(4, (64, 2), 4, kernel)
    with pytest.raises(MisuseError, match=r"grid \(3, 1, 1\) is no multiple"):
        launch_shape(3, (64, 2), None, kernel)
    small = SimpleNamespace(name="k", reqntid=None, maxntid=(128, 1, 1), cluster=None)
    assert launch_shape(1, (2, 64), None, small)[1] == (2, 64, 1)
    with pytest.raises(MisuseError, match="129 threads; 'k' takes 128 at most"):
        launch_shape(1, 129, None, small)


def test_host_arrays_are_contiguous_numbers():
    assert host_array(np.arange(6).reshape(2, 3).T).flags.c_contiguous
    assert host_array([1.0, 2.0]).dtype == np.float64
    with pytest.raises(MisuseError, match="Python objects"):
        host_array(np.array([None]))
