"""DLPack: tensors of the device are CUDA's to whoever asks, in Python or by torch's table of C functions."""

import ctypes

import numpy as np
import pytest

import kernbench.ptx as ptx

torch = pytest.importorskip("torch", reason="torch is not installed: make test-doors installs it")
dlpack = pytest.importorskip("kernbench.ptx.doors.torch_door.dlpack")

CUDA, HOST = (2, 0), (1, 0)


@pytest.fixture
def session():
    with ptx.emulated("sm_90a") as session:
        yield session


def device_of(capsule):
    tensor = dlpack._Tensor.from_address(dlpack._of_capsule(capsule))
    return tensor.kind, tensor.number


@pytest.mark.parametrize("options", [{}, {"max_version": (1, 0)}, {"stream": -1}, {"dl_device": CUDA}])
def test_a_capsule_of_a_tensor_says_where_it_lies(session, options):
    x = torch.arange(6.0, device="cuda")
    assert tuple(x.__dlpack_device__()) == CUDA
    assert device_of(x[2:].__dlpack__(**options)) == CUDA
    if "dl_device" not in options:
        assert device_of(torch.arange(6.0).__dlpack__(**options)) == HOST
    assert device_of(torch.utils.dlpack.to_dlpack(x)) == CUDA


def test_a_tensor_comes_back_as_itself(session):
    x = torch.arange(6.0, device="cuda")
    for back in (
        torch.from_dlpack(x),
        torch.from_dlpack(torch.utils.dlpack.to_dlpack(x)),
        torch.utils.dlpack.from_dlpack(x),
    ):
        assert back.is_cuda
        assert back.data_ptr() == x.data_ptr()
    torch.from_dlpack(x)[1] = 7
    assert x.tolist() == [0, 7, 2, 3, 4, 5]
    host = torch.from_dlpack(np.arange(3))
    assert not host.is_cuda


def test_numpy_does_not_take_what_lies_on_the_device(session):
    with pytest.raises((RuntimeError, BufferError, TypeError)):
        np.from_dlpack(torch.ones(3, device="cuda"))
    assert np.from_dlpack(torch.ones(3)).tolist() == [1, 1, 1]


def table():
    api = dlpack._API
    address = api.PyCapsule_GetPointer(torch.Tensor.__dlpack_c_exchange_api__, b"dlpack_exchange_api")
    return dlpack._Exchange.from_address(address)


@pytest.mark.skipif(not hasattr(torch.Tensor, "__dlpack_c_exchange_api__"), reason="this torch has no table")
def test_functions_in_c_say_it_too_and_go_on_when_the_session_has_ended():
    with ptx.emulated("sm_90a"):
        x, found = torch.arange(6.0, device="cuda"), dlpack._Tensor()
        functions = table()
        describe = dlpack._Function(functions.tensor_from)

        # shapes of a DLTensor follow, in 48 bytes altogether
        room = ctypes.create_string_buffer(64)
        assert describe(id(x), ctypes.addressof(room)) == 0
        found = dlpack._Tensor.from_buffer(room)
        assert (found.data, found.kind, found.number) == (x.data_ptr(), *CUDA)
        assert describe(id(torch.ones(2)), ctypes.addressof(room)) == 0
        assert (found.kind, found.number) == HOST
        assert describe(id("no tensor"), ctypes.addressof(room)) == -1

        stream = ctypes.c_void_p(5)
        assert dlpack._Stream(functions.stream)(2, 0, ctypes.addressof(stream)) == 0
        assert stream.value is None

        managed, back = ctypes.c_void_p(), ctypes.py_object()
        assert dlpack._Function(functions.managed_from)(id(x), ctypes.addressof(managed)) == 0
        assert dlpack._Tensor.from_address(managed.value + 32).kind == 2
        assert dlpack._Function(functions.managed_to)(managed.value, ctypes.addressof(back)) == 0
        assert back.value.data_ptr() == x.data_ptr()
        assert back.value.is_cuda
    # who has kept the table
    assert describe(id(x), ctypes.addressof(room)) == 0
    assert (found.kind, found.number) == HOST
    assert table().tensor_from != functions.tensor_from
