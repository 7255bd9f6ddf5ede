"""Places that asynchronous units work on: in which memory, how aligned, inside which array."""

from kernbench.ptx.builder.instructions.memory import Memory
from kernbench.ptx.builder.values.numbers import is_number
from kernbench.ptx.builder.values.options import Value
from kernbench.ptx.builder.values.pointer import Location, location_of
from kernbench.ptx.builder.values.values import Register
from kernbench.ptx.text.module import Variable

__kernbench_internal__ = True


class Places(Memory):
    """What a place is held to when the kernel is built."""

    def shared_place(self, what: str, value: object, align: int, nbytes: Value | None = None) -> Location:
        """A place in shared memory, aligned, and with `nbytes` bytes in its array, as far as that is known."""
        place = self._place(what, value, "shared", "an array of ctx.shared, or what ctx.mapa gives")
        self._held(what, place, align, nbytes)
        return place

    def global_place(self, what: str, value: object, align: int) -> Location:
        """A place in global memory; a generic address is taken for one."""
        place = self._place(what, value, "global", "a pointer of ctx.pointer")
        if place.offset % align:
            raise self.error(f"{what}: byte {place.offset} of {place.name or 'this memory'} is no multiple of {align}")
        return place

    def _place(self, what: str, value: object, space: str, remedy: str) -> Location:
        place = location_of(value)
        if not isinstance(place, Location):
            raise self.error(f"{what}: {value!r} is no place in {space} memory: give {remedy}")
        if place.space.partition("::")[0] not in (space, ""):
            raise self.error(f"{what}: {value!r} lies in {place.space} memory, and {space} memory is wanted")
        return place

    def _held(self, what: str, place: Location, align: int, nbytes: Value | None) -> None:
        variable = self._variable(place)
        known = (variable.alignment or 1) if variable is not None else align
        if known < align:
            raise self.error(f"{what}: {place.name!r} is aligned to {known} bytes: declare it with align={align}")
        if not (isinstance(place.base, Register) and place.base.name in self.body.bases):
            return
        if place.offset % align:
            raise self.error(f"{what}: byte {place.offset} of {place.name!r} is no multiple of {align}")
        size = variable.size if variable is not None and None not in variable.dims else None
        end = place.offset + (1 if nbytes is None or isinstance(nbytes, Register) else int(nbytes))
        if size is not None and not 0 <= place.offset < end <= size:
            raise self.error(f"{what}: bytes {place.offset} to {end - 1} lie outside {place.name!r} of {size} bytes")

    def _variable(self, place: Location) -> Variable | None:
        return self.body.variables.get(place.name) or self.body.module_variables.get(place.name)

    def nbytes_of(self, what: str, nbytes: Value, step: int = 16) -> Value:
        """A number of bytes that a copy can move."""
        if is_number(nbytes) and (nbytes <= 0 or nbytes % step):
            raise self.error(f"{what}: {nbytes!r} bytes, and a multiple of {step} is wanted")
        return nbytes
