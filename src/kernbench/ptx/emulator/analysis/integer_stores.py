"""Stores of values that rounding cannot affect: computed from integer instructions, constants and parameters alone.

Compilers let lanes store one result that they have rounded differently (`checks.rounding`). Whether bits may be a float
depends on how they were computed: by a float instruction, or loaded from memory, which may hold anything. A loaded
value is an integer if some instruction uses it, or a copy of it, as one or as an address, and none uses it as a float.
A load whose value is only stored may be of floats.
"""

from functools import cache

from kernbench.ptx.emulator.instructions.decode import Body, Decoded
from kernbench.ptx.emulator.program.operands import Decoding

_FLOATS = ("f", "bf", "tf", "e", "ue")


def integer_stores(decoded: Decoded, body: Body) -> frozenset[int]:
    """The sites of stores in a function whose values rounding cannot affect."""
    if not decoded.compiler:
        return frozenset()
    rounded: set[int] = set()
    passing: list[tuple[list[int], list[int]]] = []
    stores: list[Decoding] = []
    integers = _integers(body)
    for d in body:
        if d.effects.access == "store":
            stores.append(d)
        elif d.writes and d.types[:1] != ("pred",):
            written = [r.number for r in d.writes]
            if _may_round(d):
                loaded = d.effects.access == "load"
                rounded.update(number for number in written if not (loaded and number in integers))
            else:
                passing.append(([r.number for r in d.reads], written))
    _pass_on(rounded, passing)
    return frozenset(store.site.number for store in stores if rounded.isdisjoint(_stored(store)))


def _stored(store: Decoding) -> set[int]:
    """The registers whose value is stored, or decides whether it is."""
    return {r.number for r in store.reads} - {r.number for r in store.address_reads}


def _may_round(d: Decoding) -> bool:
    """Whether an instruction's result may be a float that other lanes have rounded differently."""
    if d.effects.access == "load":
        return not d.parameter
    known = d.effects.computes or d.effects.exchanges
    return not known or _has_floats(d.types)


def _integers(body: Body) -> set[int]:
    """Registers that are used as integers and never as floats."""
    integers: set[int] = set()
    floats: set[int] = set()
    copies: list[set[int]] = []
    for d in body:
        integers.update(r.number for r in d.address_reads)
        if not d.effects.computes:
            continue
        if d.effects.law in ("copy", "select"):
            copies.append({number for kind, number in _values(d) if kind != "pred"})
        elif d.effects.arithmetic or _has_floats(d.types):
            values = _values(d)
            floats.update(number for kind, number in values if kind.startswith(_FLOATS))
            if d.effects.arithmetic:
                integers.update(number for kind, number in values if kind.startswith(("s", "u")))
    for found in (integers, floats):
        _alike(found, copies)
    return integers - floats


@cache
def _has_floats(types: tuple[str, ...]) -> bool:
    return any(kind.startswith(_FLOATS) for kind in types)


def _values(d: Decoding) -> list[tuple[str, int]]:
    """The numbers of an instruction's registers, each with the type it is used as."""
    if len(set(d.types)) == 1 and d.instruction.guard is None:
        # the common case of a single type: reads and writes need not be distinguished
        kind = d.types[0]
        return [(kind, r.number) for registers in (d.reads, d.writes) for r in registers]
    return [(d.types[i], r.number) for i in range(len(d.types)) for r in d.registers_of(i) if r is not None]


def _alike(found: set[int], copies: list[set[int]]) -> None:
    """Extend a set of registers by their copies."""
    known = -1
    while known != len(found):
        known = len(found)
        for copy in copies:
            if not found.isdisjoint(copy):
                found |= copy


def _pass_on(rounded: set[int], passing: list[tuple[list[int], list[int]]]) -> None:
    """Extend a set of registers by everything computed from them."""
    known = -1
    while known != len(rounded):
        known = len(rounded)
        for read, written in passing:
            if not rounded.isdisjoint(read):
                rounded.update(written)
