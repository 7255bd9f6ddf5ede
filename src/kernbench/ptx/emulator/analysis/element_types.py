"""Element types of memory, as far as instructions show them: behind parameters and in shared variables.

A load or store has a type, or only moves bits. In the latter case the instructions show it that compute with the loaded
value, or computed the stored one, following moves. If instructions disagree, the type is unknown.
"""

from collections.abc import Iterator

from kernbench.ptx.emulator.instructions.decode import Body
from kernbench.ptx.emulator.program.operands import Decoding
from kernbench.ptx.emulator.program.program import UNKNOWN, VARIABLE, Site
from kernbench.ptx.text.module import Name, Offset
from kernbench.ptx.text.types import TYPES

BARRIER = "b64"
# laws of instructions that move bits unchanged, and of those that convert numbers
_MOVES = frozenset(("copy", "pack", "unpack", "select"))
_CONVERTS = frozenset(("convert", "convert and pack"))
_SAME = {"tf32": "f32"}


class _Bits:
    """The types that a function's instructions use registers as: later reads, and earlier writes."""

    def __init__(self, body: Body):
        self._read: dict[int, set[str]] = {}
        self._written: dict[int, set[str]] = {}
        self._to: dict[int, set[int]] = {}
        self._from: dict[int, set[int]] = {}
        for decoding in (d for decodings in body.decodings for d in decodings):
            if decoding.effects.law in _MOVES:
                self._move(decoding)
            elif _computes(decoding):
                self._note(decoding)

    def _move(self, decoding: Decoding) -> None:
        sources = [r for index in range(1, min(3, len(decoding.operands))) for r in _registers(decoding, index)]
        for target in _registers(decoding, 0):
            self._from.setdefault(target, set()).update(sources)
            for source in sources:
                self._to.setdefault(source, set()).add(target)

    def _note(self, decoding: Decoding) -> None:
        for index, (rule, kind) in enumerate(zip(decoding.resolved.rules, decoding.types, strict=True)):
            known = _number(kind)
            for register in _registers(decoding, index) if known else ():
                for letter, found in (("a", self._read), ("d", self._written)):
                    if letter in rule.role:
                        found.setdefault(register, set()).add(known)

    def later(self, registers: list[int]) -> set[str]:
        """The types as which the bits of registers are read later."""
        return _reached(registers, self._to, self._read)

    def before(self, registers: list[int]) -> set[str]:
        """The types as which the bits of registers were written."""
        return _reached(registers, self._from, self._written)


def _reached(registers: list[int], edges: dict[int, set[int]], types: dict[int, set[str]]) -> set[str]:
    seen, pending = set(registers), list(registers)
    while pending:
        more = edges.get(pending.pop(), set()) - seen
        seen |= more
        pending += more
    return set[str]().union(*(types.get(register, set()) for register in seen))


def _registers(decoding: Decoding, index: int) -> list[int]:
    """The numbers of an operand's registers, without predicates."""
    return [r.number for r in decoding.registers_of(index) if r is not None and r.type != "pred"]


def _number(kind: str) -> str:
    """The element type of a type; "" for bits."""
    if kind not in TYPES or TYPES[kind].kind in "bp":
        return ""
    element = TYPES[kind].lane or kind
    return _SAME.get(element, element)


def _agreed(kinds: set[str]) -> str:
    """The single type of several; integers of one width count as signed if one is. "" if they differ."""
    whole = {kind for kind in kinds if TYPES[kind].kind in "us"}
    if whole == kinds and len({TYPES[kind].bits for kind in kinds}) == 1:
        kinds = {max(kinds, key=lambda kind: kind.startswith("s"))}
    return next(iter(kinds)) if len(kinds) == 1 else ""


def _computes(decoding: Decoding) -> bool:
    """Whether an instruction treats its operands as numbers; compilers move any bits with integer types."""
    effects = decoding.effects
    if effects.law in _CONVERTS:
        return "f" in decoding.mod("dtype") + decoding.mod("atype")
    if effects.value:
        return decoding.mod("type").startswith("f")
    return effects.law not in _MOVES and not effects.bitwise


def _element(decoding: Decoding, bits: _Bits, sure: bool = False) -> str:
    """The element type that an access moves; "" if unknown, or not `sure`."""
    if decoding.effects.acts_on == "mbarrier":
        return BARRIER
    kind = decoding.mod("type")
    if not decoding.effects.value or kind not in TYPES:
        return ""
    if TYPES[kind].kind == "f":
        return _number(kind)
    position = decoding.position(decoding.effects.value)
    registers = _registers(decoding, position) if position is not None else []
    used = bits.later(registers) if decoding.effects.access == "load" else bits.before(registers)
    narrow = {other for other in used if TYPES[other].bits <= TYPES[kind].bits}
    if narrow:
        return _agreed(narrow)
    # a loaded and widened value is computed with in another type
    return "" if sure else _number(kind)


def shared_types(bodies: list[Body]) -> dict[int, str]:
    """The element types of shared variables, by offset, as far as known."""
    found: dict[int, set[str]] = {}
    for body in bodies:
        bits, origins = _Bits(body), _shared_origins(body)
        for decoding in (d for decodings in body.decodings for d in decodings):
            known = set(_named(decoding, address=True))
            starts = known.union(*(origins.get(register.number, set()) for register in decoding.address_reads))
            kind = _element(decoding, bits) if len(starts) == 1 else ""
            if kind:
                found.setdefault(min(starts), set()).add(kind)
    return {start: kind for start, kinds in found.items() if (kind := _agreed(kinds))}


def _shared_origins(body: Body) -> dict[int, set[int]]:
    """For each register, the shared variables that its value may point into."""
    sources: dict[int, set[int]] = {}
    decodings = [d for decodings in body.decodings for d in decodings if d.writes and not d.effects.reads]
    changed = True
    while changed:
        changed = False
        for decoding in decodings:
            origin = set(_named(decoding)).union(*(sources.get(r.number, set()) for r in decoding.reads))
            for register in decoding.writes:
                known = sources.setdefault(register.number, set())
                changed |= not origin <= known
                known |= origin
    return sources


def _named(decoding: Decoding, address: bool = False) -> Iterator[int]:
    """Offsets of the shared variables that an instruction names, as a value or in its address."""
    values = [o.base if isinstance(o, Offset) else o for o in decoding.operands]
    names = [decoding.address_symbol] if address else [value.text for value in values if isinstance(value, Name)]
    for name in filter(None, names):
        scope = decoding.scope.variable(name)
        start = decoding.linker.shared.get((id(scope[1]) if scope is not None else 0, name))
        if start is not None:
            yield start


def parameter_types(body: Body, origins: dict[int, set[str]]) -> dict[str, tuple[str, Site]]:
    """For each kernel parameter: the type of all elements accessed through it, and one of these accesses.

    Only parameters whose type is certain: each access that may come from one comes from it alone. `origins` are the
    address origins of the body.
    """
    bits = _Bits(body)
    found: dict[str, set[str]] = {}
    sites: dict[str, Site] = {}
    for decoding in (d for decodings in body.decodings for d in decodings if d.effects.value):
        sources = set[str]().union(*(origins.get(register.number, set()) for register in decoding.address_reads))
        kind = _element(decoding, bits, sure=True) if len(sources) == 1 else ""
        for name in sources:
            found.setdefault(name, set()).add(kind)
            sites.setdefault(name, decoding.site)
    known = {name for name, kinds in found.items() if "" not in kinds and name not in (UNKNOWN, VARIABLE)}
    return {name: (kind, sites[name]) for name in found if name in known and (kind := _agreed(found[name]))}
