"""Neighbour installation: the rank in each direction of a rank. In hardware these are special function registers.

A wiring is {rank: {direction: rank}}. A send in a direction arrives at the neighbour from the opposite one, so a
wiring must be consistent: if b is E of a, then a is W of b.
"""

from collections.abc import Callable, Mapping

from kernbench.common.errors import MisuseError, unknown
from kernbench.common.ipcq_types import DIRECTIONS, OPPOSITE
from kernbench.machine.grid import Grid

Wiring = dict[int, dict[str, int]]


def line(ranks: int, grid: Grid) -> Wiring:
    """An open line by rank: E is the next, W the previous; the ends have no outward neighbour."""
    wiring: Wiring = {r: {} for r in range(ranks)}
    for r in range(ranks - 1):
        wiring[r]["E"] = r + 1
        wiring[r + 1]["W"] = r
    return wiring


def ring(ranks: int, grid: Grid) -> Wiring:
    """A line closed by the wrap link from the last rank to the first; a ring of one leads back to the same rank."""
    wiring = line(ranks, grid)
    wiring[ranks - 1]["E"] = 0
    wiring[0]["W"] = ranks - 1
    return wiring


def grid(ranks: int, grid: Grid) -> Wiring:
    """N, S, E and W as the ranks are arranged on the machine's grid; ranks that are not launched are not neighbours."""
    wiring: Wiring = {}
    for r in range(ranks):
        around = {d: grid.neighbour(r, d) for d in DIRECTIONS}
        wiring[r] = {d: n for d, n in around.items() if n is not None and n < ranks}
    return wiring


def cycle_order(ranks: int, grid: Grid) -> list[int] | None:
    """The ranks along a cycle over links of the grid; None if they do not fill rows that have one."""
    if ranks % grid.columns or ranks > grid.size:
        return None
    return Grid(ranks // grid.columns, grid.columns).cycle()


def cycle(ranks: int, grid: Grid) -> Wiring:
    """E and W along a cycle over the grid's own links: a ring that needs no wrap link."""
    order = cycle_order(ranks, grid)
    if order is None:
        raise MisuseError(
            f"{ranks} ranks on a {grid} grid have no closed walk over its links: they must fill two or more whole rows "
            "of two or more, an even number in all; use install='line'"
        )
    wiring: Wiring = {r: {} for r in range(ranks)}
    for here, onward in zip(order, order[1:] + order[:1], strict=True):
        wiring[here]["E"] = onward
        wiring[onward]["W"] = here
    return wiring


INSTALLS: dict[str, Callable[[int, Grid], Wiring]] = {"line": line, "ring": ring, "grid": grid, "cycle": cycle}


def inside(kind: str, pes: Grid, between: Wiring) -> tuple[Wiring, list[int]]:
    """The PEs of a cube wired to each other, S to the next and N to the one before, and their order along that wire.

    `kind` is "line" (by PE id) or "cycle" (over the cube's links, in both directions from PE 0). The queues
    between the cubes, `between`, belong to PE 0, so they must leave N and S free.
    """
    order = {"line": list(range(pes.size)), "cycle": pes.cycle()}.get(kind, [])
    if order == []:
        raise MisuseError(unknown("inside", kind, ("line", "cycle")))
    if order is None:
        raise MisuseError(f"the {pes} PEs of a cube have no closed walk over their links: use inside='line'")
    taken = {direction for around in between.values() for direction in around}
    if taken & {"N", "S"}:
        raise MisuseError("inside wires the PEs of a cube N and S, which the cubes use: install a line, ring or cycle")
    wiring: Wiring = {pe: {} for pe in order}
    onward = order[1:] + (order[:1] if kind == "cycle" else [])
    for here, following in zip(order, onward, strict=False):
        wiring[here]["S"] = following
        wiring[following]["N"] = here
    return wiring, order


def install(kind: str | Mapping[int, Mapping[str, int]], ranks: int, machine_grid: Grid) -> Wiring:
    """The wiring of a name, or the given one, checked."""
    if isinstance(kind, str):
        if kind not in INSTALLS:
            raise MisuseError(unknown("install", kind, INSTALLS))
        return INSTALLS[kind](ranks, machine_grid)
    if not isinstance(kind, Mapping) or not all(isinstance(around, Mapping) for around in kind.values()):
        raise MisuseError(f"install {kind!r}: it is one of {', '.join(INSTALLS)}, or {{rank: {{direction: rank}}}}")
    strangers = [r for r in kind if r not in range(ranks)]
    if strangers:
        raise MisuseError(f"wiring: {strangers[0]!r} is no rank; they are 0 to {ranks - 1}")
    wiring = {r: dict(kind.get(r, {})) for r in range(ranks)}
    for rank, around in wiring.items():
        for direction, other in around.items():
            if direction not in OPPOSITE or other not in wiring:
                raise MisuseError(
                    f"wiring: rank {rank} has {direction!r}: {other!r}; directions: {DIRECTIONS}, ranks: 0-{ranks - 1}"
                )
            if wiring[other].get(OPPOSITE[direction]) != rank:
                raise MisuseError(
                    f"wiring: rank {other} lies {direction} of rank {rank}, so rank {rank} must lie "
                    f"{OPPOSITE[direction]} of rank {other}"
                )
    return wiring
