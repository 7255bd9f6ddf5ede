"""What lies in memory, as far as instructions show: the types of elements behind parameters and shared variables.

A load or store says a type itself, or moves bits; then those show it that compute with what was loaded, or computed
what is stored, as far as moves lead there. Where instructions differ, nothing is known.
"""

from collections.abc import Iterator

from kernbench.ptx.emulator.instructions.decode import Body
from kernbench.ptx.emulator.program.operands import Decoding
from kernbench.ptx.emulator.program.program import UNKNOWN, VARIABLE, Site
from kernbench.ptx.text.module import Name, Offset
from kernbench.ptx.text.types import TYPES

BARRIER = "b64"
# laws of instructions that move bits as they are, and of those that convert numbers
_MOVES = frozenset(("copy", "pack", "unpack", "select"))
_CONVERTS = frozenset(("convert", "convert and pack"))
_SAME = {"tf32": "f32"}


class _Bits:
    """What instructions of a function take registers for: those that read their bits later, or wrote them before."""

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
        """The types that some registers' bits are read as."""
        return _reached(registers, self._to, self._read)

    def before(self, registers: list[int]) -> set[str]:
        """The types that some registers' bits were written as."""
        return _reached(registers, self._from, self._written)


def _reached(registers: list[int], edges: dict[int, set[int]], types: dict[int, set[str]]) -> set[str]:
    seen, pending = set(registers), list(registers)
    while pending:
        more = edges.get(pending.pop(), set()) - seen
        seen |= more
        pending += more
    return set[str]().union(*(types.get(register, set()) for register in seen))


def _registers(decoding: Decoding, index: int) -> list[int]:
    """The numbers of an operand's registers; a predicate is no number."""
    return [r.number for r in decoding.registers_of(index) if r is not None and r.type != "pred"]


def _number(kind: str) -> str:
    """The element that a type is of; empty for bits."""
    if kind not in TYPES or TYPES[kind].kind in "bp":
        return ""
    element = TYPES[kind].lane or kind
    return _SAME.get(element, element)


def _agreed(kinds: set[str]) -> str:
    """The one type of several; whole numbers of one width are signed if one is. Empty where they differ."""
    whole = {kind for kind in kinds if TYPES[kind].kind in "us"}
    if whole == kinds and len({TYPES[kind].bits for kind in kinds}) == 1:
        kinds = {max(kinds, key=lambda kind: kind.startswith("s"))}
    return next(iter(kinds)) if len(kinds) == 1 else ""


def _computes(decoding: Decoding) -> bool:
    """Whether an instruction takes its operands for numbers; compilers move any bits as whole ones."""
    effects = decoding.effects
    if effects.law in _CONVERTS:
        return "f" in decoding.mod("dtype") + decoding.mod("atype")
    if effects.value:
        return decoding.mod("type").startswith("f")
    return effects.law not in _MOVES and not effects.bitwise


def _element(decoding: Decoding, bits: _Bits, sure: bool = False) -> str:
    """The type of the elements that an access moves; empty where that is not known, or not `sure`."""
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
    # what is loaded and widened is computed with as something else
    return "" if sure else _number(kind)


def shared_types(bodies: list[Body]) -> dict[int, str]:
    """The element type of shared variables, by where they begin; those of which it is known."""
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
    """For each register, the shared variables that its value may be an address in."""
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
    """Where the shared variables begin that an instruction names, as a value or in its address."""
    values = [o.base if isinstance(o, Offset) else o for o in decoding.operands]
    names = [decoding.address_symbol] if address else [value.text for value in values if isinstance(value, Name)]
    for name in filter(None, names):
        scope = decoding.scope.variable(name)
        start = decoding.linker.shared.get((id(scope[1]) if scope is not None else 0, name))
        if start is not None:
            yield start


def parameter_types(body: Body, origins: dict[int, set[str]]) -> dict[str, tuple[str, Site]]:
    """By parameter of a kernel the type of all elements that loads and stores reach through it, and one of these.

    Only parameters of which it is known for sure: each access that may come from it comes from it alone. `origins` are
    the address origins of the body.
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
