"""Loading a module: its global and constant variables get addresses and initial values on a device."""

import numpy as np

from kernbench.common.errors import MisuseError
from kernbench.ptx.emulator.memory.arena import Allocation, Arena
from kernbench.ptx.emulator.program.operands import float_bits, function_address
from kernbench.ptx.text.errors import PtxError
from kernbench.ptx.text.module import Float, Generic, Initial, Integer, Masked, Module, Name, Offset, Variable
from kernbench.ptx.text.types import TYPES

# the size of an undefined external array
_EXTERNAL_BYTES = 0


class LoadedModule:
    """The variables of a module on one device; loading it again gives it fresh ones."""

    def __init__(self, module: Module, arena: Arena):
        self.allocations: dict[str, Allocation] = {}
        self._functions, self._kernels = module.functions, module.kernels
        held = [v for v in module.variables.values() if v.space in ("global", "const")]
        for variable in held:
            self.allocations[variable.name] = _allocated(variable, arena)
        for variable in held:
            if variable.initial is not None:
                image = np.frombuffer(self._image(variable, variable.initial), np.uint8)
                arena.contents(self.allocations[variable.name])[: len(image)] = image

    @property
    def addresses(self) -> dict[str, int]:
        """The address of each variable."""
        return {name: allocation.address for name, allocation in self.allocations.items()}

    def _image(self, variable: Variable, initial: Initial) -> bytes:
        dims = [size for size in variable.dims if size is not None]
        unit = TYPES[variable.type].nbytes if variable.type in TYPES else 8
        shape = [*dims, *((variable.vector,) if variable.vector > 1 else ())]
        image = bytearray(variable.size or 0)
        self._fill(image, 0, initial, shape, unit, variable)
        return bytes(image)

    def _fill(self, image: bytearray, start: int, value: Initial, shape: list[int], unit: int, of: Variable) -> None:
        if isinstance(value, tuple):
            step = unit * int(np.prod(shape[1:], dtype=np.int64))
            for number, item in enumerate(value):
                self._fill(image, start + number * step, item, shape[1:], unit, of)
            return
        bits = self._bits(value, of)
        image[start : start + unit] = (bits & ((1 << 8 * unit) - 1)).to_bytes(unit, "little")

    def _bits(self, value: Initial, of: Variable) -> int:
        if isinstance(value, Integer):
            return value.value
        if isinstance(value, Float):
            return float_bits(value, of.type)
        if isinstance(value, Masked):
            mask = value.mask.value
            shift = (mask & -mask).bit_length() - 1
            return (self._bits(value.address, of) & mask) >> shift
        assert not isinstance(value, tuple), "an element is no list of elements"
        name = value.text if isinstance(value, Name) else value.base.text
        offset = value.offset if isinstance(value, (Offset, Generic)) else 0
        if name in self._functions or name in self._kernels:
            return function_address(self._functions, self._kernels, name)
        if name not in self.allocations:
            raise PtxError(f"the initial value of '{of.name}' names '{name}', which has no address", of.line)
        return self.allocations[name].address + offset


def _allocated(variable: Variable, arena: Arena) -> Allocation:
    """Allocate a variable, filled with zeros; one that does not fit is an error at its line."""
    size = variable.size if variable.size is not None else _EXTERNAL_BYTES
    try:
        return arena.allocate(size, variable.name, variable.space, 0)
    except MisuseError as problem:
        raise PtxError(f"there is no room for '{variable.name}': {problem}", variable.line) from None
