"""Loads and stores of iterations that are computed without the kernel: at addresses that move on with each."""

from math import prod
from typing import Protocol, Self

from numpy.lib.stride_tricks import as_strided

from kernbench.common.dtypes import Array
from kernbench.safety.memory import WINDOW_BITS
from kernbench.triton_emu.stacking.forms import Value

__kernbench_internal__ = True

Shape = tuple[int, ...]
# of a load or store: shape, strides, element type, source location
Form = tuple[Shape, Shape | None, str | None, object]


class Program(Protocol):
    """Whose memory it is; the port is another one while loops are watched."""

    _port: Value


class Transfer:
    """A load or store at an address that moves on by the same number of bytes with each call."""

    def __init__(self, context: Program, form: Form):
        self._context = context
        self._form = form
        self._address = self._step = 0

    def begin(self, address: int, step: int) -> None:
        """Where it was in the iteration that was seen, and by how much it moves."""
        self._address, self._step = address, step

    def again(self) -> Self:
        """The same somewhere else."""
        return type(self)(self._context, self._form)


class Load(Transfer):
    """Gives the elements there."""

    def begin(self, address: int, step: int) -> None:
        """Memory that is lent is asked for once."""
        self._address, self._step = address, step
        self._shape, strides, dtype, _ = self._form
        self._count = prod(self._shape)
        self._region = None if strides is not None else self._context._port.lent_at(address, self._shape, dtype)

    @property
    def window(self) -> int:
        """The window of memory that it looks at."""
        return self._address >> WINDOW_BITS

    @property
    def stays(self) -> bool:
        """Whether each call gives the same elements of lent memory, as long as nobody stores to that."""
        return not self._step and self._region is not None and self._region.written is None

    @property
    def is_lent(self) -> bool:
        """Whether it gives elements of memory that is full, as long as it stays within."""
        return self._region is not None and self._region.written is None

    # Of several iterations at once

    @property
    def form_of_several(self) -> tuple[object, ...]:
        """What decides how its elements lie."""
        return Load, self._shape, self._step, None if self._region is None else self._region.dtype

    def has_several(self, count: int) -> bool:
        """Whether so many further calls are all of lent memory."""
        region = self._region
        if region is None or region.written is not None:
            return False
        itemsize = region.array.itemsize
        ends = self._address + self._step - region.base, self._address + count * self._step - region.base
        inside = min(ends) >= 0 and max(ends) + self._count * itemsize <= region.array.size * itemsize
        return inside and not ends[0] % itemsize and not self._step % itemsize

    def several(self, count: int) -> Array:
        """The elements of so many further calls, along a new first axis that is outermost in memory."""
        region: Value = self._region
        array = region.array
        first = (self._address + self._step - region.base) // array.itemsize
        one = array[first : first + self._count].reshape(self._shape)
        lent: Array = as_strided(one, (count, *self._shape), (self._step, *one.strides))
        return lent if self._step >= one.nbytes else lent.copy()

    def move_on(self, count: int) -> None:
        """So many further calls were made."""
        self._address += count * self._step

    def __call__(self) -> Array | None:
        """Of the next iteration."""
        self._address = address = self._address + self._step
        region = self._region
        if region is not None and region.written is None:
            array = region.array
            first, rest = divmod(address - region.base, array.itemsize)
            if not rest and 0 <= first <= array.size - self._count:
                lent: Array = array[first : first + self._count].reshape(self._shape)
                return lent
        found: tuple[Array | None, str] = self._context._port.load(address, *self._form)
        return found[0]


class Store(Transfer):
    """Puts elements there."""

    def windows(self, times: int) -> range:
        """The windows of memory from here to where so many further calls get."""
        ends = self._address >> WINDOW_BITS, (self._address + times * self._step) >> WINDOW_BITS
        return range(min(ends), max(ends) + 1)

    def __call__(self, data: Array) -> None:
        """Of the next iteration."""
        self._address += self._step
        self._context._port.store(self._address, data, *self._form)
