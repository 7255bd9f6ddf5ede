"""Which PTX register holds a value of which type, and which type a memory access of it has.

A register's own type is what the builder checks; PTX needs to know only its width and whether it is a float, as
compilers declare them.
"""

from kernbench.common.errors import unknown
from kernbench.ptx.builder.values.errors import PtxBuildError
from kernbench.ptx.text.types import TYPES, ScalarType

__kernbench_internal__ = True

# declared type -> prefix of its registers, in the order of their declaration
PREFIXES = {
    "pred": "%p",
    "b8": "%rb",
    "b16": "%rs",
    "b32": "%r",
    "b64": "%rd",
    "b128": "%rq",
    "f32": "%f",
    "f64": "%fd",
}
# types of memory that PTX's loads and stores name; all others go as bits
_LOADED = frozenset(("f32", "f64", *(f"{kind}{bits}" for kind in "bus" for bits in (8, 16, 32, 64))))


def scalar(name: str) -> ScalarType:
    """The type of this name; raises where there is none."""
    if not isinstance(name, str) or name not in TYPES:
        raise PtxBuildError(unknown("type", name, TYPES))
    return TYPES[name]


def declared(name: str) -> str:
    """The type a register that holds `name` is declared with: 8-bit values lie in 16-bit registers."""
    # the one instruction that makes pairs of 4-bit floats wants a register of exactly their width
    scalar(name)
    return name if name in PREFIXES and name != "b8" else "b8" if name == "e2m1x2" else f"b{max(16, scalar(name).bits)}"


def bits_of(name: str) -> str:
    """Untyped bits as wide as `name`."""
    return name if name == "pred" else f"b{scalar(name).bits}"


def memory_type(name: str) -> str:
    """The type that a load or store of `name` names."""
    scalar(name)
    return name if name in _LOADED else bits_of(name)


def variable_type(name: str) -> str:
    """The type a parameter or variable that holds `name` is declared with."""
    scalar(name)
    return name if name in _LOADED or name == "f16" else bits_of(name)


def agrees(wanted: str, found: str, wider: bool = False) -> bool:
    """May a register of type `found` stand where an instruction wants `wanted`?

    As PTX has it, but two floats or two packed types of one width are not the same: f16 is not bf16.
    """
    want, have = scalar(wanted), scalar(found)
    if wanted == found:
        return True
    if "p" in (want.kind, have.kind):
        return False
    if have.bits != want.bits:
        integers = want.kind in "bus" and have.kind in "bus"
        return wider and have.bits > want.bits and integers
    return "b" in (want.kind, have.kind) or (want.kind in "us" and have.kind in "us")
