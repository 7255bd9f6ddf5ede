"""The PTX type of a register for values of a type, and the type in its loads and stores.

The builder checks a register's own type; PTX only needs its width and whether it is a float, as compilers declare them.
"""

from kernbench.common.errors import unknown
from kernbench.ptx.builder.values.errors import PtxBuildError
from kernbench.ptx.text.types import TYPES, ScalarType

__kernbench_internal__ = True

# declared type -> prefix of register names, in order of declaration
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
# types that PTX's loads and stores can name; others are accessed as bits
_LOADED = frozenset(("f32", "f64", *(f"{kind}{bits}" for kind in "bus" for bits in (8, 16, 32, 64))))


def scalar(name: str) -> ScalarType:
    """The type of this name; raises an error if there is none."""
    if not isinstance(name, str) or name not in TYPES:
        raise PtxBuildError(unknown("type", name, TYPES))
    return TYPES[name]


def declared(name: str) -> str:
    """The declared type of a register for `name`: 8-bit values are in 16-bit registers."""
    # cvt to pairs of 4-bit floats needs a register of exactly their width
    scalar(name)
    return name if name in PREFIXES and name != "b8" else "b8" if name == "e2m1x2" else f"b{max(16, scalar(name).bits)}"


def bits_of(name: str) -> str:
    """Untyped bits as wide as `name`."""
    return name if name == "pred" else f"b{scalar(name).bits}"


def memory_type(name: str) -> str:
    """The type in a load or store of `name`."""
    scalar(name)
    return name if name in _LOADED else bits_of(name)


def variable_type(name: str) -> str:
    """The declared type of a parameter or variable for `name`."""
    scalar(name)
    return name if name in _LOADED or name == "f16" else bits_of(name)


def agrees(wanted: str, found: str, wider: bool = False) -> bool:
    """Whether a register of type `found` is accepted for `wanted`.

    As in PTX, but two floats or two packed types of one width are not interchangeable: f16 is not bf16.
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
