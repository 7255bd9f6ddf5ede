"""The arrays that kernels take, and the interface of devices that make them."""

from collections.abc import Callable
from typing import Protocol

from kernbench.ptx.launching.device_base import DeviceArray, Sizes
from kernbench.ptx.launching.tensor_map import TensorMap


class Shaped(Protocol):
    """An array of any library."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Elements along each axis."""
        ...


class Maker(Protocol):
    """A device, emulated or real, or a bench's host, that makes arrays and tensor maps."""

    def array(self, value: object, name: str = "") -> DeviceArray:
        """An array on the device with the data of another."""
        ...

    def tensor_map(
        self, array: DeviceArray, dims: Sizes, strides: Sizes, box: Sizes, swizzle: str = "none"
    ) -> TensorMap:
        """A map of an array on the device."""
        ...


# makes a tensor map of an array
MapMaker = Callable[[Maker, DeviceArray], TensorMap]
