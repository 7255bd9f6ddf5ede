"""Undefined values on their way: whether a load has met one, and where those in registers come from."""

from typing import Any

from kernbench.ptx.emulator.program import Site


class Definedness:
    """What one batch knows of undefined values beside the rows that mark them."""

    def __init__(self) -> None:
        # set by a load that read local or tensor memory nobody wrote, until the step behind it has looked
        self.met = False
        # the warps that read such tensor memory
        self._empty: list[int] = []
        # lanes that divided by zero
        self._divided: list[int] = []
        # the load or division that the value of a register comes from, by the slot of the register's row of marks
        self.origins: dict[int, Site] = {}
        # the first place at which what a load brought was told, by the load
        self._told: dict[int, int] = {}

    def meet_empty(self, warps: list[int]) -> None:
        """Warps have loaded tensor memory that nobody wrote."""
        self.met = True
        self._empty += warps

    def take_empty(self) -> list[int]:
        """The warps whose load met such memory, until now."""
        found, self._empty, self.met = self._empty, [], False
        return found

    def meet_zero(self, lanes: list[int]) -> None:
        """Lanes are about to divide by zero."""
        self.met = True
        self._divided += lanes

    def take_divided(self) -> list[int]:
        """The lanes whose division had a divisor of zero, until now."""
        found, self._divided, self.met = self._divided, [], False
        return found

    def came_from(self, flags: int, site: Site) -> None:
        """A register was loaded, or is the result of a division."""
        self.origins[flags] = site

    def first_use(self, flags: int, site: Site) -> bool:
        """Whether a register's undefined value is told here: once for each load that brought such values."""
        origin = self.origins.get(flags)
        return origin is None or self._told.setdefault(origin.number, site.number) == site.number

    def pass_on(self, window: Any, sources: list[int], targets: list[int]) -> None:
        """Undefined values were computed from others."""
        origin = next((self.origins[s] for s in sources if s in self.origins and window.rows[s].any()), None)
        for target in targets:
            if origin is None:
                self.origins.pop(target, None)
            else:
                self.origins[target] = origin
