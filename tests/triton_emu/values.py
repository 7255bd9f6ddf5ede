"""What `tl` operations give in a launch, and float64 references rounded to narrow types through their neighbours."""

from functools import lru_cache
from math import inf

import numpy as np
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from kernbench import mesh
from kernbench.common.dtypes import DTYPES, FLOATS, cast, dtype_name
from kernbench.triton_emu import TLContext, run_kernel

NARROW = ("f16", "bf16", "f8e4m3", "f8e5m2")
F32_ERROR = 2.0**-24
SMALL = mesh.Host("small", ranks=1).machine


def evaluate(body, *arrays):
    """What `body(tl, *handles)` gives for `arrays`, stored and gathered; recorded, it must promise the same.

    A list or tuple of results comes back as a list of arrays.
    """

    def results(tl, pointers):
        handles = [tl.load(p, shape=a.shape, dtype=dtype_name(a.dtype)) for p, a in zip(pointers, arrays, strict=True)]
        made = body(tl, *handles)
        return list(made) if isinstance(made, (list, tuple)) else [made]

    def kernel(*pointers, tl):
        made = results(tl, pointers[: len(arrays)])
        for pointer, handle in zip(pointers[len(arrays) :], made, strict=True):
            tl.store(pointer, handle)

    host = mesh.Host(SMALL, ranks=1)
    tensors = [host.replicate(a) for a in arrays]
    tl = TLContext()
    promised = run_kernel(lambda *, tl: results(tl, [t.address for t in tensors]), tl)
    outputs = [host.empty(h.shape, h.dtype) for h in promised]
    run = host.launch(kernel, *tensors, *outputs)
    assert run.safe, [str(f) for f in run.findings]
    stream = run.recording.streams[0]
    assert [c.op for c in stream] == [c.op for c in tl.commands] + ["store"] * len(outputs)
    gathered = [host.gather(o) for o in outputs]
    return gathered if len(gathered) > 1 else gathered[0]


def exact(array):
    """As float64; signalling NaNs stay silent."""
    with np.errstate(all="ignore"):
        return np.asarray(array).astype(np.float64)


@lru_cache
def magnitudes(dtype):
    """The finite values of a narrow float from 0 up, and the step past the end; an even index is an even number."""
    size = DTYPES[dtype].itemsize
    table = exact(np.arange(1 << (8 * size - 1), dtype=f"u{size}").view(DTYPES[dtype].numpy))
    table = table[np.isfinite(table)]
    return np.append(table, 2 * table[-1] - table[-2])


def rounded(array, dtype):
    """A float64 reference brought to the float `dtype` once: to nearest, ties to even, by looking at the neighbours."""
    array = np.asarray(array, np.float64)
    if dtype == "f32":
        with np.errstate(all="ignore"):
            return exact(array.astype(np.float32))
    table = magnitudes(dtype)
    size = np.minimum(np.abs(array), table[-1])
    above = np.clip(np.searchsorted(table, size), 1, len(table) - 1)
    below = above - 1
    middle = (table[below] + table[above]) / 2
    index = np.where(size < middle, below, np.where(size > middle, above, below + below % 2))
    past = np.nan if dtype == "f8e4m3" else inf
    result = np.where(index == len(table) - 1, past, table[index])
    return np.where(np.isnan(array), np.nan, np.copysign(result, array))


def same(got, wanted):
    """Equal, NaN where NaN is wanted."""
    np.testing.assert_array_equal(exact(got), exact(wanted))


def close(got, wanted, dtype, steps=1.0, slack=0.0):
    """Within `steps` of the type's own spacing, or `slack` outright; f32 results get a few roundings."""
    row = DTYPES[dtype]
    epsilon = max(row.epsilon, 8 * F32_ERROR)
    got, wanted = exact(got), exact(wanted)
    finite = np.isfinite(wanted)
    allowed = steps * epsilon * np.maximum(np.abs(wanted), row.smallest_normal) + slack
    np.testing.assert_array_equal(got[~finite], wanted[~finite])
    assert np.all(np.abs(got - wanted)[finite] <= (allowed + np.zeros(got.shape))[finite])


def every_value(dtype):
    row = DTYPES[dtype]
    return np.arange(1 << (8 * row.itemsize), dtype=f"u{row.itemsize}").view(row.numpy)


def normal(seed, shape, dtype, scale=1.0):
    """Random numbers in `dtype`; whole numbers for the integers, fair coins for masks."""
    draw = np.random.default_rng(seed).standard_normal(shape) * scale
    if dtype == "i1":
        return draw > 0
    return cast((draw * 4 if dtype in ("i8", "i32") else draw).astype(np.float32), dtype)


shapes = hnp.array_shapes(min_dims=1, max_dims=3, max_side=5)
float_types = st.sampled_from(sorted(FLOATS))
seeds = st.integers(0, 10_000)
