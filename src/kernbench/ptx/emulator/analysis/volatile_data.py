"""Volatile loads of data from shared memory, in kernels that do not use flags.

Volatile accesses are strong, and a program may use them as flags: then reading early or late is intended. But if the
value flows into stores, and decides nothing, it is data, which needs a barrier to be there in time.
"""

from collections.abc import Mapping
from collections.abc import Set as AnySet

from kernbench.ptx.emulator.analysis.flow.dataflow import origins_of
from kernbench.ptx.emulator.instructions.decode import Body, Decoded
from kernbench.ptx.emulator.memory.port import space_of
from kernbench.ptx.emulator.program.operands import Decoding

Sources = Mapping[int, AnySet[int]]
_NOTHING: frozenset[int] = frozenset()


def volatile_data(decoded: Decoded) -> frozenset[int]:
    """Their sites; none if the result of any strong load or atomic may decide something."""
    found = set[int]()
    for body in decoded.bodies:
        if not any(_is_looked_at(d) for d in body):
            continue
        sources = origins_of(body, _origin)
        if any(_decides(d, sources) for d in body):
            return _NOTHING
        found |= _stored(body, sources)
    loads = {d.site.number for body in decoded.bodies for d in body if _takes_data(d)}
    return frozenset(found & loads)


def has_flags(decoded: Decoded) -> bool:
    """Whether a thread may see by a strong read what another has written by a strong write or an atomic."""
    every = [d for body in decoded.bodies for d in body]
    return any(map(_is_looked_at, every)) and any(map(_is_shown, every))


def _is_shown(d: Decoding) -> bool:
    """Whether it writes what others may look at concurrently: a strong store, or an atomic."""
    return d.effects.updates or (d.effects.access == "store" and d.mod("sem") not in ("", "weak"))


def _takes_data(d: Decoding) -> bool:
    """Whether it is a volatile load of shared memory, whose value is data if it decides nothing."""
    return d.effects.access == "load" and d.mod("sem") == "volatile" and space_of(d.mod("space")) == "shared"


def _is_looked_at(d: Decoding) -> bool:
    """Whether it reads what others may write concurrently: a strong load of any memory, or an atomic."""
    strong = d.effects.access == "load" and d.mod("sem") not in ("", "weak")
    return strong or (d.effects.updates and bool(d.writes))


def _origin(d: Decoding, sources: Sources) -> frozenset[int]:
    """The strong loads and atomics that a result depends on, including those of other lanes' values."""
    if _is_looked_at(d):
        return frozenset((d.site.number,))
    return _NOTHING if d.effects.access == "load" else _made_of(d, sources)


def _made_of(d: Decoding, sources: Sources) -> frozenset[int]:
    return _NOTHING.union(*(sources.get(register.number, _NOTHING) for register in d.reads))


def _decides(d: Decoding, sources: Sources) -> bool:
    """Whether a value of a strong load or an atomic decides something.

    Control flow, an address, a call or an atomic.
    """
    addresses = any(sources.get(register.number) for register in d.address_reads)
    predicates = any(register.type == "pred" for register in d.writes)
    passed = d.effects.updates or (
        d.effects.access == "store" and space_of(d.address_space or d.mod("space")) == "local"
    )
    return addresses or ((predicates or passed or d.effects.flow != "") and bool(_made_of(d, sources)))


def _stored(body: Body, sources: Sources) -> frozenset[int]:
    """What the stored values depend on."""
    return _NOTHING.union(*(_made_of(d, sources) for d in body if d.effects.access == "store"))
