"""What all PTX devices share: arrays on the device, and checks of launch shapes."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from math import prod
from operator import index
from types import MappingProxyType
from typing import TYPE_CHECKING, Protocol, Self, SupportsIndex, TypeGuard

import ml_dtypes
import numpy as np
import numpy.typing as npt

from kernbench.common.dtypes import Array, as_array, dtype_of
from kernbench.common.errors import MisuseError
from kernbench.ptx.names.demangling import title
from kernbench.ptx.text.module import Kernel

if TYPE_CHECKING:
    from kernbench.ptx.launching.tensor_map import TensorMap, TensorMapDescription

Extent = tuple[int, int, int]

GRID_LIMITS: Extent = (2**31 - 1, 65535, 65535)
BLOCK_LIMITS: Extent = (1024, 1024, 64)
# an integer, or one for each axis
Sizes = SupportsIndex | Sequence[SupportsIndex]
BLOCK_THREADS = 1024
CLUSTER_LIMITS: Extent = (16, 16, 16)
CLUSTER_BLOCKS = 16

# element types that NumPy lacks, by torch's name: converted by way of integers of the same width
TORCH_ONLY: Mapping[str, np.dtype[np.generic]] = MappingProxyType(
    {
        "bfloat16": dtype_of(ml_dtypes.bfloat16),
        "float8_e4m3fn": dtype_of(ml_dtypes.float8_e4m3fn),
        "float8_e5m2": dtype_of(ml_dtypes.float8_e5m2),
        "float8_e8m0fnu": dtype_of(ml_dtypes.float8_e8m0fnu),
    }
)


class Where(Protocol):
    """A torch device."""

    type: str
    index: int | None


class Tensor(Protocol):
    """A torch tensor, as far as it is used here: torch itself is imported only if there are tensors."""

    dtype: object
    shape: Sequence[int]
    device: "Where"

    def is_contiguous(self) -> bool:
        """Whether it is contiguous."""
        ...

    def data_ptr(self) -> int:
        """Its address."""
        ...

    def detach(self) -> "Tensor":
        """The tensor without its gradient."""
        ...

    def cpu(self) -> "Tensor":
        """The tensor on the host."""
        ...

    def contiguous(self) -> "Tensor":
        """A contiguous tensor of the same values."""
        ...

    def view(self, dtype: object, /) -> "Tensor":
        """The same bytes as another element type."""
        ...

    def numpy(self) -> Array:
        """The tensor as a NumPy array."""
        ...


class DeviceArray(ABC):
    """Contiguous memory of a device: `shape` elements of `dtype` from `address`; a kernel receives the address."""

    def __init__(self, address: int, shape: tuple[int, ...], dtype: np.dtype[np.generic], name: str = ""):
        self.address = address
        self.shape = shape
        self.dtype = dtype
        self.name = name

    @property
    def nbytes(self) -> int:
        """Size in bytes."""
        return prod(self.shape) * self.dtype.itemsize

    @abstractmethod
    def numpy(self) -> Array:
        """A copy of the contents on the host."""

    @abstractmethod
    def free(self) -> None:
        """Free the memory; later use of the array is an error."""

    def __repr__(self) -> str:
        name = f" '{self.name}'" if self.name else ""
        size = "x".join(map(str, self.shape)) or "scalar"
        return f"<{type(self).__name__}{name} {size} {self.dtype.name} at {self.address:#x}>"


class Device(ABC):
    """What kernels are launched on; a context manager that closes it."""

    @abstractmethod
    def array(self, value: object, name: str = "") -> DeviceArray:
        """Copy `value` (NumPy, torch, anything with `__dlpack__`) to the device."""

    @abstractmethod
    def empty(self, shape: Sizes, dtype: npt.DTypeLike = np.float32, name: str = "") -> DeviceArray:
        """An uninitialised array."""

    @abstractmethod
    def encode(self, description: "TensorMapDescription") -> "TensorMap":
        """Encode a tensor map in the form that kernels receive."""

    def output(self, array: DeviceArray) -> Array:
        """The content of an array that was not changed since the last launch."""
        return array.numpy()

    @abstractmethod
    def synchronize(self) -> None:
        """Wait for all work on the device."""

    @abstractmethod
    def close(self) -> None:
        """Release the device and everything that was made on it."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


def torch_dtype(tensor: Tensor) -> np.dtype[np.generic]:
    """The NumPy type of a torch tensor's elements."""
    name = str(tensor.dtype).removeprefix("torch.")
    try:
        return TORCH_ONLY[name] if name in TORCH_ONLY else np.dtype(name)
    except TypeError:
        raise MisuseError(f"torch elements of type {name} have no NumPy type: convert the tensor first") from None


def is_torch(value: object) -> TypeGuard[Tensor]:
    """Whether `value` is a torch tensor, found without importing torch."""
    return type(value).__module__.partition(".")[0] == "torch" and hasattr(value, "data_ptr")


def host_array(value: object) -> Array:
    """`value` on the host as a C-contiguous NumPy array, from NumPy, torch (any element type) or DLPack."""
    if is_torch(value):
        dtype = torch_dtype(value)
        plain = value.detach().cpu().contiguous()
        if dtype in TORCH_ONLY.values():
            return np.asarray(plain.view(_carrier(dtype)).numpy()).view(dtype)
        return np.asarray(plain.numpy())
    given = as_array(value)
    if given.dtype.hasobject:
        raise MisuseError(
            f"an array of {given.dtype} holds Python objects, which a device cannot: give it a number type"
        )
    return given if given.flags.c_contiguous else np.ascontiguousarray(given)


def _carrier(dtype: np.dtype[np.generic]) -> object:
    """torch's integer type of the same width as `dtype`, by which its elements are converted."""
    import torch

    return torch.int16 if dtype.itemsize == 2 else torch.uint8


def shape_of(shape: Sizes) -> tuple[int, ...]:
    """A shape from an integer or a sequence of integers."""
    try:
        sizes = tuple(index(n) for n in ((shape,) if hasattr(shape, "__index__") else shape))
    except TypeError:
        raise MisuseError(f"a shape is a sequence of whole numbers; got {shape!r}") from None
    if any(n < 0 for n in sizes):
        raise MisuseError(f"a shape has no negative sizes; got {sizes}")
    return sizes


def kernel_of(kernel: object) -> Kernel:
    """The kernel itself, or the only kernel of a module or a builder."""
    if isinstance(kernel, Kernel):
        return kernel
    kernels: Mapping[str, Kernel] | None = getattr(kernel, "kernels", None)
    if kernels is None:
        raise MisuseError(f"a {type(kernel).__name__} is no kernel: pass ptx.parse(text).kernels[name]")
    if len(kernels) != 1:
        raise MisuseError(f"the module has {len(kernels)} kernels: pass module.kernels[name], one of {list(kernels)}")
    return next(iter(kernels.values()))


def extent(what: str, value: Sizes, limits: Extent) -> Extent:
    """`value`, one to three integers, as (x, y, z); raises an error unless each is from 1 to its limit."""
    sizes = shape_of(value)
    if not 1 <= len(sizes) <= 3:
        raise MisuseError(f"{what} {value!r}: give one to three sizes, (x, y, z)")
    x, y, z = (*sizes, 1, 1)[:3]
    for axis, size, limit in zip("xyz", (x, y, z), limits, strict=True):
        if not 1 <= size <= limit:
            raise MisuseError(f"{what} {(x, y, z)}: {axis} is {size}, allowed are 1 to {limit}")
    return x, y, z


def launch_shape(
    grid: Sizes, block: Sizes, cluster: Sizes | None = None, kernel: Kernel | None = None
) -> tuple[Extent, Extent, Extent]:
    """Grid, block and cluster as (x, y, z), checked against the limits of devices and of the `kernel`.

    The default cluster is the one that the kernel requires, or 1 x 1 x 1.
    """
    blocks = extent("grid", grid, GRID_LIMITS)
    threads = extent("block", block, BLOCK_LIMITS)
    if prod(threads) > BLOCK_THREADS:
        raise MisuseError(f"block {threads} has {prod(threads)} threads; a block has {BLOCK_THREADS} at most")
    demanded = getattr(kernel, "cluster", None)
    clusters = extent("cluster", cluster or demanded or 1, CLUSTER_LIMITS)
    if prod(clusters) > CLUSTER_BLOCKS:
        raise MisuseError(f"cluster {clusters} has {prod(clusters)} blocks; a cluster has {CLUSTER_BLOCKS} at most")
    if kernel is not None:
        _check_demands(kernel, threads, clusters)
    if any(g % c for g, c in zip(blocks, clusters, strict=True)):
        raise MisuseError(f"grid {blocks} is no multiple of cluster {clusters}: enlarge the grid in each direction")
    return blocks, threads, clusters


def _check_demands(kernel: Kernel, threads: Extent, clusters: Extent) -> None:
    """Check the launch against the kernel's own directives."""
    for what, given, demanded, directive in (
        ("block", threads, kernel.reqntid, ".reqntid"),
        ("cluster", clusters, kernel.cluster, ".reqnctapercluster"),
    ):
        if demanded is not None and given != demanded:
            raise MisuseError(f"{what} {given}: '{title(kernel.name)}' demands {demanded} ({directive})")
    if kernel.maxntid is not None and prod(threads) > prod(kernel.maxntid):
        raise MisuseError(
            f"block {threads} has {prod(threads)} threads; '{title(kernel.name)}' takes {prod(kernel.maxntid)} at most "
            "(.maxntid)"
        )
