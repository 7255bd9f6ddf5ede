"""Stores that run only when an atomic has returned its old value, as of the last block that clears what all have used.

A thread adds to a counter, branches on what the atomic returns, and stores. No compiler stores before it knows that the
store is to run, and no GPU does: so the atomic is performed before the store, though nothing acquires. A thread may
also pass on what the atomic returned, by a store, or branch on it before it comes to a barrier: then the atomic is
performed before whatever a thread does behind that barrier.
"""

from collections.abc import Iterator

from kernbench.ptx.emulator.analysis.exchanged import decided_blocks, made_of
from kernbench.ptx.emulator.instructions.decode import Body
from kernbench.ptx.emulator.program.operands import Decoding

# more atomics than these are not looked at
_MOST = 64


def decided_stores(body: Body) -> Iterator[tuple[int, frozenset[int]]]:
    """Sites of stores, each with the sites of the atomics whose values decide what is stored, or whether it is."""
    atomics = _atomics(body)
    stores = [(block, d) for block, d in _every(body) if d.effects.access == "store"] if atomics else []
    given = made_of(body, [d for _, d in atomics]) if stores else {}
    blocks, decided = {block for block, _ in stores}, dict[int, frozenset[int]]()
    for number, (before, _) in enumerate(atomics):
        decided[number] = decided_blocks(body, given, blocks, before, 1 << number)
    for block, store in stores:
        made = given.get(store.site.number, 0)
        found = (n for n in decided if made >> n & 1 or block in decided[n])
        if sites := frozenset(atomics[number][1].site.number for number in found):
            yield store.site.number, sites


def returned_atomics(body: Body) -> Iterator[int]:
    """Sites of atomics whose values are stored or branched on before the next barrier, on every path."""
    atomics = _atomics(body)
    given = made_of(body, [d for _, d in atomics]) if atomics else {}
    for number, (block, atomic) in enumerate(atomics):
        if _is_waited_for(body, block, atomic, {site for site, made in given.items() if made >> number & 1}):
            yield atomic.site.number


def _every(body: Body) -> Iterator[tuple[int, Decoding]]:
    return ((block, d) for block, decodings in enumerate(body.decodings) for d in decodings)


def _atomics(body: Body) -> list[tuple[int, Decoding]]:
    """Updates of memory whose old value is returned, with their blocks."""
    found = [(block, d) for block, d in _every(body) if d.effects.updates and d.writes]
    return found if len(found) <= _MOST else []


def _is_waited_for(body: Body, block: int, atomic: Decoding, made: set[int]) -> bool:
    """Whether every path from an atomic comes to an instruction of `made` that needs its value before any barrier."""
    decodings = body.decodings[block]
    seen, waiting = set[int](), [(block, decodings[decodings.index(atomic) + 1 :])]
    while waiting:
        here, rest = waiting.pop()
        ended = _comes_to_use(rest, made)
        if ended is False:
            return False
        if ended is None:
            following = [one for one in body.edges[here] if one not in seen]
            seen.update(following)
            waiting += [(one, body.decodings[one]) for one in following]
    return True


def _comes_to_use(decodings: list[Decoding], made: set[int]) -> bool | None:
    """Whether instructions need a value before they meet others; None if they do neither."""
    for d in decodings:
        if d.site.number in made and (d.effects.access == "store" or d.effects.steers):
            return True
        if d.effects.barrier or d.effects.flow == "call":
            return False
    return None
