"""Functions that do nothing but compute their results, as those of CUDA's mathematics that are not inlined.

They work on registers, parameters and variables of their own, read constants, and call others like them. Whether such a
function is called may depend on an undefined value: nothing but its results does.
"""

from collections.abc import Mapping, Sequence
from collections.abc import Set as AnySet

from kernbench.ptx.emulator.analysis.flow.dataflow import origins_of
from kernbench.ptx.emulator.instructions.decode import Body
from kernbench.ptx.emulator.program.operands import Decoding
from kernbench.ptx.text.walking import parts_of_call


def pure_functions(bodies: Sequence[Body]) -> frozenset[str]:
    """The names of these functions."""
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
    if not own:
        return True
    outside = origins_of(body, _from_outside)
    return bool(body.code.variables) and not any(outside.get(r.number) for d in own for r in d.address_reads)


def _is_harmless(decoding: Decoding, found: set[str]) -> bool:
    effects = decoding.effects
    if effects.flow == "call":
        return calls_one_of(decoding, found)
    if effects.access in ("load", "store"):
        constant = effects.access == "load" and (decoding.has("nc") or decoding.mod("space") == "const")
        return constant or decoding.mod("space") in ("", "local") or decoding.mod("space").startswith("param")
    return effects.computes or effects.flow in ("branch", "return") or effects.idle == "nothing"


def _from_outside(decoding: Decoding, sources: Mapping[int, AnySet[str]]) -> set[str]:
    """Whether a result may be an address that the function was given; numbers of less than 64 bits are none."""
    if not any(register.type.endswith("64") for register in decoding.writes):
        return set()
    if decoding.effects.access or decoding.effects.law == "pack" or not decoding.effects.forwards:
        return {"outside"}
    return set[str]().union(*(sources.get(register.number, set()) for register in decoding.reads))


def calls_one_of(decoding: Decoding, functions: "frozenset[str] | set[str]") -> bool:
    """Whether an instruction calls one of some functions by name, always."""
    if decoding.effects.flow != "call" or decoding.instruction.guard is not None:
        return False
    return parts_of_call(decoding.operands)[0] in functions


def passes_values(decoding: Decoding, body: Body) -> bool:
    """Whether an instruction loads or stores a value of a call, and no parameter or result of its own function."""
    formals = {formal.name for formal in (*body.code.params, *body.code.returns)}
    own = decoding.mod("space").startswith("param") and decoding.address_space == "local"
    return own and bool(decoding.address_symbol) and decoding.address_symbol not in formals
