"""Source lines by `.loc`: of a function that was inlined, the line of the kernel's own file that led to it."""

from dataclasses import dataclass, field

from kernbench.ptx.module import Loc

# functions inlined into each other that are followed
_DEEPEST = 64


@dataclass(frozen=True, slots=True)
class Origin:
    """Where instructions come from: the very line, and the last line of the function's own file on the way there."""

    inner: Loc
    own: Loc


@dataclass(eq=False)
class Locations:
    """The `.loc` lines of one function as they come: those of callers stand before those of what they inline."""

    _chains: dict[tuple[int, int, int], tuple[Loc, ...]] = field(default_factory=dict)

    def at(self, loc: Loc) -> Origin:
        """What follows a `.loc` line comes from here."""
        chain = (loc, *self._callers(loc))[:_DEEPEST]
        self._chains[loc.file, loc.source_line, loc.source_column] = chain
        return Origin(loc, next(one for one in chain if one.file == chain[-1].file))

    def _callers(self, loc: Loc) -> tuple[Loc, ...]:
        caller = loc.inlined_at
        return () if caller is None else self._chains.get(caller, (Loc(*caller),))
