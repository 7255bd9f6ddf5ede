"""Functions that do nothing but compute their results, as those of CUDA's mathematics that are not inlined.

They work on registers, parameters and variables of their own, read variables of the module, and call others like them.
Whether such a function is called may depend on an undefined value: nothing but its results does. Nor does anything else
depend on what it branches on: from such a branch on a lane has *strayed*, and all that it computes until it returns is
undefined, as are the results. Addresses may depend on the value then, too, if they are made of those of the function's
own variables and of the module's: it has looked at the value before. Whether the lanes that run stay inside is checked
as ever.
"""

from collections.abc import Collection, Mapping, Sequence
from collections.abc import Set as AnySet

from kernbench.ptx.emulator.analysis.flow.dataflow import origins_of
from kernbench.ptx.emulator.instructions.decode import Body, Decoded
from kernbench.ptx.emulator.lanes.slots import RegisterSlot, SymbolSlot
from kernbench.ptx.emulator.program.access_order import WEAK
from kernbench.ptx.emulator.program.facts import Pure
from kernbench.ptx.emulator.program.operands import Decoding
from kernbench.ptx.emulator.program.scopes import Register
from kernbench.ptx.text.walking import parts_of_call


def pure_functions(decoded: Decoded) -> dict[str, Pure]:
    """These functions, by name."""
    names = _names(decoded.bodies)
    return {body.code.name: _described(decoded, body) for body in decoded.bodies if body.code.name in names}


def _described(decoded: Decoded, body: Body) -> Pure:
    """A function of which all ends are returns, with what the checks need to say that its results are undefined."""
    if not _always_returns(body):
        return Pure()
    table, code = decoded.table, body.code
    outside = origins_of(body, _from_outside)
    own = (d.site.number for d in body if not any(outside.get(r.number) for r in d.address_reads))
    frames = [(one.size or 0, code.frame.get((code.scope, one.name))) for one in code.returns]
    results = [(table.number(SymbolSlot("frame", code.name, at)), size) for size, at in frames if at is not None]
    inside = [body.scope.register(one.name) for one in code.returns if one.name in code.formals]
    strayed = Register(-1, "", "pred", "bool", table.new_row("bool"))
    table.number(RegisterSlot(strayed.bank, strayed.row))
    return Pure(strayed, frozenset(own), tuple(results), tuple(one for one in inside if one is not None))


def _always_returns(body: Body) -> bool:
    """Whether all ends of a function are returns, and it is begun once."""
    reached = {0}.union(*body.edges)
    ends = (body.decodings[block] for block in reached if not body.edges[block])
    return all(d and d[-1].effects.flow == "return" for d in ends) and not any(0 in after for after in body.edges)


def _names(bodies: Sequence[Body]) -> frozenset[str]:
    found = {body.code.name for body in bodies if not body.entry}
    while True:
        left = {body.code.name for body in bodies if body.code.name in found and _only_computes(body, found)}
        if left == found:
            return frozenset(found)
        found = left


def _only_computes(body: Body, found: set[str]) -> bool:
    # most functions do something else soon
    if not all(_is_harmless(decoding, found) for decoding in body):
        return False
    own = [d for d in body if d.effects.access and d.mod("space") in ("", "local")]
    tables = [d for d in body if _reads_variable(d)]
    if not own and not tables:
        return True
    outside = origins_of(body, _from_outside)
    inside = not any(outside.get(r.number) for d in (*own, *tables) for r in d.address_reads)
    return inside and (bool(body.code.variables) or not own)


def _is_harmless(decoding: Decoding, found: set[str]) -> bool:
    effects = decoding.effects
    if effects.flow == "call":
        return calls_one_of(decoding, found)
    if effects.access in ("load", "store"):
        constant = effects.access == "load" and (decoding.has("nc") or decoding.mod("space") == "const")
        return (
            constant
            or _reads_variable(decoding)
            or decoding.mod("space") in ("", "local")
            or decoding.mod("space").startswith("param")
        )
    return effects.computes or effects.flow in ("branch", "return") or effects.idle == "nothing"


def _reads_variable(decoding: Decoding) -> bool:
    """Whether an instruction is an ordinary load from global memory, as nvcc -G reads tables of constants."""
    plain = decoding.effects.access == "load" and decoding.order == WEAK and not decoding.has("nc")
    return plain and decoding.mod("space") == "global"


def _from_outside(decoding: Decoding, sources: Mapping[int, AnySet[str]]) -> set[str]:
    """Whether a result may be an address that the function was given; numbers of less than 64 bits are none."""
    if not any(register.type.endswith("64") for register in decoding.writes):
        return set()
    if decoding.effects.access or decoding.effects.law == "pack" or not decoding.effects.forwards:
        return {"outside"}
    return set[str]().union(*(sources.get(register.number, set()) for register in decoding.reads))


def calls_one_of(decoding: Decoding, functions: Collection[str]) -> bool:
    """Whether an instruction calls one of some functions by name, always."""
    if decoding.effects.flow != "call" or decoding.instruction.guard is not None:
        return False
    return parts_of_call(decoding.operands)[0] in functions


def passes_values(decoding: Decoding, body: Body) -> bool:
    """Whether an instruction loads or stores a value of a call, and no parameter or result of its own function."""
    formals = {formal.name for formal in (*body.code.params, *body.code.returns)}
    own = decoding.mod("space").startswith("param") and decoding.address_space == "local"
    return own and bool(decoding.address_symbol) and decoding.address_symbol not in formals
