"""Stores of what a butterfly reduction gave, and the types of floats in which its lanes rounded on the way.

In a butterfly (`shfl.sync.bfly`) each lane adds its own value and another's. Where a product is fused with one of the
additions the lanes round differently, and all that is computed from their sums differs likewise: by units of the last
place of the coarsest type that a result had since. How far lanes of one store may lie apart follows from that type
(`checks.memory.rounding`). What comes from memory is one value for all that load it, and begins anew.
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
# bits of a register's state: the types that its elements may have; above them those in which it was rounded behind a
# butterfly, and whether it comes from one
_ROUNDED = len(FLOATS)
_REDUCED = 1 << 2 * len(FLOATS)
_CONVERTS = ("convert", "convert and pack")


def reduced_stores(decoded: Decoded, body: Body) -> Iterator[tuple[int, Reduced]]:
    """The sites of such stores in a function of a compiler's, with what they store."""
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
    """What a state says, if it is of elements of one type that come from a butterfly."""
    elements = [kind for kind in FLOATS if state & _BIT[kind]]
    rounded = [kind for kind in FLOATS if state >> _ROUNDED & _BIT[kind]]
    return Reduced(elements[0], rounded[-1]) if state & _REDUCED and len(elements) == 1 and rounded else None


def _states(body: Body) -> dict[int, int]:
    """What is known of each register, wherever it is set: whatever is computed from a value hands its state on."""
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
    """Of each instruction what it reads and writes, what it adds to a state, and its results' type, -1 for none."""
    for d in body:
        if not d.writes or not (d.effects.computes or d.effects.exchanges) or d.types[0] == "pred":
            continue
        result = _BIT.get(_element(d), -1)
        if result < 0 and d.effects.law in _CONVERTS and _from_floats(d):
            # a whole number: one beside it is another number
            result = 0
        made = _REDUCED if _is_butterfly(d) else 0
        yield [r.number for r in d.reads], [r.number for r in d.writes], made, result


def _is_butterfly(d: Decoding) -> bool:
    return d.effects.exchanges and d.mod("mode") == "bfly"


def _element(d: Decoding) -> str:
    """The type of an instruction's results, of one element where it packs them; small floats come as bits."""
    kind = d.mod("dtype") if d.effects.law in _CONVERTS else d.types[0]
    return TYPES[kind].lane or kind if kind in TYPES else ""


def _from_floats(d: Decoding) -> bool:
    return any((TYPES[kind].lane or kind) in _BIT for kind in d.types[1:])
