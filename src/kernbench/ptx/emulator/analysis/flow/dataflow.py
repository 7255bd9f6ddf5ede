"""Data flow over a function's registers: liveness, possibly undefined registers, and parameters in addresses.

Sets of registers are integers with one bit for each register.
"""

from collections.abc import Callable, Iterable, Mapping
from collections.abc import Set as AnySet
from typing import TypeVar

from kernbench.ptx.emulator.instructions.decode import Body
from kernbench.ptx.emulator.program.operands import Decoding
from kernbench.ptx.emulator.program.program import UNKNOWN, VARIABLE, WriteSite
from kernbench.ptx.emulator.program.scopes import Register
from kernbench.ptx.text.module import Kernel

Origin = TypeVar("Origin")


def bits(registers: Iterable[Register]) -> int:
    """A set of registers."""
    found = 0
    for register in registers:
        found |= 1 << register.number
    return found


def numbers_in(chosen: int) -> list[int]:
    """The numbers of the registers in a set, ascending."""
    return [number for number, bit in enumerate(reversed(f"{chosen:b}")) if bit == "1"]


def live_at_blocks(body: Body) -> list[int]:
    """The registers that are live at the beginning of each block."""
    uses, kills = [], []
    for decodings in body.decodings:
        used = killed = 0
        for decoding in decodings:
            used |= bits(decoding.reads) & ~killed
            if decoding.instruction.guard is None:
                killed |= bits(decoding.writes)
        uses.append(used)
        kills.append(killed)
    live = [0] * len(uses)
    changed = True
    while changed:
        changed = False
        for block in reversed(range(len(uses))):
            after = 0
            for following in body.edges[block]:
                after |= live[following]
            now = uses[block] | (after & ~kills[block])
            if now != live[block]:
                live[block], changed = now, True
    return live


def local_to_blocks(body: Body) -> int:
    """The registers that are dead at the beginning of every block: always set before use in the same block.

    Instructions that wait for other lanes (`.sync` operations, barriers) and asynchronous ones read and write registers
    later, when other lanes may have run the same block: their registers are excluded.
    """
    others = named = 0
    for decodings in body.decodings:
        set_here = 0
        for decoding in decodings:
            read, written = bits(decoding.reads), bits(decoding.writes)
            named |= read | written
            others |= read & ~set_here
            if decoding.effects.asynchronous or (decoding.effects.ends_block and not decoding.effects.steers):
                others |= read | written
            if decoding.instruction.guard is None:
                set_here |= written
    return named & ~others


def undefined_at(body: Body, defined_at_entry: int) -> list[list[int]]:
    """For each instruction of each block, the registers that may be undefined before it."""
    entering = [0] * len(body.decodings)
    entering[0] = ~defined_at_entry
    pending = [0]
    seen = {0}
    while pending:
        block = pending.pop()
        after = entering[block]
        for decoding in body.decodings[block]:
            after = _after(decoding, after)
        for following in body.edges[block]:
            joined = entering[following] | after
            if joined != entering[following] or following not in seen:
                entering[following] = joined
                seen.add(following)
                pending.append(following)
    return [_within(decodings, entering[block]) for block, decodings in enumerate(body.decodings)]


def _within(decodings: list[Decoding], undefined: int) -> list[int]:
    found = []
    for decoding in decodings:
        found.append(undefined)
        undefined = _after(decoding, undefined)
    return found


def _after(decoding: Decoding, undefined: int) -> int:
    written = bits(decoding.writes)
    if not written:
        return undefined
    if bits(decoding.passing()) & undefined:
        return undefined | written
    return undefined if decoding.instruction.guard is not None else undefined & ~written


def write_sites(bodies: list[Body], origins: list[dict[int, set[str]]]) -> list[WriteSite]:
    """Every instruction that writes memory, with the parameters and variables its address may come from.

    Values of less than 64 bits are no pointers; a pointer loaded from memory may be any. `origins` are the address
    origins of each body.
    """
    found = []
    for body, sources in zip(bodies, origins, strict=True):
        every = [d for decodings in body.decodings for d in decodings]
        loaded = origins_of(body, _loaded) if any(d.by_map for d in every) else {}
        for decoding in every:
            if not decoding.effects.writes or not decoding.store_space:
                continue
            origin: set[str] = set().union(*(sources.get(r.number, set()) for r in decoding.address_reads))
            if not origin:
                origin = {decoding.address_symbol or UNKNOWN}
            if decoding.by_map and not _is_parameter(decoding, loaded, origin):
                origin = {UNKNOWN}
            found.append(WriteSite(decoding.site, decoding.store_space, frozenset(origin)))
    return found


def _is_parameter(decoding: Decoding, loaded: Mapping[int, AnySet[str]], origin: AnySet[str]) -> bool:
    """Whether an address is that of a parameter: a tensor map there describes a known tensor, one in memory any."""
    return not origin & {UNKNOWN, VARIABLE} and not any(loaded.get(r.number) for r in decoding.address_reads)


def _loaded(decoding: Decoding, sources: Mapping[int, AnySet[str]]) -> set[str]:
    """The load instructions that a value depends on, loads of parameters included."""
    if decoding.effects.access == "load":
        return {decoding.instruction.name}
    return set[str]().union(*(sources.get(register.number, set()) for register in decoding.reads))


def written_parameters(sites: list[WriteSite], kernel: Kernel) -> frozenset[str] | None:
    """The kernel parameters through which memory may be written; None if unknown."""
    origins = frozenset[str]().union(*(p.origins for p in sites if p.space in ("global", "generic")))
    return None if UNKNOWN in origins else origins & {p.name for p in kernel.params}


def address_origins(body: Body) -> dict[int, set[str]]:
    """For each register, the parameters that its value may be a pointer from."""
    return origins_of(body, _origin)


def origins_of(
    body: Body, origin_of: Callable[[Decoding, Mapping[int, AnySet[Origin]]], AnySet[Origin]]
) -> dict[int, set[Origin]]:
    """For each register, the union of `origin_of` over the instructions that write it, as a fixpoint.

    `origin_of` gets the instruction, and the origins so far of the registers that it reads.
    """
    sources: dict[int, set[Origin]] = {}
    decodings = [d for decodings in body.decodings for d in decodings if d.writes]
    changed = True
    while changed:
        changed = False
        for decoding in decodings:
            origin = origin_of(decoding, sources)
            for register in decoding.writes:
                known = sources.setdefault(register.number, set())
                if not origin <= known:
                    known |= origin
                    changed = True
    return sources


def _origin(decoding: Decoding, sources: Mapping[int, AnySet[str]]) -> set[str]:
    effects = decoding.effects
    if effects.access == "load":
        if not any(register.type[-2:] in ("64", "28") for register in decoding.writes):
            return set()
        return {decoding.parameter} if decoding.parameter else {UNKNOWN}
    if not effects.forwards or (effects.law == "pack" and any(r.type.endswith("64") for r in decoding.writes)):
        return {UNKNOWN}
    origin: set[str] = {VARIABLE} if decoding.names_variable else set()
    if decoding.parameter:
        origin.add(decoding.parameter)
    for register in decoding.reads:
        origin |= sources.get(register.number, set())
    return origin
