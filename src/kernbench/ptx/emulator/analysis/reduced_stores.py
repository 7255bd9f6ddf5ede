"""Stores of the results of butterfly reductions, and the float types in which lanes rounded them.

In a butterfly (`shfl.sync.bfly`) each lane adds its own value and another's. If a product is fused with one of the
additions, the lanes round differently, and so do values computed from their sums: by units in the last place of the
coarsest type that a result had since. That type bounds how far lanes of one store may differ
(`checks.memory.rounding`). A value from memory is the same for all lanes that load it, and starts anew.
"""

from collections.abc import Iterator

from kernbench.ptx.emulator.instructions.decode import Body, Decoded
from kernbench.ptx.emulator.program.operands import Decoding
from kernbench.ptx.emulator.program.program import Reduced
from kernbench.ptx.text.types import TYPES

# from fine to coarse
FLOATS = ("f64", "f32", "tf32", "f16", "bf16", "e2m3", "e4m3", "e3m2", "e5m2")
_BIT = {kind: 1 << number for number, kind in enumerate(FLOATS)}
_ELEMENTS = (1 << len(FLOATS)) - 1
# bits of a register's state: the possible types of its elements; above them the types it was rounded to after a
# butterfly, and whether it depends on one
_ROUNDED = len(FLOATS)
_REDUCED = 1 << 2 * len(FLOATS)
_CONVERTS = ("convert", "convert and pack")


def reduced_stores(decoded: Decoded, body: Body) -> Iterator[tuple[int, Reduced]]:
    """The sites of stores in a compiled function that store results of a butterfly reduction, with their types."""
    if not decoded.compiler or not any(_is_butterfly(d) for d in body):
        return
    states = _states(body)
    for d in body:
        if d.effects.access == "store":
            state = 0
            for register in d.reads:
                if register not in d.address_reads:
                    state |= states.get(register.number, 0)
            found = _reduced(state)
            if found is not None:
                yield d.site.number, found


def _reduced(state: int) -> Reduced | None:
    """The meaning of a state, if it has elements of one type that depend on a butterfly."""
    elements = [kind for kind in FLOATS if state & _BIT[kind]]
    rounded = [kind for kind in FLOATS if state >> _ROUNDED & _BIT[kind]]
    return Reduced(elements[0], rounded[-1]) if state & _REDUCED and len(elements) == 1 and rounded else None


def _states(body: Body) -> dict[int, int]:
    """The state of each register, over all its definitions: computation propagates states."""
    transfers = list(_transfers(body))
    states: dict[int, int] = {}
    changed = True
    while changed:
        changed = False
        for read, written, made, result in transfers:
            state = made
            for number in read:
                state |= states.get(number, 0)
            if result >= 0:
                state = state & ~_ELEMENTS | result
                if state & _REDUCED:
                    state |= result << _ROUNDED
            for number in written:
                known = states.get(number, 0)
                if state & ~known:
                    states[number] = known | state
                    changed = True
    return states


def _transfers(body: Body) -> Iterator[tuple[list[int], list[int], int, int]]:
    """For each instruction: reads, writes, bits added to the state, and the result's type, -1 for none."""
    for d in body:
        if not d.writes or not (d.effects.computes or d.effects.exchanges) or d.types[0] == "pred":
            continue
        result = _BIT.get(_element(d), -1)
        if result < 0 and d.effects.law in _CONVERTS and _from_floats(d):
            # an integer: a neighbouring one is a different number
            result = 0
        made = _REDUCED if _is_butterfly(d) else 0
        yield [r.number for r in d.reads], [r.number for r in d.writes], made, result


def _is_butterfly(d: Decoding) -> bool:
    return d.effects.exchanges and d.mod("mode") == "bfly"


def _element(d: Decoding) -> str:
    """The type of an instruction's results, of one element if packed; small floats have a type of bits."""
    kind = d.mod("dtype") if d.effects.law in _CONVERTS else d.types[0]
    return TYPES[kind].lane or kind if kind in TYPES else ""


def _from_floats(d: Decoding) -> bool:
    return any((TYPES[kind].lane or kind) in _BIT for kind in d.types[1:])
