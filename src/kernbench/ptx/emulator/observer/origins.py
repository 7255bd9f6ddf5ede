"""Where undefined values come from."""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from kernbench.ptx.emulator.program.program import Site

# kind of origin: threads have stored different values in one instruction
CONTESTED = "contested"
# kind of origin: a variable in local memory, of which other lanes may have got the value
VARIABLE = "variable"
# kinds of origin that are tracked through shuffles and products
FOLLOWED = frozenset(("shared", "global", "register", VARIABLE))
# maximal other origins of a product
_MOST_BESIDE = 4
_SEVERAL = 2


@dataclass(frozen=True, slots=True)
class Origin:
    """The origin of an undefined value.

    `kind` is the space of a load ("local", "shared", "global", "tensor"), "division", "register" for a store of a
    register that was never set, `VARIABLE` for a load of local memory whose value other lanes may have got since, or
    `CONTESTED` for a store by which threads stored different values. `what` names the memory or the register, `way`
    the stores that it went through since; `shuffles` are those that passed it to other lanes. A product of several
    such values has them `beside` the first.
    """

    site: Site
    kind: str
    what: str = ""
    way: tuple[Site, ...] = ()
    shuffles: tuple[Site, ...] = ()
    beside: tuple[Site, ...] = ()


def shared_with_others(origin: Origin) -> Origin:
    """The origin of a value that other lanes may get from now on."""
    return replace(origin, kind=VARIABLE) if origin.kind == "local" else origin


def product_of(origins: Iterable[Origin | None]) -> Origin | None:
    """The origin of a product of undefined values, any of which may make an element of it undefined."""
    found = list({one.site.number: one for one in origins if one is not None}.values())
    if len(found) < _SEVERAL:
        return found[0] if found else None
    return replace(found[0], beside=tuple(one.site for one in found[1 : 1 + _MOST_BESIDE]))


def is_followed(origin: Origin | None) -> bool:
    """Whether an undefined value is tracked through shuffles and products; registers that were never set are not."""
    return origin is not None and origin.kind in FOLLOWED
