"""Large inputs are copied by several threads, and each rank's part of them: as by one."""

import numpy as np
import pytest

from kernbench.common.dtypes import DTYPES
from kernbench.mesh.programs import tensors
from kernbench.mesh.programs.tensors import Tensor, make_regions, make_source


@pytest.fixture(autouse=True)
def small_parts(monkeypatch):
    """Few bytes are many."""
    monkeypatch.setattr(tensors, "_PART", 24)


@pytest.mark.parametrize("jobs", ["1", "3"])
@pytest.mark.parametrize("dtype", ["f16", "bf16", "f32", "i32", "i1"])
@pytest.mark.parametrize("shape", [(), (0, 3), (7,), (5, 9), (2, 3, 4)])
def test_a_source_is_a_copy(shape, dtype, jobs, monkeypatch):
    monkeypatch.setenv("KERNBENCH_JOBS", jobs)
    value = (np.arange(np.prod(shape)) % 5).reshape(shape).astype(DTYPES[dtype].numpy)
    for given in (value, value.T, value[..., ::2] if shape else value, value.astype(value.dtype.newbyteorder(">"))):
        found = make_source(given, None)
        assert found.dtype == value.dtype
        assert found.shape == given.shape
        assert np.array_equal(found.astype(np.float64), given.astype(np.float64))
        assert not np.shares_memory(found, given)


def test_a_source_may_be_a_matrix_of_numpy():
    value = np.arange(45.0, dtype=np.float32).reshape(5, 9)
    assert np.array_equal(make_source(value.view(np.matrix), None), value)


@pytest.mark.parametrize("jobs", ["1", "3"])
@pytest.mark.parametrize("rows", [None, ((5, 1), (0, 4, 2), (3,))])
def test_parts_of_ranks(rows, jobs, monkeypatch):
    monkeypatch.setenv("KERNBENCH_JOBS", jobs)
    source = np.arange(48.0, dtype=np.float32).reshape(4, 6, 2)
    whose = None if rows is None else tuple(np.array(one) for one in rows)
    split = Tensor("split", 0, source.shape, "f32", 1, 3, source, False, True, whose)
    fresh = Tensor("fresh", 1 << 40, (6,), "f32", 0, 3, None, True, True)
    known = split.region(4, 1)
    make_regions((tensor, program, program % 3) for tensor in (split, fresh, split) for program in (5, 4, 0, 1))
    # those that were there stay, and the others are there in the order they were asked for
    assert split.regions[4] is known
    assert list(split.regions) == [4, 5, 0, 1]
    assert list(fresh.regions) == [5, 4, 0, 1]
    for program in (5, 4, 0, 1):
        part = source[:, split.indices(program % 3)]
        assert np.array_equal(split.part(program, program % 3), part)
        assert not split.regions[program].array.flags.writeable
        assert not fresh.regions[program].written.any()
