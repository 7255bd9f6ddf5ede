"""Random tensor maps, and what a box of them holds, written plainly."""

from dataclasses import dataclass

import numpy as np

SWIZZLES = {"none": (0, 0), "32B": (1, 4), "64B": (3, 4), "128B": (7, 4)}
SPANS = {"none": 256 * 8, "32B": 32, "64B": 64, "128B": 128}


@dataclass
class Case:
    """A tensor, a box of it, and where the box lies."""

    dtype: np.dtype
    dims: tuple
    strides: tuple
    box: tuple
    element_strides: tuple
    at: tuple
    swizzle: str
    oob_fill: str
    elements: int

    @property
    def nbytes(self):
        return int(np.prod(self.copied)) * self.dtype.itemsize

    @property
    def span(self):
        """Bytes of shared memory, rows padded to the swizzle's span, in whole patterns."""
        rows = int(np.prod(self.copied[1:]))
        pitch = self.box[0] * self.dtype.itemsize if self.swizzle == "none" else SPANS[self.swizzle]
        return -(-rows * pitch // 1024) * 1024

    @property
    def copied(self):
        return (self.box[0], *(-(-b // s) for b, s in zip(self.box[1:], self.element_strides[1:], strict=True)))


def random_case(seed, inside=False):
    """A legal tensor map and coordinates, often reaching outside; with `inside` none is negative."""
    random = np.random.default_rng(seed)
    rank = int(random.integers(1, 6))
    dtype = np.dtype(random.choice(["uint8", "uint16", "uint32", "uint64", "float32", "float16"]))
    swizzle = str(random.choice(list(SWIZZLES)))
    unit = 16 // dtype.itemsize
    inner = int(random.integers(1, min(4, SPANS[swizzle] // 16) + 1)) * unit
    if swizzle != "none" and seed % 2:
        inner = SPANS[swizzle] // dtype.itemsize
    box = (inner, *(int(random.integers(1, 7)) for _ in range(rank - 1)))
    dims = tuple(int(random.integers(1, 2 * b + 3)) for b in box)
    element_strides = (1, *(int(random.choice([1, 1, 2, 3])) for _ in range(rank - 1)))
    strides, extent = [], dims[0] * dtype.itemsize
    for size in dims[1:]:
        extent = -(-extent // 16) * 16 + 16 * int(random.integers(0, 2))
        strides.append(extent)
        extent *= size
    least = 0 if inside else 1
    at = [int(random.integers(-b * least, d + 1)) for b, d in zip(box, dims, strict=True)]
    # the innermost coordinate must be a multiple of 16 bytes
    at[0] = at[0] // unit * unit
    fill = str(random.choice(["zero", "nan"])) if dtype.kind == "f" else "zero"
    elements = -(-(extent + 64) // dtype.itemsize)
    return Case(dtype, dims, tuple(strides), box, element_strides, tuple(at), swizzle, fill, elements)


def places(case, rows=None):
    """For each element of the box (innermost first): its byte place in shared memory, in the tensor, whether inside.

    `rows` is how long rows are taken to be, the tensor's own length unless given.
    """
    dims = case.dims if rows is None else (rows, *case.dims[1:])
    index = np.indices(case.copied[::-1]).reshape(len(case.box), -1)[::-1]
    steps = np.array([1, *case.element_strides[1:]])[:, None]
    at = np.array(case.at)[:, None] + index * steps
    inside = ((at >= 0) & (at < np.array(dims)[:, None])).all(axis=0)
    tensor = (at * np.array([case.dtype.itemsize, *case.strides])[:, None]).sum(axis=0)
    element, inner = case.dtype.itemsize, case.box[0]
    number = np.arange(index.shape[1])
    pitch = inner * element if case.swizzle == "none" else SPANS[case.swizzle]
    linear = number // inner * pitch + number % inner * element
    mask, shift = SWIZZLES[case.swizzle]
    return linear ^ (((linear >> 7) & mask) << shift), tensor, inside


def loaded(case, memory):
    """Shared memory after the box was loaded, from the tensor's bytes."""
    fill = {"zero": 0, "nan": 0x7FF77FF77FF77FF7}[case.oob_fill]
    blank = np.frombuffer(fill.to_bytes(8, "little"), np.uint8)[: case.dtype.itemsize]
    box = np.full(case.span, 0xEE, np.uint8)
    for place, source, inside in zip(*places(case), strict=True):
        value = memory[source : source + case.dtype.itemsize] if inside else blank
        box[place : place + case.dtype.itemsize] = value
    return box


def stored(case, memory, box):
    """The tensor's bytes after the box was stored: whole pieces of 16 bytes, beyond a row's end too."""
    result = memory.copy()
    unit = 16 // case.dtype.itemsize
    for place, target, inside in zip(*places(case, -(-case.dims[0] // unit) * unit), strict=True):
        if inside:
            result[target : target + case.dtype.itemsize] = box[place : place + case.dtype.itemsize]
    return result


def run_load(device, case, memory, kernel):
    """Shared memory as a device leaves it."""
    array = device.array(memory.view(case.dtype), "tensor")
    out = device.array(np.zeros(case.span, np.uint8), "out")
    run = device.launch(
        kernel, 1, 128, [map_of(device, case, array), out, *[np.uint32(c & 0xFFFFFFFF) for c in case.at]]
    )
    return run, out.numpy()


def run_store(device, case, memory, box, kernel):
    """The tensor as a device leaves it."""
    array = device.array(memory.view(case.dtype), "tensor")
    data = device.array(box, "data")
    run = device.launch(
        kernel, 1, 128, [map_of(device, case, array), data, *[np.uint32(c & 0xFFFFFFFF) for c in case.at]]
    )
    return run, array.numpy().view(np.uint8)


def map_of(device, case, array):
    """The tensor map of a case."""
    return device.tensor_map(
        array,
        case.dims,
        case.strides,
        case.box,
        case.swizzle,
        element_strides=case.element_strides,
        oob_fill=case.oob_fill,
    )


def contents(case, seed):
    """Bytes of a tensor."""
    return np.random.default_rng(seed).integers(0, 256, case.elements * case.dtype.itemsize).astype(np.uint8)
