"""Memory locations of asynchronous operations, checked for state space, alignment and array bounds."""

from kernbench.ptx.builder.instructions.memory import Memory
from kernbench.ptx.builder.values.numbers import is_number
from kernbench.ptx.builder.values.options import Value
from kernbench.ptx.builder.values.pointer import Location, location_of
from kernbench.ptx.builder.values.values import Register
from kernbench.ptx.text.module import Variable

__kernbench_internal__ = True


class Locations(Memory):
    """Checks of locations when the kernel is built."""

    def shared_location(self, what: str, value: object, align: int, nbytes: Value | None = None) -> Location:
        """A location in shared memory, checked for alignment and `nbytes` bytes in its array, where known."""
        location = self._location(what, value, "shared", "an array of ctx.shared, or what ctx.mapa gives")
        self._held(what, location, align, nbytes)
        return location

    def global_location(self, what: str, value: object, align: int) -> Location:
        """A location in global memory; generic addresses are accepted."""
        location = self._location(what, value, "global", "a pointer of ctx.pointer")
        if location.offset % align:
            raise self.error(
                f"{what}: byte {location.offset} of {location.name or 'this memory'} is no multiple of {align}"
            )
        return location

    def _location(self, what: str, value: object, space: str, remedy: str) -> Location:
        location = location_of(value)
        if not isinstance(location, Location):
            raise self.error(f"{what}: {value!r} is no location in {space} memory: give {remedy}")
        if location.space.partition("::")[0] not in (space, ""):
            raise self.error(f"{what}: {value!r} lies in {location.space} memory, and {space} memory is wanted")
        return location

    def _held(self, what: str, location: Location, align: int, nbytes: Value | None) -> None:
        variable = self._variable(location)
        known = (variable.alignment or 1) if variable is not None else align
        if known < align:
            raise self.error(f"{what}: {location.name!r} is aligned to {known} bytes: declare it with align={align}")
        if not (isinstance(location.base, Register) and location.base.name in self.body.bases):
            return
        if location.offset % align:
            raise self.error(f"{what}: byte {location.offset} of {location.name!r} is no multiple of {align}")
        size = variable.size if variable is not None and None not in variable.dims else None
        end = location.offset + (1 if nbytes is None or isinstance(nbytes, Register) else int(nbytes))
        if size is not None and not 0 <= location.offset < end <= size:
            raise self.error(
                f"{what}: bytes {location.offset} to {end - 1} lie outside {location.name!r} of {size} bytes"
            )

    def _variable(self, location: Location) -> Variable | None:
        return self.body.variables.get(location.name) or self.body.module_variables.get(location.name)

    def nbytes_of(self, what: str, nbytes: Value, step: int = 16) -> Value:
        """A number of bytes, checked to be one that a copy can move."""
        if is_number(nbytes) and (nbytes <= 0 or nbytes % step):
            raise self.error(f"{what}: {nbytes!r} bytes, and a multiple of {step} is wanted")
        return nbytes
