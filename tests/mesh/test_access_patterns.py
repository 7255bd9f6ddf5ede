"""The bytes that a load or store records are those it touched: seen in tensors whose values are their indices."""

import numpy as np
import pytest
from tests.mesh import random_kernels as kernels

from kernbench import mesh
from kernbench.common.pe_commands import TensorHandle
from kernbench.safety.timed_order import strided_bytes

ROWS, COLUMNS = 8, 12
DTYPES = {"f32": np.float32, "f16": np.float16, "i32": np.int32}

# what is loaded, as (tl, address, bytes of an element) -> handle
LOADS = {
    "whole": lambda tl, x, n: tl.load(x, shape=(ROWS, COLUMNS)),
    "rows in the middle": lambda tl, x, n: tl.load(x + 3 * COLUMNS * n, shape=(2, COLUMNS)),
    "strided": lambda tl, x, n: tl.load(x + 5 * n, shape=(3, 2), strides=(2 * COLUMNS, 3)),
    "backwards": lambda tl, x, n: tl.load(x + 7 * COLUMNS * n, shape=(4, 5), strides=(-COLUMNS, 2)),
    "one element again and again": lambda tl, x, n: tl.load(x + 9 * n, shape=(4, 3), strides=(0, 1)),
    "a scalar": lambda tl, x, n: tl.load(x + 17 * n, shape=(1,)),
    "three axes": lambda tl, x, n: tl.load(x, shape=(2, 3, 2), strides=(4 * COLUMNS, 1, COLUMNS)),
    "in place": lambda tl, x, n: (
        TensorHandle(0, x + 4 * COLUMNS * n, (2, COLUMNS), tl.element_type(x), space="hbm") + 0
    ),
}
BLOCKS = {"inside": (2, 3), "past the end": (6, 9), "before the start": (-2, -1), "outside": (8, 12)}


def recorded(stream, op):
    """The elements of all commands `op`, by the recording."""
    found = []
    for number, command in enumerate(stream):
        if command.op == op:
            row = stream.rows[number]
            pattern = stream.tables.patterns[row.y]
            strides = pattern.strides
            if strides is None:
                strides = tuple(np.cumprod((pattern.itemsize, *pattern.shape[:0:-1]))[::-1].tolist())
            touched = strided_bytes(row.x & ((1 << 40) - 1), pattern.shape, strides, pattern.itemsize)
            assert command.nbytes == pattern.nbytes == len(touched)
            found.append(sorted(set((touched // pattern.itemsize).tolist())))
    return found


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", LOADS)
def test_a_load_records_the_elements_it_brings(name, dtype):
    seen = []

    def kernel(x, *, tl):
        value = LOADS[name](tl, x, np.dtype(DTYPES[dtype]).itemsize)
        seen.append(sorted(set(np.asarray(value.data, np.int64).reshape(-1).tolist())))

    host = mesh.Host("small", ranks=1)
    run = host.launch(kernel, host.replicate(np.arange(ROWS * COLUMNS).reshape(ROWS, COLUMNS).astype(DTYPES[dtype])))
    assert run.safe is True, run.findings
    assert recorded(run.recording.streams[0], "load") == seen


@pytest.mark.parametrize("dtype", ["f32", "f16"])
@pytest.mark.parametrize("name", BLOCKS)
def test_a_tile_that_sticks_out_records_the_part_that_exists(name, dtype):
    seen = []

    def kernel(x, o, *, tl):
        tile = tl.make_block_ptr(x, (ROWS, COLUMNS), (COLUMNS, 1), BLOCKS[name], (4, 5))
        value = tl.load(tile, boundary_check=(0, 1))
        seen.append(sorted(set(np.asarray(value.data, np.int64).reshape(-1).tolist()) - {0}))
        there = tl.make_block_ptr(o, (ROWS, COLUMNS), (COLUMNS, 1), BLOCKS[name], (4, 5))
        tl.store(there, tl.full((4, 5), 1.0, "f32"), boundary_check=(0, 1))

    host = mesh.Host("small", ranks=1)
    # from 1 on: what is cut off is filled with 0
    x = host.replicate(1 + np.arange(ROWS * COLUMNS).reshape(ROWS, COLUMNS).astype(DTYPES[dtype]))
    o = host.replicate(np.zeros((ROWS, COLUMNS), DTYPES[dtype]))
    run = host.launch(kernel, x, o)
    assert run.safe is True, run.findings
    (stream,) = run.recording.streams
    assert recorded(stream, "load") == [[n - 1 for n in seen[0]]]
    written = np.flatnonzero(np.asarray(host.gather(o)).reshape(-1)).tolist()
    assert recorded(stream, "store") == ([written] if written else [])


@pytest.mark.parametrize("dtype", ["f32", "f16"])
@pytest.mark.parametrize("strides", [None, (2 * COLUMNS, 1), (-COLUMNS, 3)])
def test_a_store_records_the_elements_it_changes(strides, dtype):
    def kernel(o, *, tl):
        itemsize = np.dtype(DTYPES[dtype]).itemsize
        tl.store(o + 4 * COLUMNS * itemsize, tl.full((2, 4), 1.0, "f32"), strides=strides)

    host = mesh.Host("small", ranks=1)
    o = host.replicate(np.zeros((ROWS, COLUMNS), DTYPES[dtype]))
    run = host.launch(kernel, o)
    written = np.flatnonzero(np.asarray(host.gather(o)).reshape(-1)).tolist()
    assert recorded(run.recording.streams[0], "store") == [written]


@pytest.mark.parametrize("seed", range(6))
def test_a_run_without_data_records_the_same_bytes(seed):
    program = kernels.make(seed)
    one, other = (kernels.launch(program, shapes_only=without) for without in (False, True))
    for a, b in zip(one.recording.streams, other.recording.streams, strict=True):
        assert [recorded(a, op) for op in ("load", "store")] == [recorded(b, op) for op in ("load", "store")]
        assert np.array_equal(a.rows.column("x"), b.rows.column("x"))
