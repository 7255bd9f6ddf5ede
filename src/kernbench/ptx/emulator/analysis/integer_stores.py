"""Stores whose value no rounding can have touched: it comes from integer instructions, numbers and parameters alone.

Compilers let lanes store one result that they have rounded differently (`checks.rounding`). Whether bits are those of a
float shows in how they were made: through an instruction for floats, or through memory, where anything may have been.
"""

from kernbench.ptx.emulator.instructions.decode import Body, Decoded
from kernbench.ptx.emulator.program.operands import Decoding

_FLOATS = ("f", "bf", "tf", "e", "ue")


def integer_stores(decoded: Decoded, body: Body) -> frozenset[int]:
    """The sites of such stores in a function."""
    if not decoded.compiler:
        return frozenset()
    rounded: set[int] = set()
    passing: list[tuple[list[int], list[int]]] = []
    stores: list[Decoding] = []
    for d in body:
        if d.effects.access == "store":
            stores.append(d)
        elif d.writes and d.types[:1] != ("pred",):
            written = [r.number for r in d.writes]
            if _may_round(d):
                rounded.update(written)
            else:
                passing.append(([r.number for r in d.reads], written))
    _pass_on(rounded, passing)
    return frozenset(store.site.number for store in stores if rounded.isdisjoint(_stored(store)))


def _stored(store: Decoding) -> set[int]:
    """The registers whose value is stored, or decides that it is."""
    return {r.number for r in store.reads} - {r.number for r in store.address_reads}


def _may_round(d: Decoding) -> bool:
    """Whether what an instruction gives may be a float that other lanes have rounded differently."""
    if d.effects.access == "load":
        return not d.parameter
    known = d.effects.computes or d.effects.exchanges
    return not known or any(kind.startswith(_FLOATS) for kind in d.types)


def _pass_on(rounded: set[int], passing: list[tuple[list[int], list[int]]]) -> None:
    """Whatever is computed from such a value is one."""
    known = -1
    while known != len(rounded):
        known = len(rounded)
        for read, written in passing:
            if not rounded.isdisjoint(read):
                rounded.update(written)
