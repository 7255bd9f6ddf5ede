"""Loads and stores: values keep what they were, tiles of larger tensors, types of tensors."""

import numpy as np
from tests.triton_emu.values import SMALL, normal, same

from kernbench import mesh
from kernbench.common.dtypes import DTYPES


def test_a_loaded_value_stays_when_its_memory_is_overwritten():
    x = normal(0, (4,), "f32")

    def kernel(x_ptr, o, *, tl):
        before = tl.load(x_ptr, shape=(4,))
        tl.store(x_ptr, before * 2.0)
        tl.store(o, before)

    host = mesh.Host(SMALL, ranks=1)
    tensor, out = host.replicate(x), host.empty((4,))
    assert host.launch(kernel, tensor, out).safe
    same(host.gather(out), x)
    same(host.gather(tensor), x * 2)


def test_strided_tiles_of_a_larger_tensor():
    x = normal(0, (6, 8), "f16")

    def kernel(x_ptr, o, *, tl):
        tile = tl.load(x_ptr + 2 * (8 * 1 + 2), shape=(3, 4), strides=(8, 1))
        tl.store(o + 2 * (8 * 2 + 1), tile, strides=(8, 1))
        tl.store(o, tl.load(x_ptr, shape=(2, 8)))

    host = mesh.Host(SMALL, ranks=1)
    out = host.replicate(np.zeros((6, 8), np.float16))
    assert host.launch(kernel, host.replicate(x), out).safe
    wanted = np.zeros((6, 8), np.float16)
    wanted[2:5, 1:5] = x[1:4, 2:6]
    wanted[:2] = x[:2]
    same(host.gather(out), wanted)


def test_a_load_without_a_type_has_the_tensors_own():
    kinds = []

    def kernel(*pointers, tl):
        kinds.extend(tl.load(p, shape=(1,)).dtype for p in pointers)
        kinds.extend(tl.element_type(p) for p in pointers)

    host = mesh.Host(SMALL, ranks=1)
    tensors = [host.replicate(np.ones(1, np.float32), dtype=name) for name in DTYPES]
    assert host.launch(kernel, *tensors).safe
    assert kinds == list(DTYPES) * 2
