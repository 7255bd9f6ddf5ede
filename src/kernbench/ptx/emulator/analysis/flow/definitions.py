"""Reaching definitions: which instructions may have set the registers that an instruction reads.

Compilers set most registers once, and for those the definition is unique. Hand-written code reuses registers, and loops
change theirs: for these, sets of definitions (integers with one bit for each) are propagated along the control flow.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

from kernbench.ptx.emulator.instructions.decode import Body
from kernbench.ptx.emulator.program.operands import Decoding


@dataclass
class _Definitions:
    """The definitions of a function's registers."""

    # registers with a single definition: its site
    once: dict[int, int] = field(default_factory=dict)
    # other registers: the set of their definitions
    several: dict[int, int] = field(default_factory=dict)
    # the sites of these definitions by number, and their numbers by site and register
    sites: list[int] = field(default_factory=list)
    numbers: dict[tuple[int, int], int] = field(default_factory=dict)

    def after(self, d: Decoding, reaching: int) -> int:
        """The definitions that reach the end of an instruction, given those that reach its beginning."""
        for register in d.writes:
            every = self.several.get(register.number)
            if every is not None:
                kept = reaching if d.instruction.guard is not None else reaching & ~every
                reaching = kept | 1 << self.numbers[d.site.number, register.number]
        return reaching


def sources_of(body: Body) -> Iterator[tuple[Decoding, set[int]]]:
    """Each instruction, in text order, with the sites of the definitions that may reach its reads.

    A guarded instruction may leave registers unchanged, so their old values count as read.
    """
    found = _definitions(body)
    for reaching, decodings in zip(_at_begin(body, found), body.decodings, strict=True):
        for d in decodings:
            sources, chosen = set(), 0
            for register in (*d.reads, *(d.writes if d.instruction.guard is not None else ())):
                if register.number in found.once:
                    sources.add(found.once[register.number])
                else:
                    chosen |= found.several.get(register.number, 0)
            chosen &= reaching
            while chosen:
                last = chosen.bit_length() - 1
                sources.add(found.sites[last])
                chosen ^= 1 << last
            yield d, sources
            reaching = found.after(d, reaching)


def _definitions(body: Body) -> _Definitions:
    sites: dict[int, list[int]] = {}
    for d in body:
        for register in d.writes:
            sites.setdefault(register.number, []).append(d.site.number)
    found = _Definitions()
    for number, (first, *others) in sites.items():
        if not others:
            found.once[number] = first
            continue
        every = 0
        for site in (first, *others):
            found.numbers[site, number] = len(found.sites)
            every |= 1 << len(found.sites)
            found.sites.append(site)
        found.several[number] = every
    return found


def _at_begin(body: Body, found: _Definitions) -> list[int]:
    """The definitions that reach the beginning of each block."""
    every = (1 << len(found.sites)) - 1
    made, kept = [], []
    for decodings in body.decodings:
        none, all_ = 0, every
        for d in decodings:
            none, all_ = found.after(d, none), found.after(d, all_)
        # the block's own definitions reach its end in any case
        made.append(none)
        kept.append(all_)
    at_begin = [0] * len(made)
    waiting = dict.fromkeys(range(len(made)))
    while waiting:
        block = next(iter(waiting))
        del waiting[block]
        after = made[block] | at_begin[block] & kept[block]
        for following in body.edges[block]:
            if after & ~at_begin[following]:
                at_begin[following] |= after
                waiting[following] = None
    return at_begin
